"""What every plot stands on: a figure without global state, safe text, PNG bytes.

What belongs here: matplotlib's set-up, fonts, colours. What does not: what is drawn.
matplotlib is imported inside functions (docs/decisions/0021), and never its pyplot: that keeps
figures in a global list and chooses a backend for the whole process.
"""

from __future__ import annotations

import io
import re
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties

MAX_PNG_BYTES = 100_000
"""Largest plot: it goes into Dagster's event log and, a third longer, into the page."""

DPI = 100
"""Pixels per inch: 9 pt text stays sharp; twice as many would not fit 45 arms into 100 KB."""

BODY_PT = 9.0
TITLE_PT = 11.5
SMALL_PT = 8.0

INK = "#1b1f24"
MUTED = "#57606a"
GRID = "#d8dee4"
BAND = "#f4f6f8"
BLUE = "#0072b2"
VERMILLION = "#c44e00"
"""Okabe and Ito's blue and a darker vermillion: told apart with every common colour blindness."""

SHADES = {INK: 5, MUTED: 2, BLUE: 2, VERMILLION: 2}
"""Steps from white to each colour for smooth edges. With white, band and grid they make 14 colours,
which a PNG packs two to a byte: full colour makes files four times as large."""

UNKNOWN_GLYPH = "\u25a1"
"""Drawn for characters that the bundled font lacks (Chinese, emoji): fonts differ by machine."""

LABEL_WIDTH = 44
"""Characters of a line of a label; longer names continue on the next line."""

LABEL_CHARACTERS = 200
"""Longest label; what is longer loses its middle (tables have the whole name)."""

LABEL_FLOOR = 24
"""Labels are never cut shorter, however many there are: 60 rows of them make 60 KB."""

_PIECE = re.compile(r" |[^ _/:;,|+-]+[_/:;,|+-]*|[_/:;,|+-]+")


def new_figure(width_in: float, height_in: float) -> Figure:
    """Return an empty white figure of a size in inches, drawn by Agg."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width_in, height_in), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def new_axes(figure: Figure, left: float, bottom: float, width: float, height: float) -> Axes:
    """Return axes at a place in inches from the lower left corner, without top and right lines."""
    total_width, total_height = figure.get_size_inches()
    axes = figure.add_axes(
        (left / total_width, bottom / total_height, width / total_width, height / total_height)
    )
    axes.set_facecolor("white")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set(color=MUTED, linewidth=0.8)
    axes.tick_params(length=3, width=0.8, color=MUTED, labelcolor=INK)
    axes.set_axisbelow(True)
    return axes


def to_png(figure: Figure) -> bytes:
    """Return the figure as PNG bytes: equal drawings give equal bytes (no date, no version)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    canvas = figure.canvas
    if not isinstance(canvas, FigureCanvasAgg):
        raise TypeError(f"to_png needs a figure of new_figure, got one on {type(canvas).__name__}")
    canvas.draw()
    size = canvas.get_width_height()
    full = Image.frombytes("RGBA", size, bytes(canvas.buffer_rgba())).convert("RGB")
    palette = Image.new("P", (1, 1))
    palette.putpalette(_palette())
    buffer = io.BytesIO()
    few = full.quantize(palette=palette, dither=Image.Dither.NONE)
    few.save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def font(size_pt: float) -> FontProperties:
    """Return matplotlib's bundled font by its file: a machine's own fonts change nothing."""
    from matplotlib.font_manager import FontProperties

    return FontProperties(fname=_font_file(), size=size_pt)


def text_width(figure: Figure, text: str, size_pt: float) -> float:
    """Return how wide the longest line of a text will be, in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = figure.canvas
    if not isinstance(canvas, FigureCanvasAgg):
        raise TypeError(f"text_width needs a figure of new_figure, got {type(canvas).__name__}")
    renderer = canvas.get_renderer()
    widths = [
        renderer.get_text_width_height_descent(line, font(size_pt), False)[0]
        for line in text.split("\n")
    ]
    return max(widths) / DPI


def drawable(text: str) -> str:
    """Return a text that the bundled font can draw on one line: no control characters or gaps."""
    from matplotlib.font_manager import get_font

    known = get_font(_font_file()).get_charmap()
    plain = "".join(" " if unicodedata.category(c)[0] in "CZ" else c for c in text)
    shown = "".join(c if ord(c) in known else UNKNOWN_GLYPH for c in plain)
    return " ".join(shown.split())


def wrap_label(text: str, width: int = LABEL_WIDTH, characters: int = LABEL_CHARACTERS) -> str:
    """Return a drawable text in lines of at most `width`, cut in its middle to `characters`.

    Lines break at blanks and behind punctuation that joins words (`a_b/c`), else anywhere.
    """
    shown = drawable(text)
    if len(shown) > characters:
        half = characters // 2 - 1
        shown = f"{shown[:half]}\u2026{shown[-half:]}"
    lines = [""]
    for piece in _PIECE.findall(shown):
        for start in range(0, len(piece), width):
            part = piece[start : start + width]
            if len(lines[-1]) + len(part) > width:
                lines.append("")
            lines[-1] += part
    return "\n".join(line.strip() for line in lines) or UNKNOWN_GLYPH


def _palette() -> list[int]:
    """Return the fixed colours as red, green, blue, one after the other."""
    from matplotlib.colors import to_rgb

    colours = [to_rgb("white"), to_rgb(BAND), to_rgb(GRID)]
    for name, steps in SHADES.items():
        full = to_rgb(name)
        for step in range(1, steps + 1):
            share = step / steps
            red, green, blue = (1.0 - share * (1.0 - part) for part in full)
            colours.append((red, green, blue))
    return [round(255 * part) for colour in colours for part in colour]


def _font_file() -> Path:
    import matplotlib as mpl

    return Path(mpl.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"
