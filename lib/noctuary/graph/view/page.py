"""One concept as one HTML page that loads nothing and runs nothing.

What belongs here: the page and its tables. What does not: the drawing (`drawing`). Every value is
escaped where it is put into a tag.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path

from noctuary.graph.view.display import clean, day, memories, spoken
from noctuary.graph.view.drawing import draw_concept
from noctuary.graph.view.merges import undo_line
from noctuary.graph.view.model import ConceptView, MemoryView, RelationView
from noctuary.graph.view.text import alias_text, evidence_text, id_text, interval_text, merge_text

WHOLE_CHARACTERS = 48
"""Cells of up to this many characters, tags included, stay on one line."""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def concept_page(view: ConceptView, snapshot_id: str) -> str:
    """Return the page of a concept.

    Args:
        view: The concept.
        snapshot_id: The snapshot that it was read from.
    """
    css = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    title = _text(view.name)
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            '<meta name="referrer" content="no-referrer">',
            f"<title>{title}: concept</title>",
            f"<style>\n{css}</style>",
            "</head>",
            "<body>",
            f"<h1><bdi>{title}</bdi></h1>",
            *_facts(view, snapshot_id),
            f"<figure>\n{draw_concept(view)}\n</figure>",
            *_tables(view),
            "</body>",
            "</html>",
            "",
        ]
    )


def _facts(view: ConceptView, snapshot_id: str) -> Iterator[str]:
    roles = ", ".join(f"{role} {count}" for role, count in view.roles.items())
    facts = f"{view.kind}; {memories(view.held)}: {roles}"
    yield f'<p class="note">{_text(facts)}</p>'
    if view.aliases:
        yield f"<p>Also: <bdi>{_text(alias_text(view.aliases))}</bdi></p>"
    when = [
        f"{words} {day(moment)}"
        for words, moment in (("as of", view.as_of_us), ("as known on", view.known_at_us))
        if moment is not None
    ]
    said = ", ".join([*when, f"snapshot {snapshot_id}"])
    yield f'<p class="note">{_text(said)}</p>'


def _tables(view: ConceptView) -> Iterator[str]:
    relations = [_relation_cells(view, relation) for relation in view.relations]
    past = ["past" if relation.valid_to_us is not None else "" for relation in view.relations]
    yield from _table(
        "Stated relations", ("relation", "holds", "said by"), relations, view.totals["relations"],
        past,
    )  # fmt: skip
    yield from _table(
        "Memories", ("id", "date", "role", "evidence"), map(_memory_cells, view.memories),
        view.totals["memories"],
        ["past" if memory.replaced_by is not None else "" for memory in view.memories],
    )  # fmt: skip
    neighbours = (
        (_text(n.name), _text(n.kind), f"{n.shared:,} of {n.held:,}", f"{n.score:.2f}")
        for n in view.neighbours
    )
    yield from _table(
        "Concepts that the same memories hold", ("concept", "kind", "shared", "score"), neighbours,
        view.totals["neighbours"],
    )  # fmt: skip
    steps = (
        (_text(id_text(s.memory_id)), day(s.created_at_us), f"{s.sources:,}", _text(s.line))
        for s in view.steps
    )
    yield from _table(
        "Memories it leads to", ("id", "date", "from memories", "memory"), steps,
        view.totals["steps"],
    )  # fmt: skip
    merges = ((_text(merge_text(m)), f"<code>{_text(undo_line(m))}</code>") for m in view.merges)
    yield from _table(
        "Names that became one", ("merge", "line of merges.toml that undoes it"), merges,
        view.totals["merges"],
    )  # fmt: skip


def _relation_cells(view: ConceptView, relation: RelationView) -> tuple[str, ...]:
    ends = (view.name, relation.other) if relation.outward else (relation.other, view.name)
    subject, thing = (f"<bdi>{_text(end)}</bdi>" for end in ends)
    said = f"{subject} <b>{_text(spoken(relation.relation))}</b> {thing}"
    return said, _text(interval_text(relation)), _text(evidence_text(relation.evidence))


def _memory_cells(memory: MemoryView) -> tuple[str, ...]:
    line = memory.line
    if memory.start < 0:
        shown = _text(line)
    else:
        before, inside = line[: memory.start], line[memory.start : memory.end]
        shown = f"{_raw(before)}<mark>{_raw(inside)}</mark>{_raw(line[memory.end :])}"
    if memory.replaced_by is not None:
        note = f"superseded {day(memory.replaced_at_us)} by {id_text(memory.replaced_by)}"
        shown += f'<br><span class="note">{_text(note)}</span>'
    head = (_text(id_text(memory.memory_id)), day(memory.created_at_us), _text(memory.role))
    return (*head, f"<bdi>{shown}</bdi>")


def _table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    total: int,
    styles: Sequence[str] = (),
) -> Iterator[str]:
    """Yield a table of cells that are escaped already; nothing where there is no row."""
    cells = list(rows)
    if not cells:
        return
    count = f"{len(cells):,} of {total:,}" if len(cells) < total else f"{total:,}"
    yield f'<h2>{escape(title)} <span class="note">({count})</span></h2>'
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    yield f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>'
    for number, row in enumerate(cells):
        style = f' class="{styles[number]}"' if number < len(styles) and styles[number] else ""
        yield f"<tr{style}>{''.join(map(_cell, row))}</tr>"
    yield "</tbody></table></div>"


def _cell(content: str) -> str:
    whole = ' class="whole"' if len(content) <= WHOLE_CHARACTERS else ""
    return f"<td{whole}>{content}</td>"


def _text(text: str) -> str:
    return escape(clean(text))


def _raw(text: str) -> str:
    """Escape a part of a line, which may begin or end with a blank."""
    return escape(clean(f"|{text}|")[1:-1])
