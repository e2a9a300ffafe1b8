"""One concept, a path between two, the best connected ones: as values and as text."""

from __future__ import annotations

import heapq
import re
from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.graph.view import (
    ConceptView,
    GraphSource,
    MemoryId,
    MemoryView,
    MergeView,
    NameBook,
    Neighbours,
    NeighbourView,
    RelationReader,
    RelationView,
    StepView,
    evidence_line,
    merges_into,
    neighbours_of,
    positions_of,
    targets_of,
    undo_line,
    view_relation,
)
from noctuary.graph.walk import ROLES
from noctuary.text.marks import clean, cut, day, memories, pad, plural, spoken, width

# The cheapest ways from one concept to another, over stated relations and shared memories.


COST_UNIT = 1_000
"""Costs are whole thousandths: sums in any order are equal, so that equal ways are found equal."""

STATED_COST = 1.0
"""A hop over a stated relation; dearer ones let shared memories win over what a text says."""

SHARED_COST = 1.0
"""A hop over shared memories costs this and log2(1 + a * b / s**2): a and b memories hold its two
ends, s of them both. At least 2; two hubs that meet once in a memory are far apart."""

MAX_EXPANDED = 2_000
"""Concepts looked at before the search gives up: some two seconds at worst."""

MAX_HOLDERS = 200
"""Memories of one concept that are walked through; a hub beyond joins everything and explains
nothing."""

MAX_WAYS = 50
"""Equally cheap ways that are counted."""

_FAR = int(np.iinfo(np.int64).max)


class Ways(NamedTuple):
    """What a search found."""

    chains: tuple[tuple[int, ...], ...]
    cost: int
    expanded: int
    gave_up: bool
    # concepts of which only MAX_HOLDERS memories were walked through, ascending
    hubs: tuple[int, ...]
    uncounted: bool


