"""From signals to AUROC and shares, on questions by hand."""

from __future__ import annotations

import numpy as np
import pytest

from bench.abstention.measure import REFITS, judge_refits, judge_signals, judge_thresholds
from bench.abstention.questions import ANSWERABLE, FOREIGN, UNANSWERABLE, Asked
from bench.abstention.refit import fit, held_out
from bench.abstention.signals import SHIPPED, SHIPPED_WORDS
from noctuary.evaluate.labels import Query

WINGS = ("north", "south")
SIGNALS = {SHIPPED, SHIPPED_WORDS, *(name for names in REFITS.values() for name in names)}


def asked(kind: str, number: int, wing: str | None = None) -> Asked:
    return Asked(kind, Query(f"{kind}{number}", "text", "all", (), wing=wing))


def questions(wings: bool = True) -> list[Asked]:
    def wing(number: int) -> str | None:
        return WINGS[number % 2] if wings else None

    return [
        *(asked(ANSWERABLE, n, wing(n)) for n in range(40)),
        *(asked(UNANSWERABLE, n, wing(n)) for n in range(10)),
        *(asked(FOREIGN, n) for n in range(10)),
    ]


def table(foreign: float = 0.0) -> dict[str, np.ndarray]:
    values = np.concatenate([np.linspace(0.3, 0.9, 40), np.full(10, 0.45), np.full(10, foreign)])
    return dict.fromkeys(SIGNALS, values)


def test_every_kind_has_its_own_auroc() -> None:
    found = judge_signals(questions(), table())[SHIPPED]
    assert set(found) == {UNANSWERABLE, FOREIGN}
    assert found[FOREIGN]["auroc"] == 1.0
    assert found[UNANSWERABLE]["auroc"] == pytest.approx(0.75)
    assert found[UNANSWERABLE]["low"] < 0.75 < found[UNANSWERABLE]["high"]


def test_thresholds_are_judged_where_they_were_not_chosen() -> None:
    rows = judge_thresholds(questions(), table(), [1.0] * 40)
    by_loss = {row["max_recall_loss"]: row for row in rows if row["signal"] == SHIPPED}
    assert sorted(by_loss) == [0.01, 0.02, 0.05, 0.1]
    assert by_loss[0.05]["threshold"] == pytest.approx(0.3 + 2 * 0.6 / 39, abs=1e-4)
    assert by_loss[0.05]["abstained"] == {UNANSWERABLE: 0.0, FOREIGN: 1.0}
    assert by_loss[0.05]["recall_kept"] == pytest.approx(
        1.0 - by_loss[0.05]["answerable_abstained"]
    )
    assert by_loss[0.01]["recall_kept"] >= by_loss[0.1]["recall_kept"]
    assert judge_thresholds(questions()[30:], table(), [1.0] * 10) == []


def test_a_threshold_of_the_other_wing_may_cost_more_than_its_own() -> None:
    """Scores of one wing lie far below the other's: what is kept must show it."""
    values = {name: found.copy() for name, found in table().items()}
    values[SHIPPED][0:40:2] = 0.1
    row = judge_thresholds(questions(), values, [1.0] * 40)[2]
    assert row["max_recall_loss"] == 0.05
    assert row["recall_kept"] == pytest.approx(0.5)


def test_refits_need_wings_and_unanswerable_questions() -> None:
    found = judge_refits(questions(), table())
    assert set(found) == set(REFITS)
    assert judge_refits(questions(wings=False), table()) == {}
    assert judge_refits(questions()[:40], table()) == {}


RNG = np.random.default_rng(3)
N = 4000


def drawn(slope: float, offset: float) -> tuple[np.ndarray, np.ndarray]:
    values = RNG.normal(size=(N, 1))
    chance = 1.0 / (1.0 + np.exp(-(slope * values[:, 0] + offset)))
    return values, RNG.uniform(size=N) < chance


def test_a_fit_finds_the_slope_that_made_the_data() -> None:
    features, answerable = drawn(2.0, 0.0)
    slope, offset = fit(features, answerable)
    assert slope == pytest.approx(2.0, abs=0.2)
    assert offset == pytest.approx(0.0, abs=0.15)


def test_both_kinds_weigh_the_same_however_many_there_are() -> None:
    features, answerable = drawn(2.0, 3.0)
    assert answerable.mean() > 0.8
    _, offset = fit(features, answerable)
    assert abs(offset) < 2.0


def test_a_group_is_judged_by_a_fit_that_never_saw_it() -> None:
    features, answerable = drawn(2.0, 0.0)
    groups = ["left"] * (N // 2) + ["right"] * (N // 2)
    # In one group the feature says the contrary: only the other one's fit can be so wrong there.
    features[: N // 2] *= -1.0
    chances, folds = held_out(features, answerable, groups)
    assert folds[:, 0].tolist() == pytest.approx([2.0, -2.0], abs=0.3)
    left = chances[: N // 2]
    assert left[answerable[: N // 2]].mean() < left[~answerable[: N // 2]].mean()


def test_what_separates_completely_stays_finite() -> None:
    features = np.array([[0.0], [0.1], [0.9], [1.0]])
    found = fit(features, np.array([False, False, True, True]))
    assert np.isfinite(found).all()
    assert found[0] > 0.0
