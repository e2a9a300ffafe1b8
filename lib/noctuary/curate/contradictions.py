"""Contradictions: two live memories give one subject different values, and no date settles it.

What belongs here: statements of one user and wing whose moments are equal or unknown. What does
not: reading statements (`noctuary.graph.supersession.statements`); what a later date settles is
superseded (`replaced`).

Always a NOOP: which of the two is true cannot be told from the texts, and no text is generated. The
owner edits or deletes one of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from noctuary.curate.model import Evidence, Proposal, Span, named, target_of
from noctuary.curate.scopes import Claims, Scope, is_open, scope_of
from noctuary.graph.supersession.memories import Memories, is_dated
from noctuary.graph.supersession.statements import STATE, Statement, statements_of
from noctuary.graph.supersession.topics import restates
from noctuary.graph.supersession.values import VALUES_MAX
from noctuary.types import MemoryRecord

STATED = 0.7
"""Confidence that two values contradict each other where a subject has one at a time."""

VAGUE = 0.4
"""The same where the attribute was guessed, or a value is a remark."""

GROUP_MAX = 64
"""Most statements of one subject that are compared in pairs: more are a list (a schedule)."""

_Key = tuple[Scope, str, str]


def contradictions(
    memories: Memories, canonical_of: Mapping[str, str], claims: Claims
) -> Iterator[Proposal]:
    """Yield one proposal per pair of memories that contradict each other.

    Args:
        memories: With what was found in them; turns, tombstones and taken ones are left out.
        canonical_of: Folded names that were merged away, and what stands for them.
        claims: Who is to become a tombstone contradicts nobody.
    """
    groups: defaultdict[_Key, list[Statement]] = defaultdict(list)
    for position, memory in memories.items():
        if not is_open(memory.record) or claims.holds(position):
            continue
        for statement in statements_of(memory, canonical_of, Counter[str]()):
            # A subject is and has several things at a time; what it is *now* is one.
            if statement.slot != STATE or statement.relation == "is_now":
                key = scope_of(memory.record), statement.subject, statement.slot
                groups[key].append(statement)
    seen: set[tuple[int, int]] = set()
    for key in sorted(groups, key=str):
        for one, other in _conflicts(groups[key], memories):
            pair = one.position, other.position
            if pair not in seen:
                seen.add(pair)
                yield _proposal(one, other, memories)


def _conflicts(
    statements: Sequence[Statement], memories: Memories
) -> Iterator[tuple[Statement, Statement]]:
    values = {statement.value for statement in statements}
    if not 2 <= len(values) <= VALUES_MAX or len(statements) > GROUP_MAX:
        return
    said: defaultdict[int, set[str]] = defaultdict(set)
    for statement in statements:
        said[statement.position].add(statement.value)
    for one, other in combinations(sorted(statements, key=lambda s: s.position), 2):
        if one.position == other.position:
            continue
        records = memories[one.position].record, memories[other.position].record
        if not _is_settled(*records) and not _agree(said[one.position], said[other.position]):
            yield one, other


def _agree(one: set[str], other: set[str]) -> bool:
    """Say whether any value of the one is the other's in other words."""
    return any(restates(ours, theirs) for ours in one for theirs in other)


def _is_settled(one: MemoryRecord, other: MemoryRecord) -> bool:
    """Say whether a date tells which of the two is the newer."""
    dated = is_dated(one) and is_dated(other)
    return dated and one.created_at_us != other.created_at_us


def _proposal(one: Statement, other: Statement, memories: Memories) -> Proposal:
    records = [memories[s.position].record for s in (one, other)]
    spans = (
        Span(record.memory_id, s.evidence.start, s.evidence.end)
        for record, s in zip(records, (one, other), strict=True)
    )
    dates = "of one moment" if all(is_dated(r) for r in records) else "not both dated"
    return named(
        Proposal(
            action="NOOP",
            kind="contradiction",
            confidence=VAGUE if one.is_vague or other.is_vague else STATED,
            user=records[0].user,
            wing=records[0].wing,
            targets=tuple(target_of(record, "looked_at") for record in records),
            evidence=Evidence(
                "They give different values for one subject and attribute, and are "
                f"{dates}: only you can say which is right.",
                tuple(spans),
            ),
        )
    )