class PathSearch:
    """One search; Dijkstra over (hops, concept), so that a bound on hops keeps cheap ways."""

    def __init__(self, source: GraphSource, start: int, goal: int, max_hops: int) -> None:
        self._source, self._start, self._goal = source, start, goal
        self._max_hops = max_hops
        self._relations = RelationReader(source)
        self._costs = np.full((max_hops + 1, source.concept_count), _FAR, dtype=np.int64)
        self._before: dict[tuple[int, int], list[int]] = {}
        self._hubs: set[int] = set()
        self._expanded = 0

    def run(self) -> Ways:
        """Return the cheapest ways of at most `max_hops` hops; start and goal differ."""
        self._costs[0, self._start] = 0
        waiting = [(0, 0, self._start)]
        gave_up = False
        while waiting:
            cost, hops, concept = heapq.heappop(waiting)
            if cost >= self._goal_cost():
                break
            if hops == self._max_hops or cost > self._costs[hops, concept]:
                continue
            if self._expanded == MAX_EXPANDED:
                gave_up = True
                break
            self._expanded += 1
            for reached, total in self._expand(concept, hops, cost):
                heapq.heappush(waiting, (total, hops + 1, reached))
        return self._result(gave_up)

    def _goal_cost(self) -> int:
        return int(self._costs[:, self._goal].min())

    def _expand(self, concept: int, hops: int, cost: int) -> Iterator[tuple[int, int]]:
        """Yield what is now reached cheaper than before, noting where from."""
        targets, steps = self._hops_from(concept)
        totals = steps + cost
        near = totals <= self._goal_cost()
        targets, totals = targets[near], totals[near]
        known = self._costs[: hops + 2, targets].min(axis=0)
        cheaper = totals < known
        as_cheap = (totals == known) & (totals == self._costs[hops + 1, targets])
        self._costs[hops + 1, targets[cheaper]] = totals[cheaper]
        for reached in targets[as_cheap].tolist():
            self._before[hops + 1, reached].append(concept)
        found = zip(targets[cheaper].tolist(), totals[cheaper].tolist(), strict=True)
        for reached, total in found:
            self._before[hops + 1, reached] = [concept]
            yield reached, total

    def _hops_from(self, concept: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the concepts one hop away, ascending and distinct, and the cost of the hop."""
        beside, costs = self._shared_hops(concept)
        stated = self._stated_hops(concept)
        unit = np.full(stated.size, round(STATED_COST * COST_UNIT), dtype=np.int64)
        targets, totals = np.concatenate([stated, beside]), np.concatenate([unit, costs])
        order = np.lexsort((totals, targets))
        distinct, first = np.unique(targets[order], return_index=True)
        return distinct, totals[order][first]

    def _stated_hops(self, concept: int) -> NDArray[np.int64]:
        as_of = self._source.sight.as_of_us
        found = self._relations.around([concept])
        ends = {end for r in found if r.holds(as_of) for end in (r.src, r.dst)}
        return np.array(sorted(ends - {concept}), dtype=np.int64)

    def _shared_hops(self, concept: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        holders = self._source.holders(concept)
        if holders.size > MAX_HOLDERS:
            self._hubs.add(concept)
            holders = holders[:MAX_HOLDERS]
        indptr, concepts = self._by_memory
        pieces = [concepts[indptr[p] : indptr[p + 1]] for p in holders.tolist()]
        beside = np.concatenate(pieces) if pieces else np.empty(0, dtype=np.int64)
        targets, shared = np.unique(beside[beside != concept], return_counts=True)
        held = self._source.frequencies
        rarity = held[concept] * held[targets] / shared.astype(np.float64) ** 2
        costs = np.rint(COST_UNIT * (SHARED_COST + np.log2(1.0 + rarity)))
        return targets.astype(np.int64), costs.astype(np.int64)

    @cached_property
    def _by_memory(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the concepts of every memory as compressed rows: indptr (n+1,), concepts."""
        held = self._source.held
        order = np.argsort(held.positions, kind="stable")
        indptr = np.zeros(self._source.sight.seen.size + 1, dtype=np.int64)
        np.cumsum(np.bincount(held.positions, minlength=indptr.size - 1), out=indptr[1:])
        return indptr, held.concepts[order]

    def _result(self, gave_up: bool) -> Ways:
        cost = self._goal_cost()
        hubs = tuple(sorted(self._hubs))
        if cost == _FAR:
            return Ways((), 0, self._expanded, gave_up, hubs, False)
        hops = int(np.argmin(self._costs[:, self._goal]))
        chains: list[tuple[int, ...]] = []
        for chain in self._chains(hops, self._goal):
            if len(chains) == MAX_WAYS:
                return Ways(tuple(chains), cost, self._expanded, gave_up, hubs, True)
            chains.append(chain)
        return Ways(tuple(chains), cost, self._expanded, gave_up, hubs, False)

    def _chains(self, hops: int, concept: int) -> Iterator[tuple[int, ...]]:
        if hops == 0:
            yield (concept,)
            return
        for before in sorted(self._before[hops, concept]):
            for chain in self._chains(hops - 1, before):
                yield (*chain, concept)


# Explaining how two concepts are connected: every hop with its relation and its evidence.


PATHS_SHOWN = 3
"""Equally cheap paths that are explained; the others are counted."""

EVIDENCE_SHOWN = 5
"""Shared memories named per hop, the newest; the others are counted."""

_HUBS_NAMED = 3
_UNNAMED = "(a name that only hidden memories hold)"


class HopView(NamedTuple):
    """One hop of a path."""

    start: str
    end: str
    # what is stated between the two and holds; empty where shared memories join them
    relations: tuple[RelationView, ...]
    # newest memories that hold both; empty where a relation joins them
    shared: tuple[MemoryId, ...]
    shared_count: int

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "from": self.start,
            "to": self.end,
            "type": "stated" if self.relations else "shared_memories",
            "relations": [relation.to_json() for relation in self.relations],
            "shared": list(self.shared),
            "shared_count": self.shared_count,
        }


