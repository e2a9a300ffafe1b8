"""What `noctuary graph` prints: lines made of views. No reading, no printing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from noctuary.graph.arrays import ROLES
from noctuary.graph.view.display import clean, cut, day, memories, pad, plural, spoken, width
from noctuary.graph.view.merges import undo_line
from noctuary.graph.view.model import (
    ConceptView,
    MemoryId,
    MemoryView,
    MergeView,
    NeighbourView,
    RelationView,
    StepView,
)
from noctuary.graph.view.paths import HopView, PathView
from noctuary.graph.view.top import TopView

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
    """Yield merges and how to undo one.

    Args:
        merges: The first ones.
        total: How many there are.
        rules_file: Path of the store's `merges.toml`.
    """
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
