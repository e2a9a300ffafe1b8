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
from tests.rooms.graph.conftest import record


def _turns(*fields: Mapping[str, object]) -> list[MemoryRecord]:
    return [
        record(position, f"turn {position}", **{"session_id": "s", "is_turn": True, **field})
        for position, field in enumerate(fields)
    ]


def _members(sessions: SessionArrays) -> list[list[int]]:
    ends = sessions.indptr.tolist()
    order = sessions.order.tolist()
    return [order[start:end] for start, end in pairwise(ends)]


def test_members_stand_by_time_and_then_by_position_undated_ones_first() -> None:
    times = (30, 20, 10, 20, UNDATED_US, -5)
    sessions = build_sessions(_turns(*({"created_at_us": time} for time in times)))
    assert _members(sessions) == [[4, 5, 2, 1, 3, 0]]
    assert sessions.places.tolist() == [5, 3, 2, 4, 0, 1]


def test_an_id_is_only_unique_inside_its_owner_and_its_wing() -> None:
    scopes = [
        {"user": "bo", "wing": "work"}, {"user": "al", "wing": "work"}, {"user": "al"},
        {"wing": "work"}, {}, {"user": "al", "wing": "home"},
    ]  # fmt: skip
    sessions = build_sessions(_turns(*scopes, *scopes))
    # Sorted by owner, then wing; nobody and nowhere come first.
    assert _members(sessions) == [[4, 10], [3, 9], [2, 8], [5, 11], [1, 7], [0, 6]]
    assert sessions.codes.tolist() == [5, 4, 2, 1, 0, 3] * 2


def test_sessions_of_one_and_memories_of_none_are_left_out() -> None:
    ids = (None, "a", "", "b", "  ", "b", None)
    sessions = build_sessions(_turns(*({"session_id": session} for session in ids)))
    assert _members(sessions) == [[3, 5]]
    assert sessions.codes.tolist() == [-1, -1, -1, 0, -1, 0, -1]
    assert sessions.places.tolist() == [-1, -1, -1, 0, -1, 1, -1]


def test_turns_and_speakers_are_kept_by_position() -> None:
    records = _turns({}, {"is_turn": False}, {"session_id": None})
    sessions = build_sessions(records, {2: 7, 0: 0})
    assert sessions.turns.tolist() == [1, 0, 1]
    assert sessions.speakers.tolist() == [0, -1, 7]
    assert build_sessions(records).speakers.tolist() == [-1, -1, -1]


@pytest.mark.parametrize("size", [0, 3])
def test_arrays_have_their_types_without_any_session(size: int) -> None:
    sessions = build_sessions(_turns(*({"session_id": None} for _ in range(size))))
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
    order = np.array(order, dtype=np.int32)
    indptr = np.cumsum([0, *map(len, members)], dtype=np.int64)
    return SessionArrays(codes, places, order, indptr, turns, spoken)


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


def test_who_is_named_speaks_and_has_company_in_the_wing() -> None:
    talk = heard(speakers=[NINA, 99], wings=WINGS)
    assert talk.speakers.tolist() == [-1, NINA, NINA, -1, BO, -1]
    assert talk.said.tolist() == [False, True, True, False, False, False]
    assert talk.company.tolist() == [True] * 5 + [False]
    elsewhere = heard(speakers=[BO], wings=np.array([0, 0, 0, 0, 1, 1, 1, 1, 1], dtype=np.int32))
    assert elsewhere.company.tolist() == [False] * 4 + [True] * 2


def test_turns_are_lent_words_and_people_and_facts_the_session() -> None:
    """By hand; tests/properties/test_conversation.py compares with plain loops."""
    talk = heard(speakers=[NINA], wings=WINGS)
    # By term, heard: 1.8 2 1.8 1.6 | 1 .9 and 1.8 2.4 2.7 3 | 0 0.
    context = [x / 4.6 for x in (3.6, 4.4, 4.5, 4.6, 1, 0.9)]
    assert talk.context.tolist() == pytest.approx(context)
    assert talk.own.tolist() == pytest.approx([x / 4.6 for x in (1, 2, 0, 3, 1, 0)])
    # BM25 with sessions as documents: the first term stands in 3 of 3 sessions, once each; the
    # second in 1, twice. Memories outside any session (6, with the largest score) are no document.
    common, rare = log(1 + 0.5 / 3.5), log(1 + 2.5 / 1.5)
    coverage = (common * 1 / 2.2) / (common * 1 / 2.2 + rare * 2 / 3.2)
    assert talk.coverage.tolist() == pytest.approx([1.0] * 4 + [coverage] * 2)
    turns = [
        1.1 * context[0] + 0.3 * 0.9 + 0.4,
        1.1 * context[1] + 0.3 * 0.9 + 0.5 + 0.4,
        1.1 * context[2] + 0.3 * 0.9 + 0.5 + 0.4,
        1.1 * context[3] + 0.3 * 0.9 + 0.4,
        1.1 * context[4] + 0.3 * 0.5 + 0.4,
    ]
    lent = lent_scores(talk, BASE_OF_MEMBERS).tolist()
    assert lent == pytest.approx([*turns, 0.2 * coverage])


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


