from __future__ import annotations

from dataclasses import replace

import pytest

from noctuary.graph.fold import concept_id
from noctuary.graph.tables import Evidence, StatedRelation, Supersession
from tests.support.graph_objects import ConceptEdge, Edge, Graph, close_graph


def states(subject: str, relation: StatedRelation, thing: str, *positions: int) -> ConceptEdge:
    evidence = tuple(Evidence(p, 0, 20) for p in positions)
    return ConceptEdge(
        concept_id(subject), concept_id(thing), relation, 0.5, evidence, 10, None, 11, None
    )


def step(
    source: int, target: int, concept: str, start: int = 5, relation: str = "mentions_subject"
) -> Edge:
    return Edge(
        source, target, relation, 0.5, concept_id(concept), source, start, start + 4, 10, None, 11
    )


def replaced(
    older: int, newer: int, reason: str = "newer_value", about: str = "ana", at: int = 100
) -> Supersession:
    about_id = concept_id(about) if reason in ("is_now", "newer_value") else ""
    where = Evidence(newer, 0, 20)
    return Supersession(older, newer, newer, reason, 1, None, 1, about_id, where, at, at + 1)


def graph(*statements: ConceptEdge, edges: tuple[Edge, ...] = ()) -> Graph:
    return Graph((), (), edges, concept_edges=statements)


def ends(result: Graph) -> list[tuple[int | None, int | None]]:
    return [(e.valid_to_us, e.retracted_at_us) for e in (*result.concept_edges, *result.edges)]


OPEN, CLOSED = (None, None), (100, 101)


def test_same_subject_and_relation_with_another_object_ends() -> None:
    before = graph(
        states("ana", "works_at", "acme", 0),
        states("ana", "works_at", "beta", 1),
        states("ana", "lives_in", "porto", 0),
        states("ben", "works_at", "acme", 0),
    )
    assert ends(close_graph(before, [replaced(0, 1)])) == [CLOSED, OPEN, OPEN, OPEN]


def test_one_standing_piece_of_evidence_keeps_an_edge_open() -> None:
    before = graph(states("ana", "works_at", "acme", 0, 2), states("ana", "works_at", "beta", 1))
    assert ends(close_graph(before, [replaced(0, 1)])) == [OPEN, OPEN]
    both = [replaced(0, 1), replaced(2, 1, at=400)]
    assert ends(close_graph(before, both)) == [(400, 401), OPEN]


def test_what_the_newer_memory_restates_stays() -> None:
    before = graph(states("ana", "works_at", "acme", 0, 1), states("ana", "works_at", "beta", 1))
    assert ends(close_graph(before, [replaced(0, 1)])) == [OPEN, OPEN]


def test_another_subject_in_the_same_two_memories_is_not_drawn_in() -> None:
    before = graph(
        states("ben", "has", "dog", 0),
        states("ben", "has", "cat", 1),
        states("ana", "works_at", "acme", 0),
        states("ana", "works_at", "beta", 1),
    )
    assert ends(close_graph(before, [replaced(0, 1)])) == [OPEN, OPEN, CLOSED, OPEN]
    assert ends(close_graph(before, [replaced(0, 1, "explicit")])) == [
        CLOSED, OPEN, CLOSED, OPEN,
    ]  # fmt: skip


def test_is_now_ends_what_something_is_and_not_what_it_has() -> None:
    before = graph(
        states("ana", "is_a", "junior", 0),
        states("ana", "has", "dog", 0),
        states("ana", "is_now", "senior", 1),
    )
    assert ends(close_graph(before, [replaced(0, 1, "is_now")])) == [CLOSED, OPEN, OPEN]


def test_an_explicit_link_ends_nothing_that_the_newer_does_not_speak_of() -> None:
    before = graph(states("ana", "works_at", "acme", 0), states("ana", "lives_in", "faro", 1))
    assert ends(close_graph(before, [replaced(0, 1, "explicit")])) == [OPEN, OPEN]


def test_near_duplicates_end_only_the_steps_that_the_newer_restates() -> None:
    before = graph(
        states("ana", "works_at", "acme", 0),
        states("ana", "works_at", "beta", 1),
        edges=(
            step(0, 5, "acme"),
            step(0, 6, "porto"),
            step(0, 7, "tag", relation="mentions_tag"),
            step(1, 5, "acme"),
            step(1, 7, "tag"),
        ),
    )
    result = close_graph(before, [replaced(0, 1, "near_duplicate")])
    assert ends(result) == [OPEN, OPEN, CLOSED, OPEN, OPEN, OPEN, OPEN]


STATED = (states("ana", "works_at", "acme", 0), states("ana", "works_at", "beta", 1))


@pytest.mark.parametrize(
    ("edge", "others", "closed"),
    [
        (step(0, 5, "acme"), (), True),
        (step(0, 5, "acme", start=30), (), False),  # named again outside the statement
        (step(0, 5, "ana"), (), False),  # the subject goes on
        (step(0, 5, "acme"), (step(1, 5, "beta"),), False),  # the newer one leads there as well
        (step(0, 1, "acme"), (), False),  # leads to the newer memory itself
        (step(5, 0, "acme"), (), False),  # rests on another memory
        (step(0, 5, "acme", relation="next_turn"), (), False),
    ],
)
def test_a_step_ends_with_the_object_it_rests_on(
    edge: Edge, others: tuple[Edge, ...], closed: bool
) -> None:
    result = close_graph(graph(*STATED, edges=(edge, *others)), [replaced(0, 1)])
    assert result.edges[0].valid_to_us == (100 if closed else None)
    assert result.edges[1:] == others


def test_an_interval_never_ends_before_it_begins() -> None:
    late = replace(step(0, 5, "acme"), valid_from_us=500)
    result = close_graph(graph(*STATED, edges=(late,)), [replaced(0, 1)])
    assert (result.edges[0].valid_to_us, result.edges[0].retracted_at_us) == (500, 101)


def test_what_is_closed_keeps_its_end() -> None:
    before = graph(*STATED, edges=(step(0, 5, "acme"),))
    once = close_graph(before, [replaced(0, 1)])
    assert close_graph(once, [replaced(0, 1, at=900)]) == once


def test_without_supersessions_the_graph_is_the_same() -> None:
    before = graph(*STATED)
    assert close_graph(before, []) == before
