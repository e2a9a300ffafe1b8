"""Links between memories that say something else of the same subject: "X is now Y", newer value.

What belongs here: comparing statements about one subject. What does not: reading them
(`statements`), choosing among links (`resolve`).

Decided here:
- An older statement ends at the *earliest* later one that differs, since it stopped holding then;
  later changes follow as a chain, so that the answer as of any moment is right.
- A later memory that repeats the older value beside another one (a list, a before-and-after) ends
  nothing; neither does one that says the same in
  more or fewer words: it confirms.
- A relation with more than VALUES_MAX values in one wing is a list of happenings ("meeting: ...").
- Every function here sees one group (one user, subject and slot): a changed memory concerns only
  the groups of its own statements, before and after the change.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from noctuary.graph.fold import concept_id
from noctuary.graph.supersession.links import Link
from noctuary.graph.supersession.memories import Memories, Timeline, is_dated, owner_of, wing_of
from noctuary.graph.supersession.statements import STATE, Statement, statements_of
from noctuary.graph.supersession.topics import restates, same_head
from noctuary.text.tombstone import is_tombstone

VALUES_MAX = 12
"""Most different values of one subject and relation in one wing; more are happenings, not versions
of a fact. Higher follows busier facts and hides more entries of lists."""

LEAST_SHARE = 0.5
"""Least part of the older text that the ended statement takes for more than low confidence: what
says much else besides is not out of date as a whole."""

_CONFIDENCE_OF_RELATION = {"is_now": 1, "is_a": 0, "has": 0}

GroupKey = tuple[str, str, str]
"""User, subject and slot."""


def value_groups(
    memories: Memories, canonical_of: Mapping[str, str], rejected: Counter[str]
) -> dict[GroupKey, list[Statement]]:
    """Return every statement by what it may contradict; linear in the statements.

    Args:
        memories: Those that may state something.
        canonical_of: Folded names that were merged away, and what stands for them.
        rejected: Counts statements of undated memories ("undated") and generic ones ("generic").
    """
    groups: dict[GroupKey, list[Statement]] = defaultdict(list)
    for memory in memories.values():
        for statement in statements_of(memory, canonical_of, rejected):
            if is_dated(memory.record):
                key = (owner_of(memory.record), statement.subject, statement.slot)
                groups[key].append(statement)
            else:
                rejected["undated"] += 1
    return groups


def links_of_group(
    statements: Sequence[Statement], memories: Memories, rejected: Counter[str]
) -> Iterator[Link]:
    """Yield one link per ended statement of one group.

    Args:
        statements: Of one user, subject and slot.
        memories: Where the statements stand.
        rejected: Counts statements of relations with too many values by "many_values".
    """
    if len({statement.position for statement in statements}) < 2:
        return
    kept = _without_lists(statements, memories, rejected)
    group = _Group(kept, memories)
    for older in kept:
        newer = group.first_to_differ(older)
        if newer is not None:
            yield _link(older, newer)


class _Group:
    """The statements of a group that may end others, by wing and by value left out."""

    def __init__(self, statements: Sequence[Statement], memories: Memories) -> None:
        self._memories = memories
        self._said: dict[int, set[str]] = defaultdict(set)
        self._ending: dict[int, Statement] = {}
        self._by_wing: dict[str, list[int]] = defaultdict(list)
        for statement in statements:
            self._said[statement.position].add(statement.value)
            ends = statement.slot != STATE or statement.relation == "is_now"
            # What its owner has marked as superseded ends nothing any more.
            ends = ends and not is_tombstone(memories[statement.position].record.content)
            if ends and statement.position not in self._ending:
                self._ending[statement.position] = statement
                wing = wing_of(memories[statement.position].record)
                self._by_wing[wing].append(statement.position)
        self._lines: dict[tuple[str, str], Timeline] = {}

    def first_to_differ(self, older: Statement) -> Statement | None:
        """Return the earliest strictly later statement in scope without the older value."""
        record = self._memories[older.position].record
        wing = wing_of(record)
        line = self._lines.get((wing, older.value))
        if line is None:
            line = self._lines[wing, older.value] = self._line(wing, older.value)
        return next((self._ending[position] for position in line.later(record)), None)

    def _line(self, wing: str, value: str) -> Timeline:
        positions = (
            [*self._by_wing.get(wing, ()), *self._by_wing.get("", ())]
            if wing
            else (p for found in self._by_wing.values() for p in found)
        )
        # Runs of the same value are left out once and not walked again by each of their members.
        return Timeline(
            self._memories[p].record
            for p in positions
            if not any(restates(value, said) for said in self._said[p])
        )


def _without_lists(
    statements: Sequence[Statement], memories: Memories, rejected: Counter[str]
) -> list[Statement]:
    values: dict[tuple[str, str], set[str]] = defaultdict(set)
    for s in statements:
        values[wing_of(memories[s.position].record), s.relation].add(s.value)
    kept = [
        s
        for s in statements
        if len(values[wing_of(memories[s.position].record), s.relation]) <= VALUES_MAX
    ]
    if len(kept) < len(statements):
        rejected["many_values"] += len(statements) - len(kept)
    return kept


def _link(older: Statement, newer: Statement) -> Link:
    reason = "is_now" if newer.relation == "is_now" else "newer_value"
    return Link(
        older.position,
        newer.position,
        reason,
        _confidence(older, newer),
        None,
        concept_id(older.subject) if older.subject else "",
        newer.evidence,
    )


def _confidence(older: Statement, newer: Statement) -> int:
    if older.share < LEAST_SHARE or older.is_vague or newer.is_vague:
        return 0
    if older.slot != STATE:
        return 1
    return _CONFIDENCE_OF_RELATION[older.relation] + same_head(older.value, newer.value)
