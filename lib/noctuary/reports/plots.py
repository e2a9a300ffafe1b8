"""The plots that others ask for, and which of them a night has.

What belongs here: the choice, names and alternative texts; the page and Dagster's metadata show the
same plots. What does not: drawing (drawing.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from noctuary.evaluate.abstention import Abstention
from noctuary.evaluate.comparison import Comparison, Difference
from noctuary.evaluate.report import Report
from noctuary.reports.canvas import MAX_PNG_BYTES
from noctuary.reports.drawing import (
    plot_differences,
    plot_means,
    plot_risk_coverage,
    plot_strata,
)
from noctuary.reports.forest import MAX_ROWS
from noctuary.reports.model import NightReport, QueryGroup
from noctuary.reports.numbers import as_mean

__all__ = [
    "MAX_PNG_BYTES", "Plot", "list_plots", "metadata_plots", "plot_differences", "plot_means",
    "plot_risk_coverage", "plot_strata",
]  # fmt: skip

MEANS = "means"
DIFFERENCES = "differences"
AGAINST_SERVING = "against_serving"
RISK_COVERAGE = "risk_coverage"


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot that is not drawn yet.

    Attributes:
        name: Key in `metadata_plots`.
        alt: What it shows, for those who cannot see it.
        draw: Returns the PNG.
    """

    name: str
    alt: str
    draw: Callable[[], bytes]


def metadata_plots(report: NightReport) -> dict[str, bytes]:
    """Return the night's plots as PNG by name, each below `MAX_PNG_BYTES`.

    Args:
        report: Any night; one without results has no plots.

    Returns:
        "<group>_means", "<group>_differences" (arms against the served one),
        "<group>_against_serving" (the candidate by stratum) and "risk_coverage", where there is
        something to draw.
    """
    return {plot.name: plot.draw() for plot in list_plots(report)}


def list_plots(report: NightReport) -> list[Plot]:
    """Return the night's plots in the order of the page, not drawn yet."""
    found = [plot for group in report.groups for plot in _group_plots(report, group)]
    if report.abstention is not None:
        found.append(_risk_plot(report.abstention))
    return found


def shown_metrics(report: NightReport, group: QueryGroup) -> list[str]:
    """Return the metrics that a group is shown by: the wanted ones, else the first there is."""
    measured = dict.fromkeys(
        metric
        for part in (
            *(arm.overall for arm in group.reports),
            *(found.overall for found in group.comparisons),
            *((group.against_serving.overall,) if group.against_serving else ()),
        )
        for metric in part
    )
    wanted = [metric for metric in report.metrics if metric in measured]
    return wanted or list(measured)[:1]


def _group_plots(report: NightReport, group: QueryGroup) -> list[Plot]:
    metrics = shown_metrics(report, group)
    if not metrics:
        return []
    found: list[Plot] = []
    serving = group.against_serving
    if serving is not None and len(serving.strata) > 1:
        found.append(_strata_plot(group.name, serving, metrics[0]))
    if group.comparisons:
        found.append(_differences_plot(group.name, group.comparisons, metrics[0]))
    if group.reports:
        found.append(_means_plot(group.name, group.reports, metrics[0]))
    return found


def _strata_plot(group: str, comparison: Comparison, metric: str) -> Plot:
    differences = [part[metric] for part in comparison.strata.values() if metric in part]
    return Plot(
        f"{group}_{AGAINST_SERVING}",
        f"Forest plot of {metric} in {group} queries, the candidate against what serves by "
        f"stratum: {_tally(differences)}",
        lambda: plot_strata(
            comparison, metric, f"{group}: tonight's candidate against what serves, by stratum"
        ),
    )


def _differences_plot(group: str, comparisons: Sequence[Comparison], metric: str) -> Plot:
    differences = [found.overall[metric] for found in comparisons if metric in found.overall]
    return Plot(
        f"{group}_{DIFFERENCES}",
        f"Forest plot of {metric} in {group} queries, every arm against the served one: "
        f"{_tally(differences)}",
        lambda: plot_differences(comparisons, metric, f"{group}: every arm against the served one"),
    )


def _means_plot(group: str, reports: Sequence[Report], metric: str) -> Plot:
    best = max(
        (arm for arm in reports if metric in arm.overall),
        key=lambda arm: arm.overall[metric].mean,
    )
    return Plot(
        f"{group}_{MEANS}",
        f"Mean {metric} of {min(len(reports), MAX_ROWS)} arms in {group} queries with intervals; "
        f"the highest is {best.name} with {as_mean(best.overall[metric].mean)}.",
        lambda: plot_means(reports, metric, f"{group}: mean {metric} of every arm"),
    )


def _risk_plot(abstention: Abstention) -> Plot:
    return Plot(
        RISK_COVERAGE,
        f"Risk over coverage of {abstention.name}: risk {as_mean(abstention.curve.risk[-1])} when "
        f"everything is answered, area under the curve {as_mean(abstention.curve.area)}.",
        lambda: plot_risk_coverage(abstention),
    )


def _tally(differences: Sequence[Difference]) -> str:
    better = sum(found.significant and found.mean > 0 for found in differences)
    worse = sum(found.significant and found.mean < 0 for found in differences)
    return (
        f"{len(differences)} rows, {better} significantly better, {worse} significantly worse; "
        "the table has the numbers."
    )
