from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noctuary.graph.view import Shown, describe_concept
from noctuary.graph.view_paths import concept_chart, find_paths, path_chart
from noctuary.text.marks import iso
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


def relation_of(relation: str, other: str, closed_by: str, index: int) -> Shown:
    return {
        "relation": relation, "direction": "in" if index else "out", "other": f"{other}{index}",
        "weight": 0.5, "evidence": [closed_by], "valid_from": iso(day_us(1)),
        "valid_to": iso(day_us(3)), "closed_by": closed_by, "open": index != 1,
    }  # fmt: skip


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(TEXT, min_size=6, max_size=6))
def test_no_text_breaks_out_of_a_label(texts: list[str]) -> None:
    """Whatever a memory holds: one line per node and edge, nothing in a label but plain signs."""
    name, kind, line, memory_id, relation, other = texts
    relations = [relation_of(relation, other, memory_id, i) for i in range(3)]
    memory = {"id": memory_id, "created_at": None, "role": kind, "line": line, "span": None}
    shown = {
        "concept": {"name": name}, "relations": relations, "memories": [memory],
        "neighbours": [{"name": f"{other}7", "shared": 1, "held": 2}],
        "steps": [{"id": memory_id + "x", "line": line, "sources": 2}],
    }  # fmt: skip
    nodes = {name, f"{other}7", *(r["other"] for r in relations)}
    assert len(labels(list(concept_chart(shown)))) == len(nodes) + 8
    hops = [
        {"from": name, "to": other, "relations": relations, "shared": []},
        {"from": other, "to": name, "relations": [], "shared": [memory_id]},
    ]
    path = {"from": name, "to": other, "paths": [hops]}
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
    alone = list(path_chart({**view, "paths": []}))
    assert labels(alone) == ["boiler", "Москва"]
