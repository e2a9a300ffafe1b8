"""Looking at the concept graph of one snapshot, inside one scope."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import StoreError
from noctuary.core.files import read_array
from noctuary.core.foreign_json import parse_json
from noctuary.core.sqlite import connect_immutable
from noctuary.core.types import UNDATED_US
from noctuary.graph.fold import fold_name
from noctuary.graph.walk import OPEN_END_US
from noctuary.text.marks import ELLIPSIS, clean, iso

# The one line of a memory that shows why it is here. Texts only.


BEFORE_CHARACTERS = 60
"""Kept of the line before the evidence; more shows more of the sentence, less keeps one row."""

LINE_CHARACTERS = 160
"""Longest line; of longer ones the part around the evidence is kept."""


class Line(NamedTuple):
    """A line of a memory."""

    text: str
    start: int = -1  # first character of the evidence in it, or -1
    end: int = -1  # one past its last character, or -1


def evidence_line(content: str, start: int, end: int) -> Line:
    """Return the line of a content that holds a span; without one (start < 0), the first line."""
    if not 0 <= start < end <= len(content):
        return Line(_first_line(content))
    begin = content.rfind("\n", 0, start) + 1
    stop = content.find("\n", end)
    before = clean(content[begin:start] + "|")[:-1]
    inside = clean(content[start:end])
    after = clean("|" + content[end : len(content) if stop < 0 else stop])[1:]
    if len(before) > BEFORE_CHARACTERS:
        before = ELLIPSIS + before[-BEFORE_CHARACTERS:]
    room = max(0, LINE_CHARACTERS - len(before) - len(inside))
    if len(after) > room:
        after = after[:room].rstrip() + ELLIPSIS
    return Line(before + inside + after, len(before), len(before) + len(inside))


def _first_line(content: str) -> str:
    lines = content.split("\n")
    first = next((cleaned for line in lines if (cleaned := clean(line))), "")
    return first if len(first) <= LINE_CHARACTERS else first[:LINE_CHARACTERS].rstrip() + ELLIPSIS


# What a look at the graph returns: plain values that texts, charts and JSON are made of.
#
# Moments are microseconds since the epoch; None where there is none. Ids are the source's own.


MemoryId = int | str


class MergeView(NamedTuple):
    """Two names that are one concept, and why."""

    name: str  # folded name that was merged away
    canonical: str  # folded name that stands for it
    reason: str  # "alias", "minhash", "embedding" or "rule"
    score: float  # jaccard or cosine in [0, 1]; 1 for aliases and rules
    detail: str

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return dict(self._asdict())


class MemoryView(NamedTuple):
    """One memory that holds the concept."""

    memory_id: MemoryId
    created_at_us: int
    role: str
    line: str  # the line of its content that holds the evidence, else its first line
    start: int  # first character of the evidence in the line, or -1 where an author field holds it
    end: int  # one past its last character, or -1
    replaced_by: MemoryId | None  # the memory that superseded it, or None
    replaced_at_us: int | None

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "id": self.memory_id,
            "created_at": iso(self.created_at_us),
            "role": self.role,
            "line": self.line,
            "span": None if self.start < 0 else [self.start, self.end],
            "replaced_by": self.replaced_by,
            "replaced_at": iso(self.replaced_at_us),
        }


class RelationView(NamedTuple):
    """A relation that memories state between the concept and another."""

    relation: str
    outward: bool
    other: str
    other_ordinal: int
    weight: float  # in (0, 1], 1 - 1 / (1 + number of memories that state it)
    evidence: tuple[MemoryId, ...]
    valid_from_us: int
    valid_to_us: int | None  # exclusive end, None while it holds
    closed_by: MemoryId | None  # the memory that ended it, or None where it is not known

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "relation": self.relation,
            "direction": "out" if self.outward else "in",
            "other": self.other,
            "weight": round(self.weight, 6),
            "evidence": list(self.evidence),
            "valid_from": iso(self.valid_from_us),
            "valid_to": iso(self.valid_to_us),
            "open": self.valid_to_us is None,
            "closed_by": self.closed_by,
        }


class NeighbourView(NamedTuple):
    """A concept that the same memories hold."""

    name: str
    ordinal: int
    kind: str
    shared: int
    held: int
    score: float  # shared / held ** SPECIFICITY_POWER (`noctuary.graph.view`)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "name": self.name,
            "kind": self.kind,
            "shared": self.shared,
            "held": self.held,
            "score": round(self.score, 6),
        }


class StepView(NamedTuple):
    """A memory that others lead to over the concept."""

    memory_id: MemoryId
    created_at_us: int
    line: str  # its first line
    relation: str
    sources: int
    weight: float  # the strongest step's weight, in (0, 1]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "id": self.memory_id,
            "created_at": iso(self.created_at_us),
            "line": self.line,
            "relation": self.relation,
            "sources": self.sources,
            "weight": round(self.weight, 6),
        }


class ConceptView(NamedTuple):
    """One concept with everything around it; lists are cut to a limit, totals are not."""

    name: str
    kind: str
    concept_id: str
    aliases: tuple[str, ...]  # other spellings, sorted
    held: int
    roles: dict[str, int]  # number of those memories by role, strongest role first
    merges: tuple[MergeView, ...]
    memories: tuple[MemoryView, ...]  # by role, then newest first
    relations: tuple[RelationView, ...]  # open ones first, then the newest
    neighbours: tuple[NeighbourView, ...]  # best score first
    steps: tuple[StepView, ...]  # most sources first
    totals: dict[str, int]  # length of each list before it was cut, by name
    as_of_us: int | None = None  # the moment of valid time that is shown, or None for now
    known_at_us: int | None = None  # the moment of transaction time, or None for now

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        lists = ("merges", "memories", "relations", "neighbours", "steps")
        return {
            "concept": {
                "name": self.name,
                "kind": self.kind,
                "concept_id": self.concept_id,
                "aliases": list(self.aliases),
                "memories": self.held,
                "roles": dict(self.roles),
            },
            **{name: [item.to_json() for item in getattr(self, name)] for name in lists},
            "totals": dict(self.totals),
            "as_of": iso(self.as_of_us),
            "known_at": iso(self.known_at_us),
        }


# Which memories, and which moments, a look at the graph may see. Arrays only, no files.


Mask = NDArray[np.bool_]


class Sight(NamedTuple):
    """What may be seen."""

    # (n,) True where the scope allows the memory and the store had written it by `known_at_us`;
    # what other memories say does not exist
    allowed: Mask
    seen: Mask  # (n,) True where it is allowed and existed at `as_of_us`
    as_of_us: int | None = None  # the moment of valid time that is looked at, or None for now
    known_at_us: int | None = None  # the moment of transaction time, or None for now

    @property
    def hides(self) -> bool:
        """Say whether there is a memory that must not show in any name."""
        return not bool(self.allowed.all())

    def is_known(self, recorded_at_us: NDArray[np.int64]) -> Mask:
        """Tell what the store had recorded by the moment of knowing, shape as given."""
        if self.known_at_us is None:
            return np.ones(recorded_at_us.shape, dtype=np.bool_)
        return recorded_at_us <= self.known_at_us

    def effective_ends(
        self, valid_to_us: NDArray[np.int64], retracted_at_us: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the ends as known then: what was ended later was still open."""
        if self.known_at_us is None:
            return valid_to_us
        return np.where(retracted_at_us <= self.known_at_us, valid_to_us, OPEN_END_US)

    def holds(self, valid_from_us: NDArray[np.int64], ends_us: NDArray[np.int64]) -> Mask:
        """Tell what holds at the moment looked at; now: what has no end."""
        if self.as_of_us is None:
            return ends_us == OPEN_END_US
        return (valid_from_us <= self.as_of_us) & (self.as_of_us < ends_us)


