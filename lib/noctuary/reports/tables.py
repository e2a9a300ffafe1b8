"""Rows of the page's tables, as text in the order shown.

What belongs here: which cells a row has and how rows are sorted and cut. What does not: HTML
(template.html.j2), how a number is written (numbers.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from noctuary.evaluate.comparison import Comparison, Difference
from noctuary.evaluate.report import Report
from noctuary.reports.model import PerQuery, RankingDecision
from noctuary.reports.numbers import (
    MINUS,
    NONE,
    P_DIGITS,
    as_count,
    as_interval,
    as_mean,
    as_p,
    as_signed,
)
from noctuary.snapshot.drops import Drop

MAX_STRATUM_ROWS = 1500
"""Rows of a table by stratum: about 400 KB of page. What is cut is said below the table."""

MAX_QUERIES = 20
"""Losers and winners shown per metric: enough to see what they have in common."""

MAX_IDS = 10
"""Relevant ids shown per query; the number of the others is given."""

TIE = 1e-9
"""Differences up to this are ties, as in noctuary.evaluate.comparison."""

DIFFERENCE_COLUMNS = (
    "difference", "interval", "p", "Holm p", "detectable", "n", "better", "worse", "same",
    "verdict",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell.

    Attributes:
        text: What it shows.
        kind: "name", "number", "text" or a verdict: "better", "worse", "open".
        below: A second line in small letters, or "".
    """

    text: str
    kind: str = "number"
    below: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table; the first cell of a row names it.

    Attributes:
        caption: What it shows, in a sentence.
        columns: Heads.
        rows: As long as the heads.
        footnote: What is not shown, or "".
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    footnote: str = ""


def means_table(reports: Sequence[Report], sort_by: str, caption: str) -> Table:
    """Return every arm's overall means with their intervals, the best of `sort_by` first."""
    metrics = _metrics(report.overall for report in reports)

    def first(report: Report) -> tuple[float, str]:
        found = report.overall.get(sort_by)
        return (-found.mean if found else 1.0, report.name)

    rows = [
        [
            Cell(report.name, "name"),
            Cell(as_count(report.n)),
            *(
                Cell(as_mean(found.mean), below=as_interval(found.interval))
                if (found := report.overall.get(metric))
                else Cell("")
                for metric in metrics
            ),
            *_latency_cells(report),
        ]
        for report in sorted(reports, key=first)
    ]
    timed = ("p50 ms", "p95 ms") if any(report.latency for report in reports) else ()
    if not timed:
        rows = [row[: 2 + len(metrics)] for row in rows]
    return Table(caption, ("arm", "n", *metrics, *timed), rows)


def macro_table(reports: Sequence[Report], caption: str) -> Table:
    """Return the means over strata, each stratum counting once."""
    metrics = _metrics(report.macro for report in reports)
    rows = [
        [
            Cell(report.name, "name"),
            Cell(str(len(report.strata))),
            *(
                Cell(as_mean(report.macro[metric])) if metric in report.macro else Cell("")
                for metric in metrics
            ),
        ]
        for report in reports
    ]
    return Table(caption, ("arm", "strata", *metrics), rows)


def strata_means_table(reports: Sequence[Report], metric: str, caption: str) -> Table:
    """Return one metric's mean per stratum and arm, one row each."""
    rows = [
        [
            Cell(stratum, "name"),
            Cell(report.name, "text"),
            Cell(as_mean(means[metric].mean)),
            Cell(as_interval(means[metric].interval)),
            Cell(as_count(means[metric].n)),
        ]
        for stratum in sorted({name for report in reports for name in report.strata})
        for report in reports
        if metric in (means := report.strata.get(stratum, {}))
    ]
    return _cut(Table(caption, ("stratum", "arm", "mean", "interval", "n"), rows))


def arms_table(comparisons: Sequence[Comparison], metric: str, caption: str) -> Table:
    """Return every arm's difference in one metric, the largest gain first."""
    found = [c for c in comparisons if metric in c.overall]
    found.sort(key=lambda c: (-c.overall[metric].mean, c.ours))
    rows = [[Cell(c.ours, "name"), *difference_cells(c.overall[metric])] for c in found]
    return Table(caption, ("arm", *DIFFERENCE_COLUMNS), rows)


def metrics_table(comparison: Comparison, caption: str) -> Table:
    """Return one comparison's overall difference in every metric."""
    rows = [
        [Cell(metric, "name"), *difference_cells(found)]
        for metric, found in comparison.overall.items()
    ]
    return Table(caption, ("metric", *DIFFERENCE_COLUMNS), rows)


def strata_table(comparisons: Sequence[Comparison], metric: str, caption: str) -> Table:
    """Return the differences in one metric within each stratum, one row per stratum and arm."""
    rows = [
        [Cell(stratum, "name"), Cell(c.ours, "text"), *difference_cells(found[metric])]
        for stratum in sorted({name for c in comparisons for name in c.strata})
        for c in comparisons
        if metric in (found := c.strata.get(stratum, {}))
    ]
    return _cut(Table(caption, ("stratum", "arm", *DIFFERENCE_COLUMNS), rows))


