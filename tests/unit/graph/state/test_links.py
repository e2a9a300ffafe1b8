from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from noctuary.graph import state as hubs
from noctuary.graph.fold import concept_id
from noctuary.graph.state import (
    DF_POWER,
    LEADING_SHORT_CHARS,
    LEADING_WORTH,
    LONG_LEADING_WORTH,
    LOWER_CASE_WORTH,
    GraphState,
)
from tests.support.graph_objects import Graph, NameLink, to_graph
from tests.support.graphs import extract_all, graph_of, synced_keys
from tests.support.store import memory, renumber, turns


def links(*texts: str) -> dict[str, NameLink]:
    return by_name(graph_of(renumber([memory(text) for text in texts])))


def by_name(graph: Graph) -> dict[str, NameLink]:
    return {link.name: link for link in graph.links}


def merged(texts: Sequence[str], canonical_of: Mapping[str, str]) -> dict[str, NameLink]:
    records = renumber([memory(text) for text in texts])
    found = extract_all(records)
    with (
        tempfile.TemporaryDirectory() as directory,
        GraphState.open(Path(directory) / "graph.duckdb") as state,
    ):
        state.sync(records, synced_keys(records), lambda chosen: [found[p] for p in chosen])
        state.place()
        return by_name(to_graph(state.fold(canonical_of)))


def damped(worth: float, df: int) -> float:
    return worth / (1 + df) ** DF_POWER


def test_a_title_that_nobody_else_writes_is_worth_one() -> None:
    assert links("Obesity\nA disease.") == {
        "obesity": NameLink("obesity", concept_id("obesity"), 1.0, cased=True)
    }


@pytest.mark.parametrize(
    ("title", "written", "capitals"),
    [
        ("Heat Pump", ["a Heat Pump", "the Heat Pump"], 1.0),
        ("Heat Pump", ["a heat pump", "the heat pump"], 0.0),
        ("Heat Pump", ["a Heat pump"], 0.0),
        ("Heat Pump", ["a Heat Pump", "the heat pump", "one heat pump", "no heat pump"], 0.25),
        ("Bank of England", ["at the Bank of England"], 1.0),
        ("Bank of England", ["at the bank of England"], 0.0),
        ("Model 3x", ["a Model 3x"], 1.0),
        ("Ärger im Büro", ["den Ärger im Büro", "den Ärger Im Büro", "den ärger Im Büro"], 1 / 3),
    ],
)
def test_a_title_is_worth_less_the_oftener_others_write_it_in_lower_case(
    title: str, written: list[str], capitals: float
) -> None:
    worth = LOWER_CASE_WORTH + (1 - LOWER_CASE_WORTH) * capitals
    found = links(f"{title}\nAbout it.", *(f"we saw {text} there" for text in written))
    assert found[title.lower()].weight == pytest.approx(damped(worth, len(written)))


def test_a_key_is_worth_less_as_well_where_others_write_it_in_lower_case() -> None:
    found = links("gateway: it runs on the second rack", "we moved the gateway")
    assert found["gateway"].weight == pytest.approx(damped(LOWER_CASE_WORTH, 1))
    assert not found["gateway"].cased


def test_a_heading_is_worth_one_however_others_write_it() -> None:
    found = links("## Heat pump\nIt runs on the second rack.", "we moved the heat pump")
    assert found["heat pump"].weight == pytest.approx(damped(1.0, 1))


def test_a_subject_that_only_began_a_text_is_worth_little() -> None:
    text = "Boot Hill is part of Blue Ridge."
    assert links(text)["boot hill"].weight == pytest.approx(LEADING_WORTH)
    titled = links(text, "Boot Hill: a cemetery on a hill.", "Boot Hill\nA cemetery.")
    assert titled["boot hill"].weight == pytest.approx(1.0 / 3)


def test_the_first_words_of_a_long_text_are_worth_less() -> None:
    text = "Boot Hill is part of Blue Ridge." + " It rains there." * 30
    assert len(text) > LEADING_SHORT_CHARS
    assert links(text)["boot hill"].weight == pytest.approx(LONG_LEADING_WORTH)
    short = links(text, "Boot Hill is shut.")
    assert short["boot hill"].weight == pytest.approx(LEADING_WORTH / 2)


def test_what_a_name_gives_is_shared_by_the_memories_about_it() -> None:
    found = links(*(["Boot Hill\nA cemetery."] * 3))
    assert found["boot hill"].weight == pytest.approx(1 / 3)