def test_a_turn_takes_part_of_its_likeness_from_the_turn_before() -> None:
    like = floats(0.5, 1.0, 0.25, 0.25, 0.75, 0.5, 1.0, 1.0, 1.0)
    mask = np.ones(9, dtype=bool)
    # Differences of 0, -0.5, 0.75 and 0, above the least: 0 has no turn before it, 5 is none.
    talk, without = heard(likeness_at=like.__getitem__), heard()
    assert talk.before.tolist() == [0.5, 0.0, 1.25, 0.5, 0.5, 0.0]
    gained = lent_scores(talk, BASE_OF_MEMBERS) - lent_scores(without, BASE_OF_MEMBERS)
    assert gained.tolist() == pytest.approx([0.15, 0.0, 0.375, 0.15, 0.15, 0.0])
    mask[1] = False  # who may not see 1 is told nothing of it
    hidden = heard(likeness_at=like.__getitem__, mask=mask)
    assert hidden.before.tolist() == [0.0, 0.25, 0.0, 0.0, 0.0]


def test_a_sessions_words_tell_half_inside_one_wing() -> None:
    everywhere, inside = heard(), heard(in_wing=True)
    assert inside.coverage.tolist() == pytest.approx([0.5 * c for c in everywhere.coverage])
    assert inside.context.tolist() == everywhere.context.tolist()


def test_without_a_session_or_anybody_to_see_there_is_no_talk() -> None:
    assert listen(ints(6), floats(1.0), CORPUS, TERMS) is None
    assert listen(ints(), floats(), CORPUS, TERMS) is None
    assert listen(ints(0), floats(1.0), arranged(9), TERMS) is None
    assert listen(POOL, BASE, CORPUS, TERMS, mask=np.zeros(9, dtype=bool)) is None


PAIRS = arranged(7, [0, 1], [2, 3], [4, 5])
SIZES = arranged(11, [0, 1, 2], [3, 4, 5], [6, 7], [8, 9])


@pytest.mark.parametrize(
    ("bound", "most", "sessions", "candidates", "members", "left_out"),
    [
        # Two weaker candidates do not make the middle session better than the others' one each.
        ("SESSIONS_MAX", 2, PAIRS, {0: 0.5, 2: 0.4, 3: 0.4, 5: 0.5, 6: 1.0}, [0, 1, 4, 5], 1),
        # Equal ones are taken by position.
        ("SESSIONS_MAX", 1, arranged(4, [2, 3], [0, 1]), {2: 0.5, 1: 0.5}, [0, 1], 1),
        # One that no longer fits gives way to a smaller one.
        ("MEMBERS_MAX", 5, SIZES, {0: 0.9, 3: 0.8, 6: 0.7, 8: 0.6}, [0, 1, 2, 6, 7], 2),
        ("MEMBERS_MAX", 2, arranged(3, [0, 1, 2]), {0: 1.0}, None, 0),
    ],
)
def test_sessions_with_the_best_members_are_looked_into(
    bound: str, most: int, sessions: SessionArrays, candidates: dict[int, float],
    members: list[int] | None, left_out: int, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(conversation, bound, most)
    talk = listen(ints(*candidates), floats(*candidates.values()), sessions, [])
    assert (None if talk is None else talk.members.tolist()) == members
    assert talk is None or talk.left_out == left_out


@pytest.mark.parametrize(
    ("old", "raised", "scores"),
    [
        ([0.8, 0.2, 0.0, 0.5], [1.0, 1.6, 0.4, 0.5], [0.5, 0.8, 0.0, 0.2]),
        ([0.2, 0.8, 0.5], [1.0, 1.0, 1.0], [0.2, 0.8, 0.5]),  # raised alike
        ([0.0, 0.0], [0.0, 0.0], [0.0, 0.0]),
        ([0.0, 0.0], [0.5, 0.2], [0.0, 0.0]),
        ([], [], []),
    ],
)
def test_calibration_gives_the_old_scores_in_the_new_order(
    old: list[float], raised: list[float], scores: list[float]
) -> None:
    assert calibrate(floats(*old), floats(*raised)).tolist() == scores


@pytest.mark.parametrize(
    ("members", "words", "best"),
    [
        # Around 2: place 1 lends .9 * 2 of the first term, place 5 lends .6 * 6 of the second;
        # around 5: .4 of 2, where 2 lends .6 of 1.
        ([[0, 1, 2, 3, 4, 5]], [{1: 2.0, 2: 1.0}, {5: 6.0, 2: 0.5}], {2: 5, 0: 1, 5: 1}),
        # Only what the member lacks is lent; of equal ones the earlier.
        ([[0, 1, 2]], [{0: 5.0, 1: 5.0, 2: 1.0}], {0: None, 1: None, 2: 1}),
        ([[0, 1, 2]], [{0: 1.0, 2: 1.0}], {1: 0}),
        # Of the same session and within reach.
        ([[0, 1, 2, 3, 4, 5], [6, 7, 8]], [{0: 1.0, 6: 1.0}],
         dict(enumerate([None, 0, 0, 0, 0, None, None, 6, 6]))),
    ],
)  # fmt: skip
def test_the_best_neighbour_lends_the_most_words(
    members: list[list[int]], words: list[dict[int, float]], best: dict[int, int | None]
) -> None:
    first = [session[0] for session in members]
    sessions = arranged(sum(map(len, members)), *members)
    talk = listen(ints(*first), floats(*[1.0] * len(first)), sessions, [*map(posting, words)])
    assert talk is not None
    assert {place: best_neighbour(talk, place) for place in best} == best
