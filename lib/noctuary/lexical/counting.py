"""Postings of a part of the corpus, not yet weighed: a task over record batches.

What belongs here: which terms stand in which of a batch's memories, and how often. What does not:
joining the parts and weighing them (`merging`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from noctuary.shards.task import BatchFunction, RecordBatch


@dataclass(frozen=True, slots=True)
class CountTerms:
    """Gives a row per distinct term of a batch for rows of `position` and `value`.

    In: `position` int32, ascending; `value` binary, as `encode_tokens`. Out: `term` string,
    `positions` and `frequencies` list<int32>, positions ascending, frequencies at least 1.
    """

    @property
    def name(self) -> str:
        """See `BatchTask`."""
        return "postings"

    @property
    def row_ms(self) -> float:
        """See `BatchTask`; some 25 tokens a row, split and numbered by Arrow."""
        return 0.005

    def open(self, threads: int) -> BatchFunction:
        """See `BatchTask`."""
        return _count


def _count(batch: RecordBatch) -> RecordBatch:
    import pyarrow as pa
    import pyarrow.compute

    pc: Any = pyarrow.compute
    # A memory without tokens would be split into one empty token.
    batch = batch.filter(pc.greater(pc.binary_length(batch.column("value")), 0))
    split = pc.split_pattern(batch.column("value").cast(pa.string()), "\n")
    numbered = pc.list_flatten(split).dictionary_encode()
    places = np.asarray(batch.column("position"), dtype=np.int64)
    rows = max(len(places), 1)
    pairs = np.asarray(numbered.indices, dtype=np.int64) * rows
    pairs += np.asarray(pc.list_parent_indices(split), dtype=np.int64)
    pairs, frequencies = np.unique(pairs, return_counts=True)
    held = np.bincount(pairs // rows, minlength=len(numbered.dictionary))
    ends = pa.array(np.concatenate(([0], np.cumsum(held))), pa.int32())
    lists = (
        pa.ListArray.from_arrays(ends, pa.array(values.astype(np.int32)))
        for values in (places[pairs % rows], frequencies)
    )
    return pa.RecordBatch.from_arrays(
        [numbered.dictionary, *lists], names=["term", "positions", "frequencies"]
    )
