"""Phases that choose for diversity: no near-copies, no wing that fills the answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.recall.candidates import (
    Candidates,
    Dropped,
    PhaseContext,
    PhaseOutcome,
    PositionRef,
    Scores,
    unchanged,
)
from noctuary.recall.result import RecallWarning

# How reasons quote text that is not ours, and count. Strings only.


_BRACES = str.maketrans("{}", "()")


def quoted(text: str | None) -> str:
    """Return a name in quotes; its braces become parentheses, because {123} means a memory."""
    return "(none)" if text is None else f"'{text}'".translate(_BRACES)


def ordinal(number: int) -> str:
    """Return a rank as words have it: 1st, 2nd, 3rd, 11th, 37th."""
    teens = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


# Greedy selection by maximal marginal relevance, with wing saturation. Pure, over arrays.
#
# For a candidate d of relevance s(d), with S the memories selected so far,
#
#     value(d) = lambda s(d) - (1 - lambda) max cos(d, S) - gamma saturation(d, S)
#
# with max cos clipped to [0, 1] and both penalties 0 while S is empty. The largest value is
# selected next; equal values are selected in the order given. Relevance is the ranking key so far
# and not, as in the reference, the raw cosine to the query: there the choice ignored every phase
# before it.
#
# Sources: RFC 914 phase 11; research/mempalace.md sections 1 and 3 (phase 5; |S| = 0).


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


# Phase 5: trade relevance for diversity, so that near-copies do not fill the answer.
#
# Where wings are to be balanced (a `wing_diversity_weight` above 0, candidates of several wings)
# this phase orders and scores, and keeps everybody: choosing the first k is then the business of
# "cross_wing_balancing", which selects by both penalties at once.


MMR = "mmr"


def mmr(candidates: Candidates, context: PhaseContext) -> PhaseOutcome:
    """Order candidates by maximal marginal relevance; without wing balance, keep the first k.

    A candidate's score becomes lambda x its score - (1 - lambda) x its largest cosine to those
    selected before it, at least 0 and never above theirs.
    """
    if not candidates.size:
        return unchanged(candidates)
    profile = context.profile
    vectors, warnings = diversity_vectors(candidates, context)
    chosen = select(candidates.scores, context.k, profile.mmr_lambda, vectors=vectors)
    ordered = in_order(candidates, chosen)
    balance_follows = profile.wing_diversity_weight > 0 and _several_wings(candidates, context)
    kept = candidates.size if balance_follows else min(max(context.k, 0), candidates.size)
    dropped = tuple(
        dropped_for_similarity(candidates, chosen, row, context.k)
        for row in range(kept, candidates.size)
    )
    return PhaseOutcome(
        Candidates(
            ordered.positions[:kept],
            ordered.scores[:kept],
            ordered.expanded[:kept],
            candidates.scores[chosen.order] if balance_follows else None,
        ),
        reason_of=_diversity_reason_of(candidates, chosen, profile.mmr_lambda),
        dropped=dropped,
        notes={
            "applied": True,
            "lambda": profile.mmr_lambda,
            "candidates_before_mmr": candidates.size,
            "candidates_after_mmr": kept,
            "max_internal_similarity": chosen.max_internal_similarity,
        },
        warnings=(*warnings, *warnings_of_bound(context.k, candidates.size)),
    )


def diversity_vectors(
    candidates: Candidates, context: PhaseContext
) -> tuple[NDArray[np.float32] | None, tuple[RecallWarning, ...]]:
    """Return the candidates' vectors, None where they have no say, and a warning if missing."""
    if context.profile.mmr_lambda >= 1.0:
        return None, ()
    vectors = context.lookups.vectors_of(candidates.positions)
    if vectors is not None:
        return vectors, ()
    warning = RecallWarning(
        "mmr_without_vectors",
        "this snapshot has no vectors: near-copies are not told apart, only wings are balanced",
    )
    return None, (warning,)


