"""The drawing of a concept as inline SVG. Everything that comes from a memory is escaped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import NamedTuple

from noctuary.graph.view.display import clean, cut, date, memories, spoken, width
from noctuary.graph.view.layout import CANVAS_WIDTH, Spot, place_fans
from noctuary.graph.view.model import ConceptView, MemoryView, RelationView, StepView
from noctuary.graph.view.text import evidence_text, id_text, interval_text, marked

MEMORIES_DRAWN = 10
"""Memories to the left; the tables have the others."""

STEPS_DRAWN = 5
"""Memories led to, below them."""

CONCEPTS_DRAWN = 14
"""Concepts to the right: those of stated relations first."""

_LABEL_COLUMNS = 34
_NOTE_COLUMNS = 42
_MIDDLE_COLUMNS = 22
_MIDDLE_COLUMN_WIDTH = 9.0
"""Units that one column of the concept's name takes at most."""
_NOTE_COLUMN_WIDTH = 6.6
_TURN = 0.35
"""Where a line turns, of its way to the node: early, so that labels stand on a level end."""
_ROW_HEIGHT = 32.0
_LINE_HEIGHT = 20.0
"""Further height per further relation with the same concept."""


class _Row(NamedTuple):
    """One node beside the concept.

    Attributes:
        title: Its first line.
        note: Its second line, smaller.
        hint: What stands in its tooltip.
        style: Class of the node.
        edges: One per line that joins it to the concept.
    """

    title: str
    note: str
    hint: str
    style: str
    edges: tuple[_Edge, ...]

    @property
    def height(self) -> float:
        return _ROW_HEIGHT + _LINE_HEIGHT * (len(self.edges) - 1)


class _Edge(NamedTuple):
    """A line between the concept and a node.

    Attributes:
        label: What stands on it.
        style: Classes of the line.
        arrow: 1 points at the node, -1 at the concept, 0 nowhere.
        hint: What stands in its tooltip.
    """

    label: str
    style: str
    arrow: int
    hint: str


def draw_concept(view: ConceptView) -> str:
    """Return the drawing as one `<svg>` element."""
    left = [_memory_row(memory) for memory in view.memories[:MEMORIES_DRAWN]]
    held = {memory.memory_id for memory in view.memories[:MEMORIES_DRAWN]}
    steps = [step for step in view.steps if step.memory_id not in held]
    left += [_step_row(step) for step in steps[:STEPS_DRAWN]]
    right = _concept_rows(view)[:CONCEPTS_DRAWN]
    name = cut(clean(view.name), _MIDDLE_COLUMNS)
    box_width = 36.0 + max(
        width(name) * _MIDDLE_COLUMN_WIDTH, width(_facts(view)) * _NOTE_COLUMN_WIDTH
    )
    fans = place_fans([row.height for row in left], [row.height for row in right], box_width)
    parts = [
        *_headings(bool(left), bool(right)),
        *_edges(left, fans.left, fans.middle, -box_width / 2),
        *_edges(right, fans.right, fans.middle, box_width / 2),
        *_nodes(left, fans.left, -1),
        *_nodes(right, fans.right, 1),
        _middle(view, name, fans.middle, box_width),
    ]
    label = escape(clean(f"{view.name} with what is around it"))
    return (
        f'<svg viewBox="0 0 {CANVAS_WIDTH:.0f} {fans.height:.0f}" role="img" '
        f'aria-label="{label}" xmlns="http://www.w3.org/2000/svg">\n{_ARROW}\n'
        + "\n".join(parts)
        + "\n</svg>"
    )


_ARROW = (
    '<defs><marker id="arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
    'markerHeight="7" orient="auto-start-reverse"><path d="M0 0 10 5 0 10z"/></marker></defs>'
)


def _memory_row(memory: MemoryView) -> _Row:
    replaced = memory.replaced_by is not None
    head = f"{id_text(memory.memory_id)} {date(memory.created_at_us)}"
    note = f"superseded by {id_text(memory.replaced_by)}" if memory.replaced_by is not None else ""
    style = f"edge {memory.role}" + (" closed" if replaced else "")
    hint = f"{head}: {marked(memory)}" + (f" ({note})" if note else "")
    edge = _Edge(memory.role, style, 0, f"{memory.role}: {head}")
    return _Row(
        f"{head}{', superseded' if replaced else ''}",
        clean(memory.line),
        hint,
        "memory past" if replaced else "memory",
        (edge,),
    )


def _step_row(step: StepView) -> _Row:
    head = f"{id_text(step.memory_id)} {date(step.created_at_us)}"
    hint = f"{memories(step.sources)} lead to {head}: {step.line}"
    edge = _Edge("leads to", "edge step", 1, hint)
    return _Row(head, clean(step.line), hint, "memory target", (edge,))


