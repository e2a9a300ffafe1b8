from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.graph.sessions import (
    COMPANY_WEIGHT,
    CONTEXT_WEIGHT,
    FACT_COVERAGE_WEIGHT,
    NEARBY,
    SESSION_WEIGHT,
    SPEAKER_WEIGHT,
    Posting,
    SessionArrays,
    lent_scores,
    listen,
)
from noctuary.graph.walk import RELATIONS, Named, Walk
from noctuary.recall.legs import NO_CONCEPT, GraphPath, GraphRanking, path_of

NINA = 5
SUBJECT, TAG = RELATIONS.index("mentions_subject"), RELATIONS.index("mentions_tag")
SIZE = 8
# 0..4 is a conversation in which Nina says 3, 5..6 facts of one session, 7 a fact of none.
SESSIONS = SessionArrays(
    codes=np.array([0, 0, 0, 0, 0, 1, 1, -1], dtype=np.int32),
    places=np.array([0, 1, 2, 3, 4, 5, 6, -1], dtype=np.int32),
    order=np.arange(7, dtype=np.int32),
    indptr=np.array([0, 5, 7], dtype=np.int64),
    turns=np.array([1, 1, 1, 1, 1, 0, 0, 0], dtype=np.int8),
    speakers=np.array([-1, -1, -1, NINA, -1, -1, -1, -1], dtype=np.int32),
)
BASE = (0.2, 0.0, 0.9, 0.3, 0.0, 0.1, 0.4, 0.5)

Arrival = tuple[int, float, int, int, int]
"""Target, score, seed, relation, concept."""


def _walk(arrivals: Sequence[Arrival]) -> Walk:
    columns = np.array(arrivals, dtype=np.float64).reshape(-1, 5).T
    return Walk(
        columns[0].astype(np.int64), columns[1], columns[2].astype(np.int64),
        columns[3].astype(np.int8), columns[4].astype(np.int32),
    )  # fmt: skip


def _named(names: Mapping[int, tuple[float, int]]) -> Named:
    return Named(
        np.array(list(names), dtype=np.int64),
        np.array([score for score, _ in names.values()], dtype=np.float64),
        np.array([concept for _, concept in names.values()], dtype=np.int64),
    )


def _ranking(
    *arrivals: Arrival,
    named: Mapping[int, tuple[float, int]] | None = None,
    terms: Sequence[Mapping[int, float]] | None = None,
    base: Sequence[float] = BASE,
    speakers: Sequence[int] = (),
    wings: NDArray[np.int32] | None = None,
    walked: Sequence[float] | None = None,
    session_weight: float = 1.0,
) -> GraphRanking:
    """A ranking of all memories by hand; sessions are heard where terms are given.

    `walked` are the scores that sessions add to, where they are not the fused ones.
    """
    positions, fused = np.arange(SIZE, dtype=np.int64), np.array(base)
    with_walk = np.array(base if walked is None else walked)
    talk, before, lent = None, np.empty(0), np.empty(0)
    if terms is not None:
        postings: list[Posting] = [
            (np.array(list(t), dtype=np.int32), np.array(list(t.values()), dtype=np.float32))
            for t in terms
        ]
        talk = listen(positions, with_walk, SESSIONS, postings, speakers=speakers, wings=wings)
        assert talk is not None
        before = with_walk[talk.members]
        lent = session_weight * lent_scores(talk, before)
    return GraphRanking(
        positions, fused, fused, _walk(arrivals), _named(named or {}), talk, lent, before,
        session_weight,
    )  # fmt: skip


def _path(ranking: GraphRanking, position: int) -> GraphPath:
    path = path_of(ranking, position)
    assert path is not None
    return path


def test_what_the_graph_did_not_move_has_no_path() -> None:
    ranking = _ranking((1, 0.4, 2, SUBJECT, 6), named={3: (0.2, 4)}, terms=[{0: 1.0}])
    assert path_of(ranking, 7) is None
    assert path_of(ranking, 99) is None
    # Facts whose session holds no word of the query are lent nothing.
    assert path_of(ranking, 5) is None


def test_a_step_goes_from_its_seed_over_its_concept() -> None:
    path = _path(_ranking((7, 0.4, 2, SUBJECT, 6), (1, 0.3, 0, TAG, 8)), 7)
    assert path == GraphPath(0.4, 2, "mentions_subject", 6, (2,), {"mentions_subject": 0.4})
    assert path.reason == "reached over the graph from {2} by mentions_subject"
    tagged = _path(_ranking((7, 0.4, 2, SUBJECT, 6), (1, 0.3, 0, TAG, 8)), 1)
    assert (tagged.seed, tagged.relation, tagged.concept) == (0, "mentions_tag", 8)


