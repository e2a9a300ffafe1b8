"""Views of the concept graph of one snapshot, as values, limited to one scope."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.core import store as layout
from noctuary.core.files import group_arrays, read_arrays
from noctuary.core.foreign_json import parse_json
from noctuary.core.tombstones import open_rows
from noctuary.core.types import UNDATED_US, least_trusted
from noctuary.graph.fold import ROLES, fold_name
from noctuary.graph.walk import OPEN_END_US
from noctuary.text.marks import ELLIPSIS, clean, iso

Mask = NDArray[np.bool_]
Ints = NDArray[np.int64]
MemoryId = int | str


@contextmanager
def open_graph(
    directory: Path,
    allowed: Mask | None,
    created_at_us: Ints,
    relations: Sequence[str],
    *,
    ids_are_integers: bool,
    as_of_us: int | None = None,
    known_at_us: int | None = None,
) -> Generator[GraphSource]:
    """Open the graph of a verified snapshot as one scope may see it; closed on leaving.

    `allowed` (None for everything) and `created_at_us` are (n,), `relations` name steps by code.
    `as_of_us` is a moment of valid time, `known_at_us` of transaction time, None for now.
    """
    arrays = read_arrays(directory / layout.ARRAYS_FILE)
    with closing(open_rows(directory)) as rows:
        seen = np.ones(created_at_us.size, np.bool_) if allowed is None else allowed
        if known_at_us is not None:
            written = np.full(created_at_us.size, OPEN_END_US, np.int64)  # hidden: not yet
            held = rows.execute("SELECT position, updated_at_us FROM memories").fetchall()
            positions, moments = np.array(held, np.int64).reshape(-1, 2).T
            written[positions] = moments
            seen = seen & _by(written, known_at_us)
        yield GraphSource(
            rows=rows,
            mentions=group_arrays(arrays, "mentions"),
            steps=group_arrays(arrays, "graph"),
            relations=tuple(relations),
            ids_are_integers=ids_are_integers,
            allowed=seen,
            seen=seen if as_of_us is None else seen & _by(created_at_us, as_of_us),
            as_of_us=as_of_us,
            known_at_us=known_at_us,
        )


def _by(moments_us: Ints, moment_us: int) -> Mask:
    """Return where a moment had passed; undated memories always existed."""
    return (moments_us == UNDATED_US) | (moments_us <= moment_us)


@dataclass(frozen=True)
class GraphSource:
    """The part of one snapshot's graph visible to a scope: M mentions, E steps, C concepts."""

    rows: sqlite3.Connection
    mentions: Mapping[str, NDArray[Any]]  # by field of MentionArrays
    steps: Mapping[str, NDArray[Any]]  # by field of GraphArrays
    relations: tuple[str, ...]
    ids_are_integers: bool
    # (n,) where the scope allows the memory and the store had written it by `known_at_us`; other
    # memories do not exist for this view
    allowed: Mask
    seen: Mask  # (n,) where it is allowed and existed at `as_of_us`
    as_of_us: int | None
    known_at_us: int | None

    def __len__(self) -> int:
        return int(self.mentions["indptr"].size) - 1  # concepts, hidden ones as well

    @property
    def hides(self) -> bool:
        """Return whether any memory must not show in names."""
        return not bool(self.allowed.all())

    def query(
        self, sql: str, values: Sequence[Any] | Mapping[str, Any] = ()
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a statement."""
        return self.rows.execute(sql, values).fetchall()

    def query_in(self, sql: str, values: Iterable[Any]) -> list[tuple[Any, ...]]:
        """Return the rows of a statement that ends in `IN`, for any number of values."""
        wanted = json.dumps(list(dict.fromkeys(values)))
        return self.query(f"{sql} (SELECT value FROM json_each(?))", [wanted])

    def column(self, name: str, positions: Iterable[int]) -> dict[int, Any]:
        """Return a column of some memories, by position: moments in microseconds or UNDATED_US."""
        sql = f"SELECT position, {name} FROM memories WHERE position IN"
        return dict(self.query_in(sql, map(int, positions)))

    def ids(self, positions: Iterable[int]) -> dict[int, MemoryId]:
        """Return the public id of each position."""
        found = self.column("memory_id", positions)
        return {p: int(i) for p, i in found.items()} if self.ids_are_integers else found

    def rows_of(self, ordinal: int) -> slice:
        """Return where the mentions of a concept lie."""
        return slice(*self.mentions["indptr"][ordinal : ordinal + 2].tolist())

    def places(self, ordinal: int, allowed: Mask) -> list[tuple[int, int, int, int]]:
        """Return position, role, start and end of each mention of a concept in some memories."""
        rows, names = self.rows_of(ordinal), ("positions", "roles", "starts", "ends")
        columns = [self.mentions[name][rows].tolist() for name in names]
        return [place for place in zip(*columns, strict=True) if allowed[place[0]]]

    def holders(self, ordinal: int) -> Ints:
        """Return the memories that hold a concept and may be seen, ascending."""
        positions = np.unique(self.mentions["positions"][self.rows_of(ordinal)])
        return positions[self.seen[positions]].astype(np.int64)

    @cached_property
    def held(self) -> tuple[Ints, Ints]:
        """Every concept and memory that holds it and may be seen, each pair once, by concept."""
        positions, indptr = self.mentions["positions"], self.mentions["indptr"]
        concepts = np.repeat(np.arange(len(self), dtype=np.int64), np.diff(indptr))
        first = np.ones(positions.size, dtype=np.bool_)
        first[1:] = (positions[1:] != positions[:-1]) | (concepts[1:] != concepts[:-1])
        kept = first & self.seen[positions]
        return concepts[kept], positions[kept].astype(np.int64)

    @cached_property
    def held_by_memory(self) -> tuple[Ints, Ints]:
        """The concepts of every memory as compressed rows: indptr (n+1,), concepts."""
        concepts, positions = self.held
        order = np.argsort(positions, kind="stable")
        memories = np.arange(self.seen.size + 1)
        return np.searchsorted(positions[order], memories), concepts[order]

    @cached_property
    def frequencies(self) -> Ints:
        """Memories per concept that hold it and may be seen, (C,)."""
        return np.bincount(self.held[0], minlength=len(self)).astype(np.int64)

    @cached_property
    def steps_that_hold(self) -> Ints:
        """Return indexes of the steps between memories that may be seen and that hold, (h,)."""
        steps, ends = self.steps, self.steps["valid_to_us"]
        holds = self.seen[steps["targets"]] & self.seen[self.step_sources]
        if self.known_at_us is not None:
            # As known then: intervals ended later were still open.
            ends = np.where(steps["retracted_at_us"] <= self.known_at_us, ends, OPEN_END_US)
            holds &= steps["recorded_at_us"] <= self.known_at_us
        if self.as_of_us is None:
            return np.flatnonzero(holds & (ends == OPEN_END_US))
        begun = steps["valid_from_us"] <= self.as_of_us
        return np.flatnonzero(holds & begun & (self.as_of_us < ends))

    @cached_property
    def step_sources(self) -> Ints:
        """The memory from which each step starts, (E,)."""
        counts = np.diff(self.steps["indptr"])
        return np.repeat(np.arange(counts.size, dtype=np.int64), counts)


# Names of concepts, as the memories that may be seen write them; finding a concept by name.

# Memories read for the spellings of a concept of which a part is hidden; more costs time, fewer may
# miss a rare alias.
SURFACES_READ = 2_000
NEAREST_SHOWN = 5  # names offered where none matches
_NEAREST_CUTOFF = 0.55  # least similarity (difflib ratio) of an offered name; lower offers chance
_NEAREST_TRIED = 40  # similar names looked up: those of hidden concepts among them are passed over
_PREFIX_CHARACTERS = 3  # a shared beginning makes a candidate; fewer find typos earlier in a word
_CANDIDATES = 1_500  # names of each sort that are compared: some tenth of a second
# Names with the same beginning, with a word of the text, and those held most: a typo at the
# beginning still finds these.
_RESEMBLING = """
SELECT * FROM (SELECT name FROM concept_names WHERE :start <> '' AND name >= :start
    AND name < :start || char(1114111) LIMIT :most)
UNION SELECT * FROM (SELECT name FROM concept_names, json_each(:words)
    WHERE instr(' ' || name || ' ', ' ' || value || ' ') LIMIT :most)
UNION SELECT * FROM (SELECT name FROM concepts JOIN concept_names USING (ordinal)
    ORDER BY df DESC, ordinal LIMIT :most)
"""
_AUTHOR_FIELDS = "tags, category, expanded_keywords, wing, room, session_id, user"


class Names(NamedTuple):
    """How a concept may be called here."""

    shown: str  # its canonical name, or the most frequent spelling that may be seen
    aliases: tuple[str, ...]  # the other spellings that may be seen, sorted
    complete: bool  # whether every memory that holds the concept may be seen

    @property
    def folded(self) -> frozenset[str]:
        """Folded forms of them all."""
        return frozenset(map(fold_name, (self.shown, *self.aliases)))

    def may_tell(self, *names: str) -> bool:
        """Return whether folded names of the concept are known here."""
        return self.complete or self.folded.issuperset(names)


class NameBook:
    """The names of one source's concepts, each worked out once."""

    def __init__(self, source: GraphSource) -> None:
        self.source = source
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

    def named(self, ordinals: Iterable[int], limit: int) -> Iterator[tuple[int, str]]:
        """Yield the first concepts that may be named, with their names."""
        return islice(((i, name) for i in ordinals if (name := self.shown(i)) is not None), limit)

    def find(self, text: str) -> int | None:
        """Return the concept that a text names, first by its canonical name, or None."""
        name = fold_name(text)
        ranks: list[tuple[bool, int, int]] = []
        for (ordinal,) in self.source.query(
            "SELECT ordinal FROM concept_names WHERE name = ?", [name]
        ):
            names = self.names(ordinal)
            if names is not None and names.may_tell(name):
                held = int(self.source.holders(ordinal).size)
                ranks.append((fold_name(names.shown) != name, -held, ordinal))
        return min(ranks)[2] if ranks else None

    def nearest(self, text: str) -> tuple[str, ...]:
        """Return names of concepts that resemble a text, best first, at most NEAREST_SHOWN."""
        import difflib  # only where a name is unknown

        name = fold_name(text)
        words = name.split()
        asked = {"start": name[:_PREFIX_CHARACTERS], "words": json.dumps(words)}
        found = self.source.query(_RESEMBLING, {**asked, "most": _CANDIDATES})
        candidates = [name for (name,) in found]
        near = difflib.get_close_matches(name, candidates, _NEAREST_TRIED, _NEAREST_CUTOFF)
        near += [c for c in candidates if not set(words).isdisjoint(c.split())][:_NEAREST_TRIED]
        ordinals = (i for i in map(self.find, near) if i is not None)
        return tuple(dict.fromkeys(filter(None, map(self.shown, ordinals))))[:NEAREST_SHOWN]

    def _read(self, ordinal: int) -> Names | None:
        sql = "SELECT canonical_name, aliases FROM concepts WHERE ordinal = ?"
        rows, positions = self.source.query(sql, [ordinal]), self.source.mentions["positions"]
        allowed = self.source.allowed[positions[self.source.rows_of(ordinal)]]
        if not rows or not allowed.any():
            return None
        canonical, aliases = str(rows[0][0]), [str(a) for a in parse_json(rows[0][1])]
        if allowed.all():
            return Names(canonical, tuple(aliases), complete=True)
        surfaces = self._visible_surfaces(ordinal, [canonical, *aliases])
        if not surfaces:
            return None
        shown = min(surfaces, key=lambda s: (s != canonical, -surfaces[s], s))
        return Names(shown, tuple(sorted(set(surfaces) - {shown})), complete=False)

    def _visible_surfaces(self, ordinal: int, known: list[str]) -> Counter[str]:
        """Return how often each spelling occurs in visible memories."""
        source = self.source
        places = source.places(ordinal, source.allowed)[:SURFACES_READ]
        contents = source.column("content", (p for p, _, start, _ in places if start >= 0))
        sql = f"SELECT position, {_AUTHOR_FIELDS} FROM memories WHERE position IN"
        authored = source.query_in(sql, (p for p, _, start, _ in places if start < 0))
        fields = {position: "\n".join(filter(None, values)) for position, *values in authored}
        surfaces: Counter[str] = Counter()
        for position, _, start, end in places:
            if start >= 0:
                surfaces[contents[position][start:end]] += 1
            else:
                surfaces.update(_spelled_in(fields[position], known))
        return surfaces


def _spelled_in(fields: str, known: list[str]) -> list[str]:
    """Return the first spelling of each folded form that occurs in author fields."""
    text = f" {fold_name(fields)} "
    forms = {fold_name(surface): surface for surface in reversed(known)}
    return [surface for form, surface in forms.items() if f" {form} " in text]


# Stated relations of concepts.


class SeenRelation(NamedTuple):
    """A stated relation of which at least one statement may be seen."""

    src: int  # ordinal of the subject
    dst: int  # ordinal of the object
    relation: str
    weight: float  # in (0, 1]; counts only visible memories
    positions: tuple[int, ...]  # memories that state it and may be seen, ascending, never empty
    valid_from_us: int  # when the earliest of them was created
    valid_to_us: int | None  # None while it holds, or if the memory that ended it is hidden
    closer: int | None  # position of the memory that ended it, or None where it is not known

    def holds(self, as_of_us: int | None) -> bool:
        """Return whether it is valid at a moment; None: whether it has not ended."""
        if as_of_us is None:
            return self.valid_to_us is None
        ended = self.valid_to_us is not None and self.valid_to_us <= as_of_us
        return self.valid_from_us <= as_of_us and not ended


def stated_relations(
    source: GraphSource, ordinals: Iterable[int] | None = None
) -> list[SeenRelation]:
    """Return the relations of some concepts (None: all), those of the moment asked for."""
    sql = (
        "SELECT src, dst, relation, weight, evidence, valid_from_us, valid_to_us, retracted_at_us "
        "FROM concept_edges"
    )
    if ordinals is None:
        rows = source.query(sql)
    else:
        wanted = list(ordinals)
        ends = (source.query_in(f"{sql} WHERE {end} IN", wanted) for end in ("src", "dst"))
        rows = list(dict.fromkeys(row for found in ends for row in found))
    stated = [(row, sorted({int(place[0]) for place in parse_json(row[4])})) for row in rows]
    stated = [(row, by) for row, by in stated if source.seen[by].any()]
    ended = (p for row, by in stated if row[6] is not None for p in by)
    closers: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
    sql = "SELECT older, valid_to_us, newer FROM supersessions WHERE older IN"
    for *end, newer in source.query_in(sql, ended):
        closers[end[0], end[1]].add(newer)
    found = [_as_seen(source, row, by, closers) for row, by in stated]
    if source.as_of_us is not None:
        found = [relation for relation in found if relation.holds(source.as_of_us)]
    return sorted(found, key=lambda r: (r.src, r.relation, r.dst, r.valid_from_us))


def _as_seen(
    source: GraphSource,
    row: tuple[Any, ...],
    stated_by: list[int],
    closers: Mapping[tuple[int, int], set[int]],
) -> SeenRelation:
    src, dst, relation, weight, _, valid_from, valid_to, retracted = row
    positions = tuple(p for p in stated_by if source.seen[p])
    if len(positions) < len(stated_by):
        weight = 1.0 - 1.0 / (1.0 + len(positions))
        valid_from = min(source.column("created_at_us", positions).values())
    if source.known_at_us is not None and (retracted or 0) > source.known_at_us:
        valid_to = None
    ended = () if valid_to is None else ((p, valid_to) for p in stated_by)
    makers = {m for end in ended for m in closers.get(end, ())}
    # An end that only hidden memories know is none.
    visible = [m for m in makers if source.allowed[m]]
    if makers and not visible:
        valid_to = None
    closer = min(visible, default=None)
    return SeenRelation(src, dst, relation, weight, positions, valid_from, valid_to, closer)


# The one line of a memory that shows why it is here.

BEFORE_CHARACTERS = 60  # kept of the line before the evidence; less keeps one row
LINE_CHARACTERS = 160  # longest line; of longer ones the part around the evidence is kept


def evidence_line(content: str, start: int, end: int) -> tuple[str, list[int] | None]:
    """Return the line of a content that holds a span, and the span in it, steering no terminal.

    Without a span (start < 0) it is the first line, and the span is None.
    """
    if not 0 <= start < end <= len(content):
        first = next(filter(None, map(clean, content.split("\n"))), "")
        fits = len(first) <= LINE_CHARACTERS
        return first if fits else first[:LINE_CHARACTERS].rstrip() + ELLIPSIS, None
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
    return before + inside + after, [len(before), len(before) + len(inside)]


# One concept with everything around it, as the plain values that `--json` prints and that texts
# are made of: moments are ISO-8601 or None, ids the source's own.

Shown = dict[str, Any]

_DIGITS = 6  # of weights and scores

# Power of the number of memories that hold a neighbour, by which shared memories are divided. 1
# ranks neighbours of a single memory first, 0 those in every memory.
SPECIFICITY_POWER = 0.5


def describe_concept(source: GraphSource, book: NameBook, ordinal: int, limit: int) -> Shown:
    """Return a concept that `book.find` found, its lists cut to a limit (>= 0), not its totals."""
    names = book.names(ordinal)
    if names is None:
        raise ValueError(f"found concept {ordinal}, expected one that may be seen")
    sql = "SELECT concept_id, kind FROM concepts WHERE ordinal = ?"
    ((concept_id, kind),) = source.query(sql, [ordinal])
    seen = source.places(ordinal, source.seen)
    counts = Counter(role for _, role in {place[:2] for place in seen})
    best: dict[int, tuple[int, int, int, int]] = {}
    for place in sorted(seen, key=lambda at: (at[1], at[2] < 0, at[2])):
        best.setdefault(place[0], place)
    created = source.column("created_at_us", best)
    places = sorted(best.values(), key=lambda at: (at[1], -created[at[0]], at[0]))
    sql = f"SELECT {_MERGE_COLUMNS} FROM merges WHERE canonical IN"
    merges = [_merge(*row) for row in sorted(source.query_in(sql, sorted(names.folded)))]
    merges = [merge for merge in merges if names.may_tell(merge["name"], merge["canonical"])]
    said = [(r, book.shown(_other(r, ordinal))) for r in stated_relations(source, [ordinal])]
    relations = [(r, name) for r, name in said if name is not None]
    relations.sort(key=lambda at: (*_openness(at[0], ordinal), at[1]))
    neighbours, neighbour_count = _neighbours(source, book, ordinal, limit)
    steps, step_count = _steps(source, ordinal, limit)
    return {
        "concept": {
            "name": names.shown, "kind": str(kind), "concept_id": str(concept_id),
            "aliases": list(names.aliases), "memories": len(places),
            "roles": {ROLES[code]: counts[code] for code in sorted(counts)},
        },
        "merges": merges,
        "memories": _memories(source, places[:limit], created),
        "relations": show_relations(source, ordinal, relations[:limit]),
        "neighbours": neighbours,
        "steps": steps,
        "totals": {
            "merges": len(merges), "memories": len(places), "relations": len(relations),
            "neighbours": neighbour_count, "steps": step_count,
        },
        "as_of": iso(source.as_of_us),
        "known_at": iso(source.known_at_us),
    }  # fmt: skip


def _memories(
    source: GraphSource, places: Sequence[tuple[int, int, int, int]], created: Mapping[int, int]
) -> list[Shown]:
    positions = [position for position, *_ in places]
    # When and by which newest memory that may be seen each of them was replaced.
    replaced: dict[int, tuple[int, int]] = {}
    sql = "SELECT older, newer, valid_to_us FROM supersessions WHERE older IN"
    for older, newer, when in source.query_in(sql, positions):
        happened = source.as_of_us is None or when <= source.as_of_us
        if happened and source.allowed[newer]:
            replaced[older] = max(replaced.get(older, (when, newer)), (when, newer))
    ids = source.ids([*positions, *(newer for _, newer in replaced.values())])
    contents = source.column("content", positions)
    found: list[Shown] = []
    for position, role, start, end in places:
        when, newer = replaced.get(position, (None, None))
        line, span = evidence_line(contents[position], start, end)
        found.append({
            "id": ids[position], "created_at": iso(created[position]), "role": ROLES[role],
            "line": line, "span": span, "replaced_by": None if newer is None else ids[newer],
            "replaced_at": iso(when),
        })  # fmt: skip
    return found


def show_relations(
    source: GraphSource, ordinal: int, named: Sequence[tuple[SeenRelation, str]]
) -> list[Shown]:
    """Return relations as seen from one of their concepts, each given with the other's name."""
    stated = [p for r, _ in named for p in r.positions]
    closers = (r.closer for r, _ in named if r.closer is not None)
    ids, origins = source.ids([*closers, *stated]), source.column("origin", stated)
    return [
        {
            "relation": r.relation, "direction": "out" if r.src == ordinal else "in", "other": name,
            "weight": round(r.weight, _DIGITS), "evidence": [ids[p] for p in r.positions],
            "written_by": least_trusted(origins[p] for p in r.positions),
            "valid_from": iso(r.valid_from_us), "valid_to": iso(r.valid_to_us),
            "closed_by": None if r.closer is None else ids[r.closer],
            "open": r.valid_to_us is None,
        }
        for r, name in named
    ]  # fmt: skip


def _other(r: SeenRelation, ordinal: int) -> int:
    return r.dst if r.src == ordinal else r.src


def _openness(r: SeenRelation, ordinal: int) -> tuple[bool, int, str, bool]:
    return r.valid_to_us is not None, -r.valid_from_us, r.relation, r.src != ordinal


def _neighbours(
    source: GraphSource, book: NameBook, ordinal: int, limit: int
) -> tuple[list[Shown], int]:
    """Return the neighbours that may be named, best score first, and how many there are in all."""
    member = np.zeros(source.seen.size, dtype=np.bool_)
    member[source.holders(ordinal)] = True
    concepts, positions = source.held
    shared = np.bincount(concepts[member[positions]], minlength=len(source))
    shared[ordinal] = 0
    beside, held = np.flatnonzero(shared), source.frequencies
    scores = np.zeros(shared.size)
    scores[beside] = shared[beside] / held[beside] ** SPECIFICITY_POWER
    best_first = beside[np.lexsort((beside, -shared[beside], -scores[beside]))].tolist()
    named = list(book.named(best_first, limit))
    kinds = dict(
        source.query_in(
            "SELECT ordinal, kind FROM concepts WHERE ordinal IN", (i for i, _ in named)
        )
    )
    found = [
        {
            "name": name, "kind": str(kinds[i]), "shared": int(shared[i]), "held": int(held[i]),
            "score": round(float(scores[i]), _DIGITS),
        }
        for i, name in named
    ]  # fmt: skip
    return found, int(beside.size)


def _steps(source: GraphSource, ordinal: int, limit: int) -> tuple[list[Shown], int]:
    """Return the memories that steps over a concept reach, and how many there are in all."""
    chosen = source.steps_that_hold
    chosen = chosen[source.steps["concepts"][chosen] == ordinal]
    columns = (source.steps[name][chosen] for name in ("targets", "weights", "relations"))
    targets, weights, relations = columns
    order = np.lexsort((chosen, relations, -weights, targets))
    positions, first = np.unique(targets[order], return_index=True)
    best = order[first]
    # How many memories lead to each target: distinct pairs, counted by target.
    pairs = np.unique(np.stack([targets, source.step_sources[chosen]]), axis=1)
    sources = np.unique(pairs[0], return_counts=True)[1]
    ranked = np.lexsort((positions, -weights[best], -sources))[:limit].tolist()
    shown = positions[ranked].tolist()
    ids, contents = source.ids(shown), source.column("content", shown)
    created = source.column("created_at_us", shown)
    found = [
        {
            "id": ids[position], "created_at": iso(created[position]),
            "line": evidence_line(contents[position], -1, -1)[0],
            "relation": source.relations[int(relations[best[i]])], "sources": int(sources[i]),
            "weight": round(float(weights[best[i]]), _DIGITS),
        }
        for i, position in zip(ranked, shown, strict=True)
    ]  # fmt: skip
    return found, int(positions.size)


# Merge decisions, and the most connected concepts.

_MERGE_COLUMNS = "merges.name, canonical, reason, score, detail"


def list_merges(source: GraphSource, book: NameBook) -> list[Shown]:
    """Return every merge whose two names may be seen, by canonical name, then name."""
    rows = source.query(
        f"SELECT {_MERGE_COLUMNS}, ordinal FROM merges "
        "JOIN concept_names ON concept_names.name = merges.canonical"
    )
    found = [
        {**_merge(name, canonical, *why), "undo": undo_line(name, canonical)}
        for name, canonical, *why, ordinal in rows
        if (names := book.names(ordinal)) is not None and names.may_tell(name, canonical)
    ]
    return sorted(found, key=lambda m: (m["canonical"], m["name"]))


def _merge(*row: Any) -> Shown:
    return dict(zip(("name", "canonical", "reason", "score", "detail"), row, strict=True))


def undo_line(name: str, canonical: str) -> str:
    """Return the line of `merges.toml` that keeps two names apart from the next night on."""
    return f"never = [{json.dumps([name, canonical], ensure_ascii=False)}]"


def top_concepts(
    source: GraphSource, book: NameBook, limit: int, kind: str | None = None
) -> list[Shown]:
    """Return the concepts (of one kind) with most relations and steps, at most `limit`."""
    held, size = source.frequencies, len(source)
    relations = np.zeros(size, dtype=np.int64)
    for relation in stated_relations(source):
        if relation.holds(source.as_of_us):
            relations[[relation.src, relation.dst]] += 1
    resting = source.steps["concepts"][source.steps_that_hold]
    steps = np.bincount(resting[resting >= 0], minlength=size)
    kinds: dict[int, str] = dict(source.query("SELECT ordinal, kind FROM concepts"))
    chosen = [i for i in np.flatnonzero(held).tolist() if kind in (None, kinds[i])]
    chosen.sort(key=lambda i: (-int(relations[i] + steps[i]), -int(held[i]), i))
    return [
        {
            "name": name, "kind": kinds[i], "memories": int(held[i]),
            "relations": int(relations[i]), "steps": int(steps[i]),
        }
        for i, name in book.named(chosen, limit)
    ]  # fmt: skip


def kinds_of(source: GraphSource) -> tuple[str, ...]:
    """Return the kinds of the concepts that may be seen, sorted."""
    rows = source.query("SELECT ordinal, kind FROM concepts")
    return tuple(sorted({str(kind) for ordinal, kind in rows if source.frequencies[ordinal]}))
