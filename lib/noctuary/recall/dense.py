"""The dense leg: which engine answers, by the size of the store.

What belongs here: the choice between the exact matrix and the funnel over the short tier. What does
not: the funnel itself (noctuary.vectors.cascade), fusion, encoding the query.

The pack carries a short tier from `noctuary.vectors.cascade.FUNNEL_MIN_ROWS` memories on; where it
is there, it is used. Source: docs/decisions/0026.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from noctuary.lexical.search import top_positions
from noctuary.recall.legs import Leg
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.scope import Mask
from noctuary.vectors.cascade import cosines_at, search


def rank_dense(
    reader: SnapshotReader,
    query_vector: NDArray[np.float32],
    mask: Mask | None,
    depth: int,
    *,
    early_exit: bool = False,
) -> Leg:
    """Rank the allowed memories by cosine to the query and return the best of them.

    Without a tier every memory is scored and the leg has `all_scores`. With one the ranking is
    that of the funnel, and `scores_at` reads the rows that it is asked for: exact cosines also for
    memories that the funnel did not find.

    Args:
        reader: The snapshot.
        query_vector: Unit vector, shape (d,).
        mask: Which memories may be returned, shape (n,); None for all.
        depth: Most memories to rank.
        early_exit: Let the tier answer alone where the threshold derived for it is reached: its
            ranking is then the prefixes'. Saves reading the shortlist from a cold disk; off, the
            ranking is always by exact cosines.

    Raises:
        ValueError: If the query vector's dimension is not the snapshot's.
    """
    vectors, tier = reader.vectors, reader.tier
    if vectors is None:
        return Leg.empty()
    if tier is None:
        scores: NDArray[np.float32] = np.asarray(vectors @ query_vector, dtype=np.float32)
        return Leg.of_scores(scores, top_positions(scores, depth, mask))
    exit_at = reader.tier_exits.get(tier.vectors.shape[1]) if early_exit else None
    found = search(tier, vectors, query_vector, depth, mask, exit_at=exit_at)
    return Leg(
        found.positions,
        lambda positions: cosines_at(vectors, positions, query_vector).astype(float),
    )
