"""A corpus of a few memories for supersession, by the project's own reader."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from noctuary.core.types import MemoryRecord
from noctuary.graph.duplicates import Corpus
from noctuary.graph.extract import Extraction
from noctuary.graph.successors import NO_SUCCESSOR, SupersessionIndex


def corpus_of(records: Sequence[MemoryRecord], extractions: Sequence[Extraction]) -> Corpus:
    """Return the corpus of memories in any order; the extractions are theirs, in the same order."""

    def outlines(*, stated_only: bool = False) -> Iterator[tuple[int, Extraction]]:
        for record, found in zip(records, extractions, strict=True):
            is_key = any(f.kind == "key" and f.role == "about" for f in found.found)
            if found.stated or is_key or not stated_only:
                yield record.position, found

    return Corpus.read(records, outlines)


def heads_of(
    index: SupersessionIndex,
    positions: NDArray[np.int64],
    as_of_us: int | None = None,
    **rules: object,
) -> NDArray[np.int64]:
    """Return the memory that stands for each one now, step by step."""
    heads = positions.copy()
    while True:
        found = index.successors(heads, as_of_us, **rules)  # pyright: ignore[reportArgumentType]
        moves = found != NO_SUCCESSOR
        if not moves.any():
            return heads
        heads[moves] = found[moves]
