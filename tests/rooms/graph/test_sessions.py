"""Sessions of a corpus, and what they lend their turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import log
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.core.types import UNDATED_US, MemoryRecord
from noctuary.graph import sessions as conversation
from noctuary.graph.build import build_sessions
from noctuary.graph.sessions import (
    Posting,
    SessionArrays,
    Talk,
    best_neighbour,
    calibrate,
    lent_scores,
    listen,
    spread,
)
from tests.rooms.graph.conftest import RecordFactory


def _turns(record: RecordFactory, *fields: Mapping[str, object]) -> list[MemoryRecord]:
    return [
        record(position, f"turn {position}", **{"session_id": "s", "is_turn": True, **field})
        for position, field in enumerate(fields)
    ]


def _members(sessions: SessionArrays) -> list[list[int]]:
    ends = sessions.indptr.tolist()
    order = sessions.order.tolist()
    return [order[start:end] for start, end in pairwise(ends)]


def test_members_stand_by_time_and_then_by_position(record: RecordFactory) -> None:
    times = (30, 20, 10, 20)
    sessions = build_sessions(_turns(record, *({"created_at_us": time} for time in times)))
    assert _members(sessions) == [[2, 1, 3, 0]]
    assert sessions.places.tolist() == [3, 1, 0, 2]


def test_undated_members_stand_first(record: RecordFactory) -> None:
    dated = ({"created_at_us": 5}, {"created_at_us": -5}, {"created_at_us": UNDATED_US}, {})
    assert _members(build_sessions(_turns(record, *dated))) == [[2, 1, 0, 3]]


def test_an_id_is_only_unique_inside_its_owner_and_its_wing(record: RecordFactory) -> None:
    scopes = [
        {"user": "bo", "wing": "work"}, {"user": "al", "wing": "work"}, {"user": "al"},
        {"wing": "work"}, {}, {"user": "al", "wing": "home"},
    ]  # fmt: skip
    sessions = build_sessions(_turns(record, *scopes, *scopes))
    # Sorted by owner, then wing; nobody and nowhere come first.
    assert _members(sessions) == [[4, 10], [3, 9], [2, 8], [5, 11], [1, 7], [0, 6]]
    assert sessions.codes.tolist() == [5, 4, 2, 1, 0, 3] * 2


def test_sessions_of_one_and_memories_of_none_are_left_out(record: RecordFactory) -> None:
    ids = (None, "a", "", "b", "  ", "b", None)
    sessions = build_sessions(_turns(record, *({"session_id": session} for session in ids)))
    assert _members(sessions) == [[3, 5]]
    assert sessions.codes.tolist() == [-1, -1, -1, 0, -1, 0, -1]
    assert sessions.places.tolist() == [-1, -1, -1, 0, -1, 1, -1]


def test_places_invert_order_over_several_sessions(record: RecordFactory) -> None:
    ids = ("b", "a", "b", "a", "c", "b")
    sessions = build_sessions(_turns(record, *({"session_id": session} for session in ids)))
    assert _members(sessions) == [[1, 3], [0, 2, 5]]
    assert sessions.order[sessions.places[sessions.places >= 0]].tolist() == [0, 1, 2, 3, 5]


def test_turns_and_speakers_are_kept_by_position(record: RecordFactory) -> None:
    records = _turns(record, {}, {"is_turn": False}, {"session_id": None})
    sessions = build_sessions(records, {2: 7, 0: 0})
    assert sessions.turns.tolist() == [1, 0, 1]
    assert sessions.speakers.tolist() == [0, -1, 7]
    assert build_sessions(records).speakers.tolist() == [-1, -1, -1]


@pytest.mark.parametrize("size", [0, 3])
def test_arrays_have_their_types_without_any_session(record: RecordFactory, size: int) -> None:
    sessions = build_sessions(_turns(record, *({"session_id": None} for _ in range(size))))
    for name in ("codes", "places", "speakers"):
        array = getattr(sessions, name)
        assert (array.dtype, array.tolist()) == (np.int32, [-1] * size)
    assert (sessions.turns.dtype, sessions.turns.size) == (np.int8, size)
    assert (sessions.order.dtype, sessions.order.size) == (np.int32, 0)
    assert (sessions.indptr.dtype, sessions.indptr.tolist()) == (np.int64, [0])


NINA, BO = 10, 11


@pytest.fixture(autouse=True)
def _weights_of_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    """The tables below are computed with these; tuning them is no reason to compute anew."""
    tuned = {
        "NEARBY": (0.9, 0.8, 0.6, 0.4), "CONTEXT_WEIGHT": 1.1, "SESSION_WEIGHT": 0.3,
        "SPEAKER_WEIGHT": 0.5, "COMPANY_WEIGHT": 0.4, "FACT_COVERAGE_WEIGHT": 0.2,
        "TF_SATURATION": 1.2,
    }  # fmt: skip
    for name, value in tuned.items():
        monkeypatch.setattr(conversation, name, value)


def ints(*values: int) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def floats(*values: float) -> NDArray[np.float64]:
    return np.array(values, dtype=np.float64)


def posting(scores: dict[int, float]) -> Posting:
    return np.array(list(scores), dtype=np.int32), np.array(list(scores.values()), dtype=np.float32)


def arranged(
    n: int,
    *members: Sequence[int],
    speakers: dict[int, int] | None = None,
    facts: Sequence[int] = (),
) -> SessionArrays:
    """Sessions by their members in order; everything is a turn but the facts."""
    codes = np.full(n, -1, dtype=np.int32)
    places = np.full(n, -1, dtype=np.int32)
    order = [position for session in members for position in session]
    for code, session in enumerate(members):
        codes[list(session)] = code
    places[order] = np.arange(len(order))
    turns = np.ones(n, dtype=np.int8)
    turns[list(facts)] = 0
    spoken = np.full(n, -1, dtype=np.int32)
    for position, ordinal in (speakers or {}).items():
        spoken[position] = ordinal
    return SessionArrays(
        codes=codes,
        places=places,
        order=np.array(order, dtype=np.int32),
        indptr=np.cumsum([0, *map(len, members)], dtype=np.int64),
        turns=turns,
        speakers=spoken,
    )


# Three sessions: 0..3, 4..5, 7..8. Nobody of the last is a candidate; 6 belongs to none.
CORPUS = arranged(9, [0, 1, 2, 3], [4, 5], [7, 8], speakers={1: NINA, 2: NINA, 4: BO}, facts=[5])


TERMS = (posting({1: 2.0, 4: 1.0, 6: 9.0, 7: 1.0}), posting({0: 1.0, 3: 3.0}))


WINGS = np.array([0, 0, 0, 0, 0, -1, 0, 0, 0], dtype=np.int32)


POOL, BASE = ints(0, 4, 6), floats(0.9, 0.5, 1.0)


BASE_OF_MEMBERS = floats(0.9, 0.0, 0.0, 0.1, 0.5, 0.0)


def heard(**options: Any) -> Talk:
    talk = listen(POOL, BASE, CORPUS, TERMS, **options)
    assert talk is not None
    return talk


def test_words_fade_with_distance_and_the_largest_is_heard() -> None:
    words = np.array([[0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 3.0, 0.0, 0.0, 0.0]])
    table = spread(words, ints(0, 0, 0, 0, 0, 0, 0))
    assert table[0].tolist() == pytest.approx([1.8, 2.0, 1.8, 1.6, 1.2, 0.8, 0.0])
    assert table[1].tolist() == pytest.approx([1.8, 2.4, 2.7, 3.0, 2.7, 2.4, 1.8])
    assert words.tolist() == [[0, 2, 0, 0, 0, 0, 0], [1, 0, 0, 3, 0, 0, 0]]  # what was given stays


def test_nothing_crosses_sessions() -> None:
    words = np.array([[5.0, 0.0, 0.0, 0.0, 7.0]])
    assert spread(words, ints(0, 1, 1, 2, 3)).tolist() == words.tolist()
    assert spread(words, ints(0, 0, 1, 2, 2))[0].tolist() == pytest.approx([5, 4.5, 0, 6.3, 7])


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_sessions_shorter_than_the_reach_are_heard_whole(size: int) -> None:
    table = spread(np.array([[1.0, 0.0, 0.0, 0.0][:size]]), ints(*[0] * size))
    assert table[0].tolist() == pytest.approx([1.0, 0.9, 0.8, 0.6][:size])


def test_members_are_those_of_the_candidates_sessions_in_order() -> None:
    backwards = arranged(9, [3, 1, 0, 2], [5, 4], [7, 8])
    talk = listen(ints(4, 6, 1), floats(0.5, 1.0, 0.1), backwards, TERMS)
    assert talk is not None
    assert talk.members.tolist() == [3, 1, 0, 2, 5, 4]
    assert talk.owners.tolist() == [0, 0, 0, 0, 1, 1]
    assert talk.words.tolist() == [[0, 2, 0, 0, 0, 1], [3, 0, 1, 0, 0, 0]]
    assert talk.left_out == 0


def test_context_and_own_words_are_scaled_by_the_best_heard() -> None:
    talk = heard()
    # By term, heard: 1.8 2 1.8 1.6 | 1 .9 and 1.8 2.4 2.7 3 | 0 0.
    assert talk.context.tolist() == pytest.approx([x / 4.6 for x in (3.6, 4.4, 4.5, 4.6, 1, 0.9)])
    assert talk.own.tolist() == pytest.approx([x / 4.6 for x in (1, 2, 0, 3, 1, 0)])


def test_coverage_is_bm25_with_sessions_as_documents() -> None:
    # The first term stands in 3 of 3 sessions, once each; the second in 1, twice. Memories
    # outside any session (6, with the largest score) are no document.
    common, rare = log(1 + 0.5 / 3.5), log(1 + 2.5 / 1.5)
    first = common * 1 / 2.2 + rare * 2 / 3.2
    second = common * 1 / 2.2
    assert heard().coverage.tolist() == pytest.approx([1.0] * 4 + [second / first] * 2)


def test_who_is_named_speaks_and_has_company_in_the_wing() -> None:
    talk = heard(speakers=[NINA, 99], wings=WINGS)
    assert talk.speakers.tolist() == [-1, NINA, NINA, -1, BO, -1]
    assert talk.said.tolist() == [False, True, True, False, False, False]
    assert talk.company.tolist() == [True] * 5 + [False]
    elsewhere = heard(speakers=[BO], wings=np.array([0, 0, 0, 0, 1, 1, 1, 1, 1], dtype=np.int32))
    assert elsewhere.company.tolist() == [False] * 4 + [True] * 2


@pytest.mark.parametrize(
    "options",
    [
        {"speakers": [NINA]},
        {"speakers": [], "wings": WINGS},
        {"speakers": [99], "wings": WINGS},
        {"speakers": [NINA], "wings": np.full(9, -1, dtype=np.int32)},
    ],
)
def test_without_a_speaker_or_a_wing_there_is_no_company(options: dict[str, Any]) -> None:
    assert not heard(**options).company.any()


def test_turns_are_lent_words_and_people_and_facts_the_session() -> None:
    talk = heard(speakers=[NINA], wings=WINGS)
    context, coverage = talk.context, talk.coverage
    assert 0.0 < coverage[4] == coverage[5] < coverage[0]  # turns have it, and get none of it
    assert lent_scores(talk, BASE_OF_MEMBERS).tolist() == pytest.approx(
        [
            1.1 * context[0] + 0.3 * 0.9 + 0.4,
            1.1 * context[1] + 0.3 * 0.9 + 0.5 + 0.4,
            1.1 * context[2] + 0.3 * 0.9 + 0.5 + 0.4,
            1.1 * context[3] + 0.3 * 0.9 + 0.4,
            1.1 * context[4] + 0.3 * 0.5 + 0.4,
            0.2 * coverage[5],
        ]
    )


def test_without_words_only_the_base_of_the_session_is_lent() -> None:
    talk = listen(POOL, BASE, CORPUS, [])
    assert talk is not None
    assert talk.words.shape == (0, 6)
    assert not talk.context.any()
    assert not talk.coverage.any()
    lent = lent_scores(talk, BASE_OF_MEMBERS)
    assert lent.tolist() == pytest.approx([0.27] * 4 + [0.15, 0.0])


def test_words_that_stand_in_no_session_are_heard_by_nobody() -> None:
    talk = listen(POOL, BASE, CORPUS, [posting({6: 4.0}), posting({})])
    assert talk is not None
    assert talk.words.tolist() == [[0] * 6] * 2
    assert talk.context.tolist() == talk.own.tolist() == talk.coverage.tolist() == [0.0] * 6


def test_a_hidden_memory_neither_lends_nor_receives_nor_counts() -> None:
    mask = np.ones(9, dtype=bool)
    mask[1] = False
    talk = heard(mask=mask, speakers=[NINA], wings=WINGS)
    assert talk.members.tolist() == [0, 2, 3, 4, 5]
    assert talk.words.tolist() == [[0, 0, 0, 1, 0], [1, 0, 3, 0, 0]]
    # 2 and 3 move one turn nearer to 0; the first term is heard in the second session alone.
    assert talk.context.tolist() == pytest.approx([2.4 / 3, 2.7 / 3, 1.0, 1 / 3, 0.9 / 3])
    assert talk.said.tolist() == [False, True, False, False, False]
    # The first term stands in two visible sessions (4's and 7's), the second in one, twice.
    two, one = log(1 + 1.5 / 2.5), log(1 + 2.5 / 1.5)
    ratio = (two * 1 / 2.2) / (one * 2 / 3.2)
    assert talk.coverage.tolist() == pytest.approx([1.0] * 3 + [ratio] * 2)


@pytest.mark.parametrize("hidden", [[1, 8], [1, 7, 8]])
def test_a_session_of_which_fewer_than_two_are_shown_is_no_session(hidden: list[int]) -> None:
    mask = np.ones(9, dtype=bool)
    mask[hidden] = False
    talk = heard(mask=mask)
    # Of two sessions each term stands in one: 7, which may hold the first, is no document.
    ratio = (1 / 2.2) / (2 / 3.2)
    assert talk.coverage.tolist() == pytest.approx([1.0] * 3 + [ratio] * 2)
    assert listen(ints(7), floats(1.0), CORPUS, TERMS, mask=mask & (np.arange(9) != 8)) is None


def test_the_last_visible_member_of_a_session_is_lent_nothing() -> None:
    mask = np.ones(9, dtype=bool)
    mask[5] = False
    talk = heard(mask=mask, speakers=[BO], wings=WINGS)
    assert talk.members.tolist() == [0, 1, 2, 3]
    assert not talk.said.any()  # Bo speaks in what is no session any more
    assert talk.context.tolist() == pytest.approx([x / 4.6 for x in (3.6, 4.4, 4.5, 4.6)])
    assert talk.left_out == 0


def test_a_hidden_speaker_brings_no_company() -> None:
    mask = np.ones(9, dtype=bool)
    mask[4] = False
    talk = heard(mask=mask, speakers=[BO], wings=WINGS)
    assert not talk.said.any()
    assert not talk.company.any()


def test_a_session_that_is_hidden_whole_leaves_the_others_as_they_are() -> None:
    mask = np.ones(9, dtype=bool)
    mask[[0, 1, 2, 3]] = False
    talk = listen(ints(0, 4), floats(0.9, 0.5), CORPUS, TERMS[:1], mask=mask)
    assert talk is not None
    assert talk.members.tolist() == [4, 5]
    assert talk.context.tolist() == pytest.approx([1.0, 0.9])
    assert talk.coverage.tolist() == [1.0, 1.0]
    assert lent_scores(talk, floats(0.5, 0.0)).tolist() == pytest.approx([1.1 + 0.15, 0.2])


def test_without_a_session_or_anybody_to_see_there_is_no_talk() -> None:
    assert listen(ints(6), floats(1.0), CORPUS, TERMS) is None
    assert listen(ints(), floats(), CORPUS, TERMS) is None
    assert listen(ints(0), floats(1.0), arranged(9), TERMS) is None
    assert listen(POOL, BASE, CORPUS, TERMS, mask=np.zeros(9, dtype=bool)) is None


def test_sessions_with_the_best_members_are_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "SESSIONS_MAX", 2)
    sessions = arranged(7, [0, 1], [2, 3], [4, 5])
    # Two weaker candidates do not make the middle session better than the others' one each.
    talk = listen(ints(0, 2, 3, 5, 6), floats(0.5, 0.4, 0.4, 0.5, 1.0), sessions, [])
    assert talk is not None
    assert talk.members.tolist() == [0, 1, 4, 5]
    assert talk.left_out == 1


def test_equal_candidates_are_taken_by_position(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "SESSIONS_MAX", 1)
    sessions = arranged(4, [2, 3], [0, 1])
    talk = listen(ints(2, 1), floats(0.5, 0.5), sessions, [])
    assert talk is not None
    assert (talk.members.tolist(), talk.left_out) == ([0, 1], 1)


def test_a_session_that_no_longer_fits_gives_way_to_a_smaller_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(conversation, "MEMBERS_MAX", 5)
    sessions = arranged(11, [0, 1, 2], [3, 4, 5], [6, 7], [8, 9])
    pool, base = ints(0, 3, 6, 8), floats(0.9, 0.8, 0.7, 0.6)
    talk = listen(pool, base, sessions, [])
    assert talk is not None
    assert talk.members.tolist() == [0, 1, 2, 6, 7]
    assert talk.left_out == 2


def test_a_session_larger_than_the_bound_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "MEMBERS_MAX", 2)
    assert listen(ints(0), floats(1.0), arranged(3, [0, 1, 2]), []) is None


def test_calibration_gives_the_old_scores_in_the_new_order() -> None:
    scores = calibrate(floats(0.8, 0.2, 0.0, 0.5), floats(1.0, 1.6, 0.4, 0.5))
    assert scores.tolist() == [0.5, 0.8, 0.0, 0.2]


def test_calibration_keeps_the_old_order_of_what_is_raised_alike() -> None:
    assert calibrate(floats(0.2, 0.8, 0.5), floats(1.0, 1.0, 1.0)).tolist() == [0.2, 0.8, 0.5]


def test_calibration_of_nothing_raised() -> None:
    assert calibrate(floats(0.0, 0.0), floats(0.0, 0.0)).tolist() == [0.0, 0.0]
    assert calibrate(floats(), floats()).tolist() == []
    assert calibrate(floats(0.0, 0.0), floats(0.5, 0.2)).tolist() == [0.0, 0.0]


def test_the_best_neighbour_lends_the_most_words() -> None:
    # Around 2: place 1 lends .9 * 2 of the first term, place 5 lends .6 * 6 of the second.
    words = {0: posting({1: 2.0, 2: 1.0}), 1: posting({5: 6.0, 2: 0.5})}
    talk = listen(ints(0), floats(1.0), arranged(6, [0, 1, 2, 3, 4, 5]), list(words.values()))
    assert talk is not None
    assert best_neighbour(talk, 2) == 5
    assert best_neighbour(talk, 0) == 1
    assert best_neighbour(talk, 5) == 1  # .4 of 2, where 2 lends .6 of 1; 4 and 3 hold nothing


def test_only_what_the_member_lacks_is_lent() -> None:
    sessions = arranged(3, [0, 1, 2])
    talk = listen(ints(0), floats(1.0), sessions, [posting({0: 5.0, 1: 5.0, 2: 1.0})])
    assert talk is not None
    assert [best_neighbour(talk, place) for place in range(3)] == [None, None, 1]


def test_equal_neighbours_give_the_earlier_one() -> None:
    talk = listen(ints(0), floats(1.0), arranged(3, [0, 1, 2]), [posting({0: 1.0, 2: 1.0})])
    assert talk is not None
    assert best_neighbour(talk, 1) == 0


def test_a_neighbour_is_of_the_same_session_and_within_reach() -> None:
    sessions = arranged(9, [0, 1, 2, 3, 4, 5], [6, 7, 8])
    talk = listen(ints(0, 6), floats(1.0, 1.0), sessions, [posting({0: 1.0, 6: 1.0})])
    assert talk is not None
    found = [best_neighbour(talk, place) for place in range(9)]
    assert found == [None, 0, 0, 0, 0, None, None, 6, 6]