def warnings_of_bound(k: int, size: int) -> tuple[RecallWarning, ...]:
    """Return a warning if more memories are asked for than are selected one by one."""
    if min(k, size) <= MOST_PICKS:
        return ()
    message = (
        f"only the first {MOST_PICKS} of {min(k, size)} memories were selected for diversity; "
        "the rest follows by its value given these"
    )
    return (RecallWarning("mmr_bounded", message),)


def in_order(candidates: Candidates, chosen: Selection) -> Candidates:
    """Return the candidates in the order and with the scores of a selection from them."""
    return Candidates(
        candidates.positions[chosen.order], chosen.scores, candidates.expanded[chosen.order]
    )


def dropped_for_similarity(candidates: Candidates, chosen: Selection, row: int, k: int) -> Dropped:
    """Say why the candidate at a row of a selection is not among the first k.

    Args:
        candidates: What was selected from, by relevance; a score is what it is dropped with.
        chosen: The selection.
        row: The candidate's place in it.
        k: How many were asked for.
    """
    place = int(chosen.order[row])
    reason, facts = f"ranked {ordinal(row + 1)}, {k} asked", {}
    if place < k and int(chosen.nearest[row]) >= 0:
        nearest = int(candidates.positions[chosen.nearest[row]])
        similarity = float(chosen.similarity[row])
        reason = f"similar ({similarity:.2f}) to {{{nearest}}}, which was selected before it"
        facts = {"similarity": similarity, "similar_to": PositionRef(nearest)}
    return Dropped(
        phase=MMR,
        position=int(candidates.positions[place]),
        reason=reason,
        score=float(candidates.scores[place]),
        facts={**facts, "penalized_score": float(chosen.scores[row])},
    )


def row_of(positions: NDArray[np.int64], position: int) -> int:
    """Return where a position is among the positions."""
    return int(np.flatnonzero(positions == position)[0])


def _several_wings(candidates: Candidates, context: PhaseContext) -> bool:
    return len(set(context.lookups.wings_of(candidates.positions))) > 1


def _diversity_reason_of(
    candidates: Candidates, chosen: Selection, mmr_lambda: float
) -> Callable[[int], str]:
    positions, relevance = candidates.positions[chosen.order], candidates.scores[chosen.order]

    def reason_of(position: int) -> str:
        row = row_of(positions, position)
        share = f"{mmr_lambda:g} x relevance {relevance[row]:.2f}"
        nearest = int(chosen.nearest[row])
        if nearest >= 0:
            place = int(candidates.positions[nearest])
            weight = 1.0 - mmr_lambda
            share += f" - {weight:g} x similarity {chosen.similarity[row]:.2f} to {{{place}}}"
        return share + clamp_note(chosen.values[row], chosen.scores[row])

    return reason_of


def clamp_note(value: float, score: float) -> str:
    """Say what else shaped a score that is not the value: the floor, or who came before."""
    if score > value:
        return ", at least 0"
    return ", not above what was selected before" if score < value else ""


# Phase 11: keep one large wing from filling the answer.
#
# Its share of a memory's score is the joint score minus the plain MMR score: below 0 for a memory
# of a crowded wing, above 0 for one that the crowd had held down. Candidates of one wing only have
# nothing to balance: "mmr" has chosen among them already.


CROSS_WING = "cross_wing_balancing"


def cross_wing_balancing(candidates: Candidates, context: PhaseContext) -> PhaseOutcome:
    """Select k memories by relevance, similarity and wing saturation at once.

    Takes what "mmr" left for it: candidates with their `relevance`. Without it (that phase did not
    run, or found nothing to balance) nothing is changed.
    """
    if candidates.relevance is None:
        return PhaseOutcome(candidates, notes={"applied": False})
    by_relevance = np.argsort(-candidates.relevance, kind="stable")
    before = candidates.at(by_relevance)._replace(scores=candidates.relevance[by_relevance])
    wings = context.lookups.wings_of(before.positions)
    vectors, _ = diversity_vectors(before, context)
    gamma = context.profile.wing_diversity_weight
    chosen = select(
        before.scores,
        context.k,
        context.profile.mmr_lambda,
        vectors=vectors,
        codes=wing_codes(wings),
        gamma=gamma,
    )
    return _outcome(candidates, before, wings, chosen, context.k, gamma)


