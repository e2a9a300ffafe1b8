"""What a store tells, in the state: it comes and goes with the memories that stand behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noctuary.core.types import MemoryRecord
from noctuary.graph.build import Built, build_graph, to_arrays
from noctuary.graph.extract import Extraction
from noctuary.graph.llm import findings_told, merge_extractions
from noctuary.graph.state import GraphState
from noctuary.graph.tables import NO_SPAN, write_tables
from noctuary.graph.walk import FOUND_RELATIONS, NO_CONCEPT, RELATIONS, relations_in_use
from noctuary.sources.source import KnownConcept, KnownEdge, KnownMention, MemoryLink
from tests.support.graph_objects import ConceptEdge, Edge, Graph, to_graph
from tests.support.graphs import extract_all, graph_built, synced_keys
from tests.support.store import day_us, memory, renumber

TEXTS = (
    "We deploy with Jenkins from the old box.",
    "Deployments go through the new runners.",
    "The runners live in the Harbor cluster.",
    "Ana wrote the runbook for Harbor.",
    "Lunch is at noon.",
)
CORPUS = renumber([memory(text, created_at_us=day_us(n + 1)) for n, text in enumerate(TEXTS)])
OLD, NEW, RUNNERS, RUNBOOK, LUNCH = (record.memory_id for record in CORPUS)


def night(path: Path, records: Sequence[MemoryRecord], told: Mapping[str, Extraction]) -> Built:
    """Bring a state up to date with texts and what is told, as the stage does."""
    found, keys = extract_all(records), synced_keys(records)
    for record in records:
        if extra := told.get(record.memory_id):
            found[record.position] = merge_extractions(found[record.position], extra)
            keys[record.position] += repr(extra)
    with GraphState.open(path) as state:
        state.sync(records, keys, lambda chosen: [found[p] for p in chosen])
        return build_graph(state, records)


def links(*given: tuple[str, str, str]) -> dict[str, Extraction]:
    return findings_told([MemoryLink(a, b, kind, 0, None) for a, kind, b in given], [], [], [])


def graph_told(tmp_path: Path, told: Mapping[str, Extraction]) -> Graph:
    return to_graph(night(tmp_path / "g.duckdb", CORPUS, told).tables)


def test_a_supersedes_link_supersedes_whatever_the_texts_and_dates_say(tmp_path: Path) -> None:
    assert to_graph(graph_built(CORPUS).tables).supersessions == ()
    graph = graph_told(tmp_path, links((NEW, "supersedes", OLD), (OLD, "supersedes", LUNCH)))
    found = [(s.older_position, s.newer_position, s.head_position) for s in graph.supersessions]
    assert found == [(0, 1, 1), (4, 0, 1)]
    first = graph.supersessions[0]
    assert (first.reason, first.confidence, first.valid_to_us) == ("explicit", 2, day_us(2))
    assert (first.evidence.position, first.evidence.start, first.evidence.end) == (1, -1, -1)


@pytest.mark.parametrize(
    ("link_type", "relation"),
    [("part-of", "part_of"), ("see-also", "see_also"), ("resolved-by", "resolved_by")],
)
def test_the_other_links_are_edges_of_their_own_relation(
    tmp_path: Path, link_type: str, relation: str
) -> None:
    before = to_graph(graph_built(CORPUS).tables)
    graph = graph_told(tmp_path, links((OLD, link_type, RUNBOOK)))
    added = [edge for edge in graph.edges if edge not in before.edges]
    assert added == [
        Edge(0, 3, relation, 1.0, "", 0, NO_SPAN, NO_SPAN, day_us(4), None, day_us(1))  # pyright: ignore[reportArgumentType]
    ]
    assert [edge for edge in graph.edges if edge not in added] == list(before.edges)
    assert graph.supersessions == ()


@pytest.mark.parametrize("users", [("ana", "bo"), ("ana", "ana"), ("ana", None), (None, "bo")])
def test_a_link_joins_no_two_users(tmp_path: Path, users: tuple[str | None, str | None]) -> None:
    records = renumber([memory("one", user=users[0]), memory("two", user=users[1])])
    ids = [record.memory_id for record in records]
    told = links((ids[0], "see-also", ids[1]), (ids[0], "supersedes", ids[1]))
    built = night(tmp_path / "g.duckdb", records, told)
    graph = to_graph(built.tables)
    assert len(graph.edges) == (users != ("ana", "bo"))
    assert len(graph.supersessions) == (users == ("ana", "ana"))
    assert built.rejected == ({} if graph.supersessions else {"scope": 1})


def test_links_to_nowhere_and_to_oneself_are_no_edges(tmp_path: Path) -> None:
    told = links((OLD, "part-of", "gone"), (OLD, "see-also", OLD), (OLD, "supersedes", "gone"))
    built = night(tmp_path / "g.duckdb", CORPUS, told)
    assert to_graph(built.tables).edges == to_graph(graph_built(CORPUS).tables).edges
    assert built.rejected == {"unknown_id": 1}


def test_known_concepts_are_looked_for_in_other_texts(tmp_path: Path) -> None:
    told = findings_told(
        [],
        [KnownConcept("Harbor", ("Harbor cluster",), "place")],
        [KnownMention(RUNNERS, "Harbor", "about")],
        [],
    )
    graph = graph_told(tmp_path, told)
    edges = {(e.src_position, e.relation, e.dst_position) for e in graph.edges}
    assert (3, "mentions_tag", 2) in edges, "the runbook names what the runners are about"
    concept = next(c for c in graph.concepts if c.canonical_name == "Harbor")
    assert "Harbor cluster" in concept.aliases
    assert concept.kind == "tag"


def test_known_edges_are_concept_edges_that_their_memories_say(tmp_path: Path) -> None:
    edge = KnownEdge("runners", "Harbor", "runs on", 9, (NEW, RUNNERS))
    graph = graph_told(tmp_path, findings_told([], [], [], [edge]))
    told = [e for e in graph.concept_edges if e.relation == "related_to"]
    assert len(told) == 1
    assert isinstance(told[0], ConceptEdge)
    assert [(e.position, e.start, e.end) for e in told[0].evidence] == [(1, -1, -1), (2, -1, -1)]
    assert told[0].weight == pytest.approx(2 / 3)
    assert (told[0].valid_from_us, told[0].valid_to_us) == (day_us(2), None)


@pytest.mark.parametrize("relation", ["supersedes", "works_at", "is_now"])
def test_what_a_store_tells_of_concepts_supersedes_no_memory(tmp_path: Path, relation: str) -> None:
    """The same words in a text would: a newer value, or a thing that replaces another."""
    edges = [
        KnownEdge("Ana", "Jenkins", relation, 1, (OLD,)),
        KnownEdge("Ana", "Harbor", relation, 1, (RUNNERS,)),
    ]
    built = night(tmp_path / "g.duckdb", CORPUS, findings_told([], [], [], edges))
    assert to_graph(built.tables).supersessions == ()
    assert built.rejected == {}


def test_a_link_in_a_text_is_no_edge_as_before(tmp_path: Path) -> None:
    records = renumber([memory("Atlas notes: see [[102]] and resolves #102."), memory("Ridge.")])
    assert records[1].memory_id == "102"
    stated = extract_all(records)[0].stated
    assert "#102" in [item.object for item in stated], "the text states one"
    assert to_graph(night(tmp_path / "g.duckdb", records, {}).tables).edges == ()


def test_links_have_no_concept_in_the_arrays(tmp_path: Path) -> None:
    plain = to_arrays(graph_built(CORPUS).tables, len(CORPUS))
    assert relations_in_use(plain.relations) == FOUND_RELATIONS
    both = [MemoryLink(OLD, NEW, "part-of", 0, None)]
    named = [KnownMention(RUNNERS, "Harbor", "about")]
    built = night(tmp_path / "g.duckdb", CORPUS, findings_told(both, [], named, []))
    arrays = to_arrays(built.tables, len(CORPUS))
    assert relations_in_use(arrays.relations) == (*FOUND_RELATIONS, "part_of")
    is_link = arrays.relations == RELATIONS.index("part_of")
    assert arrays.concepts[is_link].tolist() == [NO_CONCEPT]
    assert arrays.targets[is_link].tolist() == [1]
    assert bool((arrays.concepts[~is_link] >= 0).all())
    assert np.count_nonzero(~is_link) > 0
    assert np.count_nonzero(is_link) == 1


_IDS = st.sampled_from([*(record.memory_id for record in CORPUS), "gone"])
_NAMES = st.sampled_from(["Harbor", "Jenkins", "runners", "Ana", "K8s"])
_LINKS = st.builds(
    MemoryLink, _IDS, _IDS, st.sampled_from(["part-of", "see-also", "supersedes", "resolved-by"]),
    st.just(0), st.none(),
)  # fmt: skip
_TOLD = st.builds(
    findings_told,
    st.lists(_LINKS, max_size=3),
    st.just([KnownConcept("Harbor", ("K8s",), "")]),
    st.lists(st.builds(KnownMention, _IDS, _NAMES, st.just("about")), max_size=3),
    st.lists(
        st.builds(
            KnownEdge, _NAMES, _NAMES, st.sampled_from(["has", "uses"]), st.just(1),
            st.lists(_IDS, max_size=2).map(tuple),
        ),
        max_size=2,
    ),
)  # fmt: skip


_FACTORY = [HealthCheck.function_scoped_fixture]


@settings(max_examples=2, deadline=None, suppress_health_check=_FACTORY)
@given(st.lists(_TOLD, min_size=2, max_size=2))
def test_nights_of_changing_evidence_end_as_one_night_that_begins_anew(
    tmp_path_factory: pytest.TempPathFactory, nights: list[dict[str, Extraction]]
) -> None:
    check_nights(tmp_path_factory, nights)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=_FACTORY)
@given(st.lists(_TOLD, min_size=2, max_size=4))
def test_many_nights_of_changing_evidence_end_as_one_night_that_begins_anew(
    tmp_path_factory: pytest.TempPathFactory, nights: list[dict[str, Extraction]]
) -> None:
    check_nights(tmp_path_factory, nights)


def check_nights(
    tmp_path_factory: pytest.TempPathFactory, nights: list[dict[str, Extraction]]
) -> None:
    folder = tmp_path_factory.mktemp("told")
    built = [night(folder / "kept.duckdb", CORPUS, told) for told in (*nights, {})]
    fresh = night(folder / "fresh.duckdb", CORPUS, nights[-1])
    files = {"kept": built[-2], "fresh": fresh, "none": built[-1], "plain": graph_built(CORPUS)}
    for name, made in files.items():
        write_tables(made.tables, folder / name)

    def bytes_of(name: str) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (folder / name).iterdir()}

    assert bytes_of("kept") == bytes_of("fresh")
    assert bytes_of("none") == bytes_of("plain"), "evidence that vanished leaves nothing behind"
