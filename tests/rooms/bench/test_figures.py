"""The arithmetic behind published figures: folds, AUROC, slopes and promises of speed, by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from bench.abstention.measure import REFITS, judge_refits, judge_signals, judge_thresholds
from bench.abstention.questions import ANSWERABLE, FOREIGN, UNANSWERABLE, Asked
from bench.abstention.signals import SHIPPED, SHIPPED_WORDS
from bench.constants.folds import FOLDS, Validated, cross_validate
from bench.scale.fit import exponent, extrapolate
from bench.scale.side_by_side import Cost
from bench.scale.side_by_side import compare as compare_costs
from bench.speed.clock import ratio_p50
from bench.speed.oneshot import paired_ratio
from bench.speed.targets import Target, compare, judge
from noctuary.evaluate.labels import Query

EACH = np.arange(FOLDS)
"""One query per fold."""


def rows(*settings: Sequence[float]) -> NDArray[np.float64]:
    return np.array(settings, dtype=np.float64)


LUCKY = rows([0.5] * 5, [1.0, 0.4, 0.4, 0.4, 0.4])
"""One query makes the second setting best on all; without that query it is not."""


@pytest.mark.parametrize(
    ("scores", "folds", "expected"),
    [
        ({"a": LUCKY}, {"a": EACH}, Validated(1, (0, 1, 1, 1, 1), 0.5, 0.42, 0.52)),
        (
            {"a": rows([0.5] * 5, [0.4] * 5, [0.6] * 5)},
            {"a": EACH},
            Validated(2, (2,) * FOLDS, 0.5, 0.6, 0.6),
        ),
        ({"a": rows([0.5] * 5, [0.5] * 5)}, {"a": EACH}, Validated(0, (0,) * FOLDS, 0.5, 0.5, 0.5)),
        # Over all 15 queries the second setting loses; over two sets it gains .3 and loses .2.
        (
            {"small": rows([0.5] * 5, [0.8] * 5), "large": rows([0.5] * 10, [0.3] * 10)},
            {"small": EACH, "large": np.repeat(EACH, 2)},
            Validated(1, (1,) * FOLDS, 0.5, 0.55, 0.55),
        ),
        # A fold is chosen for without its queries in any set.
        (
            {"a": LUCKY, "b": LUCKY},
            {"a": EACH, "b": EACH},
            Validated(1, (0, 1, 1, 1, 1), 0.5, 0.42, 0.52),
        ),
    ],
    ids=["lucky", "better everywhere", "equal", "sets weigh the same", "lucky in both sets"],
)
def test_a_setting_is_scored_on_queries_that_did_not_choose_it(
    scores: dict[str, Any], folds: dict[str, Any], expected: Validated
) -> None:
    found = cross_validate(scores, folds)
    assert (found.chosen, found.chosen_by_fold) == (expected.chosen, expected.chosen_by_fold)
    for figure in ("shipped", "in_sample", "held_out"):
        assert getattr(found, figure) == pytest.approx(getattr(expected, figure)), figure


SIGNALS = {SHIPPED, SHIPPED_WORDS, *(name for names in REFITS.values() for name in names)}


def questions(wings: bool = True) -> list[Asked]:
    def asked(kind: str, number: int, wing: str | None) -> Asked:
        return Asked(kind, Query(f"{kind}{number}", "text", "all", (), wing=wing))

    names = ("north", "south") if wings else (None, None)
    return [
        *(asked(ANSWERABLE, n, names[n % 2]) for n in range(40)),
        *(asked(UNANSWERABLE, n, names[n % 2]) for n in range(10)),
        *(asked(FOREIGN, n, None) for n in range(10)),
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
    judged = judge_thresholds(questions(), table(), [1.0] * 40)
    by_loss = {row["max_recall_loss"]: row for row in judged if row["signal"] == SHIPPED}
    assert sorted(by_loss) == [0.01, 0.02, 0.05, 0.1]
    row = by_loss[0.05]
    assert row["threshold"] == pytest.approx(0.3 + 2 * 0.6 / 39, abs=1e-4)
    assert row["abstained"] == {UNANSWERABLE: 0.0, FOREIGN: 1.0}
    assert row["recall_kept"] == pytest.approx(1.0 - row["answerable_abstained"])
    assert by_loss[0.01]["recall_kept"] >= by_loss[0.1]["recall_kept"]
    assert judge_thresholds(questions()[30:], table(), [1.0] * 10) == []


def test_refits_need_wings_and_unanswerable_questions() -> None:
    assert set(judge_refits(questions(), table())) == set(REFITS)
    assert judge_refits(questions(wings=False), table()) == {}
    assert judge_refits(questions()[:40], table()) == {}


@given(st.floats(0.1, 3.0), st.floats(0.01, 1e6))
def test_the_exponent_of_a_power_is_found_and_carries_on(slope: float, factor: float) -> None:
    sizes = [10_000, 100_000, 1_000_000]
    values = [factor * size**slope for size in sizes]
    assert exponent(sizes, values) == pytest.approx(slope, rel=1e-6)
    assert extrapolate(sizes[0], values[0], slope, sizes[2]) == pytest.approx(values[2], rel=1e-6)


def test_a_ratio_is_the_geometric_mean_and_lies_in_its_interval() -> None:
    before = [Cost(10.0, 10.0, "a")] * 4
    now = [Cost(10.0, cpu_s, "a") for cpu_s in (5.0, 20.0, 8.0, 12.5)]
    found = {
        "before": {"first": before, "unchanged": before},
        "now": {"first": now, "unchanged": before},
    }
    row = compare_costs(found)["first"]
    assert row["cpu_ratio"] == 1.0
    assert 0.5 < row["cpu_ratio_low"] < 1.0 < row["cpu_ratio_high"] < 2.0


def test_ratios_compare_what_both_systems_were_asked() -> None:
    assert ratio_p50({0: 2.0, 1: 4.0, 2: 900.0}, {0: 1.0, 1: 1.0, 7: 500.0}) == 3.0
    assert paired_ratio([2.0, 30.0, 8.0], [1.0, 10.0, 2.0, 99.0]) == 3.0
    with pytest.raises(ValueError, match="both"):
        ratio_p50({0: 1.0}, {1: 1.0})


def oneshot(**ratios: float) -> Any:
    good = {
        "import_recall_to_numpy": 1.2,
        "recall_to_numpy": 1.5,
        "client_to_bare": 2.5,
        "library_to_recall": 30.0,
    }
    times = {"median_ms": 10.0, "min_ms": 9.0, "rounds": 3}
    names = ("bare", "import_numpy", "import_recall", "recall", "client", "command", "library")
    return {"systems": dict.fromkeys(names, times), "ratios": {**good, **ratios}}


@pytest.mark.parametrize(
    ("value", "limit", "at_least", "met"),
    [
        (2.0, 2.0, False, True), (20.0, 20.0, True, True), (2.01, 2.0, False, False),
        (19.9, 20.0, True, False), (math.nan, 2.0, False, False),
    ],
)  # fmt: skip
def test_a_limit_is_still_kept_where_it_is_reached(
    value: float, limit: float, at_least: bool, met: bool
) -> None:
    assert Target("x", value, limit, at_least=at_least).met is met


@pytest.mark.parametrize(
    ("changed", "missed"),
    [
        ({}, []),
        ({"recall_to_numpy": 1.61}, ["one-shot recall / import numpy"]),
        ({"client_to_bare": 3.1}, ["client / bare interpreter"]),
        ({"library_to_recall": 19.9}, ["sentence-transformers process / one-shot recall"]),
        ({"import_recall_to_numpy": 1.31}, ["import of the recall function / import numpy"]),
    ],
)
def test_each_promise_of_fresh_processes_is_held_on_its_own(
    changed: dict[str, float], missed: list[str]
) -> None:
    targets = judge([], oneshot(**changed))
    assert [target["name"] for target in targets if not target["met"]] == missed


@pytest.mark.parametrize(
    ("measured", "said"),
    [(1.5, "OK"), (1.66, "OK"), (1.72, "OKish"), (1.8, "FAIL"), (math.nan, "FAIL")],
)
def test_what_creeps_in_is_said_beside_the_committed_figure(measured: float, said: str) -> None:
    found = compare({"import_recall_to_numpy": measured}, {"import_recall_to_numpy": 1.61})
    assert [verdict for *_, verdict in found] == [said]
