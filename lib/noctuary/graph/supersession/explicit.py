"""Links that a text makes itself: "supersedes #12", "replaced Jest", "switched from X to Y".

What belongs here: finding the memory that the stated relation "supersedes" means. What does not:
reading texts (`noctuary.graph.extract`), choosing among links (`resolve`).

- Object "#id": that memory, whatever the dates say. So are the links of a store
  (`noctuary.graph.told`).
- Object "#" alone: the memory itself says what replaced it ("Replaced by ESLint.").
- Object a name: the newest strictly older memory about that name. A memory that is itself about the
  object and not about the subject ("TSLint: replaced by ESLint") says what replaced it: its
  successor is the earliest strictly later memory about the subject.
- A memory is about what its text begins with; where no memory is, what it is tagged with counts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from noctuary.arrow import arrow_compute
from noctuary.graph.extraction import Extraction, Stated
from noctuary.graph.lexicon import FUNCTION_WORDS, GENERIC_KEYS
from noctuary.graph.model import NO_SPAN, Evidence
from noctuary.graph.supersession.columns import MemoryColumns, Sighting
from noctuary.graph.supersession.corpus import Corpus
from noctuary.graph.supersession.links import Link
from noctuary.graph.supersession.memories import Memory, Timeline, in_scope, is_dated, owner_of
from noctuary.types import MemoryRecord

ID_MARK = "#"
"""Begins an object that is a memory; alone it is the memory that speaks."""

_BY_ID, _BY_SUBJECT, _BY_OBJECT_ONLY = 2, 1, 0


def explicit_links(
    corpus: Corpus, canonical_of: Mapping[str, str], rejected: Counter[str]
) -> Iterator[Link]:
    """Yield the links that memories state.

    Args:
        corpus: The memories.
        canonical_of: Folded names that were merged away, and what stands for them.
        rejected: Counts by reason: unknown_id, self, scope, undated, generic, no_target.
    """
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
    import pyarrow as pa

    if not ids:
        return {}
    known = columns.memory_ids.combine_chunks()
    places = arrow_compute().index_in(pa.array(ids, pa.string()), value_set=known)
    found = zip(ids, places.to_pylist(), strict=True)
    return {memory_id: place for memory_id, place in found if place is not None}


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