def _concept_rows(view: ConceptView) -> list[_Row]:
    """Return related concepts: with their stated relations first, then mere neighbours."""
    stated: dict[int, list[RelationView]] = {}
    for relation in view.relations:
        stated.setdefault(relation.other_ordinal, []).append(relation)
    near = {neighbour.ordinal: neighbour for neighbour in view.neighbours}
    rows: list[_Row] = []
    for ordinal, relations in stated.items():
        neighbour = near.pop(ordinal, None)
        note = f"shares {memories(neighbour.shared)}" if neighbour else "stated only"
        edges = tuple(map(_relation_edge, relations))
        hint = "; ".join([relations[0].other, *(edge.hint for edge in edges)])
        rows.append(_Row(relations[0].other, note, hint, "concept stated", edges))
    for found in near.values():
        note = f"{found.kind}, shares {memories(found.shared)}"
        hint = f"{found.name}: shares {found.shared} of its {memories(found.held)}"
        rows.append(_Row(found.name, note, hint, "concept", (_Edge("", "edge near", 0, hint),)))
    return rows


def _relation_edge(relation: RelationView) -> _Edge:
    closed = relation.valid_to_us is not None
    label = spoken(relation.relation) if relation.outward else f"\u2190 {spoken(relation.relation)}"
    if closed:
        label += f" (to {date(relation.valid_to_us)})"
    arrow = "to" if relation.outward else "from"
    hint = (
        f"{spoken(relation.relation)} ({arrow} {relation.other}), {interval_text(relation)}; "
        f"said by {evidence_text(relation.evidence)}"
    )
    style = "edge stated closed" if closed else "edge stated"
    return _Edge(label, style, 1 if relation.outward else -1, hint)


def _headings(left: bool, right: bool) -> Iterator[str]:
    if left:
        yield '<text class="heading" x="24" y="24">memories</text>'
    if right:
        yield (
            f'<text class="heading" x="{CANVAS_WIDTH - 24:.0f}" y="24" text-anchor="end">'
            "related concepts</text>"
        )


def _edges(
    rows: Sequence[_Row], spots: Sequence[Spot], middle: Spot, edge_of_box: float
) -> Iterator[str]:
    """Yield the lines, then their labels: a label stays readable where lines cross it."""
    start = Spot(middle.x + edge_of_box, middle.y)
    side = 1 if edge_of_box > 0 else -1
    labels: list[str] = []
    for row, spot in zip(rows, spots, strict=True):
        top = spot.y - _LINE_HEIGHT * (len(row.edges) - 1) / 2
        for number, edge in enumerate(row.edges):
            end = Spot(spot.x - side * 9, top + number * _LINE_HEIGHT)
            yield _line(edge, start, end)
            labels.append(_label(edge, end, side))
    yield from filter(None, labels)


def _line(edge: _Edge, start: Spot, end: Spot) -> str:
    turn = start.x + _TURN * (end.x - start.x)
    marker = {1: ' marker-end="url(#arrow)"', -1: ' marker-start="url(#arrow)"', 0: ""}[edge.arrow]
    return (
        f'<g>{_hint(edge.hint)}<path class="{edge.style}" d="M{start.x:.1f} {start.y:.1f}'
        f'C{turn:.1f} {start.y:.1f} {turn:.1f} {end.y:.1f} {end.x:.1f} {end.y:.1f}"{marker}/></g>'
    )


def _label(edge: _Edge, end: Spot, side: int) -> str:
    if not edge.label:
        return ""
    anchor = "end" if side > 0 else "start"
    return (
        f'<text class="relation" x="{end.x - side * 12:.1f}" y="{end.y - 4:.1f}" '
        f'text-anchor="{anchor}">{_hint(edge.hint)}{escape(clean(edge.label))}</text>'
    )


def _nodes(rows: Sequence[_Row], spots: Sequence[Spot], side: int) -> Iterator[str]:
    anchor = "start" if side > 0 else "end"
    for row, spot in zip(rows, spots, strict=True):
        x = spot.x + side * 12
        title = escape(cut(clean(row.title), _LABEL_COLUMNS))
        note = escape(cut(clean(row.note), _NOTE_COLUMNS))
        yield (
            f'<g class="node {row.style}">{_hint(row.hint)}'
            f'<circle cx="{spot.x:.1f}" cy="{spot.y:.1f}" r="6"/>'
            f'<text x="{x:.1f}" y="{spot.y - 1:.1f}" text-anchor="{anchor}">{title}</text>'
            f'<text class="note" x="{x:.1f}" y="{spot.y + 13:.1f}" text-anchor="{anchor}">{note}'
            "</text></g>"
        )


def _middle(view: ConceptView, name: str, spot: Spot, box_width: float) -> str:
    facts = escape(_facts(view))
    return (
        f'<g class="middle">{_hint(f"{view.name}: {_facts(view)}")}'
        f'<rect x="{spot.x - box_width / 2:.1f}" y="{spot.y - 27:.1f}" width="{box_width:.1f}" '
        f'height="54" rx="27"/>'
        f'<text x="{spot.x:.1f}" y="{spot.y - 1:.1f}" text-anchor="middle">{escape(name)}</text>'
        f'<text class="note" x="{spot.x:.1f}" y="{spot.y + 15:.1f}" text-anchor="middle">{facts}'
        "</text></g>"
    )


def _facts(view: ConceptView) -> str:
    return clean(f"{view.kind}, {memories(view.held)}")


def _hint(text: str) -> str:
    return f"<title>{escape(clean(text))}</title>"
