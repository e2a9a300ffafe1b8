"""What a memory says of a subject that can only have one value at a time.

What belongs here: turning stated relations and `key: value` starts into statements that can be
compared. What does not: comparing them (`values`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from noctuary.graph.extraction import Found, Stated
from noctuary.graph.fold import fold_name, unsegmented_script
from noctuary.graph.lexicon import FUNCTION_WORDS, GENERIC_KEYS
from noctuary.graph.model import NO_SPAN, Evidence
from noctuary.graph.supersession.memories import Memory
from noctuary.graph.supersession.topics import read_preference

STATE = "state"
"""Slot of what a subject is: the relations of STATE_RELATIONS."""

KEY = "key"
"""Slot of `key: value` memories."""

STATE_RELATIONS = ("is_now", "is_a", "has")
"""What a later `is_now` about the same subject ends."""

SINGLE_VALUED = ("works_at", "lives_in", "owned_by")
"""Relations of which a later, different value ends the earlier one."""

KEY_VALUE_MAX_WORDS = 12
"""Longest value of a `key: value` memory that is compared. Longer ones are notes under a heading:
two of them add to each other more often than one replaces the other."""

KEY_VALUE_SURE_WORDS = 3
"""Longest value of a `key: value` memory that is surely a value ("port: 8080") and not a remark
("Redis: only used as a cache"). Longer ones contradict with low confidence."""

UNSEGMENTED_WORD_CHARS = 2
"""Characters that count as one word in a script without spaces."""

_NO_SUBJECTS = (GENERIC_KEYS | FUNCTION_WORDS) - {"user"}

_ABOUT_THE_OWNER = frozenset({"works_at", "lives_in", "prefers"})
"""Relations whose left-out subject is whoever the memory belongs to."""


_CLAUSE = re.compile(r"[^.,;:!?\n。！？，；：]{0,60}")


class Statement(NamedTuple):
    """One value of one subject.

    Attributes:
        position: The memory.
        subject: Canonical folded name; "" for the owner of the memory.
        slot: What two statements must share beside the subject to contradict each other.
        relation: As stated; KEY for a `key: value` memory.
        value: Canonical folded name.
        is_vague: The slot was guessed, or the value is a remark: contradictions are of low
            confidence.
        share: Part of the content that the statement takes, in [0, 1].
        evidence: Where it stands.
    """

    position: int
    subject: str
    slot: str
    relation: str
    value: str
    is_vague: bool
    share: float
    evidence: Evidence


def statements_of(
    memory: Memory, canonical_of: Mapping[str, str], rejected: Counter[str]
) -> Iterator[Statement]:
    """Yield what a memory says of its subjects.

    Args:
        memory: A memory.
        canonical_of: Folded names that were merged away, and what stands for them.
        rejected: Counts statements about a generic word by "generic".
    """
    for stated in memory.extraction.stated:
        if stated.start == NO_SPAN:
            # Told by the store: evidence for the graph, no words of this memory to be compared.
            continue
        slot = _slot(stated, memory.record.content)
        if slot is None:
            continue
        subject = canonical_of.get(stated.subject, stated.subject)
        if _says_nothing(subject, stated.relation):
            rejected["generic"] += 1
            continue
        value = canonical_of.get(slot.value, slot.value)
        yield _statement(memory, subject, slot._replace(value=value), stated)
    yield from _key_statements(memory, canonical_of)


class _Slot(NamedTuple):
    name: str
    value: str
    is_vague: bool


def _slot(stated: Stated, content: str) -> _Slot | None:
    if stated.relation in STATE_RELATIONS:
        return _Slot(STATE, stated.object, is_vague=False)
    if stated.relation in SINGLE_VALUED:
        return _Slot(stated.relation, stated.object, is_vague=False)
    if stated.relation != "prefers":
        return None
    preference = read_preference(stated.object, _rest_of_clause(content, stated.end))
    if preference is None:
        return None
    return _Slot(f"prefers {preference.topic}", preference.value, is_vague=not preference.is_stated)


def _rest_of_clause(content: str, start: int) -> str:
    match = _CLAUSE.match(content, max(start, 0))
    return fold_name(match.group()) if match is not None and start >= 0 else ""


def _says_nothing(subject: str, relation: str) -> bool:
    if not subject:
        return relation not in _ABOUT_THE_OWNER
    return subject in _NO_SUBJECTS


def _statement(memory: Memory, subject: str, slot: _Slot, stated: Stated) -> Statement:
    share = (stated.end - stated.start) / max(len(memory.record.content), 1)
    evidence = Evidence(memory.record.position, stated.start, stated.end)
    return Statement(
        memory.record.position, subject, slot.name, stated.relation, slot.value, slot.is_vague,
        min(max(share, 0.0), 1.0), evidence,
    )  # fmt: skip


def _key_statements(memory: Memory, canonical_of: Mapping[str, str]) -> Iterator[Statement]:
    keys = [item for item in memory.extraction.found if item.kind == KEY and item.role == "about"]
    if not keys:
        return
    # "Deploy key (prod)" is found with and without its parenthesis; only the whole one tells two
    # keys apart.
    key = max(keys, key=lambda item: (-item.start, item.end))
    value = fold_name(memory.record.content[key.end :])
    if key.name in GENERIC_KEYS or not 0 < _word_count(value) <= KEY_VALUE_MAX_WORDS:
        return
    yield _key_statement(memory, key, canonical_of.get(key.name, key.name), value)


def _key_statement(memory: Memory, key: Found, subject: str, value: str) -> Statement:
    position = memory.record.position
    evidence = Evidence(position, key.start, len(memory.record.content))
    is_remark = _word_count(value) > KEY_VALUE_SURE_WORDS
    return Statement(position, subject, KEY, KEY, value, is_remark, 1.0, evidence)


def _word_count(folded: str) -> int:
    return sum(
        1 if unsegmented_script(word) is None else -(-len(word) // UNSEGMENTED_WORD_CHARS)
        for word in folded.split()
    )
