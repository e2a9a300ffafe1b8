"""A corpus of a few memories for supersession, by the project's own reader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from noctuary.core.types import MemoryRecord
from noctuary.graph.duplicates import Corpus
from noctuary.graph.extract import Extraction


def corpus_of(records: Sequence[MemoryRecord], extractions: Sequence[Extraction]) -> Corpus:
    """Return the corpus of memories in any order; the extractions are theirs, in the same order."""

    def outlines(*, stated_only: bool = False) -> Iterator[tuple[int, Extraction]]:
        for record, found in zip(records, extractions, strict=True):
            is_key = any(f.kind == "key" and f.role == "about" for f in found.found)
            if found.stated or is_key or not stated_only:
                yield record.position, found

    return Corpus.read(records, outlines)
