"""Phase 8: a newer memory that replaces an older one stands in for it.

What belongs here: hiding or marking the older, and the search among the candidates for pairs that
the night does not know. What does not: deletion (nothing is stored: superseded is what one recall
says of its candidates), what the night found (`successors`), and copies filed at the same time,
which are the business of "mmr".

Decided here, where the reference is silent:
- What the night found comes first. Candidates that it found superseded take no part in the search:
  no pair is told twice, or both ways.
- Both must belong to the same user, or to nobody: one person's news never hides another's. Wings
  that differ keep both as well ("the deploy key is X" of two projects); a memory without a wing may
  belong to any.
- Two that differ in a number, an identifier, a date or a named thing are no pair
  (`noctuary.graph.supersession.guards`).
- Of several newer ones the newest is the successor, and of a chain the newest remains.
- With "filter" the successor takes over the larger of both scores: it answers what its predecessor
  was found for, and must not vanish with it because its own wording matched less. One that was not
  found at all comes in.

Source: research/mempalace.md section 1, phase 8.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.graph.supersession.grades import CONFIDENCES, DAY_US, confidence_of
from noctuary.graph.supersession.guards import keys_of
from noctuary.recall.phases.base import (
    Candidates,
    Dropped,
    PhaseContext,
    PhaseOutcome,
    PositionRef,
    unchanged,
)
from noctuary.recall.phases.successors import Stale, find_stale
from noctuary.recall.result import RecallWarning
from noctuary.types import UNDATED_US

_ROWS_AT_ONCE = 128
"""Rows of the similarity matrix in memory (10 MB per array at 10,000 candidates); more is no
faster."""


class Superseded(NamedTuple):
    """One older memory and the newer one that says it anew, both among the candidates.

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


