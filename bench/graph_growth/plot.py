"""Seconds and memory over the number of memories, on logarithmic scales.

Beside each runs a line of slope one: what is linear follows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from noctuary.core.files import write_bytes
from noctuary.evaluate.report import BLUE, MUTED, to_png

_SIZE_INCHES = (8.0, 3.4)
_PANELS = (
    ("build, CPU s (extraction apart)", "build_cpu_s", 1.0),
    ("peak resident memory, MB", "peak_rss_bytes", 1e6),
)


def write_plot(path: Path, builds: Sequence[Mapping[str, Any]]) -> None:
    """Draw the builds.

    Args:
        path: The PNG.
        builds: As `measure_build` returns them, smallest first.
    """
    figure = Figure(_SIZE_INCHES)
    sizes = [build["memories"] for build in builds]
    for place, (label, field, unit) in enumerate(_PANELS, start=1):
        values = [build[field] / unit for build in builds]
        axes: Any = figure.add_subplot(1, len(_PANELS), place)
        straight = [values[-1] * size / sizes[-1] for size in sizes]
        axes.loglog(sizes, straight, "--", color=MUTED, label="in proportion to the largest")
        axes.loglog(sizes, values, "o-", color=BLUE, label="measured")
        axes.set_xlabel("memories")
        axes.set_ylabel(label)
        axes.grid(visible=True, which="major", alpha=0.3)
        axes.legend(fontsize="small")
    figure.tight_layout()
    image = to_png(figure)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, image)
