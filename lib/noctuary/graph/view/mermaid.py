"""What `noctuary graph show` and `path` found, as a Mermaid flowchart to paste into a page."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator

from noctuary.graph.view.display import clean, cut, day, memories, spoken
from noctuary.graph.view.model import ConceptView, RelationView
from noctuary.graph.view.paths import PathView
from noctuary.graph.view.text import evidence_text, id_text, interval_text, marked

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
