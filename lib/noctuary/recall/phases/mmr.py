"""Phase 5: trade relevance for diversity, so that near-copies do not fill the answer.

What belongs here: the phase over `selection.select`, and why a memory did not make the first k.
What does not: the formula (`selection`), wings (`cross_wing`).

Where wings are to be balanced (a `wing_diversity_weight` above 0, candidates of several wings) this
phase orders and scores, and keeps everybody: choosing the first k is then the business of
"cross_wing_balancing", which selects by both penalties at once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from noctuary.recall.phases.base import (
    Candidates,
    Dropped,
    PhaseContext,
    PhaseOutcome,
    PositionRef,
    unchanged,
)
from noctuary.recall.phases.selection import MOST_PICKS, Selection, select
from noctuary.recall.phases.wording import ordinal
from noctuary.recall.result import RecallWarning

NAME = "mmr"


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
        reason_of=_reason_of(candidates, chosen, profile.mmr_lambda),
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
        phase=NAME,
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


def _reason_of(
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
