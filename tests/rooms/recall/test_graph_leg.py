"""What the graph adds to a ranking, and by which path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.graph.sessions import (
    BEFORE_WEIGHT,
    COMPANY_WEIGHT,
    CONTEXT_WEIGHT,
    FACT_COVERAGE_WEIGHT,
    NEARBY,
    SESSION_WEIGHT,
    SPEAKER_WEIGHT,
    Posting,
    SessionArrays,
    Talk,
    lent_scores,
    listen,
)
from noctuary.graph.walk import NAMED_WEIGHT, RELATIONS, Named, Walk
from noctuary.recall.legs import (
    NO_CONCEPT,
    SEED_SHARE,
    GraphPath,
    GraphRanking,
    are_akin,
    path_of,
    words_beside,
)
from tests.support.hand_graph import (
    GARDEN,
    LINKS,
    NINA,
    ORBIT,
    SPOKEN,
    STARTS,
    TURNS,
    AskedLeg,
    N,
    hand_graph,
    hand_reader,
)

TALK = {0: "why did the pump fail", 1: "a valve was stuck", 2: "thanks", 4: "the pump again"}
ASKED = {2: 0.6, 1: 0.5, 4: 0.5, 10: 0.7}


@pytest.mark.parametrize("query", ["pump", "orbit", "Nina", "", "garden"])
def test_the_leg_abstains_where_nothing_links_leads_or_talks(query: str) -> None:
    reader = hand_reader((0, 9), texts=TALK)
    assert AskedLeg(reader, {10: 0.9, 12: 0.3}).rank(query) is None
    hiding = AskedLeg(hand_reader((10, 12), texts=TALK), {10: 0.9}, hidden=[9, 12])
    assert hiding.rank("Orbit project") is None, "all it could add is hidden"


@pytest.mark.parametrize("weight", [0.5, 1.0])
def test_what_hits_lead_to_and_what_the_query_names_is_added(weight: float) -> None:
    asked = AskedLeg(hand_reader((10, 12)), {10: 0.8, 11: 0.4}, weight=weight)
    asked.base[12] = 0.1
    ranking = asked.found("anything")
    assert ranking.positions.tolist() == [10, 11, 12]
    assert ranking.fused.tolist() == [0.8, 0.4, 0.1]
    arriving = weight * 0.8 / 2**0.25
    expected = [0.8 / (1 + weight), 0.4 / (1 + weight), (0.1 + arriving) / (1 + weight)]
    assert ranking.scores.tolist() == pytest.approx(expected)
    assert (ranking.talk, ranking.lent.size) == (None, 0)
    for seed in (0.4, 0.8):
        asked = AskedLeg(hand_reader((10, 9)), {10: seed}, weight=weight)
        arriving = _step(seed, weight, NAMED_WEIGHT * 0.5) + NAMED_WEIGHT * 0.5
        scale = 1 + weight * max(1.0, arriving)  # together they bring more than 1 once
        expected = {9: weight * arriving / scale, 10: seed / scale}
        assert asked.scores("the Orbit Project?") == pytest.approx(expected)


def _step(seed: float, weight: float, named: float) -> float:
    """What arrives from a hit over an edge of in-degree 1, beside what the query names."""
    rank = 1 if seed > min(1.0, weight * named) else 2  # the memory that is named is a seed too
    return seed * rank**-0.5 / 2**0.25


def test_the_order_in_which_a_query_names_things_does_not_matter() -> None:
    abouts = [(ORBIT, 9), (GARDEN, 9), (GARDEN, 11)]
    asked = AskedLeg(hand_reader((10, 9), texts=TALK, abouts=abouts), ASKED)
    expected = asked.scores("Orbit project, Garden, pump")
    # A concept that is named twice is still named once.
    for query in ("pump, Garden, Orbit project", "Garden pump Garden, Orbit project and garden"):
        assert asked.scores(query) == pytest.approx(expected)
    assert expected[9] > expected[11] > 0.0


@pytest.mark.parametrize(("seed", "base"), [(9, 0.0), (9, 0.3), (10, 0.3)])
def test_only_what_is_asked_of_a_named_memory_is_not_damped(seed: int, base: float) -> None:
    text = "Orbit project, directed by Ada Moss"
    reader = hand_reader((seed, 12), texts={seed: text, 8: "a director"})
    reader.graph_edges = reader.graph_edges._replace(
        evidence_starts=np.array([text.index("Ada")], dtype=np.int32),
        evidence_ends=np.array([len(text)], dtype=np.int32),
        in_degrees=np.array([200], dtype=np.int32),
    )
    asked = AskedLeg(reader, {seed: 0.4, 12: base})
    ranking = asked.found("director of Orbit project")
    # The query names 9, which gains half of NAMED_WEIGHT; 10 is only found.
    pushed = 0.4 + NAMED_WEIGHT * 0.5 if seed == 9 else 0.4
    damped = pushed * 201**-0.25
    room = SEED_SHARE * (pushed - base) if seed == 9 else 0.0
    assert damped < pushed
    assert ranking.walked.scores.tolist() == pytest.approx([max(damped, min(pushed, room))])
    assert room == 0.0 or damped < room < pushed - base


def test_the_moment_is_handed_to_the_walk() -> None:
    reader = hand_reader((10, 12))
    reader.graph_edges = reader.graph_edges._replace(valid_to_us=np.array([200], dtype=np.int64))
    assert AskedLeg(reader, {10: 0.8}).rank("x") is None
    assert AskedLeg(reader, {10: 0.8}, as_of_us=200).rank("x") is None
    assert AskedLeg(reader, {10: 0.8}, as_of_us=199).found("x").positions.tolist() == [10, 12]


def test_turns_change_order_and_their_best_keeps_its_score() -> None:
    ranking = AskedLeg(hand_reader(texts=TALK), ASKED).found("pump valve")
    scores = dict(zip(ranking.positions.tolist(), ranking.scores.tolist(), strict=True))
    assert set(scores) == {0, 1, 2, 3, 4, 5, 10}
    # By base 2 leads; 1 holds a word of its own and stands beside the other.
    best = max(TURNS, key=lambda position: scores[position])
    assert best == 1
    assert scores[1] == pytest.approx(0.6)
    assert scores[2] < 0.6  # what 1 had
    assert scores[10] == 0.7  # said in no conversation: not touched, not scaled
    assert ranking.scores.max() <= 1.0


def test_a_near_word_counts_in_the_place_of_the_word_by_its_share() -> None:
    reader = hand_reader(texts={0: "a pump", 1: "stuck valve", 2: "thanks", 3: "pump and valve"})
    reader.near = {"pump": [("valv", 0.25), ("lost", 0.5)], "lost": [("valv", 0.5)]}
    scores = reader.posting_scores[[start for start, _ in reader.look_up_terms(["pump", "valv"])]]
    pump, valve = scores.tolist()
    for query, expected in (
        (
            "lost pump",
            [[pump, 0.25 * valve, 0.0, pump]],
        ),  # nothing holds "lost": it asks for nothing
        ("pump valve", [[pump, 0.0, 0.0, pump], [0.0, valve, 0.0, valve]]),  # it is asked itself
    ):
        talk = AskedLeg(reader, {2: 0.6}).found(query).talk
        assert talk is not None
        assert talk.words.tolist() == expected


@pytest.mark.parametrize(
    ("weight", "session_weight"), [(1.0, 1.0), (0.5, 1.0), (1.0, 0.5), (0.5, 0.5)]
)
def test_what_sessions_lend_is_weighed_and_calibrated(weight: float, session_weight: float) -> None:
    asked = AskedLeg(hand_reader(texts=TALK), ASKED, weight=weight, session_weight=session_weight)
    ranking = asked.found("pump valve")
    talk = ranking.talk
    assert talk is not None
    members = np.searchsorted(ranking.positions, talk.members)
    base = ranking.fused[members]
    assert ranking.before.tolist() == base.tolist()
    assert ranking.session_weight == session_weight
    lent = session_weight * lent_scores(talk, base)
    assert ranking.lent.tolist() == lent.tolist()
    raised = base + weight * lent
    in_order = sorted(range(base.size), key=lambda i: (-raised[i], -base[i]))
    given = dict(zip(in_order, sorted(base.tolist(), reverse=True), strict=True))
    assert ranking.scores[members].tolist() == [given[i] for i in range(base.size)]


def test_at_weight_zero_sessions_are_not_asked() -> None:
    assert AskedLeg(hand_reader(texts=TALK), ASKED, session_weight=0.0).rank("pump") is None
    ranking = AskedLeg(hand_reader((10, 12), texts=TALK), ASKED, session_weight=0.0).found("pump")
    assert (ranking.talk, ranking.positions.tolist()) == (None, [1, 2, 4, 10, 12])


def test_facts_of_a_session_are_ordered_among_themselves() -> None:
    base = {4: 0.1, 5: 0.05, 6: 0.9, 7: 0.2, 10: 0.5}
    ranking = AskedLeg(hand_reader(texts={**TALK, 7: "pump"}), base).found("pump")
    assert ranking.fused.tolist() == list(base.values())  # left alone beside the new scores
    assert ranking.scores[[2, 4]].tolist() == pytest.approx([0.9, 0.5])
    assert ranking.scores[[3, 0, 1]].tolist() == [0.2, 0.1, 0.05]


def test_a_session_is_heard_where_a_step_leads() -> None:
    ranking = AskedLeg(hand_reader((10, 4), texts=TALK), {10: 0.8}).found("pump")
    assert ranking.positions.tolist() == [4, 5, 10]


@pytest.mark.parametrize("weight", [0.5, 1.0, 4.0])
def test_newcomers_are_divided_by_the_scale_of_the_pool(weight: float) -> None:
    # Step and name bring more than 1 to 9; 7, as good as 6, must not gain by coming late.
    # Nobody says a word of the query, so nothing is lent to either.
    reader = hand_reader((10, 9), abouts=[(GARDEN, 9)])
    asked = AskedLeg(reader, {6: 0.9, 10: 1.0}, weight=weight)
    asked.base[7] = 0.9
    ranking = asked.found("unheard Garden")
    arriving = _step(1.0, weight, NAMED_WEIGHT) + NAMED_WEIGHT
    scale = 1 + weight * arriving
    assert arriving > 1.0
    assert ranking.positions.tolist() == [6, 7, 9, 10]
    assert ranking.fused.tolist() == [0.9, 0.9, 0.0, 1.0]
    expected = [x / scale for x in (0.9, 0.9, weight * arriving, 1.0)]
    assert ranking.scores.tolist() == pytest.approx(expected)
    assert ranking.before.tolist() == pytest.approx([0.9 / scale] * 2)
    alone = AskedLeg(hand_reader(), {6: 0.9, 10: 0.6})
    alone.base[7] = 0.3
    ranking = alone.found("unheard")
    assert ranking.fused.tolist() == ranking.scores.tolist() == [0.9, 0.3, 0.6], "without a walk"
    assert (ranking.walked.is_empty, ranking.named.positions.size) == (True, 0)


def test_newcomers_raise_what_the_session_lends() -> None:
    asked = AskedLeg(hand_reader(texts=TALK), {0: 0.2, 4: 0.4})
    asked.base[3] = 0.9
    ranking = asked.found("pump")
    assert ranking.talk is not None
    # The best of the first session is the newcomer 3, as good as a candidate.
    base = ranking.fused[np.searchsorted(ranking.positions, ranking.talk.members)]
    assert base.tolist() == [0.2, 0.0, 0.0, 0.9, 0.4, 0.0]
    assert ranking.lent.tolist() == lent_scores(ranking.talk, base).tolist()
    assert ranking.scores.max() == pytest.approx(0.9)


def test_positions_are_ascending_and_distinct_and_the_pool_stays_as_it_was() -> None:
    asked = AskedLeg(hand_reader((10, 1), (10, 12), (4, 9), texts=TALK), {**ASKED, 7: 0.2})
    pool, base = asked.pool.tolist(), asked.base.tolist()
    ranking = asked.found("pump of the Orbit project")
    assert ranking.positions.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 12]
    assert ranking.fused.shape == ranking.scores.shape == ranking.positions.shape
    assert (asked.pool.tolist(), asked.base.tolist()) == (pool, base)
    assert ((ranking.scores >= 0.0) & (ranking.scores <= 1.0)).all()


def talk_of(query: str, *, texts: Mapping[int, str] = TALK, wings: Sequence[str] = ()) -> Talk:
    talk = AskedLeg(hand_reader(texts=texts, wings=wings), ASKED).found(query).talk
    assert talk is not None
    return talk


def test_who_speaks_is_lent_to_and_is_no_word() -> None:
    texts = {**TALK, 3: "Nina, are you there"}
    talk = talk_of("what did Nina say of the pump", texts=texts)
    assert talk.members[talk.said].tolist() == [1, 4]
    # 3 holds the name, but its only word of the query would be who speaks.
    assert talk.words[:, 3].tolist() == [0.0] * talk.words.shape[0]
    assert talk_of("Nina?", texts=texts).words[:, 3].max() > 0.0
    nowhere = talk_of("Orbit project", texts={3: "orbit project"})
    assert not nowhere.said.any(), "a name that speaks nowhere stays a word"
    assert nowhere.own[3] == 1.0
    for wings in ((), ("work",)):
        company = talk_of("Nina on the pump", wings=wings).company
        assert company.tolist() == [bool(wings)] * 6, "company needs wings"


@pytest.mark.parametrize("session_weight", [1.0, 0.5])
def test_paths_sum_to_what_the_session_lent_after_a_walk(session_weight: float) -> None:
    reader = hand_reader((10, 1), texts=TALK)
    asked = AskedLeg(reader, {**ASKED, 10: 0.9}, session_weight=session_weight)
    ranking = asked.found("pump")
    assert ranking.talk is not None
    lent = dict(zip(ranking.talk.members.tolist(), ranking.lent.tolist(), strict=True))
    for position in TURNS:
        path = path_of(ranking, position)
        assert path is not None
        walked = path.shares.get("mentions_subject", 0.0)
        assert (walked > 0.0) == (position == 1)
        assert path.score == pytest.approx(lent[position] + walked)
        assert path.score == pytest.approx(sum(path.shares.values()))
    # By base 2 leads its session; after the walk 1 does, and owes that to none of it.
    assert ranking.fused[ranking.positions.tolist().index(2)] == 0.6
    others = [path_of(ranking, position) for position in (0, 2, 3)]
    assert {p.seed for p in others if p is not None and p.relation == "in_session"} <= {1}
    session = ranking._replace(walked=ranking.walked._replace(scores=ranking.walked.scores * 0.0))
    best = path_of(session, 1)
    assert best is not None
    assert best.seed != 1


def test_a_name_that_nobody_may_see_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LINKS, "garden wall", (ORBIT, 1.0, 0))
    monkeypatch.setitem(STARTS, "garden", 2)
    reader = hand_reader(abouts=[(ORBIT, 9), (GARDEN, 11)])
    hidden = AskedLeg(reader, {10: 0.5}, hidden=[9])
    assert hidden.rank("the Garden wall") is not None


def test_the_graph_looks_names_and_terms_up_in_the_snapshot() -> None:
    graph = hand_graph(hand_reader(texts={3: "pump", 1: "pump valve"}))
    assert graph.names_seen(None).longest(["orbit", "pump"]) == {"orbit": 2}
    found = graph.names_seen(None).names(["garden", "unknown"])
    assert [(name, tuple(found[name])) for name in found] == [("garden", (GARDEN, 1.0, True))]
    assert isinstance(found["garden"].cased, bool)
    ((positions, scores),) = graph.postings(["unknown", "pump"])
    assert (positions.tolist(), scores.tolist()) == ([1, 3], [1.0, 1.0])


def test_the_graph_knows_who_speaks_and_whether_there_are_wings() -> None:
    graph = hand_graph(hand_reader())
    everyone, one_less, nobody = (np.ones(N, dtype=bool) for _ in range(3))
    one_less[SPOKEN[0]] = False
    nobody[list(SPOKEN)] = False
    for shown, speaks in ((None, True), (everyone, True), (one_less, True), (nobody, False)):
        found = [graph.speaks(ordinal, shown) for ordinal in (-1, NINA, ORBIT)]
        assert found == [False, speaks, False]
    assert graph.wings is None
    wings = hand_graph(hand_reader(wings=["work"])).wings
    assert wings is not None
    assert wings.tolist() == [0] * N


NINA_ID = 5
SUBJECT, TAG = RELATIONS.index("mentions_subject"), RELATIONS.index("mentions_tag")
SIZE = 8


# 0..4 is a conversation in which Nina says 3, 5..6 facts of one session, 7 a fact of none.
SESSIONS = SessionArrays(
    codes=np.array([0, 0, 0, 0, 0, 1, 1, -1], dtype=np.int32),
    places=np.array([0, 1, 2, 3, 4, 5, 6, -1], dtype=np.int32),
    order=np.arange(7, dtype=np.int32),
    indptr=np.array([0, 5, 7], dtype=np.int64),
    turns=np.array([1, 1, 1, 1, 1, 0, 0, 0], dtype=np.int8),
    speakers=np.array([-1, -1, -1, NINA_ID, -1, -1, -1, -1], dtype=np.int32),
)

BASE = (0.2, 0.0, 0.9, 0.3, 0.0, 0.1, 0.4, 0.5)
Arrival = tuple[int, float, int, int, int]


"""Target, score, seed, relation, concept."""


def _walk(arrivals: Sequence[Arrival]) -> Walk:
    columns = np.array(arrivals, dtype=np.float64).reshape(-1, 5).T
    return Walk(
        columns[0].astype(np.int64), columns[1], columns[2].astype(np.int64),
        columns[3].astype(np.int8), columns[4].astype(np.int32), np.zeros(columns.shape[1]),
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


def test_a_step_goes_from_its_seed_over_its_concept_and_a_name_from_the_query() -> None:
    walked = _ranking((7, 0.4, 2, SUBJECT, 6), (1, 0.3, 0, TAG, 8))
    path = _path(walked, 7)
    assert path == GraphPath(0.4, 2, "mentions_subject", 6, (2,), {"mentions_subject": 0.4})
    assert path.reason == "reached over the graph from {2} by mentions_subject"
    assert _path(walked, 1) == GraphPath(0.3, 0, "mentions_tag", 8, (0,), {"mentions_tag": 0.3})
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
    shares = {"mentions_subject": walked, "named_by_query": 0.25}
    assert path == GraphPath(walked + 0.25, seed, relation, concept, evidence, shares)
    assert path.reason.count("also ") == 1


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
    assert [_path(moved, position).seed for position in (7, 6)] == [8, 4]


@pytest.mark.parametrize(
    ("said_at", "relation", "other", "share"),
    [(0, "next_turn", "previous_turn", NEARBY[0]), (3, "previous_turn", "next_turn", NEARBY[1])],
)
def test_a_word_said_nearby_makes_this_the_next_or_the_previous_turn(
    said_at: int, relation: str, other: str, share: float
) -> None:
    path = _path(_ranking(terms=[{said_at: 2.0}], base=[0.01] * SIZE), 1)
    assert (path.relation, path.seed, path.evidence) == (relation, said_at, (said_at,))
    assert path.concept == NO_CONCEPT
    assert path.shares[relation] == pytest.approx(CONTEXT_WEIGHT * share)
    assert other not in path.shares
    said = f"reached over the graph from {{{said_at}}} by {relation} ({path.shares[relation]:.3f})"
    assert path.reason == f"{said}, also in_session {path.shares['in_session']:.3f}"


def test_a_turn_after_one_that_is_like_the_query_comes_before_one_after_another() -> None:
    cosines = {0: 0.8, 1: 0.2, 2: 0.4, 10: 0.6}
    ranking = AskedLeg(hand_reader(texts=TALK), {1: 0.4, 2: 0.5}, cosines=cosines).found("x")
    assert ranking.scores[[1, 2]].tolist() == [0.5, 0.4], "they exchange what they had"
    path = _path(ranking, 1)
    assert (path.relation, path.seed, path.evidence) == ("turn_before", 0, (0,))
    # Of the best hit's 0.8, the turn before 1 has 0.6 more than 1, that before 2 has 0.2 less.
    assert path.shares["turn_before"] == pytest.approx(BEFORE_WEIGHT * (0.6 + 0.2) / 0.8)
    assert "turn_before" not in _path(ranking, 2).shares
    # 0 begins the session: as if what was said before it were as much like the query.
    assert _path(ranking, 0).shares["turn_before"] == pytest.approx(BEFORE_WEIGHT * 0.25)


def test_a_members_places_are_those_before_and_after_the_exchange() -> None:
    ranking = _ranking(terms=[{7: 1.0}])
    assert ranking.talk is not None
    members, turns = ranking.talk.members.tolist(), ranking.talk.is_turn.tolist()
    given = dict(zip(members, ranking.before.tolist(), strict=True))
    held = dict(zip(ranking.positions.tolist(), ranking.scores.tolist(), strict=True))
    for member, turn in zip(members, turns, strict=True):
        group = [m for m, t in zip(members, turns, strict=True) if t == turn]
        places = [
            1 + sorted((s[m] for m in group), reverse=True).index(s[member]) for s in (given, held)
        ]
        assert ranking.places_in_talk(member) == (*places, len(group))
    outside = set(range(SIZE)) - set(members)
    assert all(ranking.places_in_talk(position) is None for position in outside)


def test_own_words_are_told_from_those_nearby() -> None:
    # 1 holds half of what is heard best (at 0), and hears the rest of it from there.
    path = _path(_ranking(terms=[{0: 2.0, 1: 1.0}], base=[0.01] * SIZE), 1)
    assert path.shares["own_words"] == pytest.approx(CONTEXT_WEIGHT * 0.5)
    assert path.shares["next_turn"] == pytest.approx(CONTEXT_WEIGHT * (NEARBY[0] - 0.5))
    alone = _path(_ranking(terms=[{0: 2.0}], base=[0.01] * SIZE), 0)
    assert (alone.relation, alone.seed, alone.evidence) == ("own_words", None, (0,))
    assert set(alone.shares) == {"own_words", "in_session"}


def test_the_session_comes_from_its_best_member_which_owes_it_to_nobody_else() -> None:
    path = _path(_ranking(terms=[{7: 1.0}]), 4)
    assert (path.relation, path.seed, path.concept) == ("in_session", 2, NO_CONCEPT)
    assert path.evidence == (2,)
    assert path.shares == {"in_session": pytest.approx(SESSION_WEIGHT * 0.9)}
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
    assert [_path(ranking, p).seed for p in (6, 1, 5)] == [5, None, None]


def test_turns_are_lent_nothing_of_their_session_as_one_document() -> None:
    path = _path(_ranking(terms=[{0: 1.0}]), 0)
    assert path.shares == {
        "in_session": pytest.approx(SESSION_WEIGHT * 0.9),
        "own_words": pytest.approx(CONTEXT_WEIGHT),
    }


def test_facts_are_reached_by_their_session_alone() -> None:
    path = _path(_ranking(terms=[{5: 1.0}], speakers=[NINA_ID]), 5)
    assert path == GraphPath(
        FACT_COVERAGE_WEIGHT, 6, "in_session", NO_CONCEPT, (6,),
        {"in_session": FACT_COVERAGE_WEIGHT},
    )  # fmt: skip


def test_company_is_told_from_who_speaks() -> None:
    wings = np.array([0, 0, 0, 0, -1, 0, 0, 0], dtype=np.int32)
    ranking = _ranking(terms=[{7: 1.0}], speakers=[NINA_ID], wings=wings)
    path = _path(ranking, 3)
    assert (path.relation, path.seed, path.concept) == ("said_by", None, NINA_ID)
    assert (path.evidence, path.shares["said_by"]) == ((3,), SPEAKER_WEIGHT)
    path = _path(ranking, 1)
    assert (path.relation, path.seed, path.concept) == ("in_company_of", None, NO_CONCEPT)
    assert (path.evidence, path.shares["in_company_of"]) == ((1,), COMPANY_WEIGHT)
    assert not {"said_by", "in_company_of"} & _path(ranking, 4).shares.keys()
    assert path_of(ranking, 5) is None  # a fact, and its session holds no word


TERMS = [{0: 2.0, 2: 1.0, 5: 1.0}, {3: 1.5, 1: 0.5}]


@pytest.mark.parametrize("position", range(SIZE - 1))
def test_shares_are_what_sessions_lend_and_what_walk_and_names_add(position: int) -> None:
    """Those of sessions carry the session weight, those of walk and names do not."""
    everything: dict[str, Any] = {
        "terms": TERMS, "speakers": [NINA_ID], "wings": np.zeros(SIZE, dtype=np.int32),
    }  # fmt: skip
    lent = _path(_ranking(**everything), position)
    assert lent.score == pytest.approx(sum(lent.shares.values()))
    assert min(lent.shares.values()) > 0.0
    assert lent.relation in lent.shares
    arrivals = [(p, 0.3, 7, SUBJECT, 6) for p in range(SIZE)]
    named = {p: (0.2, 4) for p in range(SIZE)}
    own = {"mentions_subject": 0.3, "named_by_query": 0.2}
    for weight in (1.0, 0.5):
        ranking = _ranking(*arrivals, named=named, **everything, session_weight=weight)
        path = _path(ranking, position)
        expected = {name: weight * share for name, share in lent.shares.items()}
        assert path.shares == pytest.approx({**own, **expected})
        assert path.score == pytest.approx(float(ranking.lent[position]) + 0.5)
        assert path.score == pytest.approx(sum(path.shares.values()))


def test_the_walk_prefers_the_name_beside_which_the_question_stands() -> None:
    text = "The valve was designed by Nina and sold by Orbit."
    reader = hand_reader(
        (10, 12), (10, 13), texts={10: text, 11: "a designer"}, abouts=[(ORBIT, 9)]
    )
    spans = [(text.index(name), text.index(name) + len(name)) for name in ("Nina", "Orbit")]
    starts, ends = np.array(spans, dtype=np.int32).T
    reader.graph_edges = reader.graph_edges._replace(evidence_starts=starts, evidence_ends=ends)
    ranking = AskedLeg(reader, {10: 0.8}).found("designer of the valve")
    asked, other = (path_of(ranking, target) for target in (12, 13))
    assert asked is not None
    assert other is not None
    assert (asked.asked, other.asked) == (True, False)
    assert (
        asked.reason
        == "reached over the graph from {10} by mentions_subject, beside words of the query"
    )
    assert (asked.score, other.score) == pytest.approx((0.8 / 2**0.25, 0.8 / 2**0.25 / 3))


@pytest.mark.parametrize(
    ("one", "other", "akin"),
    [
        ("director", "direct", True),
        ("born", "bornholm", True),
        ("son", "song", False),
        ("son", "son", True),
    ],
)
def test_stems_are_akin_where_one_begins_with_the_other(one: str, other: str, akin: bool) -> None:
    assert are_akin(one, other) is are_akin(other, one) is akin


def test_words_beside_a_name_are_the_nearest_on_its_line() -> None:
    text = "Alien\nAlien is a long film that was directed by Ridley Scott, starring Tom Skerritt."
    start = text.index("Ridley")
    assert words_beside(text, start, start + len("Ridley Scott")) == ("direct", "star", "tom")
    assert words_beside(text, 0, 5) == ()