class PathView(NamedTuple):
    """How two concepts are connected."""

    start: str  # name of the first concept
    end: str
    # equally cheap paths, in the order of their names, at most PATHS_SHOWN
    paths: tuple[tuple[HopView, ...], ...]
    found: int  # how many there are (at most MAX_WAYS are counted)
    cost: float
    max_hops: int
    # what cut the search short, in words; with any, "none" means "none was found"
    bounds: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "from": self.start,
            "to": self.end,
            "found": self.found,
            "cost": self.cost,
            "paths": [[hop.to_json() for hop in path] for path in self.paths],
            "max_hops": self.max_hops,
            "bounds": list(self.bounds),
        }


def find_paths(
    source: GraphSource, book: NameBook, start: int, goal: int, max_hops: int
) -> PathView:
    """Return the cheapest paths between two concepts of at most `max_hops` hops (>= 1)."""
    names = (_name(book, start), _name(book, goal))
    if start == goal:
        return PathView(*names, (), 0, 0.0, max_hops, ())
    ways = PathSearch(source, start, goal, max_hops).run()
    chains = sorted(ways.chains, key=lambda chain: ([_name(book, c) for c in chain], chain))
    return PathView(
        *names,
        paths=tuple(
            tuple(_hop(source, book, a, b) for a, b in pairwise(chain))
            for chain in chains[:PATHS_SHOWN]
        ),
        found=len(chains),
        cost=ways.cost / COST_UNIT,
        max_hops=max_hops,
        bounds=_bounds(book, ways),
    )


def _name(book: NameBook, ordinal: int) -> str:
    return book.shown(ordinal) or _UNNAMED


def _hop(source: GraphSource, book: NameBook, start: int, end: int) -> HopView:
    as_of = source.sight.as_of_us
    found = RelationReader(source).around([start])
    stated = [r for r in found if {r.src, r.dst} == {start, end} and r.holds(as_of)]
    both = np.intersect1d(source.holders(start), source.holders(end))
    names = (_name(book, start), _name(book, end))
    if stated:
        ids = source.ids(p for r in stated for p in positions_of(r))
        relations = tuple(view_relation(r, start, names[1], ids) for r in stated)
        return HopView(*names, relations, (), int(both.size))
    created = source.created_at_us(both.tolist())
    newest = sorted(created, key=lambda p: (-created[p], p))[:EVIDENCE_SHOWN]
    ids = source.ids(newest)
    return HopView(*names, (), tuple(ids[p] for p in newest), int(both.size))


def _bounds(book: NameBook, ways: Ways) -> tuple[str, ...]:
    said: list[str] = []
    if ways.gave_up:
        said.append(f"stopped after looking at {MAX_EXPANDED:,} concepts")
    if ways.hubs:
        named = ", ".join(_name(book, hub) for hub in ways.hubs[:_HUBS_NAMED])
        more = len(ways.hubs) - _HUBS_NAMED
        rest = f" and {more} more" if more > 0 else ""
        said.append(f"walked through only the first {memories(MAX_HOLDERS)} of {named}{rest}")
    if ways.uncounted:
        said.append(f"counted only {MAX_WAYS} of the equally short paths")
    return tuple(said)


# Describing one concept: everything around it that a scope may see, cut to a limit.


