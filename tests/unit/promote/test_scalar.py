"""The gating scalar: numbers of research/peers.md 1.2 and what must hold for all of them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noctuary.curate.signals import (
    BLANK,
    Signals,
    gate,
    novelty,
    read_signals,
    repetition,
    said_something,
)

UNIT = st.floats(0, 1).map(lambda value: round(value, 6))
COSINES = st.lists(st.floats(-1, 1), max_size=10)
SIGNALS = st.builds(Signals, UNIT, UNIT, UNIT, UNIT, UNIT)


@pytest.mark.parametrize(
    ("signals", "h", "r", "g"),
    [
        # Cold start: novelty alone is .35 exactly, and any T lowers it.
        (Signals(0, 0, 0, 0, 0), 1.0, 0.0, 0.35),
        (Signals(0.5, 0, 0, 0, 0), 1.0, 0.0, 0.175),
        (Signals(0, 1, 0, 0, 0), 1.0, 1.0, 1.0),
        (Signals(1, 0, 1, 1, 1), 0.0, 0.0, 1.0),
        (Signals(0, 0.4, 0, 0, 0), 0.6, 0.2, 0.39),
        (Signals(1, 1, 0.5, 0.4, 0.2), 1.0, 1.0, 0.39),
        (Signals(0.4, 0.5, 0.5, 0.5, 0.5), 0.5, 0.5, 0.5),
        (Signals(0.25, 0.3, 0.8, 0.5, 0.0), 0.5, 0.0, 0.31125),
    ],
)
def test_g_is_the_document_s(signals: Signals, h: float, r: float, g: float) -> None:
    assert gate(signals, h, r).g == pytest.approx(g, abs=1e-9)


def test_both_branches_have_the_document_s_weights() -> None:
    assert gate(Signals(0.3, 0.5, 0.1, 0.2, 0.3), 0.5, 0.25)[1:] == (0.4, 0.185)


@settings(max_examples=50)
@given(SIGNALS, UNIT, UNIT)
def test_g_lies_between_its_branches_and_in_the_unit_interval(
    signals: Signals, h: float, r: float
) -> None:
    found = gate(signals, h, r)
    assert 0.0 <= min(found.gconv, found.gtech) <= found.g <= max(found.gconv, found.gtech) <= 1.0


@settings(max_examples=50)
@given(SIGNALS, UNIT, UNIT)
def test_without_t_only_conversation_counts_and_with_all_of_it_only_code(
    signals: Signals, h: float, r: float
) -> None:
    plain, technical = gate(signals._replace(t=0.0), h, r), gate(signals._replace(t=1.0), h, r)
    assert plain.g == plain.gconv
    assert technical.g == technical.gtech


@settings(max_examples=50)
@given(SIGNALS, UNIT, UNIT, UNIT, st.sampled_from(["d", "p", "a", "dtech", "h", "r"]))
def test_more_of_a_signal_is_never_less_of_g(
    signals: Signals, h: float, r: float, more: float, name: str
) -> None:
    before = gate(signals, h, r).g
    if name == "h":
        after = gate(signals, max(h, more), r).g
    elif name == "r":
        after = gate(signals, h, max(r, more)).g
    else:
        after = gate(signals._replace(**{name: max(getattr(signals, name), more)}), h, r).g
    assert after >= before


@given(COSINES, COSINES)
def test_h_and_r_lie_between_0_and_1(turns: list[float], durable: list[float]) -> None:
    assert 0.0 <= novelty(durable) <= 1.0
    assert 0.0 <= repetition(turns, durable) <= 1.0


def test_novelty_is_the_mean_of_the_nearest_and_not_of_the_negative() -> None:
    assert novelty([]) == 1.0
    assert novelty([1.0]) == 0.0
    assert novelty([0.5, -0.5]) == 0.75
    assert novelty([-1.0, -1.0]) == 1.0
    assert novelty([0.9, 0.6, 0.3]) == pytest.approx(0.4)


def test_repetition_counts_from_its_threshold_on_and_is_vetoed_by_what_is_kept() -> None:
    assert repetition([], []) == 0.0
    assert repetition([0.80], []) == 0.2
    assert repetition([0.799999], []) == 0.0
    assert repetition([0.9] * 5, []) == 1.0
    assert repetition([0.9] * 10, []) == 1.0
    assert repetition([0.9] * 5, [0.849999] * 5) == 1.0
    assert repetition([0.9] * 5, [0.85]) == pytest.approx(2 / 3)
    assert repetition([0.9] * 5, [0.85] * 3) == 0.0
    assert repetition([0.9] * 5, [0.99] * 5) == 0.0


@pytest.mark.parametrize(
    ("signals", "speaks"),
    [
        (BLANK, False),
        (Signals(0, 0.2, 0, 0, 0), True),
        (Signals(1, 0.2, 0, 0, 0), False),
        (Signals(0, 0, 1, 1, 1), False),
        (Signals(0.1, 0, 0.1, 0, 0), True),
        (Signals(0.1, 0, 0, 0.1, 0), True),
        (Signals(0.1, 0, 0, 0, 0.1), True),
        (Signals(0.5, 0, 0, 0, 0), False),
    ],
)
def test_only_the_branch_that_counts_says_something(signals: Signals, speaks: bool) -> None:
    assert said_something(signals) is speaks


@pytest.mark.parametrize(
    ("text", "stands"),
    [
        ("Nobody knows. 77 rows.", False),
        ("On Monday.", False),
        ("Ordered on 31 July, arrives 21 September.", True),
        ("I work at Initech.", True),
        ("I have two brothers.", True),
    ],
)
def test_a_date_or_an_amount_in_a_short_answer_says_nothing_alone(text: str, stands: bool) -> None:
    assert said_something(read_signals(text)) is stands
