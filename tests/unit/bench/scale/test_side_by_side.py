"""What two checkouts' nights are compared by."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.datasets import CHECKOUT
from bench.scale.side_by_side import Cost, code_of, compare, run_night


def test_sides_are_compared_round_by_round() -> None:
    before = [Cost(10.0, 8.0, "a"), Cost(90.0, 80.0, "a"), Cost(12.0, 10.0, "a")]
    now = [Cost(5.0, 4.0, "a"), Cost(45.0, 40.0, "a"), Cost(6.0, 5.0, "a")]
    found = {
        "before": {"first": before, "unchanged": before[:1]},
        "now": {"first": now, "unchanged": before[:1]},
    }
    compared = compare(found)
    assert compared["first"]["cpu_ratio"] == 0.5
    assert compared["first"]["wall_ratio"] == 0.5
    assert compared["first"]["before_cpu_s"] == 10.0
    assert (compared["first"]["cpu_ratio_low"], compared["first"]["cpu_ratio_high"]) == (0.5, 0.5)
    assert compared["unchanged"]["cpu_ratio"] == 1.0
    assert compared["unchanged"]["cpu_ratio_low"] is None, "one round has no interval"


def test_a_ratio_is_the_geometric_mean_and_lies_in_its_interval() -> None:
    before = [Cost(10.0, 10.0, "a")] * 4
    now = [Cost(10.0, cpu_s, "a") for cpu_s in (5.0, 20.0, 8.0, 12.5)]
    found = {
        "before": {"first": before, "unchanged": before},
        "now": {"first": now, "unchanged": before},
    }
    row = compare(found)["first"]
    assert row["cpu_ratio"] == 1.0
    assert 0.5 < row["cpu_ratio_low"] < 1.0 < row["cpu_ratio_high"] < 2.0


def test_a_checkout_runs_its_own_code_and_not_the_installed_one(tmp_path: Path) -> None:
    assert code_of(CHECKOUT) == CHECKOUT / "lib" / "noctuary"
    package = tmp_path / "lib" / "noctuary"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    assert code_of(tmp_path) == package


def test_a_night_that_fails_is_no_result(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)ended with 1.*nowhere"):
        run_night(CHECKOUT, tmp_path / "nowhere.db", tmp_path / "store", None)
