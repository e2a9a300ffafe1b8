from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noctuary.graph.view.display import clean
from noctuary.graph.view.model import (
    ConceptView,
    MemoryView,
    MergeView,
    NeighbourView,
    RelationView,
    StepView,
)
from noctuary.graph.view.page import concept_page
from noctuary.graph.view.show import describe_concept
from tests.support.graph_look import Look, find
from tests.support.store import day_us

NASTY = (
    "</script><script>alert(1)</script>", '" onload="alert(1)', "<img src=x onerror=alert(1)>",
    "]]></title></svg><style>*{}</style>", "&lt;b&gt; &amp;", "\u202eevil\x00\x1b[31m\ud800", "'",
)  # fmt: skip
TEXT = st.one_of(st.sampled_from(NASTY), st.text(st.characters(), min_size=1, max_size=30))


class Reader(HTMLParser):
    """Collects tags, attributes and text as a browser would see them."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self._style = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        self._style += tag == "style"

    def handle_endtag(self, tag: str) -> None:
        self._style -= tag == "style"

    def handle_data(self, data: str) -> None:
        if not self._style:
            self.texts.append(data)


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    return reader


def view_of(texts: list[str], **changes: Any) -> ConceptView:
    """Return a view with these texts wherever a text of the store can stand."""
    name, kind, alias, line, memory_id, relation, other, detail = texts
    relations = tuple(
        RelationView(relation, i == 0, other, i % 2, 0.5, (memory_id, i), day_us(1), end, memory_id)
        for i, end in enumerate((None, day_us(3), None))
    )
    memories = tuple(
        MemoryView(memory_id, day_us(1), role, line, start, start + 2, memory_id, day_us(2))
        for role, start in (("about", 1), ("author", -1))
    )
    view = ConceptView(
        name=name,
        kind=kind,
        concept_id="0" * 16,
        aliases=(alias, alias),
        held=2,
        roles={"about": 2},
        merges=(MergeView(alias, name, relation, 0.9, detail),),
        memories=memories,
        relations=relations,
        neighbours=(NeighbourView(other, 5, kind, 1, 2, 0.5),),
        steps=(StepView("other", day_us(1), line, relation, 2, 0.5),),
        totals={"merges": 1, "memories": 2, "relations": 3, "neighbours": 1, "steps": 1},
    )
    return view._replace(**changes)


_PLAIN = read(concept_page(view_of(["plain"] * 8), "snapshot"))


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=60)
@given(st.lists(TEXT, min_size=8, max_size=8))
def test_no_text_breaks_out(texts: list[str]) -> None:
    """Whatever a memory holds, the page has the tags and the attributes of a harmless one."""
    page = concept_page(view_of(texts), texts[0])
    page.encode("utf-8")
    found = read(page)
    blank_alike = [tag for tag in found.tags if tag != "text"]
    assert blank_alike == [tag for tag in _PLAIN.tags if tag != "text"]
    names = {name for name, _ in found.attributes}
    assert names == {name for name, _ in _PLAIN.attributes}
    assert not {name for name in names if name.startswith("on")}
    assert clean(texts[0]) in " ".join("".join(found.texts).split()) or not clean(texts[0])


def test_the_page_loads_nothing(look: Look) -> None:
    source = look(user="ana")
    page = concept_page(describe_concept(source, *find(source, "nina"), 10), "snapshot-1")
    found = read(page)
    assert not {"script", "link", "img", "iframe", "object", "base"} & set(found.tags)
    assert not {"src", "href", "style"} & {name for name, _ in found.attributes}
    urls = set(re.findall(r"[a-z]+://[^\s\"']+", page))
    assert urls == {"http://www.w3.org/2000/svg"}, "a name, never fetched"
    assert "url(" not in page.replace("url(#arrow)", "")
    policy = next(value for _, value in found.attributes if value and "default-src" in value)
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
    assert "prefers-color-scheme: dark" in page


def test_the_drawing_shows_what_is_around_the_concept(look: Look) -> None:
    source = look(user="ana")
    view = describe_concept(source, *find(source, "nina"), 10)
    page = concept_page(view, "snapshot-1")
    drawing = page[page.index("<svg") : page.index("</svg>")]
    for name in ("Nina", "Globex", "Initech", "Secret Garden", "Москва", "[104] 2026-03-01"):
        assert f">{name}<" in drawing
    assert ">works at<" in drawing.replace("</title>", "</title>>").replace(">>", ">")
    (closed,) = re.findall(r'<path class="edge stated closed"[^>]*>', drawing)
    assert 'marker-end="url(#arrow)"' in closed
    assert "works at (to 2026-03-01)" in drawing
    assert "works at (to Initech), 2026-01-05 to 2026-03-01, closed by [104]" in drawing
    assert re.search(r"\.closed \{ stroke-dasharray", page)
    assert "<mark>Ninotchka</mark>" in page
    assert concept_page(view, "snapshot-1") == page


def test_an_inward_relation_points_at_the_concept(look: Look) -> None:
    source = look()
    page = concept_page(describe_concept(source, *find(source, "platform"), 10), "s")
    (stated,) = re.findall(r'<path class="edge stated"[^>]*>', page)
    assert 'marker-start="url(#arrow)"' in stated


def test_several_relations_with_one_concept_are_lines_to_one_node() -> None:
    page = concept_page(view_of(["plain"] * 8), "s")
    assert len(re.findall(r'<path class="edge stated', page)) == 3
    assert len(re.findall(r'<g class="node concept stated"', page)) == 2


@pytest.mark.parametrize("name", ["lighthouse", "東京"])
def test_a_concept_with_little_around_it_is_drawn(look: Look, name: str) -> None:
    source = look()
    page = concept_page(describe_concept(source, *find(source, name), 0), "s")
    assert page.count("<svg") == 1
    assert "<table>" not in page, "nothing was asked for but the totals"
