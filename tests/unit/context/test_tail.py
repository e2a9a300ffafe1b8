from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.context.prompt import Turn, base_start, extended_start
from tests.support.contexts import is_split, naive_base

turn_lists = st.lists(
    st.builds(
        Turn,
        role=st.sampled_from(["user", "assistant", "tool", "system"]),
        text=st.just("x"),
        bundle=st.sampled_from([None, None, "", "a", "b", "c"]),
    ),
    max_size=14,
)


def roles(letters: str) -> list[Turn]:
    names = {"u": "user", "a": "assistant", "t": "tool"}
    return [Turn(names[letter], "x") for letter in letters]


@pytest.mark.parametrize(
    ("letters", "count", "start"),
    [
        ("uauaua", 4, 2),
        ("uauaua", 3, 2),
        ("uauau", 4, 0),
        ("uauau", 1, 4),
        ("aaaa", 2, 2),
        ("uuuu", 2, 2),
        ("ua", 9, 0),
        ("ua", 0, 2),
        ("", 4, 0),
        ("uaaa", 2, 2),
    ],
)
def test_the_base_is_the_last_turns_from_a_request_on(letters: str, count: int, start: int) -> None:
    assert base_start(roles(letters), count) == start


def test_a_bundle_that_the_base_would_cut_belongs_to_it_from_its_first_turn() -> None:
    turns = roles("uauaua")
    turns[1] = turns[1]._replace(bundle="call")
    turns[4] = turns[4]._replace(bundle="call")
    assert base_start(turns, 1) == 0, "the bundle begins with an answer: its question comes too"


def test_bundles_that_lie_within_each_other_are_followed_to_the_first_of_all() -> None:
    turns = [Turn("tool", "x", bundle=b) for b in ("a", "b", "a", "c", "b", "c", "d")]
    assert base_start(turns, 1) == 6
    assert base_start(turns, 2) == 0


def test_who_speaks_is_read_without_case() -> None:
    turns = [Turn("User", "x"), Turn("ASSISTANT", "y")]
    assert base_start(turns, 1) == 0


@given(turn_lists, st.integers(0, 16))
def test_the_base_is_what_trying_every_place_gives(turns: list[Turn], count: int) -> None:
    assert base_start(turns, count) == naive_base(turns, count)


@given(
    turn_lists,
    st.integers(0, 16),
    st.lists(st.integers(0, 9), min_size=14, max_size=14),
    st.integers(-3, 60),
)
def test_the_extension_is_the_longest_safe_suffix_that_fits(
    turns: list[Turn], count: int, costs: list[int], room: int
) -> None:
    base = base_start(turns, count)
    asked: list[int] = []

    def cost_of(place: int) -> int:
        asked.append(place)
        return costs[place]

    fitting = [
        start
        for start in range(base)
        if not is_split(turns, start) and sum(costs[start:base]) <= room
    ]
    assert extended_start(turns, base, cost_of, room) == min(fitting, default=base)
    assert len(asked) == len(set(asked)), "each turn is priced once"


def test_turns_are_priced_only_as_far_back_as_there_is_room() -> None:
    asked: list[int] = []

    def cost_of(place: int) -> int:
        asked.append(place)
        return 10

    assert extended_start(roles("ua" * 5_000), 10_000, cost_of, 45) == 9_996
    assert len(asked) == 5
