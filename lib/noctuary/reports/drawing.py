"""The single plots: differences, means, risk over coverage.

What belongs here: which rows a plot shows and in which order. What does not: marks and geometry
(forest.py, canvas.py), numbers that are not in the input.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from noctuary.evaluate.abstention import Abstention
from noctuary.evaluate.comparison import Comparison, Difference
from noctuary.evaluate.report import Report
from noctuary.evaluate.statistics.bootstrap import Interval
from noctuary.reports.canvas import (
    BLUE,
    BODY_PT,
    GRID,
    INK,
    MUTED,
    SMALL_PT,
    TITLE_PT,
    font,
    new_axes,
    new_figure,
    to_png,
    wrap_label,
)
from noctuary.reports.forest import MAX_ROWS, ForestRow, ForestStyle, Tone, draw_forest

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CURVE_WIDTH_IN = 7.2
CURVE_HEIGHT_IN = 4.3
POINTS_SHOWN_APART = 60
"""Curves of up to this many points show each of them; dots of longer ones would be a band."""


def plot_differences(comparisons: Sequence[Comparison], metric: str, title: str) -> bytes:
    """Draw a forest plot of every arm's mean paired difference, the best at the top.

    Args:
        comparisons: One row each; those without the metric are left out.
        metric: Its name, for example "recall@10".
        title: Above the plot, any text.

    Returns:
        PNG bytes, below `MAX_PNG_BYTES`. Of more than `MAX_ROWS` arms the largest differences are
        shown, and the plot says so.
    """
    chosen = [found for found in comparisons if metric in found.overall]
    baselines = sorted({found.baseline for found in chosen})
    one = len(baselines) == 1
    rows = [
        _difference_row(
            found.ours if one else f"{found.ours} \u2212 {found.baseline}", found.overall[metric]
        )
        for found in chosen
    ]
    against = f" to {baselines[0]}" if one else ""
    return _draw_differences(rows, f"difference{against} in {metric}; right is better", title)


def plot_strata(comparison: Comparison, metric: str, title: str) -> bytes:
    """Draw a forest plot of one comparison's difference in every stratum; see `plot_differences`.

    Args:
        comparison: One row per stratum that has the metric.
        metric: Its name.
        title: Above the plot, any text.

    Returns:
        PNG bytes, below `MAX_PNG_BYTES`.
    """
    rows = [
        _difference_row(name, found[metric])
        for name, found in comparison.strata.items()
        if metric in found
    ]
    axis = f"difference to {comparison.baseline} in {metric}; right is better"
    return _draw_differences(rows, axis, title)


def plot_means(reports: Sequence[Report], metric: str, title: str) -> bytes:
    """Draw every arm's mean over all queries with its interval, the best at the top.

    The axis is cut to the range that occurs; intervals of two arms that overlap do not say that the
    arms are equal, because the queries are the same: `plot_differences` shows that.

    Args:
        reports: One row each; those without the metric are left out.
        metric: Its name.
        title: Above the plot, any text.

    Returns:
        PNG bytes, below `MAX_PNG_BYTES`; the best `MAX_ROWS` arms.
    """
    rows: list[ForestRow] = []
    for report in reports:
        if (found := report.overall.get(metric)) is not None:
            low, high = _ends(found.interval)
            rows.append(ForestRow(report.name, found.mean, low, high, found.n, Tone.PLAIN))
    kept = _by_mean(rows)[:MAX_ROWS]
    style = ForestStyle(title, f"mean {metric}", "mean [interval]", False, _footnote(rows, kept))
    return draw_forest(kept, style)


def plot_risk_coverage(abstention: Abstention) -> bytes:
    """Draw the share of wrong answers over the share of queries that is answered.

    Args:
        abstention: The curve; its thresholds run along it, the most confident at the left.

    Returns:
        PNG bytes, below `MAX_PNG_BYTES`.
    """
    figure = new_figure(CURVE_WIDTH_IN, CURVE_HEIGHT_IN)
    axes = new_axes(figure, 0.75, 0.65, CURVE_WIDTH_IN - 1.0, CURVE_HEIGHT_IN - 1.3)
    _draw_curve(axes, abstention)
    title = wrap_label(f"{abstention.name}: risk over coverage", 66)
    x = 0.15 / CURVE_WIDTH_IN
    figure.text(x, 1 - 0.12 / CURVE_HEIGHT_IN, title, fontproperties=font(TITLE_PT), color=INK,
                va="top", parse_math=False)  # fmt: skip
    axes.set_title(_curve_numbers(abstention), fontproperties=font(SMALL_PT), color=MUTED,
                   loc="left", pad=6, parse_math=False)  # fmt: skip
    return to_png(figure)


def difference_tone(found: Difference) -> Tone:
    """Return what a difference says: significantly better or worse, or neither."""
    if not found.significant:
        return Tone.OPEN
    return Tone.BETTER if found.mean > 0 else Tone.WORSE


def _difference_row(label: str, found: Difference) -> ForestRow:
    low, high = _ends(found.interval)
    return ForestRow(label, found.mean, low, high, found.n, difference_tone(found))


def _ends(interval: Interval | None) -> tuple[float | None, float | None]:
    return (None, None) if interval is None else (interval.low, interval.high)


def _draw_differences(rows: Sequence[ForestRow], axis: str, title: str) -> bytes:
    largest = sorted(rows, key=lambda row: (-abs(row.mean), row.label))[:MAX_ROWS]
    kept = _by_mean(largest)
    style = ForestStyle(title, axis, "difference [interval]", True, _footnote(rows, kept))
    return draw_forest(kept, style)


def _by_mean(rows: Iterable[ForestRow]) -> list[ForestRow]:
    return sorted(rows, key=lambda row: (-row.mean, row.label))


def _footnote(rows: Sequence[ForestRow], kept: Sequence[ForestRow]) -> str:
    if len(kept) == len(rows):
        return ""
    return f"{len(kept)} of {len(rows)} rows are drawn; the tables hold all."


def _draw_curve(axes: Axes, abstention: Abstention) -> None:
    curve = abstention.curve
    marker = "o" if len(curve.coverage) <= POINTS_SHOWN_APART else ""
    axes.plot(curve.coverage, curve.risk, color=BLUE, linewidth=1.8, marker=marker, markersize=4,
              clip_on=False, zorder=3)  # fmt: skip
    axes.axhline(curve.risk[-1], color=MUTED, linewidth=1.0, linestyle=(0, (5, 3)))
    above = curve.risk[-1] < 0.88
    axes.text(0.01, curve.risk[-1] + (0.015 if above else -0.015),
              f"everything answered: risk {curve.risk[-1]:.3f}", ha="left",
              va="bottom" if above else "top", fontproperties=font(SMALL_PT), color=MUTED,
              bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.0},
              parse_math=False)  # fmt: skip
    axes.set_xlim(0.0, 1.0)
    axes.set_ylim(0.0, 1.0)
    places = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    axes.set_xticks(places, [f"{place:.1f}" for place in places])
    axes.set_yticks(places, [f"{place:.1f}" for place in places])
    for label in (*axes.get_xticklabels(), *axes.get_yticklabels()):
        label.set_fontproperties(font(SMALL_PT))
    axes.grid(color=GRID, linewidth=0.7)
    for words, put in (
        ("coverage: share of queries answered, the most confident first", axes.set_xlabel),
        (f"risk: share of them wrong ({abstention.metric} = 0)", axes.set_ylabel),
    ):
        put(wrap_label(words, 70), fontproperties=font(BODY_PT), color=INK, parse_math=False)


def _curve_numbers(abstention: Abstention) -> str:
    parts = [f"area {abstention.curve.area:.3f} (lower is better)"]
    if abstention.auroc is not None:
        interval = abstention.interval
        ends = f" [{interval.low:.3f}, {interval.high:.3f}]" if interval else " (no interval)"
        parts.append(f"AUROC {abstention.auroc:.3f}{ends} (0.5 says nothing)")
    parts.append(f"n={abstention.n_answerable} + {abstention.n_unanswerable} unanswerable")
    return "; ".join(parts)
