"""Loading a set before any work is done on it: a fault is reported with its line, others go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.datasets import Dataset, open_dataset
from noctuary.core.errors import NoctuaryError
from noctuary.core.files import hash_file
from noctuary.evaluate.labels import ADVERSARIAL_FILE, Query, load_labelled_set, read_corpus_rows


@dataclass(frozen=True, slots=True)
class LoadedSet:
    """A set, read and checked.

    Attributes:
        dataset: Its folder.
        rows: Its corpus, in file order.
        queries: Labelled queries, in file order.
        unanswerable: Queries that the corpus does not answer; empty for most sets.
    """

    dataset: Dataset
    rows: list[dict[str, Any]]
    queries: tuple[Query, ...]
    unanswerable: tuple[Query, ...]

    @property
    def name(self) -> str:
        """The set's name."""
        return self.dataset.name

    @property
    def has_wings(self) -> bool:
        """Whether every query names the wing that it asks."""
        return all(query.wing is not None for query in self.queries)

    def queries_digest(self) -> str:
        """SHA-256 over the query files: labels or texts that change make every run stale."""
        extra = self.dataset.directory / ADVERSARIAL_FILE
        own = hash_file(self.dataset.queries)
        return f"{own}+{hash_file(extra)}" if extra.is_file() else own


def load_set(directory: Path) -> LoadedSet:
    """Read a set and check that every label is an id of its corpus.

    Raises:
        SourceMissingError: If the folder lacks a corpus or queries.
        CorpusFileError: If lines of the corpus are no memories.
        QueryFileError: If queries have faults. Messages list the first ten with their lines.
    """
    dataset = open_dataset(directory)
    found = load_labelled_set(directory)
    rows = list(read_corpus_rows(directory))
    return LoadedSet(dataset, rows, found.queries.ranked, found.unanswerable)


def load_all(directories: Sequence[Path]) -> tuple[list[LoadedSet], dict[str, str]]:
    """Load every set that can be loaded; the second part says why the others cannot."""
    loaded: list[LoadedSet] = []
    faults: dict[str, str] = {}
    for directory in directories:
        try:
            loaded.append(load_set(directory))
        except (NoctuaryError, OSError) as error:
            faults[directory.name] = str(error)
    return loaded, faults
