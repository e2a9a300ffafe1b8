"""Links from a newer memory to an older one: said outright, or by what both say of a subject."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from noctuary.core.types import MemoryRecord
from noctuary.graph.duplicates import (
    Corpus,
    Link,
    Memories,
    Memory,
    MemoryColumns,
    Sighting,
    Timeline,
    in_scope,
    is_dated,
    owner_of,
    wing_of,
)
from noctuary.graph.extract import Extraction, Found, Stated
from noctuary.graph.fold import concept_id, fold_name, unsegmented_script
from noctuary.graph.lexicon import FUNCTION_WORDS, GENERIC_KEYS
from noctuary.graph.tables import NO_SPAN, Evidence
from noctuary.text.marks import is_tombstone

# What a preference is about, read from its object: "tabs for python" is about python.
#
# Folded names in, folded names out. A preference without a topic contradicts nothing: somebody may
# prefer tea and short answers.


_CONTRASTS = ("over", "rather than", "instead of", "than")
_PURPOSES = ("for", "as", "when", "while", "during", "in")
_STARTS = tuple(f"{word} " for word in (*_CONTRASTS, *_PURPOSES))
_DENIALS = frozenset({"not", "no", "never", "without", "longer", "isnt", "off", "non"})


class Preference(NamedTuple):
    """A topic and what is preferred there."""

    topic: str
    value: str
    is_stated: bool  # false where the topic is only the last word ("dark theme", "light theme")


def read_preference(name: str, after: str = "") -> Preference | None:
    """Return the topic and the value of a folded object, or None where it names no topic."""
    whole = f"{name} {after}" if after.startswith(_STARTS) else name
    for word in _CONTRASTS:
        value, _, other = whole.partition(f" {word} ")
        if other:
            # Both ways round it is one question: tea or coffee.
            return Preference("|".join(sorted((value, other))), value, is_stated=True)
    for word in _PURPOSES:
        value, _, purpose = whole.partition(f" {word} ")
        if purpose:
            return Preference(f"{word} {purpose}", value, is_stated=True)
    value, _, head = name.rpartition(" ")
    if not value or head in FUNCTION_WORDS:
        return None
    return Preference(head, value, is_stated=False)


def same_head(one: str, other: str) -> bool:
    """Say whether two names end alike: "junior engineer" and "senior engineer"."""
    return one.rpartition(" ")[2] == other.rpartition(" ")[2]


def restates(one: str, other: str) -> bool:
    """Say whether two values agree: one holds all words of the other, and neither denies it.

    "acme" and "acme corp" agree; "green" and "not green" do not.
    """
    some, others = set(one.split()), set(other.split())
    return (some <= others or others <= some) and not (some ^ others) & _DENIALS


# Links that a text makes itself: "supersedes #12", "replaced Jest", "switched from X to Y".
#
# - Object "#id": that memory, whatever the dates say. So are the links of a store
#   (`noctuary.graph.llm`).
# - Object "#" alone: the memory itself says what replaced it ("Replaced by ESLint.").
# - Object a name: the newest strictly older memory about that name. A memory that is itself about
#   the object and not about the subject ("TSLint: replaced by ESLint") says what replaced it: its
#   successor is the earliest strictly later memory about the subject.
# - A memory is about what its text begins with; where no memory is, what it is tagged with counts.


ID_MARK = "#"
"""Begins an object that is a memory; alone it is the memory that speaks."""

_BY_ID, _BY_SUBJECT, _BY_OBJECT_ONLY = 2, 1, 0


def explicit_links(
    corpus: Corpus, canonical_of: Mapping[str, str], rejected: Counter[str]
) -> Iterator[Link]:
    """Yield the links that memories state."""
    told = [
        (memory, stated)
        for memory in corpus.stating.values()
        for stated in memory.extraction.stated
        # What the store tells of two concepts has no span; of two memories, it names one by its id.
        if stated.relation == "supersedes" and (stated.start != NO_SPAN or _names_id(stated))
    ]
    by_id = _positions_of([s.object[1:] for _, s in told if _names_id(s)], corpus.columns)
    subjects = _Subjects(corpus, [s for _, s in told if not _names_id(s)], canonical_of)
    for memory, stated in told:
        if _names_id(stated):
            found = _by_id(corpus.columns, by_id, memory.record, stated)
        else:
            found = subjects.link(memory, stated)
        if isinstance(found, Link):
            yield found
        else:
            rejected[found] += 1


def _names_id(stated: Stated) -> bool:
    return stated.object.startswith(ID_MARK) and stated.object != ID_MARK


def _positions_of(ids: Sequence[str], columns: MemoryColumns) -> Mapping[str, int]:
    """Return the positions of those ids that memories have."""
    import polars as pl

    places = columns.memory_ids.is_in(pl.Series(ids, dtype=pl.String)).arg_true()
    return dict(zip(columns.memory_ids.gather(places), places, strict=True))


def _by_id(
    columns: MemoryColumns, by_id: Mapping[str, int], record: MemoryRecord, stated: Stated
) -> Link | str:
    older = by_id.get(stated.object.removeprefix(ID_MARK))
    if older is None:
        return "unknown_id"
    if older == record.position:
        return "self"
    if not in_scope(record, columns.sighting(older)):
        return "scope"
    return _link(older, record.position, _BY_ID, record, stated)


class _Subjects:
    """Which memories are about a name, or tagged with it: of the names that are asked for."""

    def __init__(
        self, corpus: Corpus, told: Sequence[Stated], canonical_of: Mapping[str, str]
    ) -> None:
        self._canonical_of = canonical_of
        wanted = {self._canonical(name) for s in told for name in (s.subject, s.object)}
        about: dict[tuple[str, str], list[Sighting]] = defaultdict(list)
        tagged: dict[tuple[str, str], list[Sighting]] = defaultdict(list)
        for position, extraction in corpus.outlines() if told else ():
            names = self._names(extraction)
            if wanted.isdisjoint(names.about) and wanted.isdisjoint(names.tagged):
                continue
            sighting = corpus.columns.sighting(position)
            for name in names.about & wanted:
                about[sighting.user, name].append(sighting)
            for name in names.tagged & wanted:
                tagged[sighting.user, name].append(sighting)
        # About first: a tag says what a text belongs to, not what it is about.
        self._lines = [
            {key: Timeline(found) for key, found in table.items()} for table in (about, tagged)
        ]

    def link(self, memory: Memory, stated: Stated) -> Link | str:
        """Return the link of a statement about a name, or why there is none."""
        subject, thing = self._canonical(stated.subject), self._canonical(stated.object)
        record = memory.record
        if not is_dated(record):
            return "undated"
        if thing in GENERIC_KEYS or thing in FUNCTION_WORDS:
            return "generic"
        own = self._names(memory.extraction)
        if stated.object == ID_MARK or (own.holds(thing) and subject and not own.holds(subject)):
            newer = self._first_after(record, subject)
            return _or_none(record.position, newer, _BY_SUBJECT, record, stated)
        confidence = _BY_SUBJECT if not subject or own.holds(subject) else _BY_OBJECT_ONLY
        older = self._last_before(record, thing)
        return _or_none(older, record.position, confidence, record, stated)

    def _first_after(self, record: MemoryRecord, name: str) -> int | None:
        for lines in self._lines:
            line = lines.get((owner_of(record), name))
            found = None if line is None else next(line.later(record), None)
            if found is not None:
                return found
        return None

    def _last_before(self, record: MemoryRecord, name: str) -> int | None:
        for lines in self._lines:
            line = lines.get((owner_of(record), name))
            found = None if line is None else line.last_before(record)
            if found is not None:
                return found
        return None

    def _names(self, extraction: Extraction) -> _Names:
        found = extraction.found
        return _Names(
            {self._canonical(item.name) for item in found if item.role == "about"},
            {self._canonical(item.name) for item in found if item.kind == "tag"},
        )

    def _canonical(self, name: str) -> str:
        return self._canonical_of.get(name, name)


class _Names:
    __slots__ = ("about", "tagged")

    def __init__(self, about: set[str], tagged: set[str]) -> None:
        self.about, self.tagged = about, tagged

    def holds(self, name: str) -> bool:
        return name in self.about or name in self.tagged


def _or_none(
    older: int | None, newer: int | None, confidence: int, record: MemoryRecord, stated: Stated
) -> Link | str:
    if older is None or newer is None:
        return "no_target"
    return _link(older, newer, confidence, record, stated)


def _link(older: int, newer: int, confidence: int, record: MemoryRecord, stated: Stated) -> Link:
    evidence = Evidence(record.position, stated.start, stated.end)
    return Link(older, newer, "explicit", confidence, None, "", evidence)


# What a memory says of a subject that can only have one value at a time.


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
    """One value of one subject."""

    position: int
    subject: str  # canonical folded name; "" for the owner of the memory
    slot: str
    relation: str
    value: str  # canonical folded name
    is_vague: bool
    share: float  # part of the content that the statement takes, in [0, 1]
    evidence: Evidence


def statements_of(
    memory: Memory, canonical_of: Mapping[str, str], rejected: Counter[str]
) -> Iterator[Statement]:
    """Yield what a memory says of its subjects."""
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


# Links between memories that say something else of the same subject: "X is now Y", newer value.
#
# Decided here:
# - An older statement ends at the *earliest* later one that differs, since it stopped holding
#   then; later changes follow as a chain, so that the answer as of any moment is right.
# - A later memory that repeats the older value beside another one (a list, a before-and-after)
#   ends nothing; neither does one that says the same in more or fewer words: it confirms.
# - A relation with more than VALUES_MAX values in one wing is a list of happenings ("meeting:
#   ...").
# - Every function here sees one group (one user, subject and slot): a changed memory concerns only
#   the groups of its own statements, before and after the change.


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
    """Return every statement by what it may contradict; linear in the statements."""
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
    """Yield one link per ended statement of one group."""
    if len({statement.position for statement in statements}) < 2:
        return
    kept = _without_lists(statements, memories, rejected)
    group = _Group(kept, memories)
    for older in kept:
        newer = group.first_to_differ(older)
        if newer is not None:
            yield _value_link(older, newer)


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


def _value_link(older: Statement, newer: Statement) -> Link:
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
