"""Phase 11: keep one large wing from filling the answer.

What belongs here: the joint selection by similarity and wing saturation, made anew from the scores
before "mmr", and what it pushed out. What does not: the formula (`selection`), and getting small
wings into the pool in the first place (`quota`).

Its share of a memory's score is the joint score minus the plain MMR score: below 0 for a memory of
a crowded wing, above 0 for one that the crowd had held down. Candidates of one wing only have
nothing to balance: "mmr" has chosen among them already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from noctuary.recall.phases.base import (
    Candidates,
    Dropped,
    PhaseContext,
    PhaseOutcome,
)
from noctuary.recall.phases.mmr import (
    clamp_note,
    diversity_vectors,
    dropped_for_similarity,
    in_order,
    row_of,
)
from noctuary.recall.phases.selection import Selection, select, wing_codes
from noctuary.recall.phases.wording import quoted

NAME = "cross_wing_balancing"


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
        reason_of=_reason_of(before, wings, chosen, gamma),
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
        phase=NAME,
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


def _reason_of(
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
