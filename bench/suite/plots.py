"""One compact plot per set: every arm's paired difference, with its interval."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from noctuary.core.files import write_text
from noctuary.evaluate.metrics import Comparison
from noctuary.evaluate.report import plot_differences

METRIC = "recall@10"
BASELINE = "noctuary"
"""What baselines, ablations and the decided arm were all compared with."""


def write_plot(path: Path, document: Mapping[str, Any]) -> None:
    """Draw a set's plot from its result document.

    Args:
        path: The SVG file.
        document: As the suite writes it.
    """
    scope = document["scopes"]["all"]
    compared = [
        Comparison.from_json(found[BASELINE])
        for found in scope["comparisons"].values()
        if BASELINE in found
    ]
    rows = {found.ours: found.overall[METRIC] for found in compared if METRIC in found.overall}
    if not rows:
        return
    title = f"{document['dataset']} ({document['manifest']['n_queries']} queries)"
    write_text(path, plot_differences(rows, METRIC, title))