def describe_concept(source: GraphSource, book: NameBook, ordinal: int, limit: int) -> ConceptView:
    """Return a concept that `book.find` found, its lists cut to a limit (>= 0)."""
    names = book.names(ordinal)
    if names is None:
        raise ValueError(f"found concept {ordinal}, expected one that may be seen")
    ((concept_id, kind),) = source.query(
        "SELECT concept_id, kind FROM concepts WHERE ordinal = ?", [ordinal]
    )
    holds = _strongest_mentions(source, ordinal)
    relations = _relations(source, book, ordinal)
    neighbours, neighbour_count = _neighbours(source, book, neighbours_of(source, ordinal), limit)
    steps, step_count = _steps(source, ordinal, limit)
    merges = merges_into(source, names)
    return ConceptView(
        name=names.shown,
        kind=str(kind),
        concept_id=str(concept_id),
        aliases=names.aliases,
        held=len(holds),
        roles=_roles(source, ordinal),
        merges=merges,
        memories=_memories(source, holds[:limit]),
        relations=tuple(relations[:limit]),
        neighbours=neighbours,
        steps=steps,
        totals={
            "merges": len(merges),
            "memories": len(holds),
            "relations": len(relations),
            "neighbours": neighbour_count,
            "steps": step_count,
        },
        as_of_us=source.sight.as_of_us,
        known_at_us=source.sight.known_at_us,
    )


class _Hold(NamedTuple):
    """The strongest and first place where a memory holds the concept."""

    position: int
    role: int
    start: int
    end: int


def _strongest_mentions(source: GraphSource, ordinal: int) -> list[_Hold]:
    """Return one place per memory, by role, then newest first."""
    rows = source.rows_of(ordinal)
    columns = [source.mentions[f][rows].tolist() for f in ("positions", "roles", "starts", "ends")]
    best: dict[int, _Hold] = {}
    for position, role, start, end in zip(*columns, strict=True):
        hold = _Hold(position, role, start, end)
        if source.sight.seen[position] and (
            position not in best or _strength(hold) < _strength(best[position])
        ):
            best[position] = hold
    created = source.created_at_us(best)
    return sorted(best.values(), key=lambda h: (h.role, -created[h.position], h.position))


def _strength(hold: _Hold) -> tuple[int, bool, int]:
    # A span says more than an author field of the same role.
    return hold.role, hold.start < 0, hold.start


def _roles(source: GraphSource, ordinal: int) -> dict[str, int]:
    rows = source.rows_of(ordinal)
    positions, roles = source.mentions["positions"][rows], source.mentions["roles"][rows]
    seen = source.sight.seen[positions]
    counts = {
        name: int(np.unique(positions[seen & (roles == code)]).size)
        for code, name in enumerate(ROLES)
    }
    return {name: count for name, count in counts.items() if count}


def _memories(source: GraphSource, holds: Sequence[_Hold]) -> tuple[MemoryView, ...]:
    positions = [hold.position for hold in holds]
    replaced = _replacements(source, positions)
    ids = source.ids([*positions, *(newer for newer, _ in replaced.values())])
    contents, created = source.contents(positions), source.created_at_us(positions)
    found: list[MemoryView] = []
    for position, role, start, end in holds:
        newer, when = replaced.get(position, (None, None))
        line = evidence_line(contents[position], start, end)
        replaced_by = None if newer is None else ids[newer]
        found.append(
            MemoryView(ids[position], created[position], ROLES[role], *line, replaced_by, when)
        )
    return tuple(found)