def test_a_named_memory_comes_from_the_query_and_is_its_own_evidence() -> None:
    path = _path(_ranking(named={6: (0.1, 9), 7: (0.25, 4)}), 7)
    assert path == GraphPath(0.25, None, "named_by_query", 4, (7,), {"named_by_query": 0.25})
    assert path.reason == "reached over the graph from the query by named_by_query"


@pytest.mark.parametrize(
    ("walked", "relation", "seed", "concept", "evidence"),
    [(0.4, "mentions_subject", 2, 6, (2,)), (0.1, "named_by_query", None, 4, (7,))],
)
def test_the_strongest_part_gives_the_path(
    walked: float, relation: str, seed: int | None, concept: int, evidence: tuple[int, ...]
) -> None:
    path = _path(_ranking((7, walked, 2, SUBJECT, 6), named={7: (0.25, 4)}), 7)
    assert (path.relation, path.seed, path.concept) == (relation, seed, concept)
    assert path.evidence == evidence
    assert path.shares == {"mentions_subject": walked, "named_by_query": 0.25}
    assert path.score == pytest.approx(walked + 0.25)
    assert path.reason.count("also ") == 1


def test_a_word_said_before_makes_this_the_next_turn() -> None:
    path = _path(_ranking(terms=[{0: 2.0}], base=[0.01] * SIZE), 1)
    assert (path.relation, path.seed, path.evidence) == ("next_turn", 0, (0,))
    assert path.concept == NO_CONCEPT
    assert path.shares["next_turn"] == pytest.approx(CONTEXT_WEIGHT * NEARBY[0])
    assert "previous_turn" not in path.shares
    assert path.reason == "reached over the graph from {0} by next_turn, also in_session"


def test_a_word_said_after_makes_this_the_previous_turn() -> None:
    path = _path(_ranking(terms=[{3: 2.0}], base=[0.01] * SIZE), 1)
    assert (path.relation, path.seed, path.evidence) == ("previous_turn", 3, (3,))
    assert path.shares["previous_turn"] == pytest.approx(CONTEXT_WEIGHT * NEARBY[1])


def test_own_words_are_told_from_those_nearby() -> None:
    # 1 holds half of what is heard best (at 0), and hears the rest of it from there.
    path = _path(_ranking(terms=[{0: 2.0, 1: 1.0}], base=[0.01] * SIZE), 1)
    assert path.shares["own_words"] == pytest.approx(CONTEXT_WEIGHT * 0.5)
    assert path.shares["next_turn"] == pytest.approx(CONTEXT_WEIGHT * (NEARBY[0] - 0.5))
    alone = _path(_ranking(terms=[{0: 2.0}], base=[0.01] * SIZE), 0)
    assert (alone.relation, alone.seed, alone.evidence) == ("own_words", None, (0,))
    assert set(alone.shares) == {"own_words", "in_session"}


def test_the_session_comes_from_its_best_member() -> None:
    path = _path(_ranking(terms=[{7: 1.0}]), 4)
    assert (path.relation, path.seed, path.concept) == ("in_session", 2, NO_CONCEPT)
    assert path.evidence == (2,)
    assert path.shares == {"in_session": pytest.approx(SESSION_WEIGHT * 0.9)}


def test_the_best_member_of_a_session_owes_it_to_nobody_else() -> None:
    path = _path(_ranking(terms=[{7: 1.0}]), 2)
    assert (path.relation, path.seed, path.evidence) == ("in_session", None, (2,))
    assert path.reason == "reached over the graph from the query by in_session"
    fact = _path(_ranking(terms=[{5: 1.0}]), 6)
    assert (fact.relation, fact.seed, fact.evidence) == ("in_session", None, (6,))


def test_the_best_member_is_the_best_after_the_walk() -> None:
    walked = (0.2, 0.95, 0.9, 0.3, 0.0, 0.5, 0.4, 0.5)
    ranking = _ranking(terms=[{7: 1.0}, {5: 1.0}], walked=walked)
    path = _path(ranking, 4)
    assert path.seed == 1
    assert path.shares == {"in_session": pytest.approx(SESSION_WEIGHT * 0.95)}
    assert _path(ranking, 6).seed == 5
    assert [_path(ranking, best).seed for best in (1, 5)] == [None, None]


def test_turns_are_lent_nothing_of_their_session_as_one_document() -> None:
    path = _path(_ranking(terms=[{0: 1.0}]), 0)
    assert path.shares == {
        "in_session": pytest.approx(SESSION_WEIGHT * 0.9),
        "own_words": pytest.approx(CONTEXT_WEIGHT),
    }


