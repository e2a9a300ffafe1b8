"""Named entities of a spaCy pipeline, where spaCy and the pipeline are installed.

What belongs here: loading, and entities to findings. What does not: judging them (verify). spaCy
is imported when texts are looked at, never before.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noctuary.errors import ConfigError
from noctuary.graph.extraction import Extraction, Found
from noctuary.graph.fold import fold_name
from noctuary.graph.plugins.base import Cache, Findings, PluginInput
from noctuary.hashing import hash_file, hash_text
from noctuary.progress import Progress

ADAPTER_VERSION = "1"
"""Raised whenever the same entities may give other findings."""

LEFT_OUT_LABELS = frozenset({"CARDINAL", "DATE", "MONEY", "ORDINAL", "PERCENT", "QUANTITY", "TIME"})
"""Labels of quantities and dates: no concepts, or found by the rules in a fixed form."""

MAX_CHARS = 100_000
"""Longer texts are not looked at: a statistical pipeline takes about 1 GB per 100,000 characters
(spaCy's own bound is ten times that)."""

BATCH_TEXTS = 64
"""Texts per durable step: a kill loses one batch; more save commits."""

TASK = "graph: spacy"


@dataclass(frozen=True, slots=True)
class SpacyExtractor:
    """Entities of one pipeline.

    Attributes:
        pipeline: Name of an installed pipeline package ("en_core_web_sm"), or a directory.
        fingerprint: spaCy's version, the pipeline's, and the adapter's.
    """

    pipeline: str
    fingerprint: str

    @staticmethod
    def open(pipeline: str) -> SpacyExtractor:
        """Look a pipeline up without loading it.

        Raises:
            ConfigError: If spaCy or the pipeline is not installed.
        """
        library = _version("spacy")
        if library is None:
            raise ConfigError(
                'graph.extractor is "spacy", and spaCy is not installed: install the package '
                'spacy, or set graph.extractor to "rules"'
            )
        directory = Path(pipeline)
        version = _hash_directory(directory) if directory.is_dir() else _version(pipeline)
        if not pipeline or version is None:
            raise ConfigError(
                f"graph.spacy_pipeline is {pipeline!r}, and no such pipeline is installed: "
                "install it, for example with `python -m spacy download en_core_web_sm`, or name "
                "the directory of one"
            )
        return SpacyExtractor(pipeline, f"spacy:{ADAPTER_VERSION}:{library}:{pipeline}:{version}")

    @property
    def name(self) -> str:
        """Return "spacy"."""
        return "spacy"

    def cache_key(self, content: str) -> str:
        """Return what a text's entities are kept under: the fingerprint and the text."""
        return hash_text("entities", self.fingerprint, content)

    def extract_many(
        self, memories: Sequence[PluginInput], cache: Cache, progress: Progress
    ) -> Findings:
        """Return the entities of every text; see `Extractor`.

        The pipeline is only loaded where a text is new. Texts never leave the process.

        Raises:
            ConfigError: If the pipeline cannot be loaded.
        """
        shown = [memory for memory in memories if len(memory.content) <= MAX_CHARS]
        texts = {self.cache_key(memory.content): memory.content for memory in shown}
        known = dict(cache.get_many(texts))
        new = sorted(key for key in texts if key not in known)
        for start in range(0, len(new), BATCH_TEXTS):
            keys = new[start : start + BATCH_TEXTS]
            fresh = self._entities({key: texts[key] for key in keys})
            cache.put_many(fresh)
            known.update(fresh)
            progress.update(TASK, start + len(keys), len(new))
        counts: Counter[str] = Counter(left_out_long=len(memories) - len(shown))
        findings = {
            memory.key: Extraction(tuple(_found(memory, known[self.cache_key(memory.content)])))
            for memory in shown
        }
        return Findings(findings, dict(counts), {"computed": len(new)})

    def _entities(self, texts: Mapping[str, str]) -> dict[str, bytes]:
        documents = _load(self.pipeline).pipe(list(texts.values()))
        return {
            key: json.dumps(
                [[e.start_char, e.end_char] for e in doc.ents if e.label_ not in LEFT_OUT_LABELS]
            ).encode("ascii")
            for key, doc in zip(texts, documents, strict=True)
        }


@functools.cache
def _load(pipeline: str) -> Any:
    """Return a pipeline, loaded once per process: that takes seconds."""
    try:
        return importlib.import_module("spacy").load(pipeline)
    except (OSError, ImportError, ValueError) as error:
        raise ConfigError(
            f"graph.spacy_pipeline {pipeline!r} cannot be loaded ({type(error).__name__}): "
            "install a pipeline that fits the installed spaCy (`python -m spacy validate`)"
        ) from error


def _found(memory: PluginInput, raw: bytes) -> Iterator[Found]:
    for start, end in json.loads(raw):
        surface = memory.content[start:end]
        yield Found("mentions", "name", fold_name(surface), start, end, surface)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return None


def _hash_directory(directory: Path) -> str:
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    return hash_text(
        *(f"{path.relative_to(directory).as_posix()}={hash_file(path)}" for path in files)
    )
