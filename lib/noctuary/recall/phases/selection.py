"""Greedy selection by maximal marginal relevance, with wing saturation. Pure, over arrays.

What belongs here: the formulas of phases 5 and 11 and the order that follows from them. What does
not: profiles, reasons, where vectors come from (`mmr`, `cross_wing`).

For a candidate d of relevance s(d), with S the memories selected so far,

    value(d) = lambda s(d) - (1 - lambda) max cos(d, S) - gamma saturation(d, S)

with max cos clipped to [0, 1] and both penalties 0 while S is empty. The largest value is selected
next; equal values are selected in the order given. Relevance is the ranking key so far and not, as
in the reference, the raw cosine to the query: there the choice ignored every phase before it.

Sources: RFC 914 phase 11; research/mempalace.md sections 1 and 3 (phase 5; |S| = 0).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.recall.phases.base import Scores

MOST_PICKS = 256
"""Memories that are selected one by one; those after them are ordered by their value given these.
More keeps longer lists diverse to their end, fewer bounds the time of a very long one."""

_NOBODY = -1


class Selection(NamedTuple):
    """Candidates in the order of their selection; every array has length m and that order.

    Attributes:
        order: int64, places among what was given.
        picked: How many were selected one by one; the rest follows by value.
        scores: In [0, 1], never rising: max(0, value), and never above what was selected before,
            so that the order by score is this order.
        similarity: Largest cosine to what was selected before, clipped to [0, 1].
        nearest: Place (among what was given) of that memory; -1 for none.
        saturation: In [0, 1], share of the candidate's wing in what was selected before.
        mmr_values: The value without its saturation term, in [-1, 1].
        values: The value, in [-1 - gamma, 1].
    """

    order: NDArray[np.int64]
    picked: int
    scores: Scores
    similarity: Scores
    nearest: NDArray[np.int64]
    saturation: Scores
    mmr_values: Scores
    values: Scores

    @property
    def max_internal_similarity(self) -> float:
        """Largest cosine between two of the selected, clipped to [0, 1]; 0 for fewer than two."""
        return float(self.similarity[: self.picked].max(initial=0.0))


def wing_codes(wings: Sequence[str | None]) -> NDArray[np.int64]:
    """Return one number per wing, from 0 on in order of appearance, shape (m,).

    Memories without a wing are one wing of their own: they crowd others out as any wing does.
    """
    numbers: dict[str | None, int] = {}
    return np.array([numbers.setdefault(w, len(numbers)) for w in wings], dtype=np.int64)


def wing_saturation(codes: NDArray[np.int64], counts: NDArray[np.int64]) -> Scores:
    """Return count(wing of d in S) / |S| per candidate, in [0, 1]; 0 while S is empty.

    Args:
        codes: Wing of every candidate, shape (m,).
        counts: Selected memories per wing, shape (wings,).
    """
    selected = int(counts.sum())
    if selected == 0:
        return np.zeros(codes.size, dtype=np.float64)
    return counts[codes] / selected


def mmr_score(relevance: Scores, similarity: Scores, mmr_lambda: float) -> Scores:
    """Return lambda x relevance - (1 - lambda) x similarity, in [-1, 1].

    Args:
        relevance: In [0, 1], shape (m,).
        similarity: Largest cosine to what is selected, in [0, 1], shape (m,).
        mmr_lambda: In [0, 1].
    """
    return mmr_lambda * relevance - (1.0 - mmr_lambda) * similarity


def penalized(mmr_scores: Scores, saturation: Scores, gamma: float) -> Scores:
    """Return mmr_score - gamma x saturation (RFC 914 phase 11: 0.71 - 0.3 x 0.80 = 0.47).

    Args:
        mmr_scores: In [-1, 1], shape (m,).
        saturation: In [0, 1], shape (m,).
        gamma: >= 0.
    """
    return mmr_scores - gamma * saturation


def select(
    relevance: Scores,
    k: int,
    mmr_lambda: float,
    *,
    vectors: NDArray[np.float32] | None = None,
    codes: NDArray[np.int64] | None = None,
    gamma: float = 0.0,
) -> Selection:
    """Order candidates by maximal marginal relevance; O(k m d) time and O(m) memory.

    Args:
        relevance: In [0, 1], shape (m,).
        k: How many to select one by one, at most `MOST_PICKS`; the others come after them, by
            their value given all that were selected.
        mmr_lambda: Share of relevance, in [0, 1]; 1 with gamma 0 keeps the order and scores.
        vectors: Unit rows, shape (m, d); None counts every similarity as 0. A row of zeros is
            similar to nobody.
        codes: From `wing_codes`, shape (m,); None leaves saturation at 0.
        gamma: Weight of saturation, >= 0.
    """
    state = _Selecting(relevance, mmr_lambda, vectors, codes, gamma)
    for _ in range(min(k, relevance.size, MOST_PICKS)):
        state.pick_best()
    return state.finish()


class _Selecting:
    """The candidates while some are selected and the others wait."""

    def __init__(
        self,
        relevance: Scores,
        mmr_lambda: float,
        vectors: NDArray[np.float32] | None,
        codes: NDArray[np.int64] | None,
        gamma: float,
    ) -> None:
        size = relevance.size
        self.relevance, self.mmr_lambda = relevance, mmr_lambda
        self.vectors, self.codes, self.gamma = vectors, codes, gamma
        self.counts = np.zeros(0 if codes is None else int(codes.max(initial=-1)) + 1, np.int64)
        self.waiting = np.ones(size, dtype=np.bool_)
        self.picked: list[int] = []
        # A row of each is final from the moment that its candidate is selected.
        self.similarity = np.zeros(size, dtype=np.float64)
        self.nearest = np.full(size, _NOBODY, dtype=np.int64)
        self.saturation = np.zeros(size, dtype=np.float64)

    def values(self) -> tuple[Scores, Scores]:
        """Return the values without and with saturation, as things stand."""
        plain = mmr_score(self.relevance, self.similarity, self.mmr_lambda)
        return plain, penalized(plain, self.saturation, self.gamma)

    def pick_best(self) -> None:
        """Select the waiting candidate of the largest value, the first of equals."""
        _, values = self.values()
        best = int(np.argmax(np.where(self.waiting, values, -np.inf)))
        self.waiting[best] = False
        self.picked.append(best)
        self._note_similarity(best)
        if self.codes is not None:
            self.counts[self.codes[best]] += 1
            now = wing_saturation(self.codes, self.counts)
            self.saturation = np.where(self.waiting, now, self.saturation)

    def _note_similarity(self, best: int) -> None:
        if self.vectors is None:
            return
        # Not BLAS, whose last bit depends on where in the matrix a row stands: "mmr" and
        # "cross_wing_balancing" must agree on every cosine.
        cosines = np.einsum("md,d->m", self.vectors, self.vectors[best]).astype(np.float64)
        cosines = np.nan_to_num(cosines)
        closer = self.waiting & (cosines > self.similarity)
        self.similarity[closer] = np.minimum(cosines[closer], 1.0)
        self.nearest[closer] = best

    def finish(self) -> Selection:
        """Return the selection, those that still wait ordered by their value."""
        plain, values = self.values()
        rest = np.flatnonzero(self.waiting)
        rest = rest[np.argsort(-values[rest], kind="stable")]
        order = np.concatenate([np.array(self.picked, dtype=np.int64), rest])
        scores = np.minimum.accumulate(np.clip(values[order], 0.0, 1.0))
        return Selection(
            order=order,
            picked=len(self.picked),
            scores=scores,
            similarity=self.similarity[order],
            nearest=self.nearest[order],
            saturation=self.saturation[order],
            mmr_values=plain[order],
            values=values[order],
        )