def find_superseded(
    vectors: NDArray[np.float32],
    created_at_us: NDArray[np.int64],
    owners: NDArray[np.int64],
    wings: NDArray[np.int64],
    texts: Sequence[str],
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
        texts: Of every memory, m of them; two whose `Keys.marks` differ make no pair.
        least_similarity: Least cosine.
        least_days: Least whole days between the two; with 0 one must still be newer.
        at_most: Most memories superseded.
    """
    found: list[Superseded] = []
    marks = np.zeros(created_at_us.size, dtype=np.int64)
    read = np.zeros(created_at_us.size, dtype=np.bool_)
    for start in range(0, created_at_us.size, _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        gaps = _gaps_us(created_at_us, rows)
        cosines = np.nan_to_num((vectors[rows] @ vectors.T).astype(np.float64))
        pairs = (gaps > 0) & (gaps >= least_days * float(DAY_US)) & (cosines >= least_similarity)
        pairs &= owners[rows, None] == owners[None, :]
        pairs &= (wings[rows, None] == wings) | (wings[rows, None] < 0) | (wings < 0)[None, :]
        paired = pairs.any(axis=0)
        paired[rows] |= pairs.any(axis=1)
        # Reading a text takes longer than all the rest: only of those that are near another.
        for row in np.flatnonzero(paired & ~read).tolist():
            marks[row] = keys_of(texts[row]).marks
        read |= paired
        pairs &= marks[rows, None] == marks[None, :]
        newest = np.argmax(np.where(pairs, gaps, 0.0), axis=1)
        for row in np.flatnonzero(pairs.any(axis=1)).tolist():
            newer = int(newest[row])
            days = int(gaps[row, newer] // DAY_US)
            cosine = min(float(cosines[row, newer]), 1.0)
            found.append(Superseded(start + row, newer, cosine, days, confidence_of(cosine, days)))
    found.sort(key=lambda s: (-s.confidence, -s.similarity))
    return found[:at_most]


def predecessors(positions: Sequence[int], found: Iterable[Stale]) -> dict[int, list[int]]:
    """Return the rows that every remaining heir stands for, best first, by the heir's position.

    Passes through chains: of three versions the newest stands for both others.

    Args:
        positions: Of the candidates, best first.
        found: In any order, without cycles, every older one a candidate.
    """
    heir_of = {stale.older: stale.heir for stale in found}
    rows: dict[int, list[int]] = {}
    for row, position in enumerate(positions):
        heir = position
        while heir in heir_of:
            heir = heir_of[heir]
        if heir != position:
            rows.setdefault(heir, []).append(row)
    return rows


def supersede(candidates: Candidates, context: PhaseContext) -> PhaseOutcome:
    """Hide ("filter") or mark ("annotate") candidates that a newer memory replaces."""
    if not candidates.size:
        return unchanged(candidates)
    profile, at_most = context.profile, context.profile.supersede_max_candidates
    successors = context.lookups.successors_of(candidates.positions)
    stored = find_stale(candidates.positions, successors, profile)
    known = [stale.older for stale in stored]
    # A summary stands for many turns: that one of them is said anew must not hide the others.
    is_memory = candidates.positions < context.lookups.count
    unknown = candidates.keep(is_memory & ~np.isin(candidates.positions, known))
    stored = stored[:at_most]
    searched, warnings = _search(unknown, context, at_most - len(stored))
    found = [*stored, *searched]
    hides = profile.supersede_action == "filter"
    hidden = [stale for stale in found if hides and stale.is_sure]
    marked = [stale for stale in found if not (hides and stale.is_sure)]
    rows = predecessors(candidates.positions.tolist(), hidden)
    after = _filtered(candidates, hidden, rows) if hidden else candidates
    return PhaseOutcome(
        after,
        reason_of=lambda p: f"takes the place of the older {{{candidates.positions[rows[p][0]]}}}",
        dropped=_dropped(candidates, hidden),
        notes={
            "checked": candidates.size,
            "action": profile.supersede_action,
            "superseded_filtered": len(hidden),
            "superseded_annotated": len(marked),
            "superseded_stored": len(stored),
        },
        annotations=_annotations(after, marked),
        warnings=warnings,
    )


def _search(
    candidates: Candidates, context: PhaseContext, at_most: int
) -> tuple[list[Stale], tuple[RecallWarning, ...]]:
    """Return those that another candidate says anew, and what kept the search from being made."""
    if candidates.size < 2 or not at_most:
        return [], ()
    profile, lookups = context.profile, context.lookups
    vectors = lookups.vectors_of(candidates.positions)
    if vectors is None:
        return [], (_WITHOUT_VECTORS,)
    positions: list[int] = candidates.positions.tolist()
    rows = lookups.rows_of(positions)
    found = find_superseded(
        vectors,
        lookups.created_at_us(candidates.positions),
        _numbered([rows[p]["user"] for p in positions]),
        _numbered(lookups.wings_of(candidates.positions)),
        [rows[p]["content"] for p in positions],
        least_similarity=profile.supersede_similarity_threshold,
        least_days=profile.supersede_min_age_gap_days,
        at_most=at_most,
    )
    return [_stale(pair, positions) for pair in found], ()


def _stale(pair: Superseded, positions: Sequence[int]) -> Stale:
    said = f"similarity {pair.similarity:.2f}, {pair.age_gap_days} days"
    confidence = CONFIDENCES[pair.confidence]
    heir = positions[pair.newer]
    return Stale(
        positions[pair.older],
        heir,
        is_sure=True,
        why=f"{said} newer",
        note=f"a newer memory says this anew: {said} later, confidence {confidence}",
        facts={"superseded_by": PositionRef(heir), **pair.facts},
    )


def _filtered(
    candidates: Candidates, hidden: Iterable[Stale], rows: Mapping[int, Sequence[int]]
) -> Candidates:
    """Return the heirs in the places of their predecessors, then sorted by score."""
    positions, scores = candidates.positions.copy(), candidates.scores.copy()
    expanded = candidates.expanded.copy()
    kept = ~np.isin(positions, [stale.older for stale in hidden])
    for heir, (best, *others) in rows.items():
        place = np.flatnonzero(candidates.positions == heir)
        if place.size:
            scores[place] = np.maximum(scores[place], candidates.scores[best])
        else:
            positions[best], kept[best] = heir, True
            expanded[best] = candidates.expanded[[best, *others]].all()
    still = Candidates(positions, scores, expanded).keep(kept)
    return still.rescored(still.scores)


def _dropped(candidates: Candidates, hidden: Sequence[Stale]) -> tuple[Dropped, ...]:
    score_of = dict(zip(candidates.positions.tolist(), candidates.scores.tolist(), strict=True))
    return tuple(
        Dropped(
            phase="supersede",
            position=stale.older,
            reason=f"superseded by {{{stale.heir}}}: {stale.why}",
            score=score_of[stale.older],
            facts=stale.facts,
        )
        for stale in hidden
    )


def _annotations(candidates: Candidates, marked: Iterable[Stale]) -> dict[int, dict[str, Any]]:
    present = set(candidates.positions.tolist())
    annotations: dict[int, dict[str, Any]] = {}
    for stale in marked:
        annotations.setdefault(stale.older, {}).update(
            superseded_by=PositionRef(stale.heir), supersede_note=stale.note
        )
        if stale.heir in present:
            others = annotations.setdefault(stale.heir, {}).setdefault("supersedes", [])
            others.append(PositionRef(stale.older))
    return annotations


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
