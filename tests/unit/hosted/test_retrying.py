"""How often, after how long, and when it is enough."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.work.http import FIRST_WAIT_S, MAX_WAIT_S, GaveUpError, PassingFaultError, Patience

RETRIES, LONGEST_S = 6, 120.0


def failing(times: int, wait_s: float | None = None) -> Callable[[], str]:
    tries = iter(range(times))

    def ask() -> str:
        if next(tries, None) is not None:
            raise PassingFaultError("it answered HTTP 503", wait_s)
        return "vectors"

    return ask


def patience(waits: list[float], left_s: float = 1e6, spread: float = 0.0) -> Patience:
    return Patience(RETRIES, LONGEST_S, spread, left_s, waits.append)


def test_a_passing_fault_is_tried_again_after_doubling_waits() -> None:
    waits: list[float] = []
    assert patience(waits).ask(failing(RETRIES)) == "vectors"
    assert waits == [1, 2, 4, 8, 16, 32]


def test_enough_is_enough_and_the_sentence_says_why() -> None:
    waits: list[float] = []
    with pytest.raises(GaveUpError, match=r"HTTP 503, 7 times in a row"):
        patience(waits).ask(failing(RETRIES + 1))
    assert len(waits) == RETRIES


def test_patience_is_one_for_all_requests() -> None:
    waits: list[float] = []
    shared = patience(waits, left_s=50.0)
    shared.ask(failing(2, wait_s=20.0))
    assert shared.left_s == pytest.approx(10.0)
    with pytest.raises(GaveUpError, match="waiting another 20 s is more than is left"):
        shared.ask(failing(1, wait_s=20.0))
    assert waits == [20.0, 20.0]
    assert shared.ask(failing(1)) == "vectors", "a short wait is still left"


def test_other_errors_are_not_tried_again() -> None:
    def ask() -> str:
        raise KeyError("once")

    waits: list[float] = []
    with pytest.raises(KeyError):
        patience(waits).ask(ask)
    assert waits == []


@given(st.none() | st.floats(0, 1e9), st.floats(0, 1))
def test_every_wait_lies_within_its_bounds(asked_s: float | None, spread: float) -> None:
    waits: list[float] = []
    patience(waits, spread=spread).ask(failing(RETRIES, asked_s))
    for number, found in enumerate(waits):
        if asked_s is None:
            step = min(FIRST_WAIT_S * 2**number, MAX_WAIT_S)
            assert step * (1 - spread) <= found <= step
        else:
            assert min(asked_s, LONGEST_S) <= found <= min(asked_s, LONGEST_S) + FIRST_WAIT_S
