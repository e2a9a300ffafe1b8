from __future__ import annotations

import io
import math
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from noctuary.evaluate.metrics.abstention import RiskCoverage
from noctuary.reports.canvas import (
    LABEL_CHARACTERS,
    LABEL_WIDTH,
    UNKNOWN_GLYPH,
    drawable,
    wrap_label,
)
from noctuary.reports.drawing import difference_tone
from noctuary.reports.forest import MAX_ROWS, ForestRow, ForestStyle, Tone, draw_forest, number_text
from noctuary.reports.model import NightReport, QueryGroup
from noctuary.reports.plots import (
    MAX_PNG_BYTES,
    list_plots,
    metadata_plots,
    plot_differences,
    plot_means,
    plot_risk_coverage,
    plot_strata,
)
from tests.unit.reports.builders import METRICS, abstention, arms, comparison, difference

BLUE, VERMILLION = (0, 114, 178), (196, 78, 0)


def pixels(png: bytes) -> Image.Image:
    return Image.open(io.BytesIO(png)).convert("RGB")


def count(png: bytes, colour: tuple[int, int, int]) -> int:
    found = pixels(png).getcolors(1 << 24) or []
    return sum(n for n, seen in found if seen == colour)


def height_of(png: bytes, colour: tuple[int, int, int]) -> int:
    """Return the first row of pixels that holds a colour; the legend is below all rows."""
    seen = np.asarray(pixels(png)) == np.array(colour)
    return int(np.flatnonzero(seen.all(axis=2).any(axis=1))[0])


def chunks(png: bytes) -> list[bytes]:
    """Return the types of a PNG's chunks."""
    found: list[bytes] = []
    place = 8
    while place < len(png):
        (length,) = struct.unpack(">I", png[place : place + 4])
        found.append(png[place + 4 : place + 8])
        place += 12 + length
    return found


LONG = "convex_combination dense_share/0.35 graph_weight " * 4


def long_differences() -> bytes:
    _, comparisons = arms(45)
    named = [replace(found, ours=f"{i} {LONG}") for i, found in enumerate(comparisons)]
    return plot_differences(named, "recall@10", "differences " * 20)


def long_means() -> bytes:
    reports, _ = arms(45)
    named = [replace(found, name=f"{i} {LONG}") for i, found in enumerate(reports)]
    return plot_means(named, "recall@10", "means")


def long_strata() -> bytes:
    _, (found,) = arms(1, n=90, n_strata=45)
    strata = {f"{LONG} {name}": part for name, part in found.strata.items()}
    return plot_strata(replace(found, strata=strata), "ndcg@10", "strata")


def long_curve() -> bytes:
    return plot_risk_coverage(abstention(n=5_000))


@pytest.mark.slow
@pytest.mark.parametrize("draw", [long_differences, long_means, long_strata, long_curve])
def test_a_plot_of_45_rows_with_names_of_200_characters_is_below_100_kb(
    draw: Callable[[], bytes],
) -> None:
    png = draw()
    assert png.startswith(b"\x89PNG")
    assert len(png) < MAX_PNG_BYTES == 100_000


def test_hundreds_of_rows_are_cut_and_stay_below_100_kb() -> None:
    reports, comparisons = arms(300, n=6)
    assert len(plot_differences(comparisons, "recall@10", "many")) < MAX_PNG_BYTES
    assert len(plot_means(reports, "recall@10", "many")) < MAX_PNG_BYTES


def test_equal_input_gives_equal_bytes_without_date_or_software() -> None:
    _, comparisons = arms(3)
    first, second = (plot_differences(comparisons, "recall@10", "title") for _ in range(2))
    assert first == second
    assert set(chunks(first)) == {b"IHDR", b"PLTE", b"IDAT", b"IEND"}