def make_sight(
    allowed: Mask,
    created_at_us: NDArray[np.int64],
    *,
    updated_at_us: NDArray[np.int64] | None = None,
    as_of_us: int | None = None,
    known_at_us: int | None = None,
) -> Sight:
    """Return what may be seen; undated memories have always existed.

    Args:
        allowed: (n,) True where the scope allows the memory.
        created_at_us: (n,) when each came about, UNDATED_US where unknown.
        updated_at_us: (n,) when the store last wrote each; needed with `known_at_us`.
        as_of_us: Moment of valid time, or None.
        known_at_us: Moment of transaction time, or None.
    """
    if known_at_us is not None and updated_at_us is not None:
        allowed = allowed & ((updated_at_us == UNDATED_US) | (updated_at_us <= known_at_us))
    seen = allowed
    if as_of_us is not None:
        seen = allowed & ((created_at_us == UNDATED_US) | (created_at_us <= as_of_us))
    return Sight(allowed, seen, as_of_us, known_at_us)


# The graph of one snapshot as it lies on disk: a SQLite file and arrays. No scope, no wording.


MENTION_FIELDS = ("indptr", "positions", "roles", "starts", "ends")
STEP_FIELDS = (
    "indptr", "targets", "weights", "relations", "concepts", "valid_from_us", "valid_to_us",
    "recorded_at_us", "retracted_at_us",
)  # fmt: skip