def test_the_weight_falls_with_the_memories_that_mention_it_and_not_with_their_mentions() -> None:
    found = links("Boot Hill\nA cemetery.", "we saw Boot Hill, then Boot Hill", "near Boot Hill")
    assert found["boot hill"].weight == pytest.approx(damped(1.0, 2))


def test_edges_weigh_what_the_concept_is_worth() -> None:
    graph = graph_of(renumber([memory("Heat Pump\nAbout it."), memory("we own a heat pump")]))
    assert [edge.weight for edge in graph.edges] == [pytest.approx(LOWER_CASE_WORTH)]


def test_names_that_no_memory_is_about_link_to_nothing() -> None:
    assert links("we met Dana Whitfield at Boot Hill", "nothing") == {}
    tagged = renumber([memory("it runs in a cluster", tags="kubernetes"), memory("kubernetes")])
    assert graph_of(tagged).links == ()


def test_names_that_are_not_looked_for_link_to_nothing() -> None:
    assert links("Go\nA language.", "1969\nA year.") == {}


def test_a_concept_that_too_many_mention_links_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ("Boot Hill\nA cemetery.", *(["we saw Boot Hill"] * 3))
    monkeypatch.setattr(hubs, "HUB_MENTION_MIN", 3)
    assert "boot hill" in links(*texts)
    monkeypatch.setattr(hubs, "HUB_MENTION_MIN", 2)
    assert links(*texts) == {}


def test_a_concept_that_too_many_are_about_links_to_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = ["Boot Hill\nA cemetery."] * 3
    monkeypatch.setattr(hubs, "HUB_SUBJECT_LIMIT", 3)
    assert "boot hill" in links(*texts)
    monkeypatch.setattr(hubs, "HUB_SUBJECT_LIMIT", 2)
    assert links(*texts) == {}


def test_a_speaker_links_in_any_case_and_gives_nothing_where_nothing_is_about_it() -> None:
    found = by_name(graph_of(renumber(turns("s1", "Ana: the boat left.", "Bo: when?"))))
    assert found["ana"] == NameLink("ana", concept_id("ana"), 0.0, cased=False)
    assert set(found) == {"ana", "bo"}


def test_a_speaker_that_memories_are_about_gives_them_its_worth() -> None:
    records = renumber([*turns("s1", "Ana: the boat left."), memory("Ana\nA sailor.")])
    (link,) = graph_of(records).links
    assert (link.name, link.weight, link.cased) == ("ana", 1.0, False)
    (without,) = graph_of(renumber([memory("Ana\nA sailor.")])).links
    assert without.cased


def test_a_speaker_is_a_link_beyond_every_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "HUB_MENTION_MIN", 1)
    told = ["we met Ana", "they met Ana"]
    records = renumber([*turns("s1", "Ana: hi"), *map(memory, ["Ana\nA sailor.", *told])])
    assert by_name(graph_of(records))["ana"].weight == 0.0


def test_merged_names_all_link_to_their_canonical_concept() -> None:
    texts = ["Kubernetes\nA scheduler.", "K8s\nIt runs the pods.", "we moved to K8s"]
    found = merged(texts, {"k8s": "kubernetes"})
    assert set(found) == {"kubernetes", "k8s"}
    assert {link.concept_id for link in found.values()} == {concept_id("kubernetes")}
    weights = [link.weight for link in found.values()]
    assert weights == pytest.approx([damped(1 / 2, 1)] * 2)


def test_a_merged_name_keeps_its_own_case_rule() -> None:
    found = merged(["Kubernetes\nA scheduler.", "k8s: it runs the pods"], {"k8s": "kubernetes"})
    assert {name: link.cased for name, link in found.items()} == {
        "kubernetes": True,
        "k8s": False,
    }


def test_a_name_merged_into_a_speaker_speaks_as_well() -> None:
    records = renumber([*turns("s1", "Ana: hi"), memory("we met Anabel"), memory("Anabel\nShe.")])
    found = extract_all(records)
    with (
        tempfile.TemporaryDirectory() as directory,
        GraphState.open(Path(directory) / "graph.duckdb") as state,
    ):
        state.sync(records, synced_keys(records), lambda chosen: [found[p] for p in chosen])
        state.place()
        known = by_name(to_graph(state.fold({"anabel": "ana"})))
    assert {name: (link.concept_id, link.cased) for name, link in known.items()} == {
        "ana": (concept_id("ana"), False),
        "anabel": (concept_id("ana"), False),
    }


def test_links_are_sorted_by_name_and_every_name_is_there_once() -> None:
    names = list(links(*(f"{name} Hill\nA hill." for name in ("Zoë", "Ärger", "Boot", "zoë"))))
    assert names == sorted(set(names))
    assert len(names) == 3
