"""How often, after how long, and when it is enough."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.encode.hosted.faults import PassingFaultError, ProviderDownError
from noctuary.encode.hosted.retrying import (
    FIRST_WAIT_S,
    MAX_RETRY_AFTER_S,
    MAX_WAIT_S,
    RETRIES,
    Patience,
    ask_patiently,
    wait_before,
)


def failing(times: int, wait_s: float | None = None) -> Callable[[], str]:
    tries = iter(range(times))

    def ask() -> str:
        if next(tries, None) is not None:
            raise PassingFaultError("it answered HTTP 503", wait_s)
        return "vectors"

    return ask


def patience(waits: list[float], left_s: float = 1e6, chance: float = 0.0) -> Patience:
    return Patience(left_s, waits.append, lambda: chance)


def test_a_passing_fault_is_tried_again_after_doubling_waits() -> None:
    waits: list[float] = []
    assert ask_patiently(failing(RETRIES), patience(waits, chance=1.0), "voyage:x") == "vectors"
    assert waits == [1, 2, 4, 8, 16, 32]
    waits.clear()
    assert ask_patiently(failing(2), patience(waits), "voyage:x") == "vectors"
    assert waits == [0.5, 1.0]


def test_enough_is_enough_and_the_sentence_says_who_and_why() -> None:
    waits: list[float] = []
    with pytest.raises(ProviderDownError, match=r"voyage:x .* HTTP 503, 7 times in a row\. What"):
        ask_patiently(failing(RETRIES + 1), patience(waits), "voyage:x")
    assert len(waits) == RETRIES


def test_what_a_provider_asks_for_is_waited_and_not_less() -> None:
    waits: list[float] = []
    ask_patiently(failing(2, wait_s=20.0), patience(waits, chance=0.5), "voyage:x")
    assert waits == [20.5, 20.5]


def test_patience_is_one_for_all_requests() -> None:
    waits: list[float] = []
    shared = patience(waits, left_s=50.0)
    ask_patiently(failing(2, wait_s=20.0), shared, "voyage:x")
    assert shared.left_s == pytest.approx(10.0)
    with pytest.raises(ProviderDownError, match="more than is left"):
        ask_patiently(failing(1, wait_s=20.0), shared, "voyage:x")
    assert waits == [20.0, 20.0]
    assert ask_patiently(failing(1), shared, "voyage:x") == "vectors", "a short wait is still left"


def test_other_errors_are_not_tried_again() -> None:
    def ask() -> str:
        raise KeyError("once")

    waits: list[float] = []
    with pytest.raises(KeyError):
        ask_patiently(ask, patience(waits), "voyage:x")
    assert waits == []


@given(
    st.integers(0, 40),
    st.none() | st.floats(0, 1e9),
    st.floats(0, 1, exclude_max=True),
    st.floats(0, 1, exclude_max=True),
)
def test_a_wait_lies_within_its_bounds_and_grows_with_chance(
    retry: int, asked_s: float | None, one: float, other: float
) -> None:
    found = wait_before(retry, asked_s, one)
    assert 0 <= found <= MAX_RETRY_AFTER_S + FIRST_WAIT_S
    if asked_s is None:
        step = min(FIRST_WAIT_S * 2**retry, MAX_WAIT_S)
        assert step / 2 <= found <= step
    else:
        assert found >= min(asked_s, MAX_RETRY_AFTER_S)
    if one <= other:
        assert found <= wait_before(retry, asked_s, other)
