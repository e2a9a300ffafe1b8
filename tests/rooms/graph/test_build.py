"""The night's graph as tables and arrays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noctuary.core.errors import StoreError
from noctuary.core.types import UNDATED_US, MemoryRecord
from noctuary.graph import state as hubs
from noctuary.graph.build import speaking_concepts, to_arrays, to_mention_arrays
from noctuary.graph.fold import ROLES, concept_id
from noctuary.graph.state import LOWER_CASE_WORTH, GraphState
from noctuary.graph.tables import (
    FILES,
    NO_SPAN,
    Evidence,
    Merge,
    Supersession,
    read_tables,
    write_tables,
)
from noctuary.graph.walk import OPEN_END_US, RELATIONS, GraphArrays, MentionArrays
from tests.rooms.graph.conftest import record
from tests.support.graph_objects import (
    Concept,
    ConceptEdge,
    Edge,
    Graph,
    Mention,
    close_graph,
    to_graph,
    to_tables,
)
from tests.support.graphs import extract_all, graph_of, graph_tables, synced_keys


def said(*texts: str) -> list[MemoryRecord]:
    return [record(position, text) for position, text in enumerate(texts)]


def turn(position: int, **fields: Any) -> MemoryRecord:
    values: dict[str, Any] = {"session_id": "s1", "is_turn": True, "created_at_us": 5, **fields}
    return record(position, f"Ann: turn {position}", **values)


def _arrays(graph: Graph, n: int) -> GraphArrays:
    return to_arrays(to_tables(graph), n)


def _steps(graph: Graph) -> list[tuple[int, int, str, float]]:
    return [(e.src_position, e.dst_position, e.relation, e.weight) for e in graph.edges]


STEPS: dict[str, tuple[list[MemoryRecord], list[tuple[int, int, str, float]]]] = {
    "a mention leads to every memory with that subject at one over their number": (
        said("Boot Hill\nIt stars Dana Whitfield.", "Dana Whitfield (actor)\nBorn in 1950.",
             "Dana Whitfield (chef)\nBorn in 1960."),
        [(0, 1, "mentions_subject", 0.5), (0, 2, "mentions_subject", 0.5)],
    ),
    "the more specific name carries the edge": (
        said("Boot Hill\nSo Ann Lee, known as Ann Lee (Chef), left.", "Ann Lee (Chef)\nA cook.",
             "Ann Lee\nA poet."),
        [(0, 1, "mentions_subject", 1.0), (0, 2, "mentions_subject", 0.5)],
    ),
    "a common noun does not carry the edge of a proper one": (
        said("Boot Hill\nSo Ann Lee, known for cold soup, left.", "Cold Soup\nA dish.",
             "Ann Lee\nA poet."),
        [(0, 1, "mentions_subject", LOWER_CASE_WORTH), (0, 2, "mentions_subject", 1.0)],
    ),
    "what a title adds in parentheses needs no capital": (
        said("Boot Hill\nThere Ann Lee (chef) left.", "Ann Lee (chef)\nA cook."),
        [(0, 1, "mentions_subject", 1.0)],
    ),
    "a tag is reached by its own relation and keywords are not": (
        [record(0, "we moved the pods to kubernetes"),
         record(1, "it runs in a cluster", tags="kubernetes", expanded_keywords="pods")],
        [(0, 1, "mentions_tag", 1.0)],
    ),
    "a memory has no edge to itself": (
        [record(0, "it runs on kubernetes", tags="kubernetes")], [],
    ),
    "adjacent turns are linked both ways": (
        [turn(0), turn(1), turn(2)],
        [(0, 1, "next_turn", 1.0), (1, 2, "next_turn", 1.0), (1, 0, "previous_turn", 1.0),
         (2, 1, "previous_turn", 1.0)],
    ),
    "turns follow their time before their position": (
        [turn(0, created_at_us=9), turn(1, created_at_us=3)],
        [(0, 1, "previous_turn", 1.0), (1, 0, "next_turn", 1.0)],
    ),
    "a turn of another session": ([turn(0), turn(1, session_id="s2")], []),
    "a turn of another user": ([turn(0), turn(1, user="eve")], []),
    "a turn of another wing": ([turn(0), turn(1, wing="w2")], []),
    "no turn": ([turn(0), turn(1, is_turn=False)], []),
    "a turn of no session": ([turn(0), turn(1, session_id=None)], []),
}  # fmt: skip


@pytest.mark.parametrize(
    ("records", "steps"), STEPS.values(), ids=[name.replace(" ", "-") for name in STEPS]
)
def test_memories_have_these_steps(
    records: list[MemoryRecord], steps: list[tuple[int, int, str, float]]
) -> None:
    assert _steps(graph_of(records)) == steps


def test_an_edge_names_its_evidence_and_holds_from_the_later_memory() -> None:
    content = "Boot Hill\nIt stars Dana Whitfield's son."
    start = content.index("Dana")
    evidence = concept_id("dana whitfield"), 0, start, start + len("Dana Whitfield's")
    assert graph_of(said(content, "Dana Whitfield\nAn actor.")).edges == (
        Edge(0, 1, "mentions_subject", 1.0, *evidence, 2_000, None, recorded_at_us=1_001),
    )
    turns = graph_of([turn(0), turn(1)])
    assert {(e.concept_id, e.evidence_start) for e in turns.edges} == {(concept_id("s1"), NO_SPAN)}
    assert "session" in {c.kind for c in turns.concepts}


@pytest.mark.parametrize(
    ("limit", "records"),
    [
        ("HUB_MENTION_MIN", said(*["we met Dana Whitfield"] * 3, "Dana Whitfield\nAn actor.")),
        ("HUB_SUBJECT_LIMIT", said(*["Dana Whitfield\nAn actor."] * 3, "we met Dana Whitfield")),
    ],
)
def test_a_name_that_too_many_memories_hold_has_no_edges(
    limit: str, records: list[MemoryRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(graph_of(records).edges) == 3
    monkeypatch.setattr(hubs, limit, 2)
    assert graph_of(records).edges == ()


PAIR = said("Boot Hill\nBy Dana Whitfield.", "Dana Whitfield\nAn actor.")


def test_an_edge_holds_from_its_start_inclusive_to_its_end_exclusive() -> None:
    (edge,) = graph_of([r._replace(created_at_us=UNDATED_US) for r in PAIR]).edges
    assert edge.holds_at(UNDATED_US)
    closed = replace(edge, valid_from_us=10, valid_to_us=20)
    assert [closed.holds_at(t) for t in (9, 10, 19, 20)] == [False, True, True, False]


def test_concepts_sum_up_surfaces_kinds_and_memories() -> None:
    texts = "Dana Whitfield\nAn actor.", "we met DANA WHITFIELD", "they met Dana Whitfield"
    graph = graph_of(said(*texts))
    dana = next(c for c in graph.concepts if c.concept_id == concept_id("dana whitfield"))
    assert (dana.canonical_name, dana.aliases) == ("Dana Whitfield", ("DANA WHITFIELD",))
    assert (dana.kind, dana.df) == ("title", 3)


def test_misaligned_input_is_refused(tmp_path: Path) -> None:
    with GraphState.open(tmp_path / "graph.duckdb") as state:
        with pytest.raises(ValueError, match="expected one each"):
            state.sync([record(0, "x")], [], lambda _: [])
        with pytest.raises(ValueError, match="without gaps"):
            state.sync([record(1, "x")], ["key"], lambda _: [])


def test_arrays_are_compressed_rows_of_the_edges() -> None:
    graph = graph_of(
        [
            record(0, "Boot Hill\nIt stars Dana Whitfield and Ann Lee."),
            record(1, "Dana Whitfield\nAn actor."),
            record(2, "Ann Lee\nMet Dana Whitfield."),
        ]
    )
    arrays = _arrays(graph, 3)
    assert arrays.indptr.tolist() == [0, 2, 2, 3]
    assert arrays.targets.tolist() == [1, 2, 1]
    assert arrays.in_degrees.tolist() == [2, 1, 2]
    assert arrays.weights.tolist() == [1.0, 1.0, 1.0]
    assert {RELATIONS[code] for code in arrays.relations} == {"mentions_subject"}
    ids = [graph.concepts[i].concept_id for i in arrays.concepts]
    assert ids == [concept_id(n) for n in ("dana whitfield", "ann lee", "dana whitfield")]
    assert arrays.valid_from_us.tolist() == [2_000, 3_000, 3_000]
    assert set(arrays.valid_to_us.tolist()) == {OPEN_END_US}
    with pytest.raises(ValueError, match="another corpus"):
        _arrays(graph, 1)


def test_in_degrees_count_one_relation_at_a_time() -> None:
    graph = graph_of(
        [
            record(0, "we moved it to kubernetes"),
            record(1, "kubernetes: see the handbook"),
            record(2, "it runs in a cluster", tags="kubernetes"),
            record(3, "we left kubernetes", tags="other"),
            record(4, "Handbook\nOf kubernetes: tagged.", tags="handbook"),
        ]
    )
    arrays = _arrays(graph, 5)
    reached = {
        (int(t), RELATIONS[r]): int(d)
        for t, r, d in zip(arrays.targets, arrays.relations, arrays.in_degrees, strict=True)
    }
    assert reached == {
        (1, "mentions_subject"): 3,
        (2, "mentions_tag"): 3,
        (4, "mentions_subject"): 1,
    }


def test_arrays_have_the_stated_types_even_when_empty() -> None:
    arrays = _arrays(Graph((), (), ()), 2)
    assert arrays.indptr.tolist() == [0, 0, 0]
    kinds = [column.dtype for column in arrays]
    stated = [np.int64, np.int32, np.float32, np.int8, np.int32, np.int32]
    stated += [np.int64] * 4 + [np.int32] * 2
    assert kinds == [np.dtype(kind) for kind in stated]


def test_arrays_carry_the_evidence_and_both_clocks() -> None:
    content = "Boot Hill\nBy Dana Whitfield."
    graph = graph_of([record(0, content), record(1, "Dana Whitfield\nA.")])
    ended = replace(graph.edges[0], valid_to_us=9_000, retracted_at_us=9_001)
    arrays = _arrays(replace(graph, edges=(ended,)), 2)
    start, end = int(arrays.evidence_starts[0]), int(arrays.evidence_ends[0])
    assert content[start:end] == "Dana Whitfield"
    assert arrays.recorded_at_us.tolist() == [1_001]
    assert (arrays.valid_to_us.tolist(), arrays.retracted_at_us.tolist()) == ([9_000], [9_001])
    assert _arrays(graph, 2).retracted_at_us.tolist() == [OPEN_END_US]


def test_mentions_are_rows_by_concept_whose_spans_give_the_surfaces() -> None:
    records = [
        record(0, "Dana Whitfield\nAn actor.", tags="kubernetes"),
        record(1, "we met DANA WHITFIELD and Dana Whitfield"),
    ]
    tables = graph_tables(records)
    arrays, graph = to_mention_arrays(tables), to_graph(tables)
    ordinals = {concept.concept_id: i for i, concept in enumerate(graph.concepts)}
    dana = ordinals[concept_id("dana whitfield")]
    rows = slice(int(arrays.indptr[dana]), int(arrays.indptr[dana + 1]))
    held = zip(
        arrays.positions[rows].tolist(),
        arrays.starts[rows].tolist(),
        arrays.ends[rows].tolist(),
        strict=True,
    )
    assert [records[p].content[start:end] for p, start, end in held] == [
        "Dana Whitfield",
        "DANA WHITFIELD",
        "Dana Whitfield",
    ]
    assert arrays.indptr[-1] == len(graph.mentions)
    tag = int(arrays.indptr[ordinals[concept_id("kubernetes")]])
    assert (arrays.starts[tag], arrays.ends[tag]) == (NO_SPAN, NO_SPAN)


def test_of_several_that_speak_in_a_memory_the_first_concept_counts() -> None:
    about, speaks = ROLES.index("about"), ROLES.index("speaker")
    mentions = MentionArrays(
        indptr=np.array([0, 1, 3, 4]),
        positions=np.array([5, 5, 9, 5], dtype=np.int32),
        roles=np.array([about, speaks, speaks, speaks], dtype=np.int8),
        starts=np.zeros(4, dtype=np.int32),
        ends=np.ones(4, dtype=np.int32),
    )
    assert speaking_concepts(mentions) == {5: 1, 9: 1}


def test_a_statement_joins_two_concepts_and_counts_who_says_it() -> None:
    text = "Boot Hill is part of Blue Ridge."
    graph = graph_of([record(0, text), record(1, text), record(2, "nothing")])
    (edge,) = graph.concept_edges
    names = [concept_id("boot hill"), concept_id("blue ridge")]
    assert [edge.src_concept, edge.dst_concept, edge.relation] == [*names, "part_of"]
    assert edge.weight == pytest.approx(2 / 3)
    assert [evidence.position for evidence in edge.evidence] == [0, 1]
    assert (edge.valid_from_us, edge.recorded_at_us) == (1_000, 1_001)
    assert set(names) <= {concept.concept_id for concept in graph.concepts}


def test_merged_names_are_one_concept_with_the_edges_of_both(tmp_path: Path) -> None:
    records = [
        record(0, "Kubernetes\nA scheduler."),
        record(1, "k8s: runs the pods"),
        record(2, "we moved to k8s"),
    ]
    found = extract_all(records)
    with GraphState.open(tmp_path / "graph.duckdb") as state:
        state.sync(records, synced_keys(records), lambda chosen: [found[p] for p in chosen])
        state.place()
        merged = to_graph(state.fold({"k8s": "kubernetes"}))
    concept = next(c for c in merged.concepts if c.concept_id == concept_id("kubernetes"))
    assert (concept.canonical_name, concept.aliases) == ("Kubernetes", ("k8s",))
    assert concept_id("k8s") not in {c.concept_id for c in merged.concepts}
    weight = LOWER_CASE_WORTH / 2
    assert _steps(merged) == [(2, target, "mentions_subject", weight) for target in (0, 1)]


def test_a_supersession_ends_what_the_newer_memory_contradicts_and_nothing_else() -> None:
    graph = graph_of(
        [
            record(0, "Dana Whitfield works at Blue Ridge Railway."),
            record(1, "Dana Whitfield works at Boot Hill."),
            record(2, "Boot Hill is part of Blue Ridge."),
        ]
    )
    found = Supersession(
        0, 1, 1, "newer_value", 2, None, 0, concept_id("dana whitfield"), Evidence(1, 0, 3), 2_000,
        2_001,
    )  # fmt: skip
    closed = close_graph(graph, [found])
    ends = {e.dst_concept: (e.valid_to_us, e.retracted_at_us) for e in closed.concept_edges}
    assert ends == {
        concept_id("blue ridge railway"): (2_000, 2_001),
        concept_id("boot hill"): (None, None),
        concept_id("blue ridge"): (None, None),
    }
    assert len(closed.concept_edges) == len(graph.concept_edges)


GRAPH = Graph(
    concepts=(Concept("a" * 16, "Ann", "name", ("ANN", "ann"), 2),),
    mentions=(
        Mention(0, "a" * 16, "about", -1, -1, "Ann"),
        Mention(1, "a" * 16, "speaker", 0, 3, "Ann"),
    ),
    edges=(
        Edge(0, 1, "next_turn", 1.0, "a" * 16, 0, -1, -1, -(2**63), None, 2, None),
        Edge(1, 0, "mentions_tag", 0.25, "a" * 16, 1, 0, 3, 1, 5, 2, 6),
    ),
    concept_edges=(
        ConceptEdge(
            "a" * 16, "b" * 16, "is_a", 0.5, (Evidence(0, 0, 9), Evidence(1, -1, -1)), 1, 4, 2, 4
        ),
    ),
    merges=(Merge("annie", "ann", "rule", 1.0, "same in merges.toml"),),
    supersessions=(
        Supersession(0, 1, 1, "is_now", 2, None, 3, "", Evidence(1, 0, 4), 7, 8),
        Supersession(2, 3, 3, "near_duplicate", 1, 0.875, 9, "", Evidence(3, -1, -1), 7, 8),
    ),
)  # fmt: skip


def test_a_graph_comes_back_from_its_files_field_by_field_in_equal_bytes(tmp_path: Path) -> None:
    one, other = tmp_path / "a", tmp_path / "b"
    write_tables(to_tables(GRAPH), one)
    write_tables(to_tables(GRAPH), other)
    assert {p.name for p in one.iterdir()} == set(FILES.values())
    assert to_graph(read_tables(one)) == GRAPH
    for file in FILES.values():
        assert (one / file).read_bytes() == (other / file).read_bytes()


def test_an_empty_graph_has_tables_of_the_same_columns(tmp_path: Path) -> None:
    empty, full = to_tables(Graph((), (), ())), to_tables(GRAPH)
    write_tables(empty, tmp_path)
    read = read_tables(tmp_path)
    assert to_graph(read) == Graph((), (), ())
    for name in FILES:
        assert getattr(read, name).schema == getattr(full, name).schema


@pytest.mark.parametrize("file", FILES.values())
def test_a_damaged_or_missing_file_is_named(tmp_path: Path, file: str) -> None:
    write_tables(to_tables(GRAPH), tmp_path)
    (tmp_path / file).write_bytes(b"PAR1")
    with pytest.raises(StoreError, match=file.replace(".", r"\.")):
        read_tables(tmp_path)
    (tmp_path / file).unlink()
    with pytest.raises(StoreError, match="nightly job"):
        read_tables(tmp_path)


def test_tables_that_are_not_asked_for_stay_empty(tmp_path: Path) -> None:
    write_tables(to_tables(GRAPH), tmp_path)
    part = to_graph(read_tables(tmp_path, ["mentions", "concepts"]))
    assert part == Graph(GRAPH.concepts, GRAPH.mentions, ())
    assert to_graph(read_tables(tmp_path, [])) == Graph((), (), ())
