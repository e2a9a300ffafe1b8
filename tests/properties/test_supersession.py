from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from noctuary.core.types import DAY_US, UNDATED_US, MemoryRecord
from noctuary.graph.extract import Extraction, Stated
from noctuary.graph.fold import concept_id
from noctuary.graph.successors import SupersessionIndex, SupersessionRow
from noctuary.graph.supersession import Supersessions, find_supersessions
from noctuary.graph.tables import Evidence, StatedRelation
from tests.support.graph_objects import ConceptEdge, Edge, Graph, close_graph
from tests.support.supersession import corpus_of, heads_of

RELATIONS: tuple[StatedRelation, ...] = ("is_now", "is_a", "has", "works_at", "supersedes")


class Drawn(NamedTuple):
    """One memory of a drawn store."""

    name: int
    day: int
    user: str | None
    wing: str | None
    is_turn: bool
    says: tuple[tuple[str, StatedRelation, str], ...]
    angle: float


SAYS = st.tuples(
    st.sampled_from(["ana", "ben"]),
    st.sampled_from(RELATIONS),
    st.sampled_from(["acme", "beta", "acme corp", *(f"#m{i}" for i in range(8))]),
)
DRAWN = st.builds(
    Drawn,
    st.integers(0, 9),
    st.integers(-1, 40),
    st.sampled_from([None, "u", "v"]),
    st.sampled_from([None, "x", "y"]),
    st.booleans(),
    st.lists(SAYS, max_size=3).map(tuple),
    st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.8]),
)
STORES = st.lists(DRAWN, max_size=10, unique_by=lambda d: d.name).map(
    lambda drawn: sorted(drawn, key=lambda d: d.name)
)


def record_of(drawn: Drawn, position: int) -> MemoryRecord:
    created = UNDATED_US if drawn.day < 0 else drawn.day * DAY_US
    return MemoryRecord(
        position, f"m{drawn.name}", "x" * 20, "", "", "", 0.5, created, created, None, drawn.wing,
        None, drawn.user, drawn.is_turn, str(drawn),
    )  # fmt: skip


def extraction_of(drawn: Drawn) -> Extraction:
    said = [s for s in drawn.says if s[1] == "supersedes" or not s[2].startswith("#")]
    return Extraction((), tuple(Stated(a, r, b, 0, 20, a, b) for a, r, b in said))


def rows_of(store: list[Drawn]) -> NDArray[np.float32]:
    angles = np.array([d.angle for d in store])
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def find(store: list[Drawn]) -> Supersessions:
    records = [record_of(d, p) for p, d in enumerate(store)]
    extractions = [extraction_of(d) for d in store]
    return find_supersessions(corpus_of(records, extractions), {}, rows_of(store))


@given(STORES)
def test_chains_have_no_cycles_and_end_at_heads_that_nothing_replaces(store: list[Drawn]) -> None:
    found = find(store).found
    newer_of = {s.older_position: s.newer_position for s in found}
    assert len(newer_of) == len(found)
    for item in found:
        here, steps = item.older_position, 0
        while here in newer_of:
            here, steps = newer_of[here], steps + 1
            assert steps <= len(found)
        assert here == item.head_position
        assert item.head_position not in newer_of


@given(STORES)
def test_only_explicit_links_go_against_time_and_heads_of_the_others_are_newest(
    store: list[Drawn],
) -> None:
    found = {s.older_position: s for s in find(store).found}
    for older, item in found.items():
        chain = [older]
        while chain[-1] in found:
            chain.append(found[chain[-1]].newer_position)
        if all(found[p].reason != "explicit" for p in chain[:-1]):
            days = [store[p].day for p in chain]
            assert min(days) >= 0
            assert days == sorted(set(days))
        assert item.valid_to_us >= record_of(store[older], older).created_at_us


@given(STORES)
def test_nothing_leads_from_one_user_or_wing_to_another(store: list[Drawn]) -> None:
    for item in find(store).found:
        older = store[item.older_position]
        for position in (item.newer_position, item.head_position):
            other = store[position]
            assert older.user == other.user
            assert older.wing is None or other.wing is None or older.wing == other.wing
        if item.reason == "near_duplicate":
            assert not older.is_turn
            assert not store[item.newer_position].is_turn


@given(STORES, st.randoms(use_true_random=False))
def test_the_order_of_the_input_makes_no_difference(store: list[Drawn], random: object) -> None:
    order = list(range(len(store)))
    random.shuffle(order)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    records = [record_of(store[p], p) for p in order]
    corpus = corpus_of(records, [extraction_of(store[p]) for p in order])
    shuffled = find_supersessions(corpus, {}, rows_of(store))
    assert shuffled == find(store)


def graph_of(store: list[Drawn]) -> Graph:
    stated: dict[tuple[str, StatedRelation, str], list[Evidence]] = {}
    for position, drawn in enumerate(store):
        for said in extraction_of(drawn).stated:
            key = (said.subject, said.relation, said.object)
            stated.setdefault(key, []).append(Evidence(position, 0, 20))
    concept_edges = tuple(
        ConceptEdge(concept_id(a), concept_id(b), r, 0.5, tuple(e), 7 * DAY_US, None, 0, None)
        for (a, r, b), e in sorted(stated.items())
    )
    edges = tuple(
        Edge(p, q, "mentions_subject", 0.5, concept_id(said.object), p, 5, 9, 0, None, 0)
        for p, drawn in enumerate(store)
        for said in extraction_of(drawn).stated
        for q in range(len(store))
        if q != p and (p + q) % 3
    )
    return Graph((), (), edges, concept_edges=concept_edges)


@given(STORES)
def test_closing_intervals_deletes_nothing_and_changes_only_ends(store: list[Drawn]) -> None:
    result, before = find(store), graph_of(store)
    after = close_graph(before, (*result.found, *result.others))
    superseded = {s.older_position for s in result.found}
    for old, new in zip(before.concept_edges, after.concept_edges, strict=True):
        assert replace(new, valid_to_us=None, retracted_at_us=None) == old
        if new.valid_to_us is not None:
            assert new.valid_to_us >= new.valid_from_us
            assert {e.position for e in new.evidence} <= superseded
    for old, new in zip(before.edges, after.edges, strict=True):
        assert replace(new, valid_to_us=None, retracted_at_us=None) == old
        assert new.valid_to_us is None or new.src_position in superseded
    assert close_graph(after, (*result.found, *result.others)) == after


@given(STORES, st.integers(-1, 41), st.integers(0, 2), st.lists(st.booleans(), min_size=10))
def test_a_reader_meets_only_what_it_may_see_and_heads_are_fixpoints(
    store: list[Drawn], day: int, least: int, seen: list[bool]
) -> None:
    found = find(store).found
    index = SupersessionIndex(
        SupersessionRow(
            s.older_position, s.newer_position, s.head_position, s.reason, s.confidence,
            s.similarity, s.age_gap_days, s.valid_to_us,
        )
        for s in found
    )  # fmt: skip
    everything = np.arange(len(store))
    heads = heads_of(index, everything)
    assert {s.older_position: s.head_position for s in found}.items() <= dict(
        enumerate(heads.tolist())
    ).items()
    visible = np.array(seen[: len(store)], dtype=np.bool_)
    rules = {"visible": visible, "least_confidence": least}
    heads = heads_of(index, everything, day * DAY_US, **rules)
    again = heads_of(index, heads, day * DAY_US, **rules)
    assert heads.tolist() == again.tolist()
    for position, head in enumerate(heads.tolist()):
        assert head == position or visible[head]
