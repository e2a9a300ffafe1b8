"""How near a summary's turns are to a query: the mean of the nearest two.

What belongs here: turn vectors to one score per summary. What does not: the summary's own vector
(`summary_legs`), which summaries are searched (`searched`).

One vector for a text of twenty turns is near to what the turns have in common and to nothing that
one of them says. The turns' own vectors are in the pack anyway, because turns are never dropped;
comparing the query with them is late interaction (Khattab and Zaharia 2020) with turns in the
place of tokens. docs/decisions/0045 has the numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from noctuary.lexical.search import top_positions
from noctuary.snapshot.summary_arrays import SummaryArrays
from noctuary.vectors.cascade import cosines_at

SHORTLIST_FACTOR = 4
"""Summaries whose turns are read, as a multiple of the depth, where the turns have not all been
scored; more reads more rows, fewer loses summaries whose own vector says little."""

Shown = NDArray[np.bool_]


def mean_of_best_two(values: NDArray[np.float32], sizes: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return, per group, the mean of its two largest values; of one value, that value.

    Args:
        values: The groups' values one after the other, shape (sum of sizes,).
        sizes: Values per group, each at least 1, shape (g,).
    """
    if not sizes.size:
        return np.zeros(0, dtype=np.float32)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    ordered = values[np.lexsort((-values, np.repeat(np.arange(sizes.size), sizes)))]
    best, second = ordered[starts], ordered[np.minimum(starts + 1, ends - 1)]
    return np.asarray((best + second) / 2.0, dtype=np.float32)


def score_all(arrays: SummaryArrays, cosines: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the score of every summary, shape (s,), where every memory has been scored.

    Args:
        arrays: Which memories each summary stands for.
        cosines: Of every memory to the query, shape (n,).
    """
    return mean_of_best_two(cosines[arrays.sources], np.diff(arrays.indptr).astype(np.int64))


def score_shortlist(
    arrays: SummaryArrays,
    vectors: NDArray[np.float32],
    query_vector: NDArray[np.float32],
    own: NDArray[np.float32],
    shown: Shown,
    depth: int,
) -> NDArray[np.float32]:
    """Return scores, shape (s,): by their turns for the best by their own vectors, 0 for others.

    Args:
        arrays: As above.
        vectors: Of every memory, unit rows; only those of the shortlist's turns are read.
        query_vector: Unit vector, shape (d,).
        own: Cosines of the summaries' own vectors, shape (s,).
        shown: Which summaries are searched, shape (s,).
        depth: Most summaries that will be ranked.
    """
    found = np.sort(top_positions(own, SHORTLIST_FACTOR * depth, shown))
    scores = np.zeros(own.size, dtype=np.float32)
    if found.size:
        sources = [arrays.sources_of(int(i)) for i in found]
        cosines = cosines_at(vectors, np.concatenate(sources).astype(np.int64), query_vector)
        sizes = np.array([len(s) for s in sources], dtype=np.int64)
        scores[found] = mean_of_best_two(cosines, sizes)
    return scores
