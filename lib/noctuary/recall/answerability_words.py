"""How much of what a query asks its memories hold: coverage by the words' weights.

What belongs here: the words of a query against the postings of a snapshot, as far as one scope may
see them. What does not: closeness in meaning, who says it, the score (`answerability_score`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.recall.reader import SnapshotReader
from noctuary.recall.scope import Mask

Floats = NDArray[np.float64]


class QueryWords(NamedTuple):
    """Words of a query; t of them stand in some visible memory.

    Attributes:
        holders: By word, the visible memories that hold it: int32, ascending, at least one.
        weights: (t,) idf of each, > 0.
        total: The idf of all words that were asked, those that nothing holds as well; >= 0.
    """

    holders: tuple[NDArray[np.int32], ...]
    weights: tuple[float, ...]
    total: float

    def coverage_at(self, positions: NDArray[np.int64]) -> Floats:
        """Return the share of the query that each memory holds, in [0, 1], shape of `positions`.

        The share is of idf, so that a rare word counts for more; 0 for a query without words.
        """
        held = np.zeros(positions.size)
        for holders, weight in zip(self.holders, self.weights, strict=True):
            places = np.minimum(np.searchsorted(holders, positions), holders.size - 1)
            held += weight * (holders[places] == positions)
        return self._share(held)

    def coverage(self, count: int) -> Floats:
        """Return the same for all memories at once, shape (count,); 0 for what is not visible."""
        held = np.zeros(count)
        for holders, weight in zip(self.holders, self.weights, strict=True):
            held[holders] += weight
        return self._share(held)

    def _share(self, held: Floats) -> Floats:
        return np.minimum(held / self.total, 1.0) if self.total > 0.0 else held


def read_words(reader: SnapshotReader, terms: Collection[str], mask: Mask | None) -> QueryWords:
    """Read the words of a query, counting only memories that may be seen.

    The weight is BM25's idf, log(1 + (n - df + 0.5) / (df + 0.5)), over the n visible memories:
    what others wrote changes nothing.

    Args:
        reader: The snapshot.
        terms: Tokens as `noctuary.text.tokens.tokenize` makes them; repeats count once.
        mask: What may be seen, shape (n,); None for everything.
    """
    asked = sorted(set(terms))
    visible = reader.count if mask is None else int(np.count_nonzero(mask))
    holders: list[NDArray[np.int32]] = []
    for start, stop in reader.look_up_terms(asked):
        positions = reader.posting_positions[start:stop]
        seen = positions if mask is None else positions[mask[positions]]
        # A word that only hidden memories hold is added up as an unknown one, to the last digit.
        if seen.size:
            holders.append(seen)
    weights = tuple(_idf(found.size, visible) for found in holders)
    unknown = len(asked) - len(holders)
    return QueryWords(tuple(holders), weights, sum(weights) + unknown * _idf(0, visible))


def _idf(df: int, count: int) -> float:
    return float(np.log1p((count - df + 0.5) / (df + 0.5)))