def test_drawing_neither_needs_pyplot_nor_changes_matplotlibs_settings() -> None:
    program = (
        "import sys; from noctuary.reports.plots import plot_differences\n"
        "assert not {'matplotlib', 'PIL', 'jinja2'} & set(sys.modules), 'imported too early'\n"
        "import matplotlib; before = matplotlib.rcParams.copy()\n"
        "plot_differences([], 'recall@10', 'empty')\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
        "assert matplotlib.rcParams.copy() == before\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_significance_shows_in_colour_and_the_sign_in_which() -> None:
    better = comparison("a", difference(0.1, 0.05, 0.15, p=0.001))
    worse = comparison("a", difference(-0.1, -0.15, -0.05, p=0.001))
    neither = comparison("a", difference(0.1, -0.05, 0.25))
    drawn = [plot_differences([found], "recall@10", "t") for found in (better, worse, neither)]
    assert [count(png, BLUE) > 0 for png in drawn] == [True, False, False]
    assert [count(png, VERMILLION) > 0 for png in drawn] == [False, True, False]


def test_significant_marks_are_filled_and_others_are_hollow() -> None:
    style = ForestStyle("t", "a", "c", False)
    filled, hollow = (
        pixels(draw_forest([ForestRow("arm", 0.5, None, None, 3, tone)], style))
        for tone in (Tone.BETTER, Tone.OPEN)
    )
    # The same row, so the mark of both stands where the filled one is blue (above the legend).
    rows, columns = np.nonzero((np.asarray(filled)[:100] == np.array(BLUE)).all(axis=2))
    middle = (int(np.median(columns)), int(np.median(rows)))
    assert filled.getpixel(middle) == BLUE
    assert hollow.getpixel(middle) == (255, 255, 255)


def test_the_best_row_is_at_the_top() -> None:
    found = [
        comparison("worse", difference(-0.1, -0.15, -0.05, p=0.001)),
        comparison("better", difference(0.1, 0.05, 0.15, p=0.001)),
    ]
    png = plot_differences(found, "recall@10", "t")
    assert height_of(png, BLUE) < height_of(png, VERMILLION)


def test_a_tone_needs_the_interval_and_the_adjusted_p() -> None:
    assert difference_tone(difference(0.1, 0.05, 0.15, p=0.01)) is Tone.BETTER
    assert difference_tone(difference(-0.1, -0.15, -0.05, p=0.01)) is Tone.WORSE
    assert difference_tone(difference(0.1, 0.05, 0.15, p=0.06)) is Tone.OPEN
    assert difference_tone(difference(0.1, -0.05, 0.15, p=0.01)) is Tone.OPEN
    assert difference_tone(difference(0.1)) is Tone.OPEN


def test_the_order_of_the_input_does_not_matter() -> None:
    reports, comparisons = arms(5)
    assert plot_means(reports, "ndcg@10", "t") == plot_means(reports[::-1], "ndcg@10", "t")
    assert plot_differences(comparisons, "ndcg@10", "t") == plot_differences(
        comparisons[::-1], "ndcg@10", "t"
    )


def test_arms_without_the_metric_are_left_out() -> None:
    reports, comparisons = arms(3)
    other = replace(comparisons[0], ours="other", overall={})
    with_other = plot_differences([*comparisons, other], "recall@10", "t")
    assert with_other == plot_differences(comparisons, "recall@10", "t")
    bare = replace(reports[0], name="bare", overall={})
    assert plot_means([*reports, bare], "recall@10", "t") == plot_means(reports, "recall@10", "t")


def test_nothing_to_draw_is_a_picture_that_says_so() -> None:
    empty = plot_differences([], "recall@10", "t")
    assert empty.startswith(b"\x89PNG")
    assert empty == plot_means([], "recall@10", "t")
    assert empty != plot_differences([], "recall@10", "another title")


def test_one_query_without_interval_is_drawn() -> None:
    alone = plot_differences([comparison("a", difference(0.0, n=13))], "recall@10", "t")
    wide = plot_differences([comparison("a", difference(0.0, -0.4, 0.4, n=13))], "recall@10", "t")
    assert alone != wide


@pytest.mark.parametrize("mean", [0.0, 1.0])
def test_means_at_the_ends_of_the_range_are_drawn(mean: float) -> None:
    row = ForestRow("arm", mean, mean, mean, 3, Tone.PLAIN)
    assert count(draw_forest([row], ForestStyle("t", "mean", "mean", False)), BLUE) > 20


def test_a_curve_of_a_single_point_is_drawn() -> None:
    point = replace(
        abstention(),
        auroc=None,
        interval=None,
        curve=RiskCoverage((-math.inf,), (1.0,), (0.0,), 0.0),
    )
    assert count(plot_risk_coverage(point), BLUE) > 5


def test_too_many_rows_are_refused_with_the_limit() -> None:
    rows = [ForestRow("arm", 0.0, None, None, 3, Tone.OPEN)] * (MAX_ROWS + 1)
    with pytest.raises(ValueError, match=f"holds {MAX_ROWS} rows, got {MAX_ROWS + 1}"):
        draw_forest(rows, ForestStyle("t", "a", "c", True))


def test_numbers_beside_a_row_are_the_rows_own() -> None:
    row = ForestRow("arm", -0.0214, -0.0301, 0.0096, 3, Tone.OPEN)
    assert number_text(row, signed=True) == "\u22120.021 [\u22120.030, +0.010]"
    assert number_text(replace(row, low=None), signed=False) == "\u22120.021 (no interval)"


def test_names_in_any_script_and_with_mathematics_are_drawn() -> None:
    names = [
        "$x_1$ \\frac{",
        "\u4e2d\u6587",
        "\u05e9\u05dc\u05d5\u05dd",
        "\U0001f600",
        "\x00\n\ud800",
    ]
    drawn = [
        plot_differences([comparison(name, difference(0.1, 0.0, 0.2))], "recall@10", name)
        for name in names
    ]
    assert len(set(drawn)) == len(names)


def test_characters_that_the_font_lacks_become_boxes() -> None:
    assert drawable("a\n\tb \u4e2d") == f"a b {UNKNOWN_GLYPH}"


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=400))
def test_labels_are_short_lines_and_lose_nothing_but_blanks_until_they_are_huge(name: str) -> None:
    lines = wrap_label(name).split("\n")
    assert all(0 < len(line) <= LABEL_WIDTH for line in lines)
    shown = drawable(name)
    if 0 < len(shown) <= LABEL_CHARACTERS:
        assert "".join(lines).replace(" ", "") == shown.replace(" ", "")