def drops_table(drops: Sequence[Drop], caption: str) -> Table:
    """Return the losses that the gate counted."""
    rows = [
        [
            Cell(drop.group, "name"),
            Cell(drop.metric, "text"),
            Cell(as_signed(drop.mean)),
            Cell(f"{as_signed(drop.low)} to {as_signed(drop.high)}"),
            Cell(as_p(drop.p_holm)),
            Cell(as_count(drop.n)),
        ]
        for drop in drops
    ]
    return Table(caption, ("group", "metric", "difference", "interval", "Holm p", "n"), rows)


def decision_table(decision: RankingDecision, caption: str) -> Table:
    """Return what was tested, with the columns in the order in which they first occur."""
    columns = _metrics(decision.tested)
    kinds = [_kind(row.get(column) for row in decision.tested) for column in columns]
    rows = [
        [Cell(_plain(row.get(column)), kind) for column, kind in zip(columns, kinds, strict=True)]
        for row in decision.tested
    ]
    return Table(caption, [column.replace("_", " ") for column in columns], rows)


def queries_table(
    pair: PerQuery, metric: str, texts: Mapping[str, str] | None, caption: str, *, losers: bool
) -> Table:
    """Return the queries that changed most, the largest change first, equal ones by id.

    Args:
        pair: The two arms.
        metric: What is compared.
        texts: Texts by query id; None leaves the column out.
        caption: The table's caption.
        losers: Those where ours is worse, else those where it is better.
    """
    ours, baseline = pair.ours.column(metric), pair.baseline.column(metric)
    change = (ours - baseline) * (-1.0 if losers else 1.0)
    places = [place for place in range(change.size) if change[place] > TIE]
    places.sort(key=lambda place: (-round(float(change[place]), 9), pair.ours.query_ids[place]))
    rows: list[list[Cell]] = []
    for place in places[:MAX_QUERIES]:
        query_id = pair.ours.query_ids[place]
        row = [
            Cell(query_id, "name"),
            Cell(pair.ours.strata[place], "text"),
            Cell(as_mean(float(ours[place]))),
            Cell(as_mean(float(baseline[place]))),
            Cell(as_signed(float(ours[place] - baseline[place]))),
            Cell(_ids(pair.relevant_ids.get(query_id, ())), "text"),
        ]
        rows.append(row if texts is None else [*row, Cell(texts.get(query_id, ""), "text")])
    columns = ("query", "stratum", pair.ours.name, pair.baseline.name, "change", "relevant ids")
    hidden = len(places) - len(rows)
    footnote = f"{len(rows)} of {len(places)} shown, the largest changes first." if hidden else ""
    return Table(caption, columns if texts is None else (*columns, "text"), rows, footnote)


def difference_cells(found: Difference) -> list[Cell]:
    """Return the cells of `DIFFERENCE_COLUMNS`."""
    verdict, kind = "not significant", "open"
    if found.significant:
        verdict, kind = ("better", "better") if found.mean > 0 else ("worse", "worse")
    return [
        Cell(as_signed(found.mean)),
        Cell(as_interval(found.interval, signed=True)),
        Cell(as_p(found.p_value)),
        Cell(as_p(found.p_holm)),
        Cell(as_mean(found.minimum_detectable)),
        Cell(as_count(found.n)),
        Cell(as_count(found.wins)),
        Cell(as_count(found.losses)),
        Cell(as_count(found.ties)),
        Cell(verdict, kind),
    ]


def _ids(relevant: Sequence[str]) -> str:
    more = len(relevant) - MAX_IDS
    return ", ".join(relevant[:MAX_IDS]) + (f" and {more} more" if more > 0 else "")


def _latency_cells(report: Report) -> list[Cell]:
    if report.latency is None:
        return [Cell(""), Cell("")]
    return [Cell(f"{report.latency.p50_ms:.1f}"), Cell(f"{report.latency.p95_ms:.1f}")]


def _metrics(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return every key in the order of first appearance."""
    return list(dict.fromkeys(key for row in rows for key in row))


def _cut(table: Table) -> Table:
    hidden = len(table.rows) - MAX_STRATUM_ROWS
    if hidden <= 0:
        return table
    shown = f"{MAX_STRATUM_ROWS} of {len(table.rows)} rows are shown; the result file has all."
    return Table(table.caption, table.columns, table.rows[:MAX_STRATUM_ROWS], shown)


def _plain(value: Any) -> str:
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.{P_DIGITS}f}".replace("-", MINUS)
    if isinstance(value, (list, tuple, dict)):
        return json.dumps(value, ensure_ascii=False, sort_keys=True)
    return str(value)


def _kind(column: Iterable[Any]) -> str:
    """Return "number" for a column that holds numbers and nothing else that is not None."""
    given = [value for value in column if value is not None]
    numbers = [isinstance(v, (int, float)) and not isinstance(v, bool) for v in given]
    return "number" if given and all(numbers) else "text"
