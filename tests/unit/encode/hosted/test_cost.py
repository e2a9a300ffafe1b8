"""Estimates, the budget of a night, and what is counted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.encode.hosted.cost import (
    Estimate,
    Spending,
    count_pieces,
    describe_estimate,
    estimate_cost,
)
from noctuary.encode.hosted.faults import BudgetError


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
    assert count_pieces(text) == pieces


def test_an_estimate_counts_tokens_and_multiplies_by_the_price() -> None:
    found = estimate_cost(["word " * 100, "b"], 2.0, 32_000)
    assert found == (2, 102 + 3, pytest.approx(105 * 2.0 / 1_000_000))


def test_no_text_costs_more_than_what_the_model_reads_of_it() -> None:
    assert estimate_cost(["a " * 100_000], 1.0, 512).tokens == 512


@given(st.lists(st.text(max_size=50), max_size=20), st.floats(0, 100), st.integers(1, 60))
def test_estimates_add_up_and_are_never_negative(
    texts: list[str], price: float, limit: int
) -> None:
    whole = estimate_cost(texts, price, limit)
    parts = [estimate_cost([text], price, limit) for text in texts]
    assert whole.tokens == sum(part.tokens for part in parts)
    assert whole.usd == pytest.approx(sum(part.usd for part in parts))
    assert all(1 <= part.tokens <= limit for part in parts)


def test_above_the_budget_nothing_begins_and_the_numbers_are_told() -> None:
    spending = Spending(0.50, 0.10)
    with pytest.raises(BudgetError) as caught:
        spending.allow(Estimate(1_000, 6_000_000, 0.60))
    said = str(caught.value)
    for part in ("1,000 texts", "6,000,000 tokens", "$0.600000", "$0.500000", "budget_usd"):
        assert part in said
    assert spending.estimated_tokens == 0
    spending.allow(Estimate(1_000, 5_000_000, 0.50))
    assert spending.estimated_tokens == 5_000_000


def test_a_budget_of_nothing_sends_nothing_even_for_free() -> None:
    with pytest.raises(BudgetError):
        Spending(0.0, 0.0).allow(Estimate(1, 1, 0.0))


def test_the_budget_is_one_for_all_stages_of_a_night() -> None:
    spending = Spending(1.0, 1.0)
    spending.allow(Estimate(1, 600_000, 0.6))
    spending.pay(1, 600_000)
    assert spending.usd == pytest.approx(0.6)
    with pytest.raises(BudgetError, match=r"\$0\.600000 of the night's \$1\.00"):
        spending.allow(Estimate(1, 500_000, 0.5))
    spending.allow(Estimate(1, 400_000, 0.4))


def test_work_that_turns_out_dearer_ends_at_the_budget() -> None:
    spending = Spending(1.0, 1.0)
    spending.allow(Estimate(2, 10, 0.00001))
    spending.require_left(Estimate(1, 5, 0.000005))
    spending.pay(1, 999_999)
    with pytest.raises(BudgetError, match="after 999,999 tokens; the estimate was 10"):
        spending.require_left(Estimate(1, 5, 0.000005))


def test_what_a_night_says_of_it() -> None:
    spending = Spending(5.0, 0.06)
    spending.allow(Estimate(3, 2_000_000, 0.12))
    spending.pay(2, 1_000_000)
    spending.pay(1, 500_000)
    assert spending.to_notes() == {
        "estimated_tokens": 2_000_000,
        "estimated_usd": 0.12,
        "paid_tokens": 1_500_000,
        "paid_usd": 0.09,
        "requests": 2,
    }
    line = describe_estimate("voyage:voyage-4", Estimate(3, 2_000_000, 0.12), spending)
    for part in ("voyage:voyage-4", "3 vectors", "2,000,000 tokens", "$0.120000", "$5.00"):
        assert part in line