def test_a_long_name_breaks_behind_its_underscores() -> None:
    name = "convex_combination_dense_share_0.35_graph_weight_2 (n=745)"
    assert wrap_label(name) == "convex_combination_dense_share_0.35_graph_\nweight_2 (n=745)"


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
    plots = metadata_plots(report)
    assert list(plots) == [
        "labelled_against_serving",
        "labelled_differences",
        "labelled_means",
        "exact_differences",
        "exact_means",
        "risk_coverage",
    ]
    assert plots["exact_differences"] == plot_differences(
        comparisons, METRICS[0], "exact: every arm against the served one"
    )
    assert all(0 < len(png) < MAX_PNG_BYTES for png in plots.values())


def test_alternative_texts_count_what_is_significant() -> None:
    group = QueryGroup(
        "labelled",
        comparisons=[
            comparison("a", difference(0.1, 0.05, 0.15, p=0.001)),
            comparison("b", difference(-0.1, -0.15, -0.05, p=0.001)),
            comparison("c", difference(-0.2, -0.25, -0.15, p=0.001)),
            comparison("d", difference(-0.01, -0.05, 0.05)),
        ],
    )
    (plot,) = list_plots(NightReport("store", "tonight", groups=[group]))
    assert "4 rows, 1 significantly better, 2 significantly worse" in plot.alt


def test_an_empty_night_has_no_plots() -> None:
    assert metadata_plots(NightReport("store", "tonight")) == {}
