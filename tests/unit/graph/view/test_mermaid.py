from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noctuary.graph.view import (
    ConceptView,
    MemoryView,
    NeighbourView,
    RelationView,
    StepView,
    describe_concept,
)
from noctuary.graph.view_paths import (
    HopView,
    PathView,
    concept_chart,
    find_paths,
    path_chart,
)
from tests.support.graph_look import Look, find
from tests.support.store import day_us

NASTY = (
    '"] --> x["', '"| x', "`**bold**`", "</span><script>alert(1)</script>", "#34;", "&quot;",
    '%%{init: {"securityLevel": "loose"}}%%', "```\n~~~", "1. list", "- list", "style a:#f00;",
    "click n0 href 'javascript:alert(1)'", "\u202eevil\x00\x1b[31m\ud800", " ", "end", "_a_",
    "$$x$$",
)  # fmt: skip
TEXT = st.one_of(st.sampled_from(NASTY), st.text(st.characters(), max_size=30))

LABEL = r'"((?:[^\W_]|[ ,]|(?<=\w)[-.](?=\w)|#\d+;)+)"'
LINE = re.compile(rf"    (?:n\d+\[{LABEL}\]|n\d+ (?:-->|-\.->|---|-\.-)\|{LABEL}\| n\d+)")


def labels(lines: list[str]) -> list[str]:
    """Return the labels of a chart as Mermaid shows them."""
    assert lines[0] == "flowchart LR"
    found = [LINE.fullmatch(line) for line in lines[1:]]
    assert all(found)
    written = [match[1] or match[2] for match in found if match]
    return [re.sub(r"#(\d+);", lambda m: chr(int(m[1])), label) for label in written]


def relation_of(relation: str, other: str, closed_by: str, index: int) -> RelationView:
    end = day_us(3) if index == 1 else None
    return RelationView(
        relation, index == 0, other, index, 0.5, (closed_by,), day_us(1), end, closed_by
    )


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(TEXT, min_size=6, max_size=6))
def test_no_text_breaks_out_of_a_label(texts: list[str]) -> None:
    """Whatever a memory holds: one line per node and edge, nothing in a label but plain signs."""
    name, kind, line, memory_id, relation, other = texts
    relations = tuple(relation_of(relation, other, memory_id, i) for i in range(3))
    view = ConceptView(
        name=name, kind=kind, concept_id="0" * 16, aliases=(name,), held=2, roles={"about": 2},
        merges=(), relations=relations, totals={},
        memories=(MemoryView(memory_id, day_us(1), kind, line, -1, -1, None, None),),
        neighbours=(NeighbourView(other, 7, kind, 1, 2, 0.5),),
        steps=(StepView(memory_id + "x", day_us(1), line, relation, 2, 0.5),),
    )  # fmt: skip
    assert len(labels(list(concept_chart(view)))) == 13
    hops = (HopView(name, other, relations, (), 1), HopView(other, name, (), (memory_id,), 1))
    path = PathView(name, other, (hops,), 1, 1.0, 4, ())
    assert len(labels(list(path_chart(path)))) == len({name, other}) + 4


def test_a_label_shows_the_text_itself(look: Look) -> None:
    source = look(user="ana")
    lines = list(concept_chart(describe_concept(source, *find(source, "nina"), 10)))
    shown = labels(lines)
    for label in ("Nina", "Globex", "Москва", "[104] «Nina» works at Globex now."):
        assert label in shown
    assert "works at, 2026-01-05 to 2026-03-01, closed by [104]" in shown
    assert sum("-.->" in line for line in lines) == 1


@pytest.mark.parametrize(("concept", "arrow"), [("platform", "n1 -->"), ("atlas", "n0 -->")])
def test_a_relation_points_from_its_subject_to_its_object(
    look: Look, concept: str, arrow: str
) -> None:
    source = look()
    lines = list(concept_chart(describe_concept(source, *find(source, concept), 1)))
    assert any(line.strip().startswith(arrow) and "part of" in line for line in lines)


def test_a_concept_that_several_paths_pass_is_one_node(look: Look) -> None:
    source = look()
    book, start = find(source, "boiler")
    view = find_paths(source, book, start, find(source, "москва")[1], 4)
    shown = labels(list(path_chart(view)))
    assert shown.count("Platform") == shown.count("Nina") == 1
    alone = list(path_chart(replace(view, paths=(), found=0)))
    assert labels(alone) == ["boiler", "Москва"]
