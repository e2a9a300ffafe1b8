"""Means with their intervals, one row each: the form of every comparison plot.

What belongs here: geometry and marks. What does not: which rows there are (plots.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from noctuary.reports.canvas import (
    BAND,
    BLUE,
    BODY_PT,
    GRID,
    INK,
    LABEL_CHARACTERS,
    LABEL_FLOOR,
    MAX_PNG_BYTES,
    MUTED,
    SMALL_PT,
    TITLE_PT,
    VERMILLION,
    font,
    new_axes,
    new_figure,
    text_width,
    to_png,
    wrap_label,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH_IN = 9.4
"""Fits a page and Dagster's metadata column without scaling."""

ROW_IN = 0.27
LINE_IN = 0.15
HEADER_IN = 0.28
MARGIN_IN = 0.15
AXIS_IN = 0.58
LEGEND_IN = 0.22
TITLE_LINE_IN = 0.22
TITLE_WIDTH = 96

MAX_ROWS = 60
"""Rows drawn: more would neither be read nor fit into 100 KB. Tables have every row."""

SAFETY = 0.9
"""Share of the size aimed at when labels have to be cut: less means fewer attempts, less name."""

TICKS = 7
_NO_WIDTH = 1e-9


class Tone(Enum):
    """What a row's mark says; told by shape and fill, and by colour as well."""

    BETTER = "better"
    WORSE = "worse"
    OPEN = "open"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Mark:
    """How a tone is drawn, and its words in the legend."""

    shape: str
    colour: str
    filled: bool
    words: str


MARKS = {
    Tone.BETTER: Mark("^", BLUE, True, "significantly better"),
    Tone.WORSE: Mark("v", VERMILLION, True, "significantly worse"),
    Tone.OPEN: Mark("o", MUTED, False, "not significant"),
    Tone.PLAIN: Mark("o", BLUE, True, ""),
}


@dataclass(frozen=True, slots=True)
class ForestRow:
    """One row.

    Attributes:
        label: Its name, any text.
        mean: Where the mark stands.
        low: Lower end of the interval; None draws no interval.
        high: Upper end.
        n: Queries, shown behind the name.
        tone: Which mark.
    """

    label: str
    mean: float
    low: float | None
    high: float | None
    n: int
    tone: Tone


@dataclass(frozen=True, slots=True)
class ForestStyle:
    """What all rows share.

    Attributes:
        title: Above the plot.
        axis: What the horizontal axis measures.
        column: Head of the numbers at the right.
        signed: Numbers show their sign, and a line marks zero.
        footnote: A sentence below the plot, or "".
    """

    title: str
    axis: str
    column: str
    signed: bool
    footnote: str = ""


def draw_forest(rows: Sequence[ForestRow], style: ForestStyle) -> bytes:
    """Draw rows from the top down, in the order given.

    Args:
        rows: At most `MAX_ROWS`; none draws the title and a sentence.
        style: Title, axis and sign.

    Returns:
        PNG bytes, below `MAX_PNG_BYTES`; long names are cut in the middle where they do not fit.

    Raises:
        ValueError: If there are more rows.
    """
    if len(rows) > MAX_ROWS:
        raise ValueError(f"a forest plot holds {MAX_ROWS} rows, got {len(rows)}; choose which")
    if not rows:
        return draw_sentence(style.title, "Nothing to show: there is no row with this metric.")
    labels = [f"{row.label} (n={row.n})" for row in rows]
    characters = min(LABEL_CHARACTERS, max(map(len, labels)))
    png = _draw(rows, [wrap_label(label) for label in labels], style)
    # Letters make up nearly all of a file: labels are shortened until it fits.
    while len(png) >= MAX_PNG_BYTES and characters > LABEL_FLOOR:
        share = SAFETY * MAX_PNG_BYTES / len(png)
        characters = max(LABEL_FLOOR, int(characters * share))
        cut = [wrap_label(label, characters=characters) for label in labels]
        png = _draw(rows, cut, style)
    return png


