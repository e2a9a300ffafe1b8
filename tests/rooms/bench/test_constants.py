"""What a choice of constants is worth, on tables small enough to cross-validate by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bench.constants.folds import FOLDS, Validated, cross_validate, fold_of
from bench.constants.grid import FAMILIES, SAMPLED, Family, apply_setting, shipped_value
from noctuary.graph import sessions as conversation
from noctuary.graph import walk
from noctuary.graph import walk as named
from noctuary.graph.walk import OPEN_END_US, GraphArrays

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


CONSTANTS = sorted({name for family in FAMILIES for name in family.choices})


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """Leave this process as it was, also where a test fails half-way."""
    shipped = {name: shipped_value(name) for name in CONSTANTS}
    yield
    apply_setting(shipped)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_what_ships_is_tried_first_and_once(family: Family) -> None:
    settings = family.settings()
    shipped = {name: shipped_value(name) for name in family.choices}
    assert settings[0] == shipped
    assert settings.count(shipped) == 1
    assert len({repr(setting) for setting in settings}) == len(settings) <= SAMPLED + 1
    for setting in settings[1:]:
        assert set(setting) == set(family.choices)
        assert all(value in family.choices[name] for name, value in setting.items())
    assert family.settings() == settings


def test_small_grids_are_tried_whole() -> None:
    family = Family("x", (), {"NAMED_WEIGHT": (0.1, 0.2), "eta": (0.3, 0.4, 0.5)})
    assert len(family.settings()) == 1 + 6
    with_shipped = Family("x", (), {"NAMED_WEIGHT": (named.NAMED_WEIGHT, 0.2)})
    assert [s["NAMED_WEIGHT"] for s in with_shipped.settings()] == [named.NAMED_WEIGHT, 0.2]


def test_shipped_values_are_those_of_the_code() -> None:
    assert shipped_value("NEARBY") == conversation.NEARBY
    assert shipped_value("NAMED_WEIGHT") == named.NAMED_WEIGHT
    assert shipped_value("seed_count") == walk.SEED_COUNT
    assert shipped_value("eta") == walk.ETA


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_setting_is_applied_and_taken_back(name: str) -> None:
    shipped, other = shipped_value(name), object()
    apply_setting({name: other})
    assert shipped_value(name) is other
    apply_setting({name: shipped})
    assert shipped_value(name) is shipped


def _lead() -> GraphArrays:
    """Memories 0 and 1 lead to 2 and 3."""
    past, never = np.zeros(2, dtype=np.int64), np.full(2, OPEN_END_US, dtype=np.int64)
    nowhere = np.full(2, -1, dtype=np.int32)
    return GraphArrays(
        indptr=np.array([0, 1, 2, 2, 2], dtype=np.int64),
        targets=np.array([2, 3], dtype=np.int32),
        weights=np.ones(2, dtype=np.float32),
        relations=np.zeros(2, dtype=np.int8),
        concepts=np.zeros(2, dtype=np.int32),
        in_degrees=np.ones(2, dtype=np.int32),
        valid_from_us=past, valid_to_us=never, recorded_at_us=past, retracted_at_us=never,
        evidence_starts=nowhere, evidence_ends=nowhere,
    )  # fmt: skip


def _walk() -> dict[int, float]:
    found = walk.walk(np.arange(2), np.array([1.0, 0.5]), _lead(), {"mentions_subject": 1.0})
    return dict(zip(found.positions.tolist(), found.scores.tolist(), strict=True))


@pytest.mark.parametrize(
    ("setting", "changed"),
    [({"seed_count": 1}, [2]), ({"eta": 0.5}, [2, 3]), ({"DAMPING_POWER": 0.5}, [2, 3])],
)
def test_a_setting_changes_what_a_plain_call_walks(
    setting: dict[str, Any], changed: list[int]
) -> None:
    shipped = {name: shipped_value(name) for name in setting}
    before = _walk()
    apply_setting(setting)
    assert sorted(_walk()) == changed
    assert _walk() != before
    apply_setting(shipped)
    assert _walk() == before


def test_a_setting_changes_what_sessions_lend() -> None:
    words, owners = np.array([[1.0, 0.0]]), np.zeros(2, dtype=np.int64)
    apply_setting({"NEARBY": (0.25,)})
    assert conversation.spread(words, owners).tolist() == [[1.0, 0.25]]