def _replacements(source: GraphSource, positions: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Return the newest memory that may be seen and replaced each of these, and when."""
    sight = source.sight
    found: dict[int, tuple[int, int]] = {}
    sql = "SELECT older, newer, valid_to_us FROM supersessions WHERE older IN"
    for older, newer, when in source.query_in(sql, positions):
        happened = sight.as_of_us is None or when <= sight.as_of_us
        if happened and sight.allowed[newer]:
            found[older] = max(found.get(older, (newer, when)), (newer, when), key=_by_moment)
    return found


def _by_moment(replacement: tuple[int, int]) -> tuple[int, int]:
    newer, when = replacement
    return when, newer


def _relations(source: GraphSource, book: NameBook, ordinal: int) -> list[RelationView]:
    """Return the relations whose other end may be named: open ones first, then the newest."""
    views: list[RelationView] = []
    found = RelationReader(source).around([ordinal])
    ids = source.ids(p for relation in found for p in positions_of(relation))
    for relation in found:
        other = relation.dst if relation.src == ordinal else relation.src
        name = book.shown(other)
        if name is not None:
            views.append(view_relation(relation, ordinal, name, ids))
    return sorted(
        views,
        key=lambda v: (
            v.valid_to_us is not None, -v.valid_from_us, v.relation, not v.outward, v.other
        ),
    )  # fmt: skip


def _neighbours(
    source: GraphSource, book: NameBook, found: Neighbours, limit: int
) -> tuple[tuple[NeighbourView, ...], int]:
    """Return the best neighbours that may be named, and how many there are in all."""
    views: list[NeighbourView] = []
    for ordinal, shared, held, score in zip(*(column.tolist() for column in found), strict=True):
        if len(views) == limit:
            break
        name = book.shown(ordinal)
        if name is not None:
            kind = source.query("SELECT kind FROM concepts WHERE ordinal = ?", [ordinal])[0][0]
            views.append(NeighbourView(name, ordinal, str(kind), shared, held, score))
    return tuple(views), int(found.ordinals.size)


def _steps(source: GraphSource, ordinal: int, limit: int) -> tuple[tuple[StepView, ...], int]:
    targets = targets_of(source, ordinal)
    positions = targets.positions[:limit].tolist()
    ids, contents = source.ids(positions), source.contents(positions)
    created = source.created_at_us(positions)
    views = tuple(
        StepView(
            memory_id=ids[position],
            created_at_us=created[position],
            line=evidence_line(contents[position], -1, -1).text,
            relation=source.relations[int(targets.relations[i])],
            sources=int(targets.sources[i]),
            weight=float(targets.weights[i]),
        )
        for i, position in enumerate(positions)
    )
    return views, int(targets.positions.size)


# The most connected concepts.


class TopView(NamedTuple):
    """A concept and how it is connected."""

    name: str
    kind: str
    memories: int
    relations: int
    steps: int

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return dict(self._asdict())


def top_concepts(
    source: GraphSource, book: NameBook, limit: int, kind: str | None = None
) -> tuple[TopView, ...]:
    """Return the most connected concepts, at most `limit`.

    By relations and steps together, then by memories that hold them, then by ordinal.
    """
    held, size = source.frequencies, source.concept_count
    relations = np.zeros(size, dtype=np.int64)
    as_of = source.sight.as_of_us
    for relation in RelationReader(source).everything():
        if relation.holds(as_of):
            relations[[relation.src, relation.dst]] += 1
    resting = source.steps["concepts"][source.steps_that_hold]
    steps = np.bincount(resting[resting >= 0], minlength=size)
    wanted = held > 0
    kinds: dict[int, str] = dict(source.query("SELECT ordinal, kind FROM concepts"))
    if kind is not None:
        wanted &= np.array([kinds[i] == kind for i in range(size)], dtype=np.bool_)
    chosen = np.flatnonzero(wanted)
    order = np.lexsort((chosen, -held[chosen], -(relations + steps)[chosen]))
    views: list[TopView] = []
    for ordinal in chosen[order].tolist():
        if len(views) == limit:
            break
        name = book.shown(ordinal)
        if name is not None:
            counts = (int(held[ordinal]), int(relations[ordinal]), int(steps[ordinal]))
            views.append(TopView(name, kinds[ordinal], *counts))
    return tuple(views)


def kinds_of(source: GraphSource) -> tuple[str, ...]:
    """Return the kinds of the concepts that may be seen, sorted."""
    held = source.frequencies > 0
    rows = source.query("SELECT ordinal, kind FROM concepts")
    return tuple(sorted({str(kind) for ordinal, kind in rows if held[ordinal]}))


# What `noctuary graph` prints: lines made of views. No reading, no printing.


MARKS = ("\u00ab", "\u00bb")
"""Stand around the evidence in a line."""

NAME_COLUMNS = 40
"""Longest name in a column of names; longer ones are cut."""

LINE_COLUMNS = 110
"""Longest line of a memory beside its id; longer ones are cut at their end."""

ALIASES_SHOWN = 12
"""Aliases on the line of the concept; the others are counted."""

EVIDENCE_IDS_SHOWN = 6
"""Ids behind one relation; the others are counted."""

_INDENT = "  "
_ROLE_COLUMNS = max(map(len, ROLES))


def concept_lines(view: ConceptView) -> Iterator[str]:
    """Yield one concept with everything around it."""
    yield f"{clean(view.name)}  ({view.kind}, {memories(view.held)})"
    yield from _when_lines(view)
    if view.aliases:
        yield f"{_INDENT}also: {alias_text(view.aliases)}"
    yield f"{_INDENT}held as: {', '.join(f'{role} {n}' for role, n in view.roles.items())}"
    for merge in view.merges:
        yield f"{_INDENT}merged: {merge_text(merge)}"
    yield from _block("memories", map(_memory_line, view.memories), view.totals["memories"])
    yield from _block("stated relations", _relation_lines(view), view.totals["relations"])
    yield from _block("near", _neighbour_lines(view.neighbours), view.totals["neighbours"])
    yield from _block("leads to", map(_step_line, view.steps), view.totals["steps"])


def _when_lines(view: ConceptView) -> Iterator[str]:
    if view.as_of_us is not None:
        yield f"{_INDENT}as of {day(view.as_of_us)}"
    if view.known_at_us is not None:
        yield f"{_INDENT}as the store knew it on {day(view.known_at_us)}"


def alias_text(aliases: Sequence[str]) -> str:
    """Return the first aliases and the number of the others."""
    shown = ", ".join(map(clean, aliases[:ALIASES_SHOWN]))
    rest = len(aliases) - ALIASES_SHOWN
    return f"{shown} and {rest} more" if rest > 0 else shown


def merge_text(merge: MergeView) -> str:
    """Return which names became one, and why."""
    why = f"{merge.reason} {merge.score:.2f}"
    detail = f": {clean(merge.detail)}" if merge.detail else ""
    return f'"{clean(merge.name)}" is "{clean(merge.canonical)}" ({why}{detail})'


def interval_text(relation: RelationView) -> str:
    """Return from when to when a relation holds, and what ended it."""
    since = day(relation.valid_from_us)
    if relation.valid_to_us is None:
        return f"since {since}, open"
    by = "" if relation.closed_by is None else f" by {id_text(relation.closed_by)}"
    return f"{since} to {day(relation.valid_to_us)}, closed{by}"


def evidence_text(ids: Sequence[MemoryId]) -> str:
    """Return the first ids of an evidence and the number of the others."""
    shown = " ".join(map(id_text, ids[:EVIDENCE_IDS_SHOWN]))
    rest = len(ids) - EVIDENCE_IDS_SHOWN
    return f"{shown} and {rest} more" if rest > 0 else shown


def id_text(memory_id: MemoryId) -> str:
    """Return an id in brackets."""
    return f"[{clean(str(memory_id))}]"


def path_lines(view: PathView) -> Iterator[str]:
    """Yield the paths between two concepts, or that there is none."""
    start, end = clean(view.start), clean(view.end)
    if start == end and not view.paths:
        yield f"{start}: both names mean this one concept"
    elif not view.paths:
        found = "found no path" if view.bounds else "there is no path"
        yield f"{start} to {end}: {found} of at most {plural(view.max_hops, 'hop')}"
    for number, path in enumerate(view.paths, start=1):
        which = f", {number} of {view.found}" if view.found > 1 else ""
        hops = plural(len(path), "hop")
        yield f"{start} to {end}: {hops}, cost {view.cost:.2f}{which}"
        for hop in path:
            yield from _hop_lines(hop)
    yield from bound_lines(view)


def bound_lines(view: PathView) -> Iterator[str]:
    """Yield what cut the search for paths short."""
    for bound in view.bounds:
        yield f"! bound: {clean(bound)}"


def top_lines(views: Sequence[TopView]) -> Iterator[str]:
    """Yield a table of concepts."""
    names = _column("concept", [view.name for view in views])
    kinds = _column("kind", [view.kind for view in views])
    rows = [("memories", "relations", "steps")]
    rows += [(f"{v.memories:,}", f"{v.relations:,}", f"{v.steps:,}") for v in views]
    for name, kind, (held, relations, steps) in zip(names, kinds, rows, strict=True):
        yield f"{name}  {kind}  {held:>8}  {relations:>9}  {steps:>8}".rstrip()


def merge_lines(merges: Sequence[MergeView], total: int, rules_file: str) -> Iterator[str]:
    """Yield merges and how to undo one."""
    for merge in merges:
        yield merge_text(merge)
    if total > len(merges):
        yield f"... and {total - len(merges):,} more (--limit)"
    if not merges:
        yield "no names were merged"
        return
    yield ""
    yield f"to undo one, add its pair to `never` in {clean(rules_file)}; it holds from the next"
    yield f"night on. For the first: {clean(undo_line(merges[0]))}"


def _block(title: str, lines: Iterator[str], total: int) -> Iterator[str]:
    shown = list(lines)
    if not total:
        return
    count = f"{len(shown):,} of {total:,}" if len(shown) < total else f"{total:,}"
    yield ""
    yield f"{title} ({count})"
    for line in shown:
        yield f"{_INDENT}{line}"


def _memory_line(memory: MemoryView) -> str:
    text = cut(marked(memory), LINE_COLUMNS)
    head = (
        f"{id_text(memory.memory_id)}  {day(memory.created_at_us)}  {memory.role:<{_ROLE_COLUMNS}}"
    )
    return f"{head}  {text}{_replaced(memory)}"


def marked(memory: MemoryView) -> str:
    """Return the line of a memory with marks around its evidence."""
    if memory.start < 0:
        return memory.line
    before, inside = memory.line[: memory.start], memory.line[memory.start : memory.end]
    return f"{before}{MARKS[0]}{inside}{MARKS[1]}{memory.line[memory.end :]}"


def _replaced(memory: MemoryView) -> str:
    if memory.replaced_by is None:
        return ""
    return f"  (superseded {day(memory.replaced_at_us)} by {id_text(memory.replaced_by)})"


def _relation_lines(view: ConceptView) -> Iterator[str]:
    arrows = ["->" if r.outward else "<-" for r in view.relations]
    verbs = _column("", [spoken(r.relation) for r in view.relations])[1:]
    others = _column("", [r.other for r in view.relations])[1:]
    for arrow, verb, other, relation in zip(arrows, verbs, others, view.relations, strict=True):
        said = f"{interval_text(relation)}; said by {evidence_text(relation.evidence)}"
        yield f"{arrow} {verb}  {other}  {said}"


def _neighbour_lines(neighbours: Sequence[NeighbourView]) -> Iterator[str]:
    names = _column("", [n.name for n in neighbours])[1:]
    for name, found in zip(names, neighbours, strict=True):
        shared = f"shares {found.shared:,} of its {memories(found.held)}"
        yield f"{found.score:6.2f}  {name}  {found.kind}, {shared}"


def _step_line(step: StepView) -> str:
    head = f"{id_text(step.memory_id)}  {day(step.created_at_us)}"
    return f"{head}  from {memories(step.sources)}  {cut(step.line, LINE_COLUMNS)}"


def _hop_lines(hop: HopView) -> Iterator[str]:
    start, end = clean(hop.start), clean(hop.end)
    for relation in hop.relations:
        subject, thing = (start, end) if relation.outward else (end, start)
        said = f"{interval_text(relation)}; said by {evidence_text(relation.evidence)}"
        yield f"{_INDENT}{subject} --{spoken(relation.relation)}--> {thing}  ({said})"
    if not hop.relations:
        rest = hop.shared_count - len(hop.shared)
        more = f" and {rest:,} more" if rest else ""
        ids = " ".join(map(id_text, hop.shared))
        yield f"{_INDENT}{start} -- {end}  (both in {ids}{more})"


def _column(title: str, names: Sequence[str]) -> list[str]:
    """Return a title and cut names, filled to one width."""
    cells = [cut(clean(name), NAME_COLUMNS) for name in names]
    columns = max([width(title), *map(width, cells)])
    return [pad(cell, columns) for cell in (title, *cells)]


# What `noctuary graph show` and `path` found, as a Mermaid flowchart to paste into a page.


LABEL_COLUMNS = 60
"""Longest text of a memory in a label; longer ones are cut."""

# Mermaid looks for directives, Markdown and HTML inside quoted labels as well. Whatever is no
# letter, digit or comma is written as an entity, which it shows and never reads.
_READ_BY_MERMAID = re.compile(r"(?!(?<=\w)[-.](?=\w))[^\w ,]|_")


def concept_chart(view: ConceptView) -> Iterator[str]:
    """Yield one concept with what stands around it; lists are cut as in the text."""
    chart = _Chart()
    middle = chart.node("concept", view.name)
    for relation in view.relations:
        chart.relation(middle, relation, chart.node(relation.other_ordinal, relation.other))
    for near in view.neighbours:
        other = chart.node(near.ordinal, near.name)
        chart.edge(middle, "-.-", other, f"shares {near.shared:,} of its {memories(near.held)}")
    for memory in view.memories:
        text = f"{id_text(memory.memory_id)} {cut(marked(memory), LABEL_COLUMNS)}"
        node = chart.node(("memory", memory.memory_id), text)
        chart.edge(middle, "---", node, f"{memory.role}, {day(memory.created_at_us)}")
    for step in view.steps:
        text = f"{id_text(step.memory_id)} {cut(step.line, LABEL_COLUMNS)}"
        node = chart.node(("memory", step.memory_id), text)
        chart.edge(middle, "-->", node, f"leads to, from {memories(step.sources)}")
    yield from chart.lines


def path_chart(view: PathView) -> Iterator[str]:
    """Yield the paths between two concepts; without one, the concepts alone."""
    chart = _Chart()
    for name in (view.start, view.end):
        chart.node(name, name)
    for hop in {hop: None for path in view.paths for hop in path}:
        start, end = (chart.node(name, name) for name in (hop.start, hop.end))
        for relation in hop.relations:
            chart.relation(start, relation, end)
        if not hop.relations:
            chart.edge(start, "---", end, f"both in {evidence_text(hop.shared)}")
    yield from chart.lines


class _Chart:
    """A flowchart that grows; nodes are named by their number, never by a text of the store."""

    def __init__(self) -> None:
        self.lines = ["flowchart LR"]
        self._nodes: dict[Hashable, str] = {}

    def node(self, key: Hashable, text: str) -> str:
        """Return the name of the node with this key, which is added at first sight."""
        if key not in self._nodes:
            self._nodes[key] = f"n{len(self._nodes)}"
            self.lines.append(f'    {self._nodes[key]}["{_label(text)}"]')
        return self._nodes[key]

    def edge(self, start: str, line: str, end: str, text: str) -> None:
        self.lines.append(f'    {start} {line}|"{_label(text)}"| {end}')

    def relation(self, start: str, relation: RelationView, other: str) -> None:
        """Add a stated relation from its subject to its object, dotted once it has ended."""
        start, other = (start, other) if relation.outward else (other, start)
        line = "-->" if relation.valid_to_us is None else "-.->"
        self.edge(start, line, other, f"{spoken(relation.relation)}, {interval_text(relation)}")


def _label(text: str) -> str:
    return _READ_BY_MERMAID.sub(lambda found: f"#{ord(found[0])};", clean(text)) or "#63;"
