from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.compact.clusters import (
    GIANT_TURN_CHARS,
    MAX_BUNDLE_TURNS,
    PROTECTED_TAIL_TURNS,
    Eligibility,
    SessionTurn,
    bundle_start,
    split_session,
)
from noctuary.core.types import UNDATED_US
from noctuary.text.marks import ends_as_question
from tests.support.turns import HOUR_US, session_turns, turn

NOW_US = 10_000 * HOUR_US


def chat(*contents: str) -> list[SessionTurn]:
    return session_turns([turn(i, content=content) for i, content in enumerate(contents)])


def split(turns: Sequence[SessionTurn], tail: int = PROTECTED_TAIL_TURNS) -> Eligibility:
    return split_session(turns, protected_tail=tail, now_us=NOW_US)


def places(turns: Sequence[SessionTurn]) -> list[int]:
    return [t.position for t in turns]


def alternating(turns: int, request: str = "User: do it.") -> list[SessionTurn]:
    return chat(*(request if i % 2 == 0 else "Assistant: Done." for i in range(turns)))


def test_the_newest_turns_stay_raw() -> None:
    assert PROTECTED_TAIL_TURNS == 4
    found = split(chat(*(f"line {i}" for i in range(10))))
    assert places(found.eligible) == list(range(6))
    assert found.protected == 4


@pytest.mark.parametrize("turns", [0, 1, 3, 4])
def test_a_session_inside_its_tail_stays_raw_as_a_whole(turns: int) -> None:
    found = split(chat(*(f"line {i}" for i in range(turns))))
    assert found == Eligibility(eligible=[], protected=turns, bundled=0, ahead=0, giant=0)


@pytest.mark.parametrize("tail", [0, -3])
def test_without_a_tail_all_turns_are_eligible(tail: int) -> None:
    found = split(alternating(6), tail)
    assert len(found.eligible) == 6
    assert found.protected == 0


def test_an_answer_at_the_head_of_the_tail_takes_its_request_along() -> None:
    found = split(alternating(10), tail=3)
    # Turn 7 answers turn 6; turn 5 answers turn 4 and is not coupled to turn 6.
    assert places(found.eligible) == list(range(6))
    assert (found.protected, found.bundled) == (4, 1)


def test_a_tail_that_begins_with_a_request_stays_as_it_is() -> None:
    found = split(alternating(10), tail=4)
    assert (len(found.eligible), found.protected, found.bundled) == (6, 4, 0)


def test_an_alternating_chat_is_not_swallowed_by_its_tail() -> None:
    """The reference's coupling in both directions left nothing to compact (peers.md 1.4)."""
    for tail in range(1, 8):
        found = split(alternating(40), tail)
        assert found.protected <= tail + 1
        questions = split(alternating(40, request="Bo: Is it done?"), tail)
        assert questions.protected <= tail + 1


def test_consecutive_turns_of_a_speaker_are_one_utterance() -> None:
    turns = chat("Ann: hi", "Bo: Look.", "Bo: Is it red?", "Ann: Yes.", "Ann: Very.", "Bo: Good.")
    # The tail begins in the middle of Ann's answer: answer and question come along whole.
    assert bundle_start(turns, 4) == 1
    assert bundle_start(turns, 3) == 1


def test_people_are_coupled_by_a_question_mark_only() -> None:
    assert bundle_start(chat("Ann: I was in Rome.", "Bo: So was I."), 1) == 1
    assert bundle_start(chat("Ann: Were you in Rome?", "Bo: Yes."), 1) == 0
    assert bundle_start(chat("were you in Rome?", "yes"), 1) == 0


def test_between_roles_a_response_that_asks_back_is_no_request() -> None:
    turns = chat("User: Book it.", "Assistant: Which day?", "User: Friday.", "Assistant: Booked.")
    assert bundle_start(turns, 2) == 2
    assert bundle_start(turns, 1) == 0


@pytest.mark.parametrize("repeats", [MAX_BUNDLE_TURNS, 3 * MAX_BUNDLE_TURNS])
def test_a_question_too_far_back_is_not_reached_for(repeats: int) -> None:
    turns = chat("Ann: Why?", *["Bo: Because."] * repeats, "Bo: That is all.")
    assert bundle_start(turns, len(turns) - 1) == len(turns) - 1


def test_a_turn_from_the_future_stays_raw_and_displaces_no_other() -> None:
    records = [turn(i, content=f"line {i}") for i in range(10)]
    ahead = [turn(i, created_at_us=NOW_US + i) for i in (20, 21, 22)]
    plain = split(session_turns(records))
    found = split(session_turns([*records, *ahead]))
    assert found.ahead == 3
    assert found.eligible == plain.eligible
    assert found.protected == plain.protected
    later = split_session(
        session_turns([*records, *ahead]), protected_tail=4, now_us=NOW_US + HOUR_US
    )
    assert later.ahead == 0
    assert len(later.eligible) == 9


def test_undated_turns_count_as_the_oldest_in_source_order() -> None:
    records = [turn(i, created_at_us=UNDATED_US, content=f"line {i}") for i in range(6)]
    found = split(session_turns(records), tail=2)
    assert places(found.eligible) == [0, 1, 2, 3]
    assert found.ahead == 0


def test_a_giant_turn_stays_raw_and_its_neighbours_do_not() -> None:
    records = [turn(i, content=f"line {i}") for i in range(10)]
    records[3] = turn(3, content="x" * 2**20)
    records[4] = turn(4, content="x" * GIANT_TURN_CHARS)
    found = split(session_turns(records))
    assert places(found.eligible) == [0, 1, 2, 4, 5]
    assert found.giant == 1


@pytest.mark.parametrize(
    ("content", "asks"),
    [
        ("Why?", True),
        ('"Why?" ', True),
        ("Warum？", True),
        ("لماذا؟", True),
        ("Why? Because.", False),
        ("", False),
        (' ")', False),
    ],
)
def test_a_question_ends_in_a_question_mark(content: str, asks: bool) -> None:
    assert ends_as_question(content) is asks


_TURN = st.sampled_from(
    ["User: a", "User: a?", "Assistant: b", "Assistant: b?", "Ann: c?", "Bo: d", "e", "f?"]
)


@given(st.lists(_TURN, max_size=40), st.integers(-2, 12), st.integers(0, 50))
def test_every_turn_is_in_one_place_and_the_tail_in_bounds(
    contents: list[str], tail: int, now: int
) -> None:
    turns = chat(*contents)
    found = split_session(turns, protected_tail=tail, now_us=now * HOUR_US)
    counted = len(found.eligible) + found.protected + found.ahead + found.giant
    assert counted == len(turns)
    present = len(turns) - found.ahead
    asked_for = min(max(tail, 0), present)
    assert found.protected == asked_for + found.bundled
    assert 0 <= found.bundled <= MAX_BUNDLE_TURNS
    assert places(found.eligible) == list(range(len(found.eligible)))