_SQL_VARIABLES = 500  # below SQLite's oldest limit of 999
_AUTHOR_FIELDS = "tags, category, expanded_keywords, wing, room, session_id, user"


class Arrays(NamedTuple):
    """The arrays of a graph, M mentions of C concepts and E steps between n memories."""

    # by MENTION_FIELDS: `indptr` (C+1,), the others (M,), sorted by concept, position
    mentions: Mapping[str, NDArray[Any]]
    # by STEP_FIELDS: `indptr` (n+1,), the others (E,), sorted by source
    steps: Mapping[str, NDArray[Any]]


class Held(NamedTuple):
    """Pairs of a concept and a memory that holds it, each once; both int64 (k,), by concept."""

    concepts: NDArray[np.int64]
    positions: NDArray[np.int64]


class GraphSource:
    """What one scope may see of the graph of one snapshot."""

    def __init__(
        self,
        rows: sqlite3.Connection,
        arrays: Arrays,
        sight: Sight,
        relations: Sequence[str],
        *,
        ids_are_integers: bool,
    ) -> None:
        """Wrap an opened snapshot."""
        self._rows = rows
        self.mentions = arrays.mentions
        self.steps = arrays.steps
        self.sight = sight
        self.relations = tuple(relations)
        self._ids_are_integers = ids_are_integers

    @property
    def concept_count(self) -> int:
        """Concepts of the snapshot, whether they may be seen or not."""
        return int(self.mentions["indptr"].size) - 1

    def query(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a statement."""
        return self._rows.execute(sql, values).fetchall()

    def query_in(self, sql: str, values: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a statement that ends in `IN`, for any number of values."""
        wanted = list(dict.fromkeys(values))
        for start in range(0, len(wanted), _SQL_VARIABLES):
            chunk = wanted[start : start + _SQL_VARIABLES]
            yield from self.query(f"{sql} ({','.join('?' * len(chunk))})", chunk)

    def ids(self, positions: Iterable[int]) -> dict[int, int | str]:
        """Return the public id of each position."""
        found = self.query_in(
            "SELECT position, memory_id FROM memories WHERE position IN", map(int, positions)
        )
        return {p: int(i) if self._ids_are_integers else i for p, i in found}

    def contents(self, positions: Iterable[int]) -> dict[int, str]:
        """Return the text of each position."""
        sql = "SELECT position, content FROM memories WHERE position IN"
        return dict(self.query_in(sql, map(int, positions)))

    def author_fields(self, positions: Iterable[int]) -> dict[int, str]:
        """Return what stands in the author fields of each position, as one text."""
        sql = f"SELECT position, {_AUTHOR_FIELDS} FROM memories WHERE position IN"
        return {
            position: "\n".join(value for value in fields if value)
            for position, *fields in self.query_in(sql, map(int, positions))
        }

    def created_at_us(self, positions: Iterable[int]) -> dict[int, int]:
        """Return when each position came about, in microseconds; UNDATED_US where unknown."""
        sql = "SELECT position, created_at_us FROM memories WHERE position IN"
        return dict(self.query_in(sql, map(int, positions)))

    def rows_of(self, ordinal: int) -> slice:
        """Return where the mentions of a concept lie."""
        indptr = self.mentions["indptr"]
        return slice(int(indptr[ordinal]), int(indptr[ordinal + 1]))

    def holders(self, ordinal: int) -> NDArray[np.int64]:
        """Return the memories that hold a concept and may be seen, ascending."""
        positions = np.unique(self.mentions["positions"][self.rows_of(ordinal)])
        return positions[self.sight.seen[positions]].astype(np.int64)

    @cached_property
    def held(self) -> Held:
        """Every concept with every memory that holds it and may be seen."""
        positions = self.mentions["positions"]
        indptr = self.mentions["indptr"]
        first = np.ones(positions.size, dtype=np.bool_)
        first[1:] = positions[1:] != positions[:-1]
        first[indptr[:-1][indptr[:-1] < positions.size]] = True
        concepts = np.repeat(np.arange(self.concept_count, dtype=np.int64), np.diff(indptr))
        kept = first & self.sight.seen[positions]
        return Held(concepts[kept], positions[kept].astype(np.int64))

    @cached_property
    def frequencies(self) -> NDArray[np.int64]:
        """Memories per concept that hold it and may be seen, int64 (C,)."""
        return np.bincount(self.held.concepts, minlength=self.concept_count).astype(np.int64)

    @cached_property
    def steps_that_hold(self) -> NDArray[np.int64]:
        """Return indexes of the steps between memories that may be seen and that hold, (h,)."""
        ends = self.sight.effective_ends(self.steps["valid_to_us"], self.steps["retracted_at_us"])
        holds = self.sight.holds(self.steps["valid_from_us"], ends)
        holds &= self.sight.is_known(self.steps["recorded_at_us"])
        holds &= self.sight.seen[self.steps["targets"]] & self.sight.seen[self.step_sources]
        return np.flatnonzero(holds)

    @cached_property
    def step_sources(self) -> NDArray[np.int64]:
        """The memory from which each step starts, int64 (E,)."""
        indptr = self.steps["indptr"]
        return np.repeat(np.arange(indptr.size - 1, dtype=np.int64), np.diff(indptr))


# Names of concepts, as the memories that may be seen write them; finding a concept by name.


SURFACES_READ = 2_000
"""Memories read for the spellings of a concept of which a part is hidden; more costs time, fewer
may miss a rare alias."""

NEAREST_SHOWN = 5
"""Names offered where none matches."""

_NEAREST_CUTOFF = 0.55
"""Least similarity (difflib ratio) of an offered name; lower offers chance resemblances."""

_NEAREST_TRIED = 40
"""Similar names looked up: those of hidden concepts among them are passed over."""

_PREFIX_CHARACTERS = 3
"""A shared beginning makes a candidate; fewer characters find typos earlier in a word."""

_PER_QUESTION = 300
"""Candidates per prefix or word: comparing them all stays below a tenth of a second."""

_MOST_HELD = 1_500
"""Most held concepts that are always compared: a typo at the beginning still finds them."""


class Names(NamedTuple):
    """How a concept may be called here."""

    shown: str
    aliases: tuple[str, ...]  # the other spellings that may be seen, sorted
    folded: frozenset[str]  # folded forms of them all
    complete: bool


class NameBook:
    """The names of one source's concepts, each worked out once."""

    def __init__(self, source: GraphSource) -> None:
        self._source = source
        self._known: dict[int, Names | None] = {}

    def names(self, ordinal: int) -> Names | None:
        """Return the names of a concept, or None where no memory that may be seen names it."""
        if ordinal not in self._known:
            self._known[ordinal] = self._read(ordinal)
        return self._known[ordinal]

    def shown(self, ordinal: int) -> str | None:
        """Return the one name to show, or None where there is none."""
        names = self.names(ordinal)
        return None if names is None else names.shown

    def find(self, text: str) -> int | None:
        """Return the concept that a text names, by folded name or alias; None where there is none.

        Of several, one whose canonical name matches comes first, then the most held one.
        """
        name = fold_name(text)
        rows = self._source.query("SELECT ordinal FROM concept_names WHERE name = ?", [name])
        best: tuple[bool, int, int] | None = None
        for (ordinal,) in rows:
            names = self.names(ordinal)
            if names is None or not (names.complete or name in names.folded):
                continue
            held = int(self._source.holders(ordinal).size)
            rank = (fold_name(names.shown) != name, -held, ordinal)
            best = rank if best is None else min(best, rank)
        return None if best is None else best[2]

    def nearest(self, text: str) -> tuple[str, ...]:
        """Return names of concepts that resemble a text, best first, at most NEAREST_SHOWN."""
        import difflib  # only where a name is unknown

        name = fold_name(text)
        candidates = sorted(set(self._candidates(name)))
        near = difflib.get_close_matches(name, candidates, _NEAREST_TRIED, _NEAREST_CUTOFF)
        words = set(name.split())
        near += [c for c in candidates if words & set(c.split()) and c not in near]
        found: dict[str, None] = {}
        for candidate in near[: 2 * _NEAREST_TRIED]:
            ordinal = self.find(candidate)
            names = None if ordinal is None else self.names(ordinal)
            if names is not None:
                found[names.shown] = None
            if len(found) == NEAREST_SHOWN:
                break
        return tuple(found)

    def _candidates(self, name: str) -> Iterator[str]:
        prefix = name[:_PREFIX_CHARACTERS]
        for (found,) in self._source.query(
            "SELECT DISTINCT name FROM concept_names WHERE name >= ? AND name < ? ORDER BY name "
            "LIMIT ?",
            [prefix, prefix + chr(0x10FFFF), _PER_QUESTION],
        ):
            yield found
        for word in name.split():
            for (found,) in self._source.query(
                "SELECT DISTINCT name FROM concept_names WHERE instr(' ' || name || ' ', ?) "
                "ORDER BY name LIMIT ?",
                [f" {word} ", _PER_QUESTION],
            ):
                yield found
        for (found,) in self._source.query(
            "SELECT canonical_name FROM concepts ORDER BY df DESC, ordinal LIMIT ?", [_MOST_HELD]
        ):
            yield fold_name(found)

    def _read(self, ordinal: int) -> Names | None:
        rows = self._source.query(
            "SELECT canonical_name, aliases FROM concepts WHERE ordinal = ?", [ordinal]
        )
        if not rows:
            return None
        canonical, aliases = str(rows[0][0]), [str(a) for a in parse_json(rows[0][1])]
        positions = self._source.mentions["positions"][self._source.rows_of(ordinal)]
        allowed = self._source.sight.allowed
        if not bool(allowed[positions].any()):
            return None
        if bool(allowed[positions].all()):
            return _names(canonical, aliases, complete=True)
        surfaces = self._visible_surfaces(ordinal, [canonical, *aliases])
        if not surfaces:
            return None
        shown = min(surfaces, key=lambda s: (s != canonical, -surfaces[s], s))
        return _names(shown, sorted(set(surfaces) - {shown}), complete=False)

    def _visible_surfaces(self, ordinal: int, known: list[str]) -> Counter[str]:
        """Return how often each spelling stands in a memory that may be seen."""
        rows, mentions = self._source.rows_of(ordinal), self._source.mentions
        places = [
            (position, start, end)
            for position, start, end in zip(
                mentions["positions"][rows].tolist(),
                mentions["starts"][rows].tolist(),
                mentions["ends"][rows].tolist(),
                strict=True,
            )
            if self._source.sight.allowed[position]
        ][:SURFACES_READ]
        contents = self._source.contents(p for p, start, _ in places if start >= 0)
        fields = self._source.author_fields(p for p, start, _ in places if start < 0)
        surfaces: Counter[str] = Counter()
        for position, start, end in places:
            if start >= 0:
                surfaces[contents[position][start:end]] += 1
            else:
                surfaces.update(_spelled_in(fields[position], known))
        return surfaces


def _names(shown: str, aliases: list[str], *, complete: bool) -> Names:
    folded = frozenset(map(fold_name, (shown, *aliases)))
    return Names(shown, tuple(aliases), folded, complete)


def _spelled_in(fields: str, known: list[str]) -> list[str]:
    """Return the first spelling of each folded form that stands in author fields."""
    text = f" {fold_name(fields)} "
    forms: dict[str, str] = {}
    for surface in known:
        forms.setdefault(fold_name(surface), surface)
    return [surface for form, surface in forms.items() if f" {form} " in text]


# Stated relations of concepts as one scope may see them. No wording, no cutting to a limit.


_COLUMNS = "src, dst, relation, weight, evidence, valid_from_us, valid_to_us, retracted_at_us"


class SeenRelation(NamedTuple):
    """A stated relation of which at least one statement may be seen."""

    src: int
    dst: int
    relation: str
    weight: float  # in (0, 1]; counts only what may be seen
    positions: tuple[int, ...]  # memories that state it and may be seen, ascending, never empty
    valid_from_us: int
    valid_to_us: int | None  # exclusive end, None while it holds or what ended it may not be seen
    closer: int | None  # position of the memory that ended it, or None where it is not known

    def holds(self, as_of_us: int | None) -> bool:
        """Say whether it is valid at a moment; None: whether it has not ended."""
        if as_of_us is None:
            return self.valid_to_us is None
        ended = self.valid_to_us is not None and self.valid_to_us <= as_of_us
        return self.valid_from_us <= as_of_us and not ended


class RelationReader:
    """Reads the relations of one source; its sight decides what they say."""

    def __init__(self, source: GraphSource) -> None:
        self._source = source

    def around(self, ordinals: Iterable[int]) -> list[SeenRelation]:
        """Return the relations from or to any of these concepts, each once, in a fixed order.

        With a moment of valid time, only those that held then; else ended ones as well.
        """
        wanted = list(ordinals)
        rows: dict[tuple[Any, ...], None] = {}
        for end in ("src", "dst"):
            sql = f"SELECT {_COLUMNS} FROM concept_edges WHERE {end} IN"
            rows.update(dict.fromkeys(self._source.query_in(sql, wanted)))
        return self._seen(list(rows))

    def everything(self) -> list[SeenRelation]:
        """Return every relation of the graph, as `around` does for some concepts."""
        return self._seen(self._source.query(f"SELECT {_COLUMNS} FROM concept_edges"))

    def _seen(self, rows: Sequence[tuple[Any, ...]]) -> list[SeenRelation]:
        decoded = [_Row.read(row) for row in rows]
        sight = self._source.sight
        decoded = [row for row in decoded if any(sight.seen[p] for p in row.positions)]
        closers = self._closers(row for row in decoded if row.valid_to_us is not None)
        found = [self._as_seen(row, closers) for row in decoded]
        if sight.as_of_us is not None:
            found = [relation for relation in found if relation.holds(sight.as_of_us)]
        return sorted(found, key=lambda r: (r.src, r.relation, r.dst, r.valid_from_us))

    def _as_seen(self, row: _Row, closers: dict[tuple[int, int], list[int]]) -> SeenRelation:
        sight = self._source.sight
        positions = tuple(p for p in row.positions if sight.seen[p])
        weight, valid_from = row.weight, row.valid_from_us
        if len(positions) < len(row.positions):
            weight = 1.0 - 1.0 / (1.0 + len(positions))
            valid_from = min(self._source.created_at_us(positions).values())
        valid_to, closer = self._end_of(row, closers)
        return SeenRelation(
            row.src, row.dst, row.relation, weight, positions, valid_from, valid_to, closer
        )

    def _end_of(
        self, row: _Row, closers: dict[tuple[int, int], list[int]]
    ) -> tuple[int | None, int | None]:
        """Return the end and what made it; an end that only hidden memories know is none."""
        sight = self._source.sight
        if row.valid_to_us is None:
            return None, None
        if sight.known_at_us is not None and (row.retracted_at_us or 0) > sight.known_at_us:
            return None, None
        makers = {m for p in row.positions for m in closers.get((p, row.valid_to_us), ())}
        if not makers:
            return row.valid_to_us, None
        visible = [m for m in makers if sight.allowed[m]]
        return (row.valid_to_us, min(visible)) if visible else (None, None)

    def _closers(self, rows: Iterable[_Row]) -> dict[tuple[int, int], list[int]]:
        """Return the memories that superseded others, by what they superseded and when."""
        sql = "SELECT older, valid_to_us, newer FROM supersessions WHERE older IN"
        closers: dict[tuple[int, int], list[int]] = {}
        for older, valid_to, newer in self._source.query_in(
            sql, (p for row in rows for p in row.positions)
        ):
            closers.setdefault((older, valid_to), []).append(newer)
        return closers


class _Row(NamedTuple):
    src: int
    dst: int
    relation: str
    weight: float
    positions: tuple[int, ...]
    valid_from_us: int
    valid_to_us: int | None
    retracted_at_us: int | None

    @classmethod
    def read(cls, row: Sequence[Any]) -> _Row:
        src, dst, relation, weight, evidence, valid_from, valid_to, retracted = row
        positions = sorted({int(place[0]) for place in parse_json(evidence)})
        return cls(src, dst, relation, weight, tuple(positions), valid_from, valid_to, retracted)


# A stated relation as it is shown from one of its two concepts.


def positions_of(relation: SeenRelation) -> list[int]:
    """Return the memories that a shown relation names."""
    closer = [] if relation.closer is None else [relation.closer]
    return [*relation.positions, *closer]


def view_relation(
    relation: SeenRelation, seen_from: int, other_name: str, ids: Mapping[int, MemoryId]
) -> RelationView:
    """Return a relation as seen from a concept."""
    outward = relation.src == seen_from
    return RelationView(
        relation=relation.relation,
        outward=outward,
        other=other_name,
        other_ordinal=relation.dst if outward else relation.src,
        weight=relation.weight,
        evidence=tuple(ids[p] for p in relation.positions),
        valid_from_us=relation.valid_from_us,
        valid_to_us=relation.valid_to_us,
        closed_by=None if relation.closer is None else ids[relation.closer],
    )


# Concepts that the same memories hold, and memories that a concept leads to.


SPECIFICITY_POWER = 0.5
"""Power of the number of memories that hold a neighbour, by which shared memories are divided. 1
puts whatever a single memory names first, 0 what every memory names."""


class Neighbours(NamedTuple):
    """Concepts beside one, best first; all int64 but scores, (m,)."""

    ordinals: NDArray[np.int64]
    shared: NDArray[np.int64]
    held: NDArray[np.int64]
    scores: NDArray[np.float64]


class Targets(NamedTuple):
    """Memories that steps over one concept reach, most sources first; (m,)."""

    positions: NDArray[np.int64]
    sources: NDArray[np.int64]
    weights: NDArray[np.float64]
    relations: NDArray[np.int64]


def neighbours_of(source: GraphSource, ordinal: int) -> Neighbours:
    """Return the concepts that share memories with one; equal scores: most shared, then ordinal."""
    member = np.zeros(source.sight.seen.size, dtype=np.bool_)
    member[source.holders(ordinal)] = True
    beside = source.held.concepts[member[source.held.positions]]
    counts = np.bincount(beside, minlength=source.concept_count)
    counts[ordinal] = 0
    ordinals = np.flatnonzero(counts)
    shared, held = counts[ordinals], source.frequencies[ordinals]
    scores = shared / held**SPECIFICITY_POWER
    order = np.lexsort((ordinals, -shared, -scores))
    return Neighbours(ordinals[order], shared[order], held[order], scores[order])


def targets_of(source: GraphSource, ordinal: int) -> Targets:
    """Return the memories that steps over a concept reach, of those that hold."""
    chosen = source.steps_that_hold
    chosen = chosen[source.steps["concepts"][chosen] == ordinal]
    targets = source.steps["targets"][chosen].astype(np.int64)
    weights = source.steps["weights"][chosen].astype(np.float64)
    relations = source.steps["relations"][chosen].astype(np.int64)
    order = np.lexsort((chosen, relations, -weights, targets))
    positions, first = np.unique(targets[order], return_index=True)
    pairs = np.unique(np.stack([targets, source.step_sources[chosen]]), axis=1)
    sources = np.searchsorted(pairs[0], positions, "right") - np.searchsorted(pairs[0], positions)
    best = order[first]
    ranked = np.lexsort((positions, -weights[best], -sources))
    return Targets(
        positions[ranked], sources[ranked], weights[best][ranked], relations[best][ranked]
    )


# Merge decisions: which names are one concept, why, and how to undo one.


_MERGE_COLUMNS = "name, canonical, reason, score, detail"


def merges_into(source: GraphSource, names: Names) -> tuple[MergeView, ...]:
    """Return the merges that made a concept, of names that may be seen, by name."""
    sql = f"SELECT {_MERGE_COLUMNS} FROM merges WHERE canonical IN"
    found = sorted(_view(row) for row in source.query_in(sql, sorted(names.folded)))
    return tuple(m for m in found if names.complete or {m.name, m.canonical} <= names.folded)


def list_merges(source: GraphSource, book: NameBook) -> list[MergeView]:
    """Return every merge whose two names may be seen, by canonical name, then name."""
    return sorted(_visible(source, book), key=lambda m: (m.canonical, m.name))


def undo_line(merge: MergeView) -> str:
    """Return the line of `merges.toml` that keeps two names apart from the next night on."""
    pair = ", ".join(json.dumps(name, ensure_ascii=False) for name in (merge.name, merge.canonical))
    return f"never = [[{pair}]]"


def _visible(source: GraphSource, book: NameBook) -> Iterator[MergeView]:
    rows = source.query(
        "SELECT merges.name, canonical, reason, score, detail, ordinal FROM merges "
        "JOIN concept_names ON concept_names.name = merges.canonical"
    )
    for *row, ordinal in rows:
        merge, names = _view(row), book.names(ordinal)
        if names is None:
            continue
        if names.complete or {merge.name, merge.canonical} <= names.folded:
            yield merge


def _view(row: Sequence[Any]) -> MergeView:
    name, canonical, reason, score, detail = row
    return MergeView(str(name), str(canonical), str(reason), float(score), str(detail))


# Opening the graph of a snapshot directory for one scope. The caller has verified the snapshot.


_TABLES = frozenset({"concepts", "concept_names", "concept_edges", "supersessions", "merges"})


class GraphFiles(NamedTuple):
    """Where the graph of one snapshot lies."""

    rows: Path
    mentions: Mapping[str, Path]  # its mention arrays, by MENTION_FIELDS
    steps: Mapping[str, Path]  # its step arrays, by STEP_FIELDS

    @staticmethod
    def locate(
        directory: Path,
        rows_file: str,
        mention_file: Callable[[str], str],
        step_file: Callable[[str], str],
    ) -> GraphFiles:
        """Return the files of a snapshot directory, named by its layout."""
        mentions = {name: directory / mention_file(name) for name in MENTION_FIELDS}
        steps = {name: directory / step_file(name) for name in STEP_FIELDS}
        return GraphFiles(directory / rows_file, mentions, steps)


class Looking(NamedTuple):
    """What is looked at."""

    allowed: Mask | None  # (n,) True where the scope allows the memory, or None for everything
    created_at_us: NDArray[np.int64]  # (n,) when each memory came about
    relations: Sequence[str]  # names of the step relations by code
    ids_are_integers: bool
    as_of_us: int | None = None  # moment of valid time, or None for now
    known_at_us: int | None = None  # moment of transaction time, or None for now


@contextmanager
def open_graph(files: GraphFiles, looking: Looking) -> Generator[GraphSource]:
    """Open the graph as one scope may see it; closed on leaving.

    Raises:
        StoreError: The snapshot was built before concepts could be looked at.
    """
    with closing(connect_immutable(files.rows)) as rows:
        _require(rows, files)
        updated = None if looking.known_at_us is None else _updated_at_us(rows)
        allowed = looking.allowed
        if allowed is None:
            allowed = np.ones(looking.created_at_us.size, dtype=np.bool_)
        sight = make_sight(
            allowed,
            looking.created_at_us,
            updated_at_us=updated,
            as_of_us=looking.as_of_us,
            known_at_us=looking.known_at_us,
        )
        arrays = Arrays(_read(files.mentions), _read(files.steps))
        ids_are_integers = looking.ids_are_integers
        yield GraphSource(rows, arrays, sight, looking.relations, ids_are_integers=ids_are_integers)


def _require(rows: sqlite3.Connection, files: GraphFiles) -> None:
    found = {name for (name,) in rows.execute("SELECT name FROM sqlite_master")}
    missing = sorted(_TABLES - found)
    missing += [p.name for p in (*files.mentions.values(), *files.steps.values()) if not p.exists()]
    if missing:
        raise StoreError(
            f"snapshot {files.rows.parent.name} has no {', '.join(missing)}: it was built before "
            "concepts could be looked at; run the nightly job"
        )


def _read(paths: Mapping[str, Path]) -> dict[str, NDArray[Any]]:
    # A plain view of the map: every slice of a memmap object costs some microseconds more.
    return {name: read_array(path).view(np.ndarray) for name, path in paths.items()}


def _updated_at_us(rows: sqlite3.Connection) -> NDArray[np.int64]:
    found = rows.execute("SELECT updated_at_us FROM memories ORDER BY position").fetchall()
    return np.array([when for (when,) in found], dtype=np.int64)
