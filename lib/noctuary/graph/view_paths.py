"""A path between two concepts; concepts, paths and merges as text."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import cached_property
from itertools import islice, pairwise

import numpy as np
from numpy.typing import NDArray

from noctuary.core.types import to_micros
from noctuary.graph.view import GraphSource, NameBook, Shown, show_relations, stated_relations
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


def find_paths(source: GraphSource, book: NameBook, start: int, goal: int, max_hops: int) -> Shown:
    """Return the cheapest paths between two concepts of at most `max_hops` hops (>= 1).

    The first PATHS_SHOWN of equally cheap ones, by their names, are lists of hops; `bounds` say in
    words what cut the search short: with any, "none" means "none was found".
    """

    def name(ordinal: int) -> str:
        return book.shown(ordinal) or _UNNAMED

    shown: Shown = {
        "from": name(start), "to": name(goal), "paths": [], "found": 0, "cost": 0.0,
        "max_hops": max_hops, "bounds": [],
    }  # fmt: skip
    if start == goal:
        return shown
    search = _Search(source, start, goal, max_hops)
    search.run()
    ways = list(islice(search.ways(), MAX_WAYS + 1))
    bounds: list[str] = shown["bounds"]
    if search.gave_up:
        bounds.append(f"stopped after looking at {MAX_EXPANDED:,} concepts")
    if search.hubs:
        named = ", ".join(map(name, sorted(search.hubs)[:_HUBS_NAMED]))
        more = len(search.hubs) - _HUBS_NAMED
        rest = f" and {more} more" if more > 0 else ""
        bounds.append(f"walked through only the first {memories(MAX_HOLDERS)} of {named}{rest}")
    if len(ways) > MAX_WAYS:
        bounds.append(f"counted only {MAX_WAYS} of the equally short paths")
    if not ways:
        return shown
    ways = sorted(ways[:MAX_WAYS], key=lambda way: ([name(c) for c in way], way))
    paths = [[_hop(source, hop, name) for hop in pairwise(way)] for way in ways[:PATHS_SHOWN]]
    return {**shown, "paths": paths, "found": len(ways), "cost": search.cost() / COST_UNIT}


def _hop(source: GraphSource, ends: tuple[int, int], name: Callable[[int], str]) -> Shown:
    """Return what is stated between two concepts and holds, else the newest they share."""
    found = stated_relations(source, ends[:1])
    stated = [r for r in found if {r.src, r.dst} == set(ends) and r.holds(source.as_of_us)]
    both = np.intersect1d(source.holders(ends[0]), source.holders(ends[1]))
    created = {} if stated else source.column("created_at_us", both.tolist())
    newest = sorted(created, key=lambda p: (-created[p], p))[:EVIDENCE_SHOWN]
    start, end = map(name, ends)
    return {
        "from": start, "to": end,
        "relations": show_relations(source, ends[0], [(r, end) for r in stated]),
        "shared": list(map(source.ids(newest).__getitem__, newest)), "shared_count": int(both.size),
        "type": "stated" if stated else "shared_memories",
    }  # fmt: skip


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


def concept_lines(shown: Shown) -> Iterator[str]:
    """Yield one concept with everything around it."""
    concept, totals = shown["concept"], shown["totals"]
    yield f"{clean(concept['name'])}  ({concept['kind']}, {memories(concept['memories'])})"
    if shown["as_of"] is not None:
        yield f"{_INDENT}as of {_day(shown['as_of'])}"
    if shown["known_at"] is not None:
        yield f"{_INDENT}as the store knew it on {_day(shown['known_at'])}"
    if concept["aliases"]:
        yield f"{_INDENT}also: {_first(concept['aliases'], ALIASES_SHOWN, ', ')}"
    yield f"{_INDENT}held as: {', '.join(f'{role} {n}' for role, n in concept['roles'].items())}"
    for merge in shown["merges"]:
        yield f"{_INDENT}merged: {_merge_text(merge)}"
    yield from _block("memories", map(_memory_line, shown["memories"]), totals["memories"])
    yield from _block("stated relations", _relation_lines(shown), totals["relations"])
    yield from _block("near", _neighbour_lines(shown["neighbours"]), totals["neighbours"])
    yield from _block("leads to", map(_step_line, shown["steps"]), totals["steps"])


def _day(moment: str | None) -> str:
    return day(None if moment is None else to_micros(datetime.fromisoformat(moment)))


def _merge_text(merge: Shown) -> str:
    detail = f": {clean(merge['detail'])}" if merge["detail"] else ""
    names = f'"{clean(merge["name"])}" is "{clean(merge["canonical"])}"'
    return f"{names} ({merge['reason']} {merge['score']:.2f}{detail})"


def _first(texts: Sequence[str], count: int, between: str) -> str:
    shown = between.join(map(clean, texts[:count]))
    rest = len(texts) - count
    return f"{shown} and {rest} more" if rest > 0 else shown


def _id_text(memory_id: int | str) -> str:
    return f"[{clean(str(memory_id))}]"


def path_lines(shown: Shown) -> Iterator[str]:
    """Yield the paths between two concepts, or that there is none."""
    start, end, paths = clean(shown["from"]), clean(shown["to"]), shown["paths"]
    if start == end and not paths:
        yield f"{start}: both names mean this one concept"
    elif not paths:
        found = "found no path" if shown["bounds"] else "there is no path"
        yield f"{start} to {end}: {found} of at most {plural(shown['max_hops'], 'hop')}"
    for number, path in enumerate(paths, start=1):
        which = f", {number} of {shown['found']}" if shown["found"] > 1 else ""
        yield f"{start} to {end}: {plural(len(path), 'hop')}, cost {shown['cost']:.2f}{which}"
        for hop in path:
            yield from _hop_lines(hop)
    yield from (f"! bound: {clean(bound)}" for bound in shown["bounds"])


def top_lines(concepts: Sequence[Shown]) -> Iterator[str]:
    """Yield a table of concepts."""
    names = _column("concept", [concept["name"] for concept in concepts])
    kinds = _column("kind", [concept["kind"] for concept in concepts])
    counts = ("memories", "relations", "steps")
    rows = [counts, *([f"{concept[name]:,}" for name in counts] for concept in concepts)]
    for name, kind, (held, relations, steps) in zip(names, kinds, rows, strict=True):
        yield f"{name}  {kind}  {held:>8}  {relations:>9}  {steps:>8}".rstrip()


def merge_lines(merges: Sequence[Shown], total: int, rules_file: str) -> Iterator[str]:
    """Yield merges and how to undo one."""
    yield from map(_merge_text, merges)
    if total > len(merges):
        yield f"... and {total - len(merges):,} more (--limit)"
    if not merges:
        yield "no names were merged"
        return
    yield ""
    yield f"to undo one, add its pair to `never` in {clean(rules_file)}; it holds from the next"
    yield f"night on. For the first: {clean(merges[0]['undo'])}"


def _block(title: str, lines: Iterator[str], total: int) -> Iterator[str]:
    shown = list(lines)
    if not total:
        return
    count = f"{len(shown):,} of {total:,}" if len(shown) < total else f"{total:,}"
    yield from ("", f"{title} ({count})", *(f"{_INDENT}{line}" for line in shown))


def _memory_line(memory: Shown) -> str:
    line, span = memory["line"], memory["span"]
    if span is not None:
        start, end = span
        line = f"{line[:start]}{MARKS[0]}{line[start:end]}{MARKS[1]}{line[end:]}"
    text = cut(line, LINE_COLUMNS)
    role = f"{memory['role']:<{_ROLE_COLUMNS}}"
    line = f"{_id_text(memory['id'])}  {_day(memory['created_at'])}  {role}  {text}"
    if memory["replaced_by"] is None:
        return line
    when = _day(memory["replaced_at"])
    return f"{line}  (superseded {when} by {_id_text(memory['replaced_by'])})"


def _relation_lines(shown: Shown) -> Iterator[str]:
    relations = shown["relations"]
    verbs = _column("", [spoken(r["relation"]) for r in relations])[1:]
    others = _column("", [r["other"] for r in relations])[1:]
    for verb, other, relation in zip(verbs, others, relations, strict=True):
        arrow = "->" if relation["direction"] == "out" else "<-"
        yield f"{arrow} {verb}  {other}  {_said(relation)}"


def _said(relation: Shown) -> str:
    since, by = _day(relation["valid_from"]), relation["closed_by"]
    held = f"since {since}, open"
    if not relation["open"]:
        closed = "closed" if by is None else f"closed by {_id_text(by)}"
        held = f"{since} to {_day(relation['valid_to'])}, {closed}"
    ids = _first([_id_text(item) for item in relation["evidence"]], EVIDENCE_IDS_SHOWN, " ")
    return f"{held}; said by {ids}"


def _neighbour_lines(neighbours: Sequence[Shown]) -> Iterator[str]:
    names = _column("", [n["name"] for n in neighbours])[1:]
    for name, near in zip(names, neighbours, strict=True):
        shares = f"shares {near['shared']:,} of its {memories(near['held'])}"
        yield f"{near['score']:6.2f}  {name}  {near['kind']}, {shares}"


def _step_line(step: Shown) -> str:
    head = f"{_id_text(step['id'])}  {_day(step['created_at'])}"
    return f"{head}  from {memories(step['sources'])}  {cut(step['line'], LINE_COLUMNS)}"


def _hop_lines(hop: Shown) -> Iterator[str]:
    start, end = clean(hop["from"]), clean(hop["to"])
    for relation in hop["relations"]:
        subject, thing = (start, end) if relation["direction"] == "out" else (end, start)
        verb = spoken(relation["relation"])
        yield f"{_INDENT}{subject} --{verb}--> {thing}  ({_said(relation)})"
    if not hop["relations"]:
        rest = hop["shared_count"] - len(hop["shared"])
        more = f" and {rest:,} more" if rest else ""
        ids = " ".join(map(_id_text, hop["shared"]))
        yield f"{_INDENT}{start} -- {end}  (both in {ids}{more})"


def _column(title: str, names: Sequence[str]) -> list[str]:
    cells = [cut(clean(name), NAME_COLUMNS) for name in names]
    columns = max([width(title), *map(width, cells)])
    return [pad(cell, columns) for cell in (title, *cells)]
