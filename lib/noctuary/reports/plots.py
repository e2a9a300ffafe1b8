"""The night's plots as PNG: mean differences with their intervals, and risk over coverage.

matplotlib is imported inside functions (docs/decisions/0021), and never its pyplot: that keeps
figures in a global list and chooses a backend for the whole process.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from noctuary.evaluate.abstention import Abstention
from noctuary.evaluate.comparison import Difference
from noctuary.reports.model import NightReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MUTED = "#57606a"
BLUE = "#0072b2"
VERMILLION = "#c44e00"
"""Okabe and Ito's blue and a darker vermillion: told apart with every common colour blindness."""

MAX_ROWS = 45
"""Rows drawn, the largest differences: a plot has to stay below 100 KB for Dagster's event log."""

LABEL_CHARACTERS = 60
"""Longest label; what is longer loses its middle (tables have the whole name)."""

_FONT = "DejaVu Sans"
_UNKNOWN_GLYPH = "\u25a1"


class Plot(NamedTuple):
    """A drawn plot, and what it shows for those who cannot see it."""

    png: bytes
    alt: str


def night_plots(report: NightReport) -> dict[str, Plot]:
    """Return the plots of a night by name, where there is something to draw.

    "<group>_against_serving": the candidate by stratum. "<group>_differences": every arm against
    the served one. "risk_coverage".
    """
    found: dict[str, Plot] = {}
    for group in report.groups:
        for metric in group.shown_metrics()[:1]:
            serving, comparisons = group.against_serving, group.comparisons
            strata = serving.strata if serving is not None and len(serving.strata) > 1 else {}
            rows = {name: part[metric] for name, part in strata.items() if metric in part}
            words = f"{group.name}: tonight against what serves, by stratum"
            if rows:
                found[f"{group.name}_against_serving"] = _differences(rows, metric, words)
            rows = {c.ours: c.overall[metric] for c in comparisons if metric in c.overall}
            words = f"{group.name}: every arm against the served one"
            if rows:
                found[f"{group.name}_differences"] = _differences(rows, metric, words)
    if report.abstention is not None:
        curve = report.abstention.curve
        alt = (
            f"Risk over coverage of {report.abstention.name}: risk {curve.risk[-1]:.3f} when "
            f"everything is answered, area under the curve {curve.area:.3f}."
        )
        found["risk_coverage"] = Plot(plot_risk_coverage(report.abstention), alt)
    return found


def plot_differences(rows: Mapping[str, Difference], metric: str, title: str) -> bytes:
    """Draw mean paired differences with their intervals, the best at the top.

    Significant ones are filled and coloured. Of more than `MAX_ROWS` the largest are drawn.
    """
    from matplotlib.figure import Figure

    drawn = sorted(rows.items(), key=lambda row: (-abs(row[1].mean), row[0]))[:MAX_ROWS]
    drawn.sort(key=lambda row: (-row[1].mean, row[0]))
    figure = Figure((9.4, 1.4 + 0.27 * len(drawn)), layout="constrained")
    axes = figure.add_subplot()
    for place, (_, found) in enumerate(drawn):
        ends = found.interval
        # A bootstrap interval may leave the mean outside; a bar has no negative length.
        reach = ends and [[max(0.0, found.mean - ends.low)], [max(0.0, ends.high - found.mean)]]
        colour = (BLUE if found.mean > 0 else VERMILLION) if found.significant else MUTED
        shape = ("^" if found.mean > 0 else "v") if found.significant else "o"
        face = colour if found.significant else "white"
        axes.errorbar(
            found.mean, place, xerr=reach, fmt=shape, color=colour, markerfacecolor=face, capsize=3
        )
    axes.axvline(0.0, color="black", linewidth=1.0)
    axes.grid(axis="x", alpha=0.3)
    axes.set_yticks(
        range(len(drawn)), [_label(name) for name, _ in drawn], family=_FONT, parse_math=False
    )
    axes.set_ylim(len(drawn) - 0.4, -0.6)
    words = f"difference in {_label(metric)}; right is better, filled is significant"
    axes.set_xlabel(words, family=_FONT, parse_math=False)
    cut = f" ({len(drawn)} of {len(rows)} rows)" if len(drawn) < len(rows) else ""
    axes.set_title(_label(title) + cut, family=_FONT, parse_math=False, loc="left")
    return to_png(figure)


def plot_risk_coverage(abstention: Abstention) -> bytes:
    """Draw the share of wrong answers over the share of queries that is answered."""
    from matplotlib.figure import Figure

    figure = Figure((7.2, 4.3), layout="constrained")
    axes = figure.add_subplot()
    curve = abstention.curve
    axes.plot(curve.coverage, curve.risk, color=BLUE, marker=".", clip_on=False)
    axes.axhline(curve.risk[-1], color=MUTED, linestyle="--")
    axes.set(xlim=(0.0, 1.0), ylim=(0.0, 1.0))
    axes.grid(alpha=0.3)
    axes.set_xlabel("coverage: share of queries answered, the most confident first")
    wrong = f"risk: share of them wrong ({abstention.metric} = 0)"
    axes.set_ylabel(_label(wrong), family=_FONT, parse_math=False)
    auroc = "" if abstention.auroc is None else f", AUROC {abstention.auroc:.3f}"
    title = f"{_label(abstention.name)}: area {curve.area:.3f}{auroc}"
    axes.set_title(title, family=_FONT, parse_math=False, loc="left")
    return to_png(figure)


def to_png(figure: Figure) -> bytes:
    """Return a figure as PNG bytes without date or version: equal drawings give equal bytes."""
    from PIL import Image

    full, few = io.BytesIO(), io.BytesIO()
    figure.savefig(full, format="png", dpi=100)
    # Full colour makes files four times as large.
    Image.open(full).convert("RGB").quantize(32, Image.Quantize.FASTOCTREE).save(few, "PNG")
    return few.getvalue()


def _differences(rows: Mapping[str, Difference], metric: str, title: str) -> Plot:
    better = sum(found.significant and found.mean > 0 for found in rows.values())
    worse = sum(found.significant and found.mean < 0 for found in rows.values())
    alt = (
        f"Mean differences in {metric} with intervals, {title}: {len(rows)} rows, {better} "
        f"significantly better, {worse} significantly worse; the table has the numbers."
    )
    return Plot(plot_differences(rows, metric, title), alt)


def _label(text: str) -> str:
    """Return a text on one line that the bundled font can draw; other characters become boxes."""
    from matplotlib.font_manager import findfont, get_font

    known = get_font(findfont(_FONT)).get_charmap()
    line = " ".join(text.split())
    shown = "".join(c if ord(c) in known else _UNKNOWN_GLYPH for c in line)
    half = LABEL_CHARACTERS // 2
    return shown if len(shown) <= LABEL_CHARACTERS else f"{shown[:half]}\u2026{shown[-half:]}"
