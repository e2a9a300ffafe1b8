"""The arithmetic behind published figures: slopes and promises of speed, by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.measure.clock import ratio_p50
from bench.measure.growth import exponent, extrapolate
from bench.measure.oneshot import paired_ratio
from bench.measure.targets import Target, compare, judge


@given(st.floats(0.1, 3.0), st.floats(0.01, 1e6))
def test_the_exponent_of_a_power_is_found_and_carries_on(slope: float, factor: float) -> None:
    sizes = [10_000, 100_000, 1_000_000]
    values = [factor * size**slope for size in sizes]
    assert exponent(sizes, values) == pytest.approx(slope, rel=1e-6)
    assert extrapolate(sizes[0], values[0], slope, sizes[2]) == pytest.approx(values[2], rel=1e-6)


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
