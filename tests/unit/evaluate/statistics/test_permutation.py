from __future__ import annotations

import importlib
import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.evaluate.statistics import Resampling, permutation_p_values

stats: Any = importlib.import_module("scipy.stats")


def p_value(values: list[float] | NDArray[np.float64], draws: int = 10_000, seed: int = 1) -> float:
    column = np.asarray(values, dtype=np.float64)[:, None]
    return float(permutation_p_values(column, Resampling(draws, seed))[0])


def test_two_of_all_flips_are_as_extreme_as_one_sided_differences() -> None:
    assert p_value([1.0, 2.0, 4.0]) == 2 / 8
    assert p_value([0.1] * 5) == 2 / 32
    assert p_value([-1.0, -2.0, -4.0]) == 2 / 8


def test_the_p_value_of_three_differences_by_hand() -> None:
    # Sums of +-1 +-2 +-4: 7, 5, 3, 1 and their opposites; observed 1 - 2 + 4 = 3: 6 of 8 reach it.
    assert p_value([1.0, -2.0, 4.0]) == 6 / 8


def test_equal_steps_follow_the_sign_test() -> None:
    # 9 of 10 in one direction: 2 * (C(10,0) + C(10,1)) / 2^10; many sums tie, and not in floats.
    assert p_value([0.1] * 9 + [-0.1]) == 22 / 1024


def test_one_query_and_equal_arms_show_nothing() -> None:
    assert p_value([0.7]) == 1.0
    assert p_value([0.0] * 50) == 1.0


def test_queries_that_do_not_differ_have_no_sign_to_flip() -> None:
    assert p_value([0.0] * 500 + [1.0, 2.0, 4.0]) == 2 / 8


def test_enumeration_ends_where_the_draws_do() -> None:
    values = [1.0] * 4
    assert p_value(values, draws=16) == 2 / 16
    drawn = p_value(values, draws=15)
    assert (drawn * 16) == pytest.approx(round(drawn * 16), abs=1e-12)  # (count + 1) / (15 + 1)


def test_drawn_p_values_are_near_the_enumerated_ones() -> None:
    values = np.random.default_rng(8).normal(0.25, 1.0, size=16)
    exact = p_value(values, draws=2**16)
    drawn = p_value(values, draws=20_000)
    assert drawn != exact
    assert drawn == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 20_000))


def test_a_drawn_p_value_is_never_zero() -> None:
    assert p_value([1.0] * 60, draws=999) == 1 / 1000


def test_columns_share_the_flips_and_are_judged_apart() -> None:
    rng = np.random.default_rng(5)
    column = rng.normal(0.2, 1.0, size=40)
    found = permutation_p_values(np.column_stack([column, -column, 3.0 * column, np.zeros(40)]))
    assert found.shape == (4,)
    assert found[0] == found[1] == found[2]
    assert found[3] == 1.0
    assert found[0] == p_value(column, seed=20_260_101)


def test_the_same_seed_gives_the_same_p_and_another_seed_nearly_the_same() -> None:
    values = np.random.default_rng(2).normal(0.3, 1.0, size=50)
    assert p_value(values, seed=1) == p_value(values, seed=1)
    assert p_value(values, seed=1) != p_value(values, seed=2)
    assert p_value(values, seed=1) == pytest.approx(p_value(values, seed=2), abs=0.02)


@pytest.mark.parametrize("n", [10, 40])
def test_chunks_do_not_change_the_p_values(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(2).normal(0.2, 1.0, size=(n, 3))
    whole = permutation_p_values(values, Resampling(2000))
    monkeypatch.setattr("noctuary.evaluate.statistics._CHUNK_CELLS", 7 * n)
    assert permutation_p_values(values, Resampling(2000)).tolist() == whole.tolist()


def test_memory_stays_bounded_however_many_queries_there_are() -> None:
    values = np.random.default_rng(2).normal(size=(20_000, 2))
    tracemalloc.start()
    try:
        permutation_p_values(values, Resampling(1000))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 60e6  # the whole flip matrix would be 160 MB


def test_p_values_are_uniform_when_nothing_differs() -> None:
    rng = np.random.default_rng(12)
    # 600 experiments without an effect, skewed on purpose: symmetric under the null all the same.
    differences = rng.exponential(1.0, size=(30, 600)) - rng.exponential(1.0, size=(30, 600))
    found = permutation_p_values(differences, Resampling(2000))
    for level in (0.05, 0.1, 0.25, 0.5, 0.75):
        error = math.sqrt(level * (1 - level) / 600)
        assert float(np.mean(found <= level)) == pytest.approx(level, abs=3.5 * error)


def test_the_p_value_agrees_with_scipys_permutation_test() -> None:
    values = np.random.default_rng(6).normal(0.4, 1.0, size=11)
    theirs = stats.permutation_test(
        (values, np.zeros(11)),
        lambda x, y, axis: np.mean(x - y, axis=axis),  # pyright: ignore[reportUnknownLambdaType]
        permutation_type="samples",
        n_resamples=math.inf,
        vectorized=True,
    )
    assert p_value(values) == pytest.approx(theirs.pvalue, abs=1e-12)


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="at least one query"):
        permutation_p_values(np.zeros((0, 2)))
    with pytest.raises(ValueError, match=r"in 2 dimensions, got shape \(3,\)"):
        permutation_p_values(np.zeros(3))
    with pytest.raises(ValueError, match="expected finite values"):
        permutation_p_values(np.array([[math.nan]]))
