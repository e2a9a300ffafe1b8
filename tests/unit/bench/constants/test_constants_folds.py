"""What a choice of constants is worth, on tables small enough to cross-validate by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from bench.constants.folds import FOLDS, Validated, cross_validate, fold_of

EACH = np.arange(FOLDS)
"""One query per fold."""


def _table(*settings: Sequence[float]) -> NDArray[np.float64]:
    return np.array(settings, dtype=np.float64)


def test_folds_are_those_of_the_ids_and_not_of_their_places() -> None:
    ids = [f"query {n}" for n in range(1000)]
    folds = fold_of(ids)
    assert fold_of(ids[::-1]).tolist() == folds.tolist()[::-1]
    assert set(folds.tolist()) == set(range(FOLDS))
    sizes = np.bincount(folds)
    assert sizes.min() > 0.8 * len(ids) / FOLDS


def test_a_setting_that_is_only_best_by_chance_is_worth_less_than_it_looks() -> None:
    # One lucky query makes the second setting best on all; without that query it is not.
    scores = _table([0.5] * 5, [1.0, 0.4, 0.4, 0.4, 0.4])
    found = cross_validate({"a": scores}, {"a": EACH})
    assert found.chosen == 1
    assert found.chosen_by_fold == (0, 1, 1, 1, 1)
    # The lucky query is scored by the shipped setting, all others by the lucky one.
    assert found.held_out == pytest.approx((0.5 + 4 * 0.4) / 5)
    assert found.in_sample == pytest.approx(0.52)
    assert found.shipped == pytest.approx(0.5)
    assert found.held_out < found.shipped < found.in_sample


def test_a_setting_that_is_better_everywhere_keeps_what_it_gains() -> None:
    found = cross_validate({"a": _table([0.5] * 5, [0.4] * 5, [0.6] * 5)}, {"a": EACH})
    assert (found.chosen, found.chosen_by_fold) == (2, (2,) * FOLDS)
    assert found.held_out == pytest.approx(0.6)
    assert found.in_sample == pytest.approx(0.6)


def test_equal_settings_leave_the_shipped_one() -> None:
    found = cross_validate({"a": _table([0.5] * 5, [0.5] * 5)}, {"a": EACH})
    assert found == Validated(0, (0,) * FOLDS, 0.5, 0.5, 0.5)


def test_sets_count_the_same_whatever_their_size() -> None:
    # Over all 15 queries the second setting loses; over two sets it gains .3 and loses .2.
    scores = {"small": _table([0.5] * 5, [0.8] * 5), "large": _table([0.5] * 10, [0.3] * 10)}
    found = cross_validate(scores, {"small": EACH, "large": np.repeat(EACH, 2)})
    assert (found.chosen, found.chosen_by_fold) == (1, (1,) * FOLDS)
    assert found.shipped == pytest.approx(0.5)
    assert found.held_out == pytest.approx(0.55)
    assert found.in_sample == pytest.approx(0.55)


def test_a_fold_is_chosen_for_without_its_queries_in_any_set() -> None:
    # Fold 0 alone favours the second setting, in both sets.
    lucky = _table([0.5] * 5, [1.0, 0.45, 0.45, 0.45, 0.45])
    found = cross_validate({"a": lucky, "b": lucky}, {"a": EACH, "b": EACH})
    assert found.chosen_by_fold[0] == 0
    assert found.held_out == pytest.approx((0.5 + 4 * 0.45) / 5)
