"""When a loss counts: below zero by its interval, and still after Holm over all that was tested."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.evaluate.decide import DROP_METRICS, find_drops
from noctuary.evaluate.metrics import Scores, compare

N = 60
RNG = np.random.default_rng(4)


def scores(values: NDArray[np.float64], strata: tuple[str, ...] | None = None) -> Scores:
    n = len(values)
    return Scores(
        name="x",
        metrics=DROP_METRICS,
        query_ids=tuple(f"q{i}" for i in range(n)),
        strata=strata or ("all",) * n,
        values=np.stack([values, values], axis=1),
    )


def drops(loss: float, strata: tuple[str, ...] | None = None) -> tuple[list[str], int]:
    """Compare a serving snapshot with one that loses `loss` on a third of the queries."""
    before = RNG.uniform(0.5, 1.0, N)
    after = before - np.where(np.arange(N) % 3 == 0, loss, 0.0)
    comparison = compare([(scores(after, strata), scores(before, strata))])[0]
    found, tested = find_drops([("labelled", comparison)])
    return [drop.group for drop in found], tested


def test_no_change_is_no_drop() -> None:
    assert drops(0.0) == ([], 2)


def test_a_gain_is_no_drop() -> None:
    assert drops(-0.4) == ([], 2)


def test_a_loss_is_found_in_both_metrics() -> None:
    assert drops(0.4) == (["labelled", "labelled"], 2)


def test_strata_are_tested_where_there_are_several() -> None:
    halves = tuple("ab"[i % 2] for i in range(N))
    names, tested = drops(0.4, halves)
    assert tested == 6
    assert "labelled: a" in names


def test_a_loss_in_one_small_stratum_is_seen_although_the_whole_barely_moves() -> None:
    strata = ("rare",) * 12 + ("common",) * 200
    before = np.ones(212)
    after = before.copy()
    after[:12] = 0.0
    noise = RNG.normal(0.0, 0.2, 200)
    after[12:] += noise - noise.mean() + 0.06
    comparison = compare([(scores(after, strata), scores(before, strata))])[0]
    found, _ = find_drops([("labelled", comparison)])
    assert {drop.group for drop in found} == {"labelled: rare"}
    assert all(drop.high < 0 and drop.n == 12 for drop in found)


def test_holm_is_taken_over_everything_together() -> None:
    """Alone p = .03 would count; among eleven groups without a change it does not."""
    weak = np.zeros(N)
    weak[:7] = -0.3
    weak[7] = 0.3
    before = np.full(N, 0.5)
    loss = compare([(scores(before + weak), scores(before))])[0]
    calm = compare([(scores(before), scores(before))])[0]
    p_value = loss.overall["recall@10"].p_value
    assert 0.02 < p_value < 0.08
    assert find_drops([("labelled", loss), *((f"g{i}", calm) for i in range(11))])[0] == []


@pytest.mark.parametrize("n", [1, 0])
def test_one_query_or_none_cannot_show_a_loss(n: int) -> None:
    if n == 0:
        assert find_drops([]) == ([], 0)
        return
    one = compare([(scores(np.zeros(1)), scores(np.ones(1)))])[0]
    assert find_drops([("labelled", one)])[0] == []