def test_facts_are_reached_by_their_session_alone() -> None:
    path = _path(_ranking(terms=[{5: 1.0}], speakers=[NINA]), 5)
    assert path == GraphPath(
        FACT_COVERAGE_WEIGHT, 6, "in_session", NO_CONCEPT, (6,),
        {"in_session": FACT_COVERAGE_WEIGHT},
    )  # fmt: skip


def test_who_speaks_is_the_concept_on_the_way() -> None:
    path = _path(_ranking(terms=[{7: 1.0}], speakers=[NINA]), 3)
    assert (path.relation, path.seed, path.concept) == ("said_by", None, NINA)
    assert path.evidence == (3,)
    assert path.shares["said_by"] == SPEAKER_WEIGHT
    other = _path(_ranking(terms=[{7: 1.0}], speakers=[NINA]), 4)
    assert "said_by" not in other.shares


def test_company_is_told_from_who_speaks() -> None:
    wings = np.array([0, 0, 0, 0, -1, 0, 0, 0], dtype=np.int32)
    ranking = _ranking(terms=[{7: 1.0}], speakers=[NINA], wings=wings)
    path = _path(ranking, 1)
    assert (path.relation, path.seed, path.concept) == ("in_company_of", None, NO_CONCEPT)
    assert path.shares["in_company_of"] == COMPANY_WEIGHT
    assert path.evidence == (1,)
    assert "in_company_of" not in _path(ranking, 4).shares
    assert path_of(ranking, 5) is None  # a fact, and its session holds no word


TERMS = [{0: 2.0, 2: 1.0, 5: 1.0}, {3: 1.5, 1: 0.5}]


@pytest.mark.parametrize("position", range(SIZE - 1))
def test_shares_sum_to_the_score_and_are_what_sessions_lend(position: int) -> None:
    wings = np.zeros(SIZE, dtype=np.int32)
    ranking = _ranking(terms=TERMS, speakers=[NINA], wings=wings)
    path = _path(ranking, position)
    assert path.score == pytest.approx(sum(path.shares.values()))
    assert path.score == pytest.approx(float(ranking.lent[position]))
    assert min(path.shares.values()) > 0.0
    assert path.relation in path.shares


@pytest.mark.parametrize("position", range(SIZE - 1))
def test_walk_and_names_add_to_what_sessions_lend(position: int) -> None:
    arrivals = [(p, 0.3, 7, SUBJECT, 6) for p in range(SIZE)]
    ranking = _ranking(*arrivals, named={p: (0.2, 4) for p in range(SIZE)}, terms=TERMS)
    path = _path(ranking, position)
    assert path.score == pytest.approx(float(ranking.lent[position]) + 0.5)
    assert path.shares["mentions_subject"] == 0.3
    assert path.shares["named_by_query"] == 0.2


@pytest.mark.parametrize("position", range(SIZE - 1))
def test_shares_carry_the_session_weight_and_those_of_walk_and_names_do_not(position: int) -> None:
    wings = np.zeros(SIZE, dtype=np.int32)
    arrivals = [(p, 0.3, 7, SUBJECT, 6) for p in range(SIZE)]
    whole, half = (
        _ranking(
            *arrivals, named={p: (0.2, 4) for p in range(SIZE)}, terms=TERMS, speakers=[NINA],
            wings=wings, session_weight=weight,
        )
        for weight in (1.0, 0.5)
    )  # fmt: skip
    full, found = _path(whole, position).shares, _path(half, position).shares
    own = {"mentions_subject": 0.3, "named_by_query": 0.2}
    assert found == pytest.approx({name: own.get(name, full[name] / 2) for name in full})
    assert sum(found.values()) == pytest.approx(float(half.lent[position]) + 0.5)


def test_the_session_weight_can_change_which_part_is_strongest() -> None:
    arrival = (1, 0.2, 7, SUBJECT, 6)
    assert _path(_ranking(arrival, terms=[{7: 1.0}]), 1).relation == "in_session"
    path = _path(_ranking(arrival, terms=[{7: 1.0}], session_weight=0.5), 1)
    assert (path.relation, path.seed) == ("mentions_subject", 7)


def test_members_are_found_by_position_and_not_by_place_in_the_ranking() -> None:
    whole = _ranking(terms=[{6: 1.0}])
    assert whole.talk is not None
    talk = whole.talk._replace(members=whole.talk.members + 2)
    moved = whole._replace(
        positions=whole.positions[:7] + 2, fused=whole.fused[:7], scores=whole.scores[:7], talk=talk
    )
    assert _path(moved, 7).seed == 8
    assert _path(moved, 6).seed == 4
