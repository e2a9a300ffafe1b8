"""A path between two concepts; concepts, paths and merges as text."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from itertools import pairwise

import numpy as np

from noctuary.core.types import to_micros
from noctuary.graph.fold import ROLES
from noctuary.graph.view import GraphSource, NameBook, Shown, show_relations, stated_relations
from noctuary.text.marks import clean, cut, day, memories, pad, plural, spoken, width

# The cheapest way from one concept to another, over stated relations and shared memories.

COST_UNIT = 1_000  # costs are whole thousandths, so that sums in any order are equal
# A hop over a stated relation; a higher cost lets shared memories win over statements.
STATED_COST = 1.0
# A hop over shared memories costs this and log2(1 + a * b / s**2): a and b memories hold its two
# ends, s of them both. At least 2; two hubs that meet once in a memory are far apart.
SHARED_COST = 1.0
MAX_EXPANDED = 2_000  # concepts looked at before the search gives up: some two seconds at worst

# Memories of one concept that are walked through; a hub beyond joins everything and explains
# nothing.
MAX_HOLDERS = 200
EVIDENCE_SHOWN = 5  # shared memories named per hop, the newest; the others are counted

_HUBS_NAMED = 3
_UNNAMED = "(a name that only hidden memories hold)"


def find_paths(source: GraphSource, book: NameBook, start: int, goal: int, max_hops: int) -> Shown:
    """Return the cheapest path of at most `max_hops` hops (>= 1) between two concepts, if any.

    `bounds` name the limits that cut the search short; with any, "none" means "none was found".
    """

    def name(ordinal: int) -> str:
        return book.shown(ordinal) or _UNNAMED

    bounds: list[str] = []
    hubs: set[int] = set()
    way, cost = ((), 0) if start == goal else _search(source, start, goal, max_hops, hubs)
    if cost is None:
        bounds.append(f"stopped after looking at {MAX_EXPANDED:,} concepts")
    first = f"walked through only the first {memories(MAX_HOLDERS)} of "
    bounds += (first + name(hub) for hub in sorted(hubs)[:_HUBS_NAMED])
    paths = [[_hop(source, hop, name) for hop in pairwise(way)]] if way else []
    return {
        "from": name(start), "to": name(goal), "paths": paths, "found": len(paths),
        "cost": (cost or 0) / COST_UNIT, "max_hops": max_hops, "bounds": bounds,
    }  # fmt: skip


def _search(
    source: GraphSource, start: int, goal: int, max_hops: int, hubs: set[int]
) -> tuple[tuple[int, ...], int | None]:
    """Return the cheapest way, empty where there is none, and its cost, None if the search gave up.

    Dijkstra over (concept, hops): a dearer way with fewer hops may be the one within the bound.
    Concepts of which only some memories were walked through are added to `hubs`.
    """
    fewest: dict[int, int] = {}
    waiting: list[tuple[int, int, tuple[int, ...]]] = [(0, 0, (start,))]
    expanded = 0
    while waiting:
        cost, hops, way = heapq.heappop(waiting)
        if way[-1] == goal:
            return way, cost
        if hops == max_hops or hops >= fewest.get(way[-1], max_hops):
            continue
        if expanded == MAX_EXPANDED:
            return (), None
        fewest[way[-1]] = hops
        expanded += 1
        for reached, step in _hops_from(source, way[-1], hubs):
            if hops + 1 < fewest.get(reached, max_hops + 1):
                heapq.heappush(waiting, (cost + step, hops + 1, (*way, reached)))
    return (), 0


def _hops_from(source: GraphSource, concept: int, hubs: set[int]) -> Iterator[tuple[int, int]]:
    """Yield the concepts one hop away with the cost of the hop, stated relations first."""
    relations = stated_relations(source, [concept])
    stated = {end for r in relations if r.holds(source.as_of_us) for end in (r.src, r.dst)}
    yield from ((end, round(STATED_COST * COST_UNIT)) for end in sorted(stated - {concept}))
    holders = source.holders(concept).tolist()
    if len(holders) > MAX_HOLDERS:
        hubs.add(concept)
    indptr, concepts = source.held_by_memory
    near = [concepts[indptr[p] : indptr[p + 1]] for p in holders[:MAX_HOLDERS]]
    beside, shared = np.unique(np.concatenate([concepts[:0], *near]), return_counts=True)
    held = source.frequencies
    rarity = held[concept] * held[beside] / shared.astype(np.float64) ** 2
    costs = np.rint(COST_UNIT * (SHARED_COST + np.log2(1.0 + rarity))).astype(np.int64)
    yield from zip(beside.tolist(), costs.tolist(), strict=True)


def _hop(source: GraphSource, ends: tuple[int, int], name: Callable[[int], str]) -> Shown:
    """Return the valid relations between two concepts, else the newest memories they share."""
    found = stated_relations(source, ends[:1])
    stated = [r for r in found if {r.src, r.dst} == set(ends) and r.holds(source.as_of_us)]
    both = np.intersect1d(source.holders(ends[0]), source.holders(ends[1]))
    created = {} if stated else source.column("created_at_us", both.tolist())
    newest = sorted(created, key=lambda p: (-created[p], p))[:EVIDENCE_SHOWN]
    start, end = map(name, ends)
    ids = source.ids(newest)
    return {
        "from": start, "to": end,
        "relations": show_relations(source, ends[0], [(r, end) for r in stated]),
        "shared": [ids[p] for p in newest], "shared_count": int(both.size),
        "type": "stated" if stated else "shared_memories",
    }  # fmt: skip


# Output of `noctuary graph`: lines made of views. No reading, no printing.

MARKS = ("\u00ab", "\u00bb")  # put around the evidence in a line
NAME_COLUMNS = 40  # longest name in a column of names; longer ones are cut
LINE_COLUMNS = 110  # longest line of a memory next to its id; longer ones are cut at their end
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
    for path in paths:
        yield f"{start} to {end}: {plural(len(path), 'hop')}, cost {shown['cost']:.2f}"
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
