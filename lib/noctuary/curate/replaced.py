"""Superseded facts: what the night's graph says a newer memory replaces.

What belongs here: rows of its supersessions table to proposals. What does not: finding them
(`noctuary.graph.supersession`); rows for near duplicates go to `near`, which asks for more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from noctuary.curate.model import Evidence, Proposal, Span, named, target_of
from noctuary.curate.scopes import Claims, scope_of
from noctuary.graph.model import Supersession
from noctuary.types import MemoryRecord

NEAR = "near_duplicate"
"""Reason of the rows that say "alike" and not "replaced"."""

CONFIDENCE = (0.4, 0.75, 0.9)
"""Of the table's low, medium and high."""

LEAST_GRADE = 1
"""Least grade for a tombstone: what is of low confidence says much else besides, or is guessed."""

_SAID = {
    "explicit": "The newer says that it replaces the older.",
    "is_now": "The newer says what the same subject is now.",
    "newer_value": "The newer gives another value for the same subject and attribute.",
}


def superseded_facts(
    records: Iterable[MemoryRecord], supersessions: Iterable[Supersession], claims: Claims
) -> Iterator[Proposal]:
    """Yield one proposal per superseded memory whose successor is of the same user and wing.

    Args:
        records: Open ones: a turn neither becomes a tombstone nor makes one.
        supersessions: The night's table.
        claims: Takes note of what is superseded.
    """
    free: Mapping[int, MemoryRecord] = {r.position: r for r in claims.free(records)}
    for found in sorted(supersessions, key=lambda s: s.older_position):
        older, newer = free.get(found.older_position), free.get(found.newer_position)
        if found.reason == NEAR or older is None or newer is None:
            continue
        if scope_of(older) == scope_of(newer):
            yield _proposal(older, newer, found, claims)


def _proposal(
    older: MemoryRecord, newer: MemoryRecord, found: Supersession, claims: Claims
) -> Proposal:
    is_sure = found.confidence >= LEAST_GRADE
    if is_sure:
        claims.superseded.add(older.position)
    reason = _SAID[found.reason]
    unsure = "" if is_sure else " Not sure enough: it says much else besides, or is guessed."
    said_by = newer if found.evidence.position == newer.position else older
    return named(
        Proposal(
            action="SUPERSEDE" if is_sure else "NOOP",
            kind="superseded",
            confidence=CONFIDENCE[found.confidence],
            user=newer.user,
            wing=newer.wing,
            targets=(
                target_of(older, "superseded" if is_sure else "looked_at"),
                target_of(newer, "kept" if is_sure else "looked_at"),
            ),
            evidence=Evidence(
                reason + unsure,
                (Span(said_by.memory_id, found.evidence.start, found.evidence.end),),
                found.similarity,
            ),
        )
    )
