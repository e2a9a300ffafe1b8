"""A path between two concepts; concepts, paths, merges as text and as a chart."""

from __future__ import annotations

import heapq
import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.graph.view import (
    ConceptView,
    GraphSource,
    MemoryId,
    MemoryView,
    MergeView,
    NameBook,
    NeighbourView,
    RelationView,
    StepView,
    TopView,
    View,
    relation_views,
    stated_relations,
    undo_line,
)
from noctuary.graph.walk import ROLES
from noctuary.text.marks import clean, cut, day, memories, pad, plural, spoken, width

# The cheapest ways from one concept to another, over stated relations and shared memories.

# Costs are whole thousandths: sums in any order are equal, so that equal ways are found equal.
COST_UNIT = 1_000
# A hop over a stated relation; dearer ones let shared memories win over what a text says.
STATED_COST = 1.0
# A hop over shared memories costs this and log2(1 + a * b / s**2): a and b memories hold its two
# ends, s of them both. At least 2; two hubs that meet once in a memory are far apart.
SHARED_COST = 1.0
MAX_EXPANDED = 2_000  # concepts looked at before the search gives up: some two seconds at worst

# Memories of one concept that are walked through; a hub beyond joins everything and explains
# nothing.
MAX_HOLDERS = 200
MAX_WAYS = 50  # equally cheap ways that are counted
PATHS_SHOWN = 3  # equally cheap paths that are explained; the others are counted
EVIDENCE_SHOWN = 5  # shared memories named per hop, the newest; the others are counted

_FAR = int(np.iinfo(np.int64).max)
_HUBS_NAMED = 3
_UNNAMED = "(a name that only hidden memories hold)"


@dataclass(frozen=True)
class HopView(View):
    """One hop of a path."""

    start: str  # name of the concept it leaves
    end: str
    # What is stated between the two and holds; empty where shared memories join them.
    relations: tuple[RelationView, ...]
    shared: tuple[MemoryId, ...]  # newest memories that hold both; empty beside relations
    shared_count: int  # how many memories hold both

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**super().to_json(), "type": "stated" if self.relations else "shared_memories"}


@dataclass(frozen=True)
class PathView(View):
    """How two concepts are connected."""

    start: str  # name of the first concept
    end: str
    paths: tuple[tuple[HopView, ...], ...]  # equally cheap, by their names, at most PATHS_SHOWN
    found: int  # how many there are (at most MAX_WAYS are counted)
    cost: float  # of each; 0 where there is none
    max_hops: int  # longest path that was looked for
    # What cut the search short, in words; with any, "none" means "none was found".
    bounds: tuple[str, ...]


def find_paths(
    source: GraphSource, book: NameBook, start: int, goal: int, max_hops: int
) -> PathView:
    """Return the cheapest paths between two concepts of at most `max_hops` hops (>= 1)."""

    def name(ordinal: int) -> str:
        return book.shown(ordinal) or _UNNAMED

    if start == goal:
        return PathView(name(start), name(goal), (), 0, 0.0, max_hops, ())
    search = _Search(source, start, goal, max_hops)
    search.run()
    ways = list(islice(search.ways(), MAX_WAYS + 1))
    bounds: list[str] = []
    if search.gave_up:
        bounds.append(f"stopped after looking at {MAX_EXPANDED:,} concepts")
    if search.hubs:
        named = ", ".join(map(name, sorted(search.hubs)[:_HUBS_NAMED]))
        more = len(search.hubs) - _HUBS_NAMED
        rest = f" and {more} more" if more > 0 else ""
        bounds.append(f"walked through only the first {memories(MAX_HOLDERS)} of {named}{rest}")
    if len(ways) > MAX_WAYS:
        bounds.append(f"counted only {MAX_WAYS} of the equally short paths")
    ways = sorted(ways[:MAX_WAYS], key=lambda way: ([name(c) for c in way], way))
    return PathView(
        name(start),
        name(goal),
        paths=tuple(
            tuple(_hop(source, (a, b), (name(a), name(b))) for a, b in pairwise(way))
            for way in ways[:PATHS_SHOWN]
        ),
        found=len(ways),
        cost=search.cost() / COST_UNIT if ways else 0.0,
        max_hops=max_hops,
        bounds=tuple(bounds),
    )


