"""What p-values, their correction and the detectable difference must keep, on generated values."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.evaluate.statistics import (
    Resampling,
    holm,
    minimum_detectable_difference,
    permutation_p_values,
)

# Thousandths: sums of whole numbers are exact, so the brute force below needs no tolerance.
steps = st.integers(-1000, 1000)
few_steps = st.lists(steps, min_size=1, max_size=9)
p_values = st.lists(st.floats(0.0, 1.0), max_size=12)


def p_value(values: list[int], draws: int = 512, seed: int = 1) -> float:
    column = np.array(values, dtype=np.float64)[:, None] / 1000.0
    return float(permutation_p_values(column, Resampling(draws, seed))[0])


def brute_force_p_value(values: list[int]) -> float:
    sums = [
        abs(sum(sign * value for sign, value in zip(signs, values, strict=True)))
        for signs in product((1, -1), repeat=len(values))
    ]
    return sum(total >= abs(sum(values)) for total in sums) / len(sums)


@given(values=few_steps)
def test_enumeration_equals_brute_force(values: list[int]) -> None:
    assert p_value(values) == brute_force_p_value(values)


@given(columns=st.lists(st.tuples(steps, steps, steps), min_size=1, max_size=8))
def test_columns_enumerated_together_equal_each_alone(columns: list[tuple[int, int, int]]) -> None:
    together = permutation_p_values(np.array(columns, dtype=np.float64) / 1000.0)
    alone = [brute_force_p_value([row[i] for row in columns]) for i in range(3)]
    assert together.tolist() == alone


@given(values=st.lists(steps, min_size=1, max_size=30), draws=st.integers(1, 300))
def test_a_p_value_is_above_zero_and_at_most_one(values: list[int], draws: int) -> None:
    assert 0.0 < p_value(values, draws=draws) <= 1.0


@given(values=st.lists(steps, min_size=1, max_size=30), scale=st.integers(2, 50))
def test_neither_the_sign_nor_the_unit_of_the_difference_matters(
    values: list[int], scale: int
) -> None:
    assert p_value([-value for value in values]) == p_value(values)
    assert p_value([value * scale for value in values]) == p_value(values)


@given(values=st.lists(steps, min_size=1, max_size=30), n_equal=st.integers(1, 20))
def test_queries_without_a_difference_do_not_matter(values: list[int], n_equal: int) -> None:
    assert p_value(values + [0] * n_equal) == p_value(values)


@given(raw=p_values)
def test_holm_only_raises_and_keeps_the_order(raw: list[float]) -> None:
    adjusted = holm(raw)
    assert all(p <= a <= 1.0 for p, a in zip(raw, adjusted, strict=True))
    by_raw = [a for _, a in sorted(zip(raw, adjusted, strict=True))]
    assert by_raw == sorted(by_raw)


@given(raw=p_values, data=st.data())
def test_holm_does_not_depend_on_the_order_of_the_tests(
    raw: list[float], data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(raw))))
    adjusted = holm(raw)
    assert holm([raw[i] for i in order]) == [adjusted[i] for i in order]


@given(raw=p_values)
def test_holm_is_never_stricter_than_bonferroni(raw: list[float]) -> None:
    assert all(a <= min(1.0, p * len(raw)) for p, a in zip(raw, holm(raw), strict=True))


@given(raw=p_values, level=st.sampled_from([0.01, 0.05, 0.1]))
def test_holm_rejects_what_the_step_down_procedure_rejects(raw: list[float], level: float) -> None:
    rejected: set[int] = set()
    for step, place in enumerate(sorted(range(len(raw)), key=raw.__getitem__)):
        if (len(raw) - step) * raw[place] >= level:
            break
        rejected.add(place)
    assert {place for place, p in enumerate(holm(raw)) if p < level} == rejected


@given(values=st.lists(steps, min_size=2, max_size=40), repeats=st.integers(2, 6))
def test_more_queries_detect_smaller_differences(values: list[int], repeats: int) -> None:
    few = minimum_detectable_difference(np.array(values) / 1000.0)
    many = minimum_detectable_difference(np.array(values * repeats) / 1000.0)
    assert few is not None
    assert many is not None
    assert 0.0 <= many <= few


@given(values=st.lists(steps, min_size=2, max_size=40), scale=st.integers(2, 50))
def test_the_detectable_difference_is_in_the_unit_of_the_values(
    values: list[int], scale: int
) -> None:
    unit = minimum_detectable_difference(np.array(values) / 1000.0)
    scaled = minimum_detectable_difference(np.array(values) * scale / 1000.0)
    assert unit is not None
    assert scaled == pytest.approx(unit * scale)
