"""Phase 8: a newer memory that says the same thing anew stands in for the older one.

What belongs here: finding such pairs among the candidates, and hiding or marking the older. What
does not: deletion (nothing is stored: superseded is what one recall says of its candidates), and
copies filed at the same time, which are the business of "mmr".

Decided here, where the reference is silent:
- Both must belong to the same user, or to nobody: one person's news never hides another's. Wings
  that differ keep both as well ("the deploy key is X" of two projects); a memory without a wing may
  belong to any.
- Of several newer ones the newest is the successor, and of a chain the newest remains.
- With "filter" the successor takes over the larger of both scores: it answers what its predecessor
  was found for, and must not vanish with it because its own wording matched less.

Source: research/mempalace.md section 1, phase 8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mnemon.recall.phases.base import (
    Candidates,
    Dropped,
    PhaseContext,
    PhaseOutcome,
    PositionRef,
    Scores,
    unchanged,
)
from mnemon.recall.result import RecallWarning
from mnemon.types import UNDATED_US

HIGH = (0.93, 30)
"""Least cosine and least days between two memories of high confidence."""

MEDIUM = (0.86, 14)
"""The same for medium confidence; everything else is low."""

CONFIDENCES = ("low", "medium", "high")
"""Names of the confidences 0, 1 and 2."""

_DAY_US = 86_400_000_000

_ROWS_AT_ONCE = 128
"""Rows of the similarity matrix in memory (10 MB per array at 10,000 candidates); more is no
faster."""


class Superseded(NamedTuple):
    """One older memory and its successor.

    Attributes:
        older: Row of the older among the candidates.
        newer: Row of the newest of its successors.
        similarity: Cosine of the two.
        age_gap_days: Whole days between the two.
        confidence: 0 low, 1 medium, 2 high.
    """

    older: int
    newer: int
    similarity: float
    age_gap_days: int
    confidence: int

    @property
    def facts(self) -> dict[str, Any]:
        """Return what a trace shows beside the two memories."""
        return {
            "similarity": self.similarity,
            "age_gap_days": self.age_gap_days,
            "confidence": CONFIDENCES[self.confidence],
        }


def confidence_of(similarity: float, age_gap_days: int) -> int:
    """Return 2 (high), 1 (medium) or 0 (low); never falls as either grows."""
    if similarity >= HIGH[0] and age_gap_days >= HIGH[1]:
        return 2
    return int(similarity >= MEDIUM[0] and age_gap_days >= MEDIUM[1])


def find_superseded(
    vectors: NDArray[np.float32],
    created_at_us: NDArray[np.int64],
    owners: NDArray[np.int64],
    wings: NDArray[np.int64],
    *,
    least_similarity: float,
    least_days: int,
    at_most: int,
) -> list[Superseded]:
    """Return the superseded rows, those of the highest confidence first, then most similar.

    Args:
        vectors: Unit rows, shape (m, d).
        created_at_us: Shape (m,); memories without a date are in no pair.
        owners: Number of every memory's user, shape (m,); both must be equal.
        wings: Number of every memory's wing, shape (m,), -1 for none; two that differ make no pair.
        least_similarity: Least cosine.
        least_days: Least whole days between the two; with 0 one must still be newer.
        at_most: Most memories superseded.
    """
    found: list[Superseded] = []
    for start in range(0, created_at_us.size, _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        gaps = _gaps_us(created_at_us, rows)
        cosines = np.nan_to_num((vectors[rows] @ vectors.T).astype(np.float64))
        pairs = (gaps > 0) & (gaps >= least_days * float(_DAY_US)) & (cosines >= least_similarity)
        pairs &= owners[rows, None] == owners[None, :]
        pairs &= (wings[rows, None] == wings) | (wings[rows, None] < 0) | (wings < 0)[None, :]
        newest = np.argmax(np.where(pairs, gaps, 0.0), axis=1)
        for row in np.flatnonzero(pairs.any(axis=1)).tolist():
            newer = int(newest[row])
            days = int(gaps[row, newer] // _DAY_US)
            cosine = min(float(cosines[row, newer]), 1.0)
            found.append(Superseded(start + row, newer, cosine, days, confidence_of(cosine, days)))
    found.sort(key=lambda s: (-s.confidence, -s.similarity))
    return found[:at_most]


def successor_scores(scores: Scores, superseded: Sequence[Superseded]) -> Scores:
    """Return scores in which every successor has at least what its predecessors had.

    Passes through chains: of three versions the newest has the largest score of all.

    Args:
        scores: Shape (m,).
        superseded: In any order; the successor's date is always the later one.
    """
    raised = scores.copy()
    newer_of = {s.older: s.newer for s in superseded}
    for older in newer_of:
        heir = older
        while heir in newer_of:
            heir = newer_of[heir]
            raised[heir] = max(raised[heir], scores[older])
    return raised


def supersede(candidates: Candidates, context: PhaseContext) -> PhaseOutcome:
    """Hide ("filter") or mark ("annotate") candidates that a newer candidate says anew."""
    if candidates.size < 2:
        return unchanged(candidates)
    vectors = context.lookups.vectors_of(candidates.positions)
    if vectors is None:
        return PhaseOutcome(candidates, warnings=(_WITHOUT_VECTORS,))
    found = _find(candidates, context, vectors)
    action = context.profile.supersede_action
    outcome = _filtered if action == "filter" else _annotated
    notes = {
        "checked": candidates.size,
        "action": action,
        "superseded_filtered": len(found) if action == "filter" else 0,
        "superseded_annotated": 0 if action == "filter" else len(found),
    }
    return outcome(candidates, found, notes) if found else PhaseOutcome(candidates, notes=notes)


def _find(
    candidates: Candidates, context: PhaseContext, vectors: NDArray[np.float32]
) -> list[Superseded]:
    profile, lookups = context.profile, context.lookups
    rows = lookups.rows_of([int(p) for p in candidates.positions])
    owners = [rows[int(p)]["user"] for p in candidates.positions]
    return find_superseded(
        vectors,
        lookups.created_at_us(candidates.positions),
        _numbered(owners),
        _numbered(lookups.wings_of(candidates.positions)),
        least_similarity=profile.supersede_similarity_threshold,
        least_days=profile.supersede_min_age_gap_days,
        at_most=profile.supersede_max_candidates,
    )


def _filtered(
    candidates: Candidates, found: Sequence[Superseded], notes: Mapping[str, Any]
) -> PhaseOutcome:
    positions, scores = candidates.positions, candidates.scores
    kept = np.ones(candidates.size, dtype=np.bool_)
    kept[[s.older for s in found]] = False
    raised = Candidates(positions, successor_scores(scores, found), candidates.expanded)
    dropped = tuple(_dropped(candidates, s) for s in found)
    heirs = {int(positions[s.newer]): int(positions[s.older]) for s in reversed(found)}
    still = raised.keep(kept)
    return PhaseOutcome(
        still.rescored(still.scores),
        reason_of=lambda position: f"takes the place of the older {{{heirs[position]}}}",
        dropped=dropped,
        notes=notes,
    )


def _dropped(candidates: Candidates, pair: Superseded) -> Dropped:
    newer = int(candidates.positions[pair.newer])
    return Dropped(
        phase="supersede",
        position=int(candidates.positions[pair.older]),
        reason=f"superseded by {{{newer}}}: {_said(pair)} newer",
        score=float(candidates.scores[pair.older]),
        facts={"superseded_by": PositionRef(newer), **pair.facts},
    )


def _annotated(
    candidates: Candidates, found: Sequence[Superseded], notes: Mapping[str, Any]
) -> PhaseOutcome:
    positions = candidates.positions.tolist()
    annotations: dict[int, dict[str, Any]] = {}
    for pair in found:
        older, newer = positions[pair.older], positions[pair.newer]
        annotations.setdefault(older, {}).update(
            superseded_by=PositionRef(newer),
            supersede_note=f"a newer memory says this anew: {_said(pair)} later, confidence "
            f"{CONFIDENCES[pair.confidence]}",
        )
        annotations.setdefault(newer, {}).setdefault("supersedes", []).append(PositionRef(older))
    return PhaseOutcome(candidates, notes=notes, annotations=annotations)


def _said(pair: Superseded) -> str:
    return f"similarity {pair.similarity:.2f}, {pair.age_gap_days} days"


def _gaps_us(created_at_us: NDArray[np.int64], rows: slice) -> NDArray[np.float64]:
    """Return by how much the columns are newer than the rows; 0 where either has no date."""
    # Floats: the difference of two int64 may not fit one, and 2^53 microseconds are 285 years.
    moments = created_at_us.astype(np.float64)
    dated = created_at_us != UNDATED_US
    both = dated[rows, None] & dated[None, :]
    return np.where(both, moments[None, :] - moments[rows, None], 0.0)


def _numbered(names: Sequence[str | None]) -> NDArray[np.int64]:
    """Return one number per name, -1 for None."""
    numbers: dict[str, int] = {}
    return np.array(
        [-1 if n is None else numbers.setdefault(n, len(numbers)) for n in names], dtype=np.int64
    )


_WITHOUT_VECTORS = RecallWarning(
    "supersede_without_vectors",
    "this snapshot has no vectors: stale memories are not told from their successors",
)
