"""Paths between concepts."""

from __future__ import annotations

import math

import pytest

from noctuary.graph import view_paths as path_search
from noctuary.graph.view import Shown
from noctuary.graph.view_paths import find_paths, path_lines
from tests.support.graph_look import Look, Publish, find
from tests.support.graph_snapshot import ConceptSpec, GraphSpec, RelationSpec
from tests.support.store import day_us, memory, renumber


def paths(look: Look, start: str, end: str, max_hops: int = 4, **scope: object) -> Shown:
    source = look(**scope)
    book, first = find(source, start)
    goal = book.find(end)
    assert goal is not None
    return find_paths(source, book, first, goal, max_hops)


def chains(view: Shown) -> list[list[str]]:
    return [[path[0]["from"], *(hop["to"] for hop in path)] for path in view["paths"]]


def test_a_path_over_memories_names_them(look: Look) -> None:
    view = paths(look, "boiler", "Москва")
    assert list(path_lines(view)) == [
        "boiler to Москва: 3 hops, cost 10.08",
        "  boiler -- Platform  (both in [108])",
        "  Platform -- Nina  (both in [102])",
        "  Nina -- Москва  (both in [106])",
    ]
    # 1 + log2(1 + a b / s^2): boiler 1, Platform 2, Nina 4, Москва 1 memories.
    expected = 3 + math.log2(1 + 1 * 2) + math.log2(1 + 2 * 4) + math.log2(1 + 4 * 1)
    assert view["cost"] == pytest.approx(expected, abs=0.002)


def test_a_stated_relation_is_cheaper_and_keeps_its_direction(look: Look) -> None:
    there, back = paths(look, "atlas", "platform"), paths(look, "platform", "atlas")
    assert list(path_lines(there))[1:] == [
        "  Atlas migration --part of--> Platform  (since 2026-01-04, open; said by [102])"
    ]
    assert list(path_lines(back))[1:] == list(path_lines(there))[1:]
    assert there["cost"] == back["cost"] == 1.0


def test_only_relations_that_hold_are_walked(look: Look) -> None:
    now, then = paths(look, "nina", "initech"), paths(look, "nina", "initech", as_of_us=day_us(30))
    assert now["paths"][0][0]["relations"] == [], "it has ended: the memory still holds both"
    assert now["paths"][0][0]["shared"] == [103]
    assert then["paths"][0][0]["relations"][0]["relation"] == "works_at"
    assert (now["cost"], then["cost"]) == (pytest.approx(1 + math.log2(5), abs=0.001), 1.0)


@pytest.mark.parametrize(
    ("start", "end", "hops", "told"),
    [
        ("nina", "lighthouse", 4, "Nina to Lighthouse: there is no path of at most 4 hops"),
        ("boiler", "Москва", 2, "boiler to Москва: there is no path of at most 2 hops"),
        ("atlas", "Atlas migration", 4, "Atlas migration: both names mean this one concept"),
    ],
)
def test_there_is_none(look: Look, start: str, end: str, hops: int, told: str) -> None:
    view = paths(look, start, end, hops)
    assert list(path_lines(view)) == [told]
    assert view["bounds"] == []


def test_what_another_user_says_is_no_way(look: Look) -> None:
    ana = look(user="ana")
    book, garden = find(ana, "Secret Garden")
    nina = book.find("nina")
    assert nina is not None
    assert find_paths(ana, book, garden, nina, 4)["found"] == 1
    assert find_paths(look(), book, garden, nina, 4)["found"] == 0


def diamond(middles: int) -> GraphSpec:
    """Two ends and concepts between them, each joined to both by a stated relation."""
    names = [f"m{i:02}" for i in range(middles)]
    records = renumber([memory(f"{n} {i}.") for n in names for i in range(2)])
    return GraphSpec(
        records,
        [
            ConceptSpec("left", "name", ((0, "author", None),)),
            ConceptSpec("right", "name", ((len(records) - 1, "author", None),)),
            *(ConceptSpec(n, "name", ((2 * i, "about", n),)) for i, n in enumerate(names)),
        ],
        [
            RelationSpec(*ends, (2 * i,))
            for i, n in enumerate(names)
            for ends in (("left", "depends_on", n), (n, "part_of", "right"))
        ],
    )


def test_of_equally_cheap_paths_one_is_shown(publish: Publish) -> None:
    view = paths(publish(diamond(5)), "left", "right")
    assert view["found"] == len(chains(view)) == 1
    assert "cost 2.00" in next(iter(path_lines(view)))


def chain(length: int) -> GraphSpec:
    """Concepts c00, c01 ...: neighbours share one memory."""
    records = renumber([memory(f"c{i:02} c{i + 1:02}") for i in range(length)])
    concepts = [
        ConceptSpec(
            f"c{i:02}",
            "name",
            tuple((p, "mentions", f"c{i:02}") for p in (i - 1, i) if 0 <= p < length),
        )
        for i in range(length + 1)
    ]
    return GraphSpec(records, concepts)


def test_the_bound_on_hops_is_exact_and_one_that_bites_is_said(
    publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = publish(chain(6))
    assert len(paths(look, "c00", "c06", max_hops=6)["paths"][0]) == 6
    assert paths(look, "c00", "c06", max_hops=5)["found"] == 0
    monkeypatch.setattr(path_search, "MAX_EXPANDED", 3)
    lines = list(path_lines(paths(look, "c00", "c06", max_hops=6)))
    assert lines[0] == "c00 to c06: found no path of at most 6 hops"
    assert lines[1].startswith("! bound: stopped after looking at ")


def test_a_hub_is_named(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_search, "MAX_HOLDERS", 1)
    view = paths(look, "nina", "Москва")
    assert view["paths"] == [], "only the first of Nina's memories is walked through"
    assert any("Nina" in bound for bound in view["bounds"])


def test_a_cheap_detour_beats_a_dear_hop(publish: Publish) -> None:
    """Two hubs that meet in one memory, and a chain of stated relations between them."""
    records = renumber([memory("hub one and hub two."), *(memory("hub one.") for _ in range(8)),
                        *(memory("hub two.") for _ in range(8)), memory("bridge.")])  # fmt: skip
    first = ConceptSpec("hub one", "name", tuple((i, "mentions", "hub one") for i in range(9)))
    second = ConceptSpec(
        "hub two", "name", tuple((i, "mentions", "hub two") for i in (0, *range(9, 17)))
    )
    bridge = ConceptSpec("bridge", "name", ((17, "about", "bridge"),))
    spec = GraphSpec(
        records,
        [first, second, bridge],
        [
            RelationSpec("hub one", "part_of", "bridge", (17,)),
            RelationSpec("bridge", "part_of", "hub two", (17,)),
        ],
    )
    look = publish(spec)
    assert chains(paths(look, "hub one", "hub two")) == [["hub one", "bridge", "hub two"]]
    assert chains(paths(look, "hub one", "hub two", max_hops=1)) == [["hub one", "hub two"]]
