from __future__ import annotations

import io
import math
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from noctuary.evaluate.metrics import Difference, RiskCoverage
from noctuary.evaluate.report import (
    MAX_ROWS,
    NightReport,
    QueryGroup,
    night_plots,
    plot_differences,
    plot_risk_coverage,
)
from tests.unit.reports.builders import abstention, arms, comparison, difference

BLUE, VERMILLION = (0, 114, 178), (196, 78, 0)
BETTER = difference(0.1, 0.05, 0.15, p=0.001)
WORSE = difference(-0.1, -0.15, -0.05, p=0.001)
NEITHER = difference(0.1, -0.05, 0.25)


def pixels_of(png: bytes, colour: tuple[int, int, int]) -> list[int]:
    """Return the rows of pixels that hold a colour, from the top; few colours stand for all."""
    picture = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"), dtype=np.int64)
    seen: Any = np.abs(picture - np.array(colour)) < 24
    return np.flatnonzero(seen.all(axis=2).any(axis=1)).tolist()


def test_hundreds_of_rows_with_long_names_stay_below_100_kb() -> None:
    _, comparisons = arms(300, n=6)
    name = "convex_combination dense_share/0.35 graph_weight " * 4
    rows = {f"{i} {name} {i}": c.overall["recall@10"] for i, c in enumerate(comparisons)}
    assert len(plot_differences(rows, "recall@10", "many " * 30)) < 100_000
    assert len(plot_risk_coverage(abstention(n=5_000).to_json())) < 100_000


def test_the_largest_differences_are_drawn() -> None:
    rows = {f"small {i}": NEITHER for i in range(MAX_ROWS)}
    largest = {"largest": difference(-0.4, -0.5, -0.3, p=0.001)}
    assert pixels_of(plot_differences({**rows, **largest}, "recall@10", "t"), VERMILLION)


def test_equal_input_gives_equal_bytes_whatever_its_order() -> None:
    rows = {"a": BETTER, "b": WORSE, "c": NEITHER}
    first = plot_differences(rows, "recall@10", "title")
    assert first == plot_differences(dict(reversed(rows.items())), "recall@10", "title")
    assert b"Software" not in first


def test_drawing_neither_needs_pyplot_nor_changes_matplotlibs_settings() -> None:
    program = (
        "import sys; from noctuary.evaluate.report import plot_differences\n"
        "assert not {'matplotlib', 'PIL', 'jinja2'} & set(sys.modules), 'imported too early'\n"
        "import matplotlib; before = matplotlib.rcParams.copy()\n"
        "plot_differences({}, 'recall@10', 'empty')\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
        "assert matplotlib.rcParams.copy() == before\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


@pytest.mark.parametrize(
    ("found", "blue", "vermillion"),
    [
        (BETTER, True, False),
        (WORSE, False, True),
        (NEITHER, False, False),
        (difference(0.1, 0.05, 0.15, p=0.06), False, False),
        (difference(0.1, n=13), False, False),
    ],
)
def test_significance_shows_in_colour_and_the_sign_in_which(
    found: Difference, blue: bool, vermillion: bool
) -> None:
    png = plot_differences({"a": found}, "recall@10", "t")
    assert (bool(pixels_of(png, BLUE)), bool(pixels_of(png, VERMILLION))) == (blue, vermillion)


def test_the_best_row_is_at_the_top() -> None:
    png = plot_differences({"worse": WORSE, "better": BETTER}, "recall@10", "t")
    assert max(pixels_of(png, BLUE)) < min(pixels_of(png, VERMILLION))


def test_an_interval_beside_its_mean_is_drawn() -> None:
    odd = difference(0.1, 0.2, 0.3, p=0.001)
    assert pixels_of(plot_differences({"a": odd}, "recall@10", "t"), BLUE)


def test_a_curve_of_a_single_point_is_drawn() -> None:
    point = replace(
        abstention(),
        auroc=None,
        interval=None,
        curve=RiskCoverage((-math.inf,), (1.0,), (0.0,), 0.0),
    )
    assert pixels_of(plot_risk_coverage(point.to_json()), BLUE)


def test_names_in_any_script_and_with_mathematics_are_drawn() -> None:
    names = ["$x_1$ \\frac{", "\u4e2d\u6587", "\u05e9\u05dc\u05d5\u05dd", "\x00\n\ud800", ""]
    drawn = [plot_differences({name: NEITHER}, "recall@10", name) for name in names]
    assert len(set(drawn)) == len(names)


def test_a_night_has_its_groups_plots_and_the_curve_under_stable_names() -> None:
    reports, comparisons = arms(2)
    serving = replace(comparisons[0], ours="candidate", baseline="serving")
    report = NightReport(
        title="store",
        night="2026-11-20",
        groups=[
            QueryGroup("labelled", reports, comparisons, serving),
            QueryGroup("exact", reports, comparisons),
            QueryGroup("generated"),
        ],
        abstention=abstention(),
    )
    plots = night_plots(report)
    assert list(plots) == [
        "labelled_against_serving", "labelled_differences", "exact_differences", "risk_coverage",
    ]  # fmt: skip
    assert all(0 < len(plot.png) < 100_000 for plot in plots.values())
    assert night_plots(NightReport("store", "tonight")) == {}


def test_alternative_texts_count_what_is_significant() -> None:
    found = {"a": BETTER, "b": WORSE, "c": difference(-0.2, -0.25, -0.15, p=0.001), "d": NEITHER}
    group = QueryGroup("x", comparisons=[comparison(name, row) for name, row in found.items()])
    (plot,) = night_plots(NightReport("store", "tonight", groups=[group])).values()
    assert "4 rows, 1 significantly better, 2 significantly worse" in plot.alt
