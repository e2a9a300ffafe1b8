"""Phase 9: an accepted summary stands for the turns that it was made of.

What belongs here: replacing turns by their summary in one answer. What does not: making summaries
and judging them (the night's), and whether a recall may see one (`Lookups.summaries_of`).

A summary takes the place of its turns if at least `LEAST_SOURCES` of them are candidates: one turn
that is on point says more than a text about its whole stretch. The reference hides the turns and
appends the summary at the end with a fixed 0.5; here it has the score of its best turn times the
quality of the summary. Without `include_consolidated_summaries` nothing could stand for hidden
turns, so nothing is hidden: they only name their summary. Nothing is ever out of reach: a summary
expands to its turns.

Sources: research/mempalace.md section 1, phase 9; libravdb section 1 (quality).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.recall.phases.base import (
    Candidates,
    Dropped,
    PhaseContext,
    PhaseOutcome,
    PositionRef,
    SummaryView,
    unchanged,
)

LEAST_SOURCES = 2
"""Turns of a summary among the candidates from which it replaces them; more keeps more single
turns, 1 would replace every turn that has a summary."""


class Replaced(NamedTuple):
    """One summary and the candidates that it replaces.

    Attributes:
        summary: The summary.
        rows: Rows of its turns among the candidates, best first.
        score: Its score.
        quality: What its best turn's score was multiplied with.
    """

    summary: SummaryView
    rows: tuple[int, ...]
    score: float
    quality: float


def summary_quality(confidence: float, penalty: float) -> float:
    """Return Q = 1 - penalty x (1 - confidence), in [1 - penalty, 1] (libravdb section 1).

    Args:
        confidence: Of the summary; outside [0, 1] it counts as the nearer end.
        penalty: What a summary of confidence 0 loses, in [0, 1].
    """
    return 1.0 - penalty * (1.0 - min(max(confidence, 0.0), 1.0))


def consolidation(candidates: Candidates, context: PhaseContext) -> PhaseOutcome:
    """Replace turns by the accepted summary that they share."""
    summaries = context.lookups.summaries_of(candidates.positions)
    if not summaries:
        return unchanged(candidates)
    if not context.profile.include_consolidated_summaries:
        return PhaseOutcome(
            candidates,
            annotations={p: {"consolidated_into": _ref(s)} for p, s in summaries.items()},
            notes={"applied": False, "turns_with_summary": len(summaries)},
        )
    replaced = replacements(candidates, summaries, context.profile.quality_penalty)
    if not replaced:
        return unchanged(candidates)
    gone = [row for r in replaced for row in r.rows]
    return PhaseOutcome(
        _with_summaries(candidates, replaced),
        reason_of=_reason_of(candidates, replaced),
        dropped=tuple(_dropped(candidates, r, row) for r in replaced for row in r.rows),
        notes={"applied": True, "summaries": len(replaced), "turns_replaced": len(gone)},
        annotations=_annotations(replaced, named=context.profile.include_consolidated_sources),
    )


def replacements(
    candidates: Candidates, summaries: Mapping[int, SummaryView], penalty: float
) -> list[Replaced]:
    """Return the summaries that replace turns, in the order of their best turns.

    Args:
        candidates: Best first.
        summaries: The summary of every turn that has one, by position.
        penalty: As for `summary_quality`.
    """
    rows_of: dict[int, list[int]] = {}
    for row, position in enumerate(candidates.positions.tolist()):
        if position in summaries:
            rows_of.setdefault(summaries[position].position, []).append(row)
    replaced: list[Replaced] = []
    for rows in rows_of.values():
        if len(rows) >= LEAST_SOURCES:
            summary = summaries[int(candidates.positions[rows[0]])]
            quality = summary_quality(summary.confidence, penalty)
            score = float(candidates.scores[rows[0]]) * quality
            replaced.append(Replaced(summary, tuple(rows), score, quality))
    return replaced


def _with_summaries(candidates: Candidates, replaced: list[Replaced]) -> Candidates:
    """Put every summary where its best turn was, then sort by score."""
    positions, scores = candidates.positions.copy(), candidates.scores.copy()
    expanded: NDArray[np.bool_] = candidates.expanded.copy()
    kept = np.ones(candidates.size, dtype=np.bool_)
    for r in replaced:
        best = r.rows[0]
        positions[best], scores[best] = r.summary.position, r.score
        expanded[best] = bool(candidates.expanded[list(r.rows)].all())
        kept[list(r.rows[1:])] = False
    still = Candidates(positions, scores, expanded).keep(kept)
    return still.rescored(still.scores)


def _reason_of(candidates: Candidates, replaced: list[Replaced]) -> Callable[[int], str]:
    by_position = {r.summary.position: r for r in replaced}

    def reason_of(position: int) -> str:
        r = by_position[position]
        best = int(candidates.positions[r.rows[0]])
        return (
            f"stands for {len(r.rows)} of its {len(r.summary.sources)} turns: the best, "
            f"{{{best}}}, has {candidates.scores[r.rows[0]]:.2f}, x quality {r.quality:.2f}"
        )

    return reason_of


def _dropped(candidates: Candidates, r: Replaced, row: int) -> Dropped:
    return Dropped(
        phase="consolidation",
        position=int(candidates.positions[row]),
        reason=f"stands behind summary {{{r.summary.position}}}",
        score=float(candidates.scores[row]),
        facts={"consolidated_into": _ref(r.summary)},
    )


def _annotations(replaced: list[Replaced], *, named: bool) -> dict[int, dict[str, Any]]:
    annotations: dict[int, dict[str, Any]] = {}
    for r in replaced:
        shown: dict[str, Any] = {
            "is_consolidated": True,
            "source_count": len(r.summary.sources),
        }
        if named:
            shown["sources"] = [PositionRef(p) for p in r.summary.sources]
        annotations[r.summary.position] = {"consolidation": shown}
    return annotations


def _ref(summary: SummaryView) -> PositionRef:
    return PositionRef(summary.position)
