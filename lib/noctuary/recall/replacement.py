"""Phases in which one memory stands for others: its successor, their summary."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.core.types import UNDATED_US
from noctuary.graph.successors import CONFIDENCES, DAY_US, confidence_of, keys_of
from noctuary.recall.candidates import (
    Candidates,
    Dropped,
    PhaseContext,
    PhaseOutcome,
    PositionRef,
    Positions,
    Successor,
    SummaryView,
    unchanged,
)
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.result import RecallWarning

# Which candidates the night found to be superseded, and the memory that stands for each.


LEAST_CONFIDENCE = 1
"""Least confidence (0 low, 1 medium, 2 high) with which a stored successor takes the place of the
older memory and a chain goes on; below, the older is only marked. 2 leaves more stale memories in
answers, 0 hides memories of which half the text may still hold."""


class Stale(NamedTuple):
    """A candidate and the memory that stands for it.

    Attributes:
        older: Position of the candidate.
        heir: Position of the other; it need not be a candidate.
        is_sure: Whether the heir may take its place; otherwise both are only marked.
        why: What a drop says after "superseded by".
        note: What is shown with the older where it stays.
        facts: What a trace shows beside the two.
    """

    older: int
    heir: int
    is_sure: bool
    why: str
    note: str
    facts: Mapping[str, Any]


def find_stale(
    positions: Positions, successors: Mapping[int, Successor], profile: RetrievalProfile
) -> list[Stale]:
    """Return the candidates that have a stored successor, the surest first, then in their order.

    The heir is the last memory of the chain that sure links lead to. A damaged table may hold a
    cycle: none of its memories replaces another.

    Args:
        positions: Of the candidates, best first.
        successors: Of the candidates and of these successors in turn, by position of the older.
        profile: Its thresholds apply to near duplicates; what was stated has no similarity.
    """
    links = {older: link for older, link in successors.items() if _counts(link, profile)}
    sure = {older: link for older, link in links.items() if link.confidence >= LEAST_CONFIDENCE}
    found: list[Stale] = []
    for older in sorted(links.keys() & set(positions.tolist())):
        heir = _last_of_chain(links[older].newer, sure)
        if heir not in sure and heir != older:
            found.append(_stale(older, heir, links[older]))
    rank = {position: row for row, position in enumerate(positions.tolist())}
    found.sort(key=lambda stale: (-links[stale.older].confidence, rank[stale.older]))
    return found


def _counts(link: Successor, profile: RetrievalProfile) -> bool:
    if link.reason != "near_duplicate" or link.similarity is None:
        return True
    return (
        link.similarity >= profile.supersede_similarity_threshold
        and link.age_gap_days >= profile.supersede_min_age_gap_days
    )


def _last_of_chain(start: int, links: Mapping[int, Successor]) -> int:
    here = start
    for _ in links:
        if here not in links:
            break
        here = links[here].newer
    return here


def _stale(older: int, heir: int, link: Successor) -> Stale:
    confidence = CONFIDENCES[link.confidence]
    compared = "" if link.similarity is None else f", similarity {link.similarity:.2f}"
    # An explicit link may go against the dates, or have none.
    later = f", {link.age_gap_days} days later" if link.age_gap_days else ""
    facts = {
        "superseded_by": PositionRef(heir),
        "supersede_reason": link.reason,
        "confidence": confidence,
        "evidence": PositionRef(link.evidence),
        "similarity": link.similarity,
        "age_gap_days": link.age_gap_days,
    }
    return Stale(
        older,
        heir,
        link.confidence >= LEAST_CONFIDENCE,
        f"{link.reason}, evidence {{{link.evidence}}}",
        f"{link.reason}, confidence {confidence}, evidence {{{link.evidence}}}{compared}{later}",
        {name: value for name, value in facts.items() if value is not None},
    )


# Phase 8: a newer memory that replaces an older one stands in for it.
#
# Decided here, where the reference is silent:
# - What the night found comes first. Candidates that it found superseded take no part in the
#   search: no pair is told twice, or both ways.
# - Both must belong to the same user, or to nobody: one person's news never hides another's. Wings
#   that differ keep both as well ("the deploy key is X" of two projects); a memory without a wing
#   may belong to any.
# - Two that differ in a number, an identifier, a date or a named thing are no pair
#   (`noctuary.graph.successors`).
# - Of several newer ones the newest is the successor, and of a chain the newest remains.
# - With "filter" the successor takes over the larger of both scores: it answers what its
#   predecessor was found for, and must not vanish with it because its own wording matched less.
#   One that was not found at all comes in.
#
# Source: research/mempalace.md section 1, phase 8.


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
        dropped=_dropped_as_old(candidates, hidden),
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
    return [_stale_memory(pair, positions) for pair in found], ()


def _stale_memory(pair: Superseded, positions: Sequence[int]) -> Stale:
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


def _dropped_as_old(candidates: Candidates, hidden: Sequence[Stale]) -> tuple[Dropped, ...]:
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


# Phase 9: an accepted summary stands for the turns that it was made of.
#
# A summary takes the place of its turns if at least `LEAST_SOURCES` of them are candidates: one
# turn that is on point says more than a text about its whole stretch. The reference hides the
# turns and appends the summary at the end with a fixed 0.5; here it has the score of its best turn
# times the quality of the summary. Without `include_consolidated_summaries` nothing could stand
# for hidden turns, so nothing is hidden: they only name their summary. Nothing is ever out of
# reach: a summary expands to its turns.
#
# Sources: research/mempalace.md section 1, phase 9; libravdb section 1 (quality).


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
        reason_of=_summary_reason_of(candidates, replaced),
        dropped=tuple(_dropped_for_summary(candidates, r, row) for r in replaced for row in r.rows),
        notes={"applied": True, "summaries": len(replaced), "turns_replaced": len(gone)},
        annotations=_summary_annotations(
            replaced, named=context.profile.include_consolidated_sources
        ),
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


def _summary_reason_of(candidates: Candidates, replaced: list[Replaced]) -> Callable[[int], str]:
    by_position = {r.summary.position: r for r in replaced}

    def reason_of(position: int) -> str:
        r = by_position[position]
        best = int(candidates.positions[r.rows[0]])
        return (
            f"stands for {len(r.rows)} of its {len(r.summary.sources)} turns: the best, "
            f"{{{best}}}, has {candidates.scores[r.rows[0]]:.2f}, x quality {r.quality:.2f}"
        )

    return reason_of


def _dropped_for_summary(candidates: Candidates, r: Replaced, row: int) -> Dropped:
    return Dropped(
        phase="consolidation",
        position=int(candidates.positions[row]),
        reason=f"stands behind summary {{{r.summary.position}}}",
        score=float(candidates.scores[row]),
        facts={"consolidated_into": _ref(r.summary)},
    )


def _summary_annotations(replaced: list[Replaced], *, named: bool) -> dict[int, dict[str, Any]]:
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
