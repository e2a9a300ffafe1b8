"""All relevant at k: whether the first k results are a complete answer.

What belongs here: this one metric.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from noctuary.evaluate.metrics.hits import hit_vector


def all_relevant_at_k(ranking: Sequence[str], relevant: Collection[str], k: int) -> float:
    """Return 1 if every relevant memory stands in the first k results, 0 otherwise.

    A question over several memories is answered by all of them or not at all: recall@k = 0.5 on a
    two-hop question is no half answer. With more than k relevant memories the value is always 0.

    Args:
        ranking: Ids, best first; duplicates earn nothing.
        relevant: Ids of the relevant memories; not empty.
        k: Cutoff in ranks, at least 1.

    Returns:
        0.0 or 1.0.

    Raises:
        ValueError: If `relevant` is empty or `k` is below 1.
    """
    found = np.count_nonzero(hit_vector(ranking, relevant, k))
    return 1.0 if found == len(set(relevant)) else 0.0
