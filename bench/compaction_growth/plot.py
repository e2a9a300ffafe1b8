"""Seconds and memory over the number of turns, on logarithmic scales, one line per strategy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from noctuary.core.files import write_bytes
from noctuary.evaluate.report import BLUE, MUTED, VERMILLION, to_png

_SIZE_INCHES = (8.0, 3.4)
_PANELS = (
    ("clustering and summarising, CPU s", "cpu_s", 1.0),
    ("peak resident memory, MB", "peak_rss_bytes", 1e6),
)
_COLOURS = (BLUE, VERMILLION)


def write_plot(path: Path, runs: Sequence[Mapping[str, Any]]) -> None:
    """Draw the runs.

    Args:
        path: The PNG.
        runs: As `measure_compaction` returns them, smallest first.
    """
    figure = Figure(_SIZE_INCHES)
    strategies = sorted({run["strategy"] for run in runs})
    for place, (label, field, unit) in enumerate(_PANELS, start=1):
        axes: Any = figure.add_subplot(1, len(_PANELS), place)
        for strategy, colour in zip(strategies, _COLOURS, strict=False):
            own = [run for run in runs if run["strategy"] == strategy]
            sizes = [run["turns"] for run in own]
            values = [run[field] / unit for run in own]
            straight = [values[-1] * size / sizes[-1] for size in sizes]
            axes.loglog(sizes, straight, "--", color=MUTED)
            axes.loglog(sizes, values, "o-", color=colour, label=strategy)
        axes.set_xlabel("turns")
        axes.set_ylabel(label)
        axes.grid(visible=True, which="major", alpha=0.3)
        axes.legend(fontsize="small")
    figure.tight_layout()
    image = to_png(figure)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, image)
