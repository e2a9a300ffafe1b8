"""From a ranking and its labels to the binary vector that every metric reads.

What belongs here: the one rule about duplicates and the checks that all metrics share. No metric.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray


def hit_vector(ranking: Sequence[str], relevant: Collection[str], depth: int) -> NDArray[np.bool_]:
    """Mark the relevant ranks of the first `depth` results.

    A repeated id earns nothing the second time but keeps its rank: a list that repeats itself has
    wasted a slot that the reader had to look at, so a duplicate can lower a metric and never raise
    it.

    Args:
        ranking: Ids, best first.
        relevant: Ids of the relevant memories; not empty.
        depth: How many ranks count, at least 1.

    Returns:
        Shape (min(depth, len(ranking)),); True where the rank holds a relevant id for the first
        time.

    Raises:
        ValueError: If `relevant` is empty or `depth` is below 1.
    """
    if not relevant:
        raise ValueError(
            "no relevant id: a metric of a query without labels is undefined; "
            "score unanswerable queries apart (QuerySet.unanswerable)"
        )
    if depth < 1:
        raise ValueError(f"a cutoff counts ranks and starts at 1, got {depth}")
    wanted = set(relevant)
    hits = np.zeros(min(depth, len(ranking)), dtype=np.bool_)
    for rank, memory_id in enumerate(ranking[:depth]):
        if memory_id in wanted:
            hits[rank] = True
            wanted.discard(memory_id)
    return hits