def _draw(rows: Sequence[ForestRow], labels: Sequence[str], style: ForestStyle) -> bytes:
    heights = [ROW_IN + LINE_IN * label.count("\n") for label in labels]
    title = wrap_label(style.title, TITLE_WIDTH)
    head = MARGIN_IN + TITLE_LINE_IN * (title.count("\n") + 1) + HEADER_IN
    foot = AXIS_IN + _legend_height(rows) + (TITLE_LINE_IN if style.footnote else 0.0)
    figure = new_figure(WIDTH_IN, head + sum(heights) + foot)
    numbers = [number_text(row, signed=style.signed) for row in rows]
    left = MARGIN_IN * 2 + max(text_width(figure, label, BODY_PT) for label in labels)
    right = MARGIN_IN * 2 + max(
        text_width(figure, text, size)
        for text, size in [*((t, BODY_PT) for t in numbers), (style.column, SMALL_PT)]
    )
    axes = new_axes(figure, left, foot, WIDTH_IN - left - right, sum(heights))
    _set_scale(axes, rows, sum(heights), signed=style.signed)
    _draw_rows(axes, rows, labels, numbers, heights)
    _draw_words(figure, axes, title, style)
    _draw_legend(figure, rows)
    return to_png(figure)


def draw_sentence(title: str, sentence: str) -> bytes:
    """Draw a title and one sentence: what a plot without data looks like."""
    figure = new_figure(WIDTH_IN, 1.1)
    x = MARGIN_IN / WIDTH_IN
    figure.text(x, 0.66, wrap_label(title, TITLE_WIDTH), fontproperties=font(TITLE_PT),
                color=INK, va="center", parse_math=False)  # fmt: skip
    figure.text(x, 0.27, sentence, fontproperties=font(BODY_PT), color=MUTED, va="center",
                parse_math=False)  # fmt: skip
    return to_png(figure)


def number_text(row: ForestRow, *, signed: bool) -> str:
    """Return a row's numbers as text, for example "+0.021 [+0.003, +0.039]"."""
    form = "+.3f" if signed else ".3f"
    if row.low is None or row.high is None:
        text = f"{row.mean:{form}} (no interval)"
    else:
        text = f"{row.mean:{form}} [{row.low:{form}}, {row.high:{form}}]"
    return text.replace("-", "\u2212")


def _set_scale(axes: Axes, rows: Sequence[ForestRow], height: float, *, signed: bool) -> None:
    ends = [end for row in rows for end in (row.low, row.mean, row.high) if end is not None]
    low, high = min(ends), max(ends)
    if signed:
        low, high = min(low, 0.0), max(high, 0.0)
    padding = 0.05 * (high - low) if high - low > _NO_WIDTH else 0.05
    if signed:
        axes.set_xlim(low - padding, high + padding)
    else:
        axes.set_xlim(max(low - padding, 0.0 - padding / 2), min(high + padding, 1.0 + padding / 2))
    axes.set_ylim(height, 0.0)
    _set_ticks(axes, signed=signed)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", color=GRID, linewidth=0.7)
    if signed:
        axes.axvline(0.0, color=INK, linewidth=1.1, zorder=2)


