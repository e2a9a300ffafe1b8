"""The month as a plot: size and duplicates by night, one line per arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from noctuary.core.files import write_bytes
from noctuary.evaluate.report import BLUE, MUTED, VERMILLION, to_png

_SIZE_INCHES = (9.6, 5.6)
_PANELS = (
    ("rows that only repeat what was injected", "rows_not_own", 1.0),
    ("thousand characters that are not the rows' own", "chars_not_own", 1e-3),
    ("exact duplicates among memories, %", "exact_duplicates", 100.0),
    ("near duplicates among memories, %", "near_duplicates", 100.0),
)
_LINES = {"off": (VERMILLION, "--"), "on": (BLUE, "-"), "on_reworded": (MUTED, ":")}
_NAMES = {"off": "guard off", "on": "guard on", "on_reworded": "guard on, agent rewords"}


def write_plot(path: Path, arms: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Draw the arms.

    Args:
        path: The PNG.
        arms: Name of an arm -> its nights as `simulate` returns them.
    """
    figure = Figure(_SIZE_INCHES)
    for place, (label, field, scale) in enumerate(_PANELS, start=1):
        axes: Any = figure.add_subplot(2, 2, place)
        for name, nights in arms.items():
            colour, style = _LINES[name]
            values = [night[field] * scale for night in nights]
            axes.plot(range(len(nights)), values, style, color=colour, label=_NAMES[name])
        axes.set_title(label, fontsize="small")
        axes.set_xlabel("night")
        axes.set_ylim(bottom=0)
        axes.grid(visible=True, alpha=0.3)
    figure.axes[0].legend(fontsize="small")
    figure.tight_layout()
    image = to_png(figure)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, image)