def _outcome(
    plain: Candidates,
    before: Candidates,
    wings: Sequence[str | None],
    chosen: Selection,
    k: int,
    gamma: float,
) -> PhaseOutcome:
    """Describe a joint selection.

    Args:
        plain: The candidates as "mmr" left them.
        before: The same as "mmr" got them, what was selected from.
        wings: Aligned with `before`.
        chosen: The selection.
        k: How many were asked for.
        gamma: Weight of the saturation.
    """
    kept = min(max(k, 0), plain.size)
    return PhaseOutcome(
        in_order(before, chosen).keep(np.arange(plain.size) < kept),
        reason_of=_wing_reason_of(before, wings, chosen, gamma),
        dropped=_dropped(plain, before, wings, chosen, k),
        notes={
            "applied": True,
            "gamma": gamma,
            "candidates_before": plain.size,
            "candidates_after": kept,
            "max_internal_similarity": chosen.max_internal_similarity,
            "wing_saturation": chosen.saturation[:kept].tolist(),
            "wing_shares": {
                wing or "": held / kept
                for wing, held in _held_by_wing(wings, chosen.order[:kept]).items()
            },
        },
    )


def _dropped(
    plain: Candidates,
    before: Candidates,
    wings: Sequence[str | None],
    chosen: Selection,
    k: int,
) -> tuple[Dropped, ...]:
    """Say for everybody beyond the first k which phase pushed it out, if it had been inside."""
    kept = min(max(k, 0), plain.size)
    held = _held_by_wing(wings, chosen.order[: chosen.picked])
    score_of = dict(zip(plain.positions.tolist(), plain.scores.tolist(), strict=True))
    in_plain_mmr = set(plain.positions[:kept].tolist())
    dropped: list[Dropped] = []
    for row in range(kept, plain.size):
        place = int(chosen.order[row])
        position = int(before.positions[place])
        if chosen.saturation[row] > 0 and position in in_plain_mmr:
            wing = wings[place]
            why = _saturated(chosen, row, position, wing, held[wing])
        else:
            why = dropped_for_similarity(before, chosen, row, k)
        dropped.append(why._replace(score=score_of[position]))
    return tuple(dropped)


def _saturated(chosen: Selection, row: int, position: int, wing: str | None, held: int) -> Dropped:
    mmr_score = float(chosen.mmr_values[row])
    return Dropped(
        phase=CROSS_WING,
        position=position,
        reason=f"wing {quoted(wing)} already saturated ({held}/{chosen.picked} selected results)",
        score=mmr_score,
        facts={
            "wing_saturation": float(chosen.saturation[row]),
            "original_mmr_score": mmr_score,
            "penalized_score": float(chosen.values[row]),
        },
    )


def _held_by_wing(wings: Sequence[str | None], places: NDArray[np.int64]) -> dict[str | None, int]:
    held: dict[str | None, int] = {}
    for place in places:
        wing = wings[int(place)]
        held[wing] = held.get(wing, 0) + 1
    return held


def _wing_reason_of(
    before: Candidates, wings: Sequence[str | None], chosen: Selection, gamma: float
) -> Callable[[int], str]:
    positions = before.positions[chosen.order]

    def reason_of(position: int) -> str:
        row = row_of(positions, position)
        wing = quoted(wings[int(chosen.order[row])])
        saturation = float(chosen.saturation[row])
        share = f"wing {wing} holds {saturation:.0%} of those selected before it"
        return f"{share}: -{gamma * saturation:.2f}" + clamp_note(
            chosen.values[row], chosen.scores[row]
        )

    return reason_of