def _set_ticks(axes: Axes, *, signed: bool) -> None:
    from matplotlib.ticker import MaxNLocator

    low, high = axes.get_xlim()
    places = [
        float(tick)
        for tick in MaxNLocator(TICKS, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
        if low <= tick <= high and (signed or -_NO_WIDTH <= tick <= 1.0 + _NO_WIDTH)
    ]
    digits = next((d for d in (2, 3) if all(abs(p - round(p, d)) < _NO_WIDTH for p in places)), 4)
    texts = [
        "0" if abs(p) < _NO_WIDTH else f"{p:{'+' if signed else ''}.{digits}f}" for p in places
    ]
    axes.set_xticks(places, [text.replace("-", "\u2212") for text in texts])
    for label in axes.get_xticklabels():
        label.set_fontproperties(font(SMALL_PT))
        label.set_color(INK)


def _draw_rows(
    axes: Axes,
    rows: Sequence[ForestRow],
    labels: Sequence[str],
    numbers: Sequence[str],
    heights: Sequence[float],
) -> None:
    width_in = axes.get_position().width * WIDTH_IN
    gap = MARGIN_IN / width_in
    top = 0.0
    for place, (row, label, number, height) in enumerate(
        zip(rows, labels, numbers, heights, strict=True)
    ):
        if place % 2:
            axes.axhspan(top, top + height, color=BAND, linewidth=0, zorder=0)
        middle = top + height / 2
        _draw_mark(axes, row, middle)
        for x, text, side in ((-gap, label, "right"), (1 + gap, number, "left")):
            axes.text(x, middle, text, transform=axes.get_yaxis_transform(), ha=side, va="center",
                      fontproperties=font(BODY_PT), color=INK, parse_math=False)  # fmt: skip
        top += height


def _draw_mark(axes: Axes, row: ForestRow, y: float) -> None:
    mark = MARKS[row.tone]
    if row.low is not None and row.high is not None:
        axes.plot([row.low, row.high], [y, y], color=mark.colour, linewidth=1.8, zorder=3,
                  solid_capstyle="butt", marker="|", markersize=6)  # fmt: skip
    face = mark.colour if mark.filled else "white"
    axes.plot([row.mean], [y], linestyle="none", marker=mark.shape, markersize=7,
              markerfacecolor=face, markeredgecolor=mark.colour, markeredgewidth=1.4, zorder=4,
              clip_on=False)  # fmt: skip


def _draw_words(figure: Figure, axes: Axes, title: str, style: ForestStyle) -> None:
    height_in = float(figure.get_size_inches()[1])
    x = MARGIN_IN / WIDTH_IN
    figure.text(x, 1 - MARGIN_IN / height_in, title, fontproperties=font(TITLE_PT), color=INK,
                va="top", parse_math=False)  # fmt: skip
    axes_in = axes.get_position().height * height_in
    head = 1 + 0.08 / axes_in
    gap = MARGIN_IN / (axes.get_position().width * WIDTH_IN)
    axes.text(1 + gap, head, style.column, transform=axes.transAxes, ha="left", va="bottom",
              fontproperties=font(SMALL_PT), color=MUTED, parse_math=False)  # fmt: skip
    axes.set_xlabel(wrap_label(style.axis, TITLE_WIDTH), fontproperties=font(BODY_PT), color=INK,
                    labelpad=4, parse_math=False)  # fmt: skip
    if style.footnote:
        figure.text(x, 0.1 / height_in, style.footnote, fontproperties=font(SMALL_PT),
                    color=MUTED, va="bottom", parse_math=False)  # fmt: skip


def _tones(rows: Sequence[ForestRow]) -> list[Tone]:
    used = {row.tone for row in rows}
    return [tone for tone, mark in MARKS.items() if tone in used and mark.words]


def _legend_height(rows: Sequence[ForestRow]) -> float:
    return LEGEND_IN if _tones(rows) else 0.0


def _draw_legend(figure: Figure, rows: Sequence[ForestRow]) -> None:
    """Explain the marks that occur, right-aligned at the bottom."""
    from matplotlib.lines import Line2D

    tones = _tones(rows)
    if not tones:
        return
    handles = [
        Line2D([], [], linestyle="none", marker=MARKS[tone].shape, markersize=7, color="none",
               markerfacecolor=MARKS[tone].colour if MARKS[tone].filled else "white",
               markeredgecolor=MARKS[tone].colour, markeredgewidth=1.4,
               label=MARKS[tone].words)
        for tone in tones
    ]  # fmt: skip
    figure.legend(handles=handles, loc="lower right", ncols=len(handles), frameon=False,
                  prop=font(SMALL_PT), labelcolor=INK, handletextpad=0.2, columnspacing=1.4,
                  borderaxespad=0.2)  # fmt: skip