def _hop(source: GraphSource, ends: tuple[int, int], names: tuple[str, str]) -> HopView:
    found = stated_relations(source, ends[:1])
    stated = [r for r in found if {r.src, r.dst} == set(ends) and r.holds(source.as_of_us)]
    both = np.intersect1d(source.holders(ends[0]), source.holders(ends[1]))
    if stated:
        relations = relation_views(source, ends[0], stated, lambda _: names[1])
        return HopView(*names, tuple(relations), (), int(both.size))
    created = source.created_at_us(both.tolist())
    newest = sorted(created, key=lambda p: (-created[p], p))[:EVIDENCE_SHOWN]
    ids = source.ids(newest)
    return HopView(*names, (), tuple(ids[p] for p in newest), int(both.size))


class _Search:
    """One search; Dijkstra over (hops, concept), so that a bound on hops keeps cheap ways."""

    def __init__(self, source: GraphSource, start: int, goal: int, max_hops: int) -> None:
        self._source, self._start, self._goal = source, start, goal
        self._max_hops = max_hops
        self._costs = np.full((max_hops + 1, len(source)), _FAR, dtype=np.int64)
        self._before: dict[tuple[int, int], list[int]] = {}
        self.hubs: set[int] = set()  # of which only MAX_HOLDERS memories were walked through
        self.gave_up = False

    def run(self) -> None:
        self._costs[0, self._start] = 0
        waiting, expanded = [(0, 0, self._start)], 0
        while waiting:
            cost, hops, concept = heapq.heappop(waiting)
            if cost >= self.cost():
                return
            if hops == self._max_hops or cost > self._costs[hops, concept]:
                continue
            if expanded == MAX_EXPANDED:
                self.gave_up = True
                return
            expanded += 1
            for reached, total in self._expand(concept, hops, cost):
                heapq.heappush(waiting, (total, hops + 1, reached))

    def cost(self) -> int:
        return int(self._costs[:, self._goal].min())

    def ways(self) -> Iterator[tuple[int, ...]]:
        if self.cost() < _FAR:
            yield from self._ways(int(np.argmin(self._costs[:, self._goal])), self._goal)

    def _ways(self, hops: int, concept: int) -> Iterator[tuple[int, ...]]:
        if hops == 0:
            yield (concept,)
            return
        for before in sorted(self._before[hops, concept]):
            for way in self._ways(hops - 1, before):
                yield (*way, concept)

    def _expand(self, concept: int, hops: int, cost: int) -> Iterator[tuple[int, int]]:
        """Yield what is now reached cheaper than before, noting where from."""
        targets, steps = self._hops_from(concept)
        totals = steps + cost
        near = totals <= self.cost()
        targets, totals = targets[near], totals[near]
        known = self._costs[: hops + 2, targets].min(axis=0)
        cheaper = totals < known
        as_cheap = (totals == known) & (totals == self._costs[hops + 1, targets])
        self._costs[hops + 1, targets[cheaper]] = totals[cheaper]
        for reached in targets[as_cheap].tolist():
            self._before[hops + 1, reached].append(concept)
        for reached, total in zip(targets[cheaper].tolist(), totals[cheaper].tolist(), strict=True):
            self._before[hops + 1, reached] = [concept]
            yield reached, total

    def _hops_from(self, concept: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the concepts one hop away, ascending and distinct, and the cost of the hop."""
        holders = self._source.holders(concept)
        if holders.size > MAX_HOLDERS:
            self.hubs.add(concept)
            holders = holders[:MAX_HOLDERS]
        indptr, concepts = self._by_memory
        pieces = [concepts[indptr[p] : indptr[p + 1]] for p in holders.tolist()]
        beside = np.concatenate([np.empty(0, dtype=np.int64), *pieces])
        beside, shared = np.unique(beside[beside != concept], return_counts=True)
        held = self._source.frequencies
        rarity = held[concept] * held[beside] / shared.astype(np.float64) ** 2
        costs = np.rint(COST_UNIT * (SHARED_COST + np.log2(1.0 + rarity))).astype(np.int64)
        found = stated_relations(self._source, [concept])
        ends = {end for r in found if r.holds(self._source.as_of_us) for end in (r.src, r.dst)}
        stated = np.array(sorted(ends - {concept}), dtype=np.int64)
        unit = np.full(stated.size, round(STATED_COST * COST_UNIT), dtype=np.int64)
        targets, totals = np.concatenate([stated, beside]), np.concatenate([unit, costs])
        order = np.lexsort((totals, targets))
        distinct, first = np.unique(targets[order], return_index=True)
        return distinct, totals[order][first]

    @cached_property
    def _by_memory(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the concepts of every memory as compressed rows: indptr (n+1,), concepts."""
        concepts, positions = self._source.held
        order = np.argsort(positions, kind="stable")
        indptr = np.zeros(self._source.seen.size + 1, dtype=np.int64)
        np.cumsum(np.bincount(positions, minlength=indptr.size - 1), out=indptr[1:])
        return indptr, concepts[order]


# What `noctuary graph` prints: lines made of views. No reading, no printing.

MARKS = ("\u00ab", "\u00bb")  # stand around the evidence in a line
NAME_COLUMNS = 40  # longest name in a column of names; longer ones are cut
LINE_COLUMNS = 110  # longest line of a memory beside its id; longer ones are cut at their end
ALIASES_SHOWN = 12  # aliases on the line of the concept; the others are counted
EVIDENCE_IDS_SHOWN = 6  # ids behind one relation; the others are counted

_INDENT = "  "
_ROLE_COLUMNS = max(map(len, ROLES))


def concept_lines(view: ConceptView) -> Iterator[str]:
    """Yield one concept with everything around it."""
    yield f"{clean(view.name)}  ({view.kind}, {memories(view.held)})"
    if view.as_of_us is not None:
        yield f"{_INDENT}as of {day(view.as_of_us)}"
    if view.known_at_us is not None:
        yield f"{_INDENT}as the store knew it on {day(view.known_at_us)}"
    if view.aliases:
        yield f"{_INDENT}also: {_first(view.aliases, ALIASES_SHOWN, ', ')}"
    yield f"{_INDENT}held as: {', '.join(f'{role} {n}' for role, n in view.roles.items())}"
    for merge in view.merges:
        yield f"{_INDENT}merged: {_merge_text(merge)}"
    yield from _block("memories", map(_memory_line, view.memories), view.totals["memories"])
    yield from _block("stated relations", _relation_lines(view), view.totals["relations"])
    yield from _block("near", _neighbour_lines(view.neighbours), view.totals["neighbours"])
    yield from _block("leads to", map(_step_line, view.steps), view.totals["steps"])


def _merge_text(merge: MergeView) -> str:
    why = f"{merge.reason} {merge.score:.2f}"
    detail = f": {clean(merge.detail)}" if merge.detail else ""
    return f'"{clean(merge.name)}" is "{clean(merge.canonical)}" ({why}{detail})'


def _interval_text(relation: RelationView) -> str:
    since = day(relation.valid_from_us)
    if relation.valid_to_us is None:
        return f"since {since}, open"
    by = "" if relation.closed_by is None else f" by {_id_text(relation.closed_by)}"
    return f"{since} to {day(relation.valid_to_us)}, closed{by}"


def _evidence_text(ids: Sequence[MemoryId]) -> str:
    return _first([_id_text(item) for item in ids], EVIDENCE_IDS_SHOWN, " ")


def _first(texts: Sequence[str], count: int, between: str) -> str:
    shown = between.join(map(clean, texts[:count]))
    rest = len(texts) - count
    return f"{shown} and {rest} more" if rest > 0 else shown


def _id_text(memory_id: MemoryId) -> str:
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
        yield _merge_text(merge)
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
    role = f"{memory.role:<{_ROLE_COLUMNS}}"
    line = f"{_id_text(memory.memory_id)}  {day(memory.created_at_us)}  {role}  {text}"
    if memory.replaced_by is None:
        return line
    return f"{line}  (superseded {day(memory.replaced_at_us)} by {_id_text(memory.replaced_by)})"


def marked(memory: MemoryView) -> str:
    """Return the line of a memory with marks around its evidence."""
    if memory.start < 0:
        return memory.line
    before, inside = memory.line[: memory.start], memory.line[memory.start : memory.end]
    return f"{before}{MARKS[0]}{inside}{MARKS[1]}{memory.line[memory.end :]}"


def _relation_lines(view: ConceptView) -> Iterator[str]:
    verbs = _column("", [spoken(r.relation) for r in view.relations])[1:]
    others = _column("", [r.other for r in view.relations])[1:]
    for verb, other, relation in zip(verbs, others, view.relations, strict=True):
        yield f"{'->' if relation.outward else '<-'} {verb}  {other}  {_said(relation)}"


def _said(relation: RelationView) -> str:
    return f"{_interval_text(relation)}; said by {_evidence_text(relation.evidence)}"


def _neighbour_lines(neighbours: Sequence[NeighbourView]) -> Iterator[str]:
    names = _column("", [n.name for n in neighbours])[1:]
    for name, found in zip(names, neighbours, strict=True):
        shared = f"shares {found.shared:,} of its {memories(found.held)}"
        yield f"{found.score:6.2f}  {name}  {found.kind}, {shared}"


def _step_line(step: StepView) -> str:
    head = f"{_id_text(step.memory_id)}  {day(step.created_at_us)}"
    return f"{head}  from {memories(step.sources)}  {cut(step.line, LINE_COLUMNS)}"


def _hop_lines(hop: HopView) -> Iterator[str]:
    start, end = clean(hop.start), clean(hop.end)
    for relation in hop.relations:
        subject, thing = (start, end) if relation.outward else (end, start)
        yield f"{_INDENT}{subject} --{spoken(relation.relation)}--> {thing}  ({_said(relation)})"
    if not hop.relations:
        rest = hop.shared_count - len(hop.shared)
        more = f" and {rest:,} more" if rest else ""
        ids = " ".join(map(_id_text, hop.shared))
        yield f"{_INDENT}{start} -- {end}  (both in {ids}{more})"


def _column(title: str, names: Sequence[str]) -> list[str]:
    cells = [cut(clean(name), NAME_COLUMNS) for name in names]
    columns = max([width(title), *map(width, cells)])
    return [pad(cell, columns) for cell in (title, *cells)]


# What `noctuary graph show` and `path` found, as a Mermaid flowchart to paste into a page.

LABEL_COLUMNS = 60  # longest text of a memory in a label; longer ones are cut

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
        text = f"{_id_text(memory.memory_id)} {cut(marked(memory), LABEL_COLUMNS)}"
        node = chart.node(("memory", memory.memory_id), text)
        chart.edge(middle, "---", node, f"{memory.role}, {day(memory.created_at_us)}")
    for step in view.steps:
        text = f"{_id_text(step.memory_id)} {cut(step.line, LABEL_COLUMNS)}"
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
            chart.edge(start, "---", end, f"both in {_evidence_text(hop.shared)}")
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
        self.edge(start, line, other, f"{spoken(relation.relation)}, {_interval_text(relation)}")


def _label(text: str) -> str:
    return _READ_BY_MERMAID.sub(lambda found: f"#{ord(found[0])};", clean(text)) or "#63;"
