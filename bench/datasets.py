"""The labelled sets: where they are, what they hold, the baseline that their own README states.

Nothing of a set is ever copied into the repository.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noctuary.core.errors import SourceFormatError, SourceMissingError

CHECKOUT = Path(__file__).resolve().parents[1]

BASELINE_METRICS = ("recall@5", "recall@10", "ndcg@10", "mrr@100")
"""Metrics of a README's baseline table that we also compute, in the order of its columns."""

_BASELINE_ROW = re.compile(
    r"^\| (?P<search>[^|]+?) \| (?P<stratum>[^|]+?) \| (?P<n>\d+) "
    r"\| (?P<values>[\d.]+ \| [\d.]+ \| [\d.]+ \| [\d.]+) \|"
)


@dataclass(frozen=True, slots=True)
class Dataset:
    """One set in its folder.

    Attributes:
        name: The folder's name.
        directory: The folder, with corpus.jsonl.gz, queries.jsonl and README.md.
    """

    name: str
    directory: Path

    @property
    def corpus(self) -> Path:
        """One memory a line, gzipped."""
        return self.directory / "corpus.jsonl.gz"

    @property
    def queries(self) -> Path:
        """One labelled query a line."""
        return self.directory / "queries.jsonl"


def find_shared(environ: Mapping[str, str] | None = None) -> Path | None:
    """Return the folder of shared material (NOCTUARY_SHARED or beside the checkout), if there."""
    env = os.environ if environ is None else environ
    configured = env.get("NOCTUARY_SHARED", "").strip()
    path = Path(configured) if configured else CHECKOUT.parent / "shared"
    return path if (path / "data").is_dir() else None


def open_dataset(directory: Path) -> Dataset:
    """Return the set of a folder.

    Raises:
        SourceMissingError: If the folder lacks a corpus or queries.
    """
    found = Dataset(directory.absolute().name, directory)
    missing = [path.name for path in (found.corpus, found.queries) if not path.is_file()]
    if missing:
        raise SourceMissingError(
            f"{directory} is not a labelled set: it lacks {' and '.join(missing)}"
        )
    return found


def read_corpus(dataset: Dataset) -> list[dict[str, Any]]:
    """Return the rows of a set's corpus, in file order.

    Raises:
        SourceFormatError: If the archive is cut short or a line is not an object.
    """
    rows: list[dict[str, Any]] = []
    try:
        with gzip.open(dataset.corpus, "rt", encoding="utf-8", newline="\n") as handle:
            rows.extend(json.loads(line) for line in handle if line.strip())
    except (EOFError, OSError, ValueError) as error:
        raise SourceFormatError(
            f"{dataset.corpus} cannot be read after {len(rows)} rows: {error}"
        ) from error
    return rows


def read_baseline(dataset: Dataset, search: str) -> dict[str, dict[str, float]]:
    """Return the FTS5 figures that a set's README states.

    Args:
        dataset: The set.
        search: First column of the README's table, for example "all wings".

    Returns:
        Per stratum ("ALL" is overall): `n` and `BASELINE_METRICS`; empty where the README has no
        such table.
    """
    readme = dataset.directory / "README.md"
    if not readme.is_file():
        return {}
    table: dict[str, dict[str, float]] = {}
    for line in readme.read_text(encoding="utf-8").splitlines():
        found = _BASELINE_ROW.match(line)
        if found and found["search"] == search:
            values = [float(value) for value in found["values"].split(" | ")]
            row = dict(zip(BASELINE_METRICS, values, strict=True))
            table[found["stratum"]] = {"n": float(found["n"]), **row}
    return table
