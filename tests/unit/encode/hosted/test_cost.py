"""Estimates, the budget of a night, and what is counted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.embed.hosted import BudgetError, Spending, estimate_tokens

CONTROL = 2


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", 0),
        (" \n\t", 0),
        ("river", 1),
        ("rivers", 2),
        ("12345", 3),
        ("a-b", 3),
        ("| x |", 3),
        ("встреча", 4),
        ("北京开会", 4),
        ("🙂🙂", 2),
        ("snake_case", 3),
    ],
)
def test_pieces(text: str, pieces: int) -> None:
    assert estimate_tokens([text], 32_000) == pieces + CONTROL


def test_an_estimate_counts_tokens_and_the_price_multiplies_them() -> None:
    assert estimate_tokens(["word " * 100, "b"], 32_000) == 102 + 3
    assert Spending(1.0, 2.0).usd(105) == pytest.approx(105 * 2.0 / 1_000_000)


def test_no_text_costs_more_than_what_the_model_reads_of_it() -> None:
    assert estimate_tokens(["a " * 100_000], 512) == 512


@given(st.lists(st.text(max_size=50), max_size=20), st.integers(1, 60))
def test_estimates_add_up_and_are_never_negative(texts: list[str], limit: int) -> None:
    parts = [estimate_tokens([text], limit) for text in texts]
    assert estimate_tokens(texts, limit) == sum(parts)
    assert all(1 <= part <= limit for part in parts)


def test_above_the_budget_nothing_begins_and_the_numbers_are_told() -> None:
    spending = Spending(0.50, 0.10)
    with pytest.raises(BudgetError) as caught:
        spending.require_left(1_000, 6_000_000)
    said = str(caught.value)
    for part in ("1,000 texts", "6,000,000 tokens", "$0.600000", "$0.500000", "budget_usd"):
        assert part in said
    spending.require_left(1_000, 5_000_000)


def test_a_budget_of_nothing_sends_nothing_even_for_free() -> None:
    with pytest.raises(BudgetError):
        Spending(0.0, 0.0).require_left(1, 1)


def test_the_budget_is_one_for_all_stages_of_a_night() -> None:
    spending = Spending(1.0, 1.0, tokens=600_000)
    with pytest.raises(BudgetError, match=r"\$0\.600000 of the night's \$1\.00"):
        spending.require_left(1, 500_000)
    spending.require_left(1, 400_000)


def test_what_a_night_says_of_it() -> None:
    spending = Spending(5.0, 0.06, tokens=1_500_000, estimated_tokens=2_000_000, requests=2)
    assert spending.to_notes() == {
        "estimated_tokens": 2_000_000,
        "estimated_usd": 0.12,
        "paid_tokens": 1_500_000,
        "paid_usd": 0.09,
        "requests": 2,
    }
