"""The page's tables: rows of text in the order shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from noctuary.evaluate.abstention import Abstention
from noctuary.evaluate.comparison import TIE, Comparison, Difference
from noctuary.evaluate.report import Report
from noctuary.evaluate.statistics.bootstrap import Interval
from noctuary.reports.model import PerQuery, RankingDecision
from noctuary.snapshot.drops import Drop

MAX_STRATUM_ROWS = 1500
"""Rows of a table by stratum: about 400 KB of page. What is cut is said below the table."""

MAX_QUERIES = 20
"""Losers and winners shown per metric: enough to see what they have in common."""

MAX_IDS = 10
"""Relevant ids shown per query; the number of the others is given."""

NONE = "none"
DIFFERENCE_COLUMNS = (
    "difference", "interval", "p", "Holm p", "detectable", "n", "better", "worse", "same",
    "verdict",
)  # fmt: skip


class Table(NamedTuple):
    """A table; the first cell of a row names it.

    Attributes:
        caption: What it shows, in a sentence.
        columns: Heads.
        rows: As long as the heads.
        footnote: What is not shown, or "".
        folded: Closed until the reader opens it.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    footnote: str = ""
    folded: bool = False


def means_table(reports: Sequence[Report], metric: str) -> Table:
    """Return every arm's overall means with their intervals, the best of a metric first."""
    metrics = list(dict.fromkeys(name for report in reports for name in report.overall))

    def first(report: Report) -> tuple[float, str]:
        found = report.overall.get(metric)
        return (-found.mean if found else 1.0, report.name)

    def cell(report: Report, name: str) -> str:
        found = report.overall.get(name)
        return f"{as_mean(found.mean)} ({as_interval(found.interval)})" if found else ""

    rows = [
        [report.name, as_count(report.n), *(cell(report, name) for name in metrics)]
        for report in sorted(reports, key=first)
    ]
    caption = "Means: mean and interval over all queries of the group"
    return Table(caption, ("arm", "n", *metrics), rows)


def arms_table(comparisons: Sequence[Comparison], metric: str, *, folded: bool) -> Table:
    """Return every arm's difference in one metric, the largest gain first."""
    found = [c for c in comparisons if metric in c.overall]
    found.sort(key=lambda c: (-c.overall[metric].mean, c.ours))
    rows = [[c.ours, *difference_cells(c.overall[metric])] for c in found]
    caption = f"Every arm minus {_baselines(comparisons)} in {metric}"
    return Table(caption, ("arm", *DIFFERENCE_COLUMNS), rows, folded=folded)


def metrics_table(comparison: Comparison) -> Table:
    """Return one comparison's overall difference in every metric."""
    rows = [[metric, *difference_cells(found)] for metric, found in comparison.overall.items()]
    caption = f"{comparison.ours} minus {comparison.baseline}, every query counting once"
    return Table(caption, ("metric", *DIFFERENCE_COLUMNS), rows)


def strata_table(comparisons: Sequence[Comparison], metric: str) -> Table:
    """Return the differences in one metric within each stratum, one row per stratum and arm."""
    rows = [
        [stratum, c.ours, *difference_cells(found[metric])]
        for stratum in sorted({name for c in comparisons for name in c.strata})
        for c in comparisons
        if metric in (found := c.strata.get(stratum, {}))
    ]
    footnote = ""
    if len(rows) > MAX_STRATUM_ROWS:
        footnote = f"{MAX_STRATUM_ROWS} of {len(rows)} rows are shown; the result file has all."
    caption = f"By stratum: {metric}, minus {_baselines(comparisons)}"
    columns = ("stratum", "arm", *DIFFERENCE_COLUMNS)
    return Table(caption, columns, rows[:MAX_STRATUM_ROWS], footnote, folded=True)


def drops_table(drops: Sequence[Drop]) -> Table:
    """Return the losses that the gate counted."""
    rows = [
        [
            drop.group,
            drop.metric,
            as_signed(drop.mean),
            f"{as_signed(drop.low)} to {as_signed(drop.high)}",
            as_p(drop.p_holm),
            as_count(drop.n),
        ]
        for drop in drops
    ]
    caption = "Significant losses against what serves, corrected over everything tested"
    return Table(caption, ("group", "metric", "difference", "interval", "Holm p", "n"), rows)


def decision_table(decision: RankingDecision) -> Table:
    """Return what was tested before a ranking was chosen."""
    columns = [*decision.tested[0]] if decision.tested else []
    rows = [[_plain(row[column]) for column in columns] for row in decision.tested]
    return Table("What was tested before deciding", columns, rows)


def queries_table(
    pair: PerQuery, metric: str, texts: Mapping[str, str] | None, *, losers: bool
) -> Table:
    """Return the queries that changed most, the largest change first, equal ones by id.

    Args:
        pair: The two arms.
        metric: What is compared.
        texts: Texts by query id; None leaves the column out.
        losers: Those where ours is worse, else those where it is better.
    """
    ours, baseline = pair.ours.column(metric), pair.baseline.column(metric)
    change = (ours - baseline) * (-1.0 if losers else 1.0)
    places = [place for place in range(change.size) if change[place] > TIE]
    places.sort(key=lambda place: (-round(float(change[place]), 9), pair.ours.query_ids[place]))
    rows: list[list[str]] = []
    for place in places[:MAX_QUERIES]:
        query_id = pair.ours.query_ids[place]
        row = [
            query_id,
            pair.ours.strata[place],
            as_mean(float(ours[place])),
            as_mean(float(baseline[place])),
            as_signed(float(ours[place] - baseline[place])),
            _ids(pair.relevant_ids.get(query_id, ())),
        ]
        rows.append(row if texts is None else [*row, texts.get(query_id, "")])
    columns = ("query", "stratum", pair.ours.name, pair.baseline.name, "change", "relevant ids")
    footnote = ""
    if len(rows) < len(places):
        footnote = f"{len(rows)} of {len(places)} shown, the largest changes first."
    word = "Losers" if losers else "Winners"
    caption = f"{word} in {metric}, {pair.ours.name} against {pair.baseline.name}"
    return Table(caption, columns if texts is None else (*columns, "text"), rows, footnote)


def abstention_table(found: Abstention) -> Table:
    """Return how well the top score tells whether there is an answer."""
    columns = ("arm", "AUROC", "interval", "area", "answerable", "unanswerable")
    row = [
        found.name,
        as_mean(found.auroc),
        as_interval(found.interval),
        as_mean(found.curve.area),
        as_count(found.n_answerable),
        as_count(found.n_unanswerable),
    ]
    return Table("Does the best result's score tell that there is an answer?", columns, [row])


def difference_cells(found: Difference) -> list[str]:
    """Return the cells of `DIFFERENCE_COLUMNS`."""
    verdict = "\u25cb not significant"
    if found.significant:
        verdict = "\u25b2 better" if found.mean > 0 else "\u25bc worse"
    return [
        as_signed(found.mean),
        as_interval(found.interval, signed=True),
        as_p(found.p_value),
        as_p(found.p_holm),
        as_mean(found.minimum_detectable),
        as_count(found.n),
        as_count(found.wins),
        as_count(found.losses),
        as_count(found.ties),
        verdict,
    ]


def as_mean(value: float | None) -> str:
    """Return a mean, for example "0.512"; "none" for None."""
    return NONE if value is None else _minus(f"{value:.3f}")


def as_signed(value: float) -> str:
    """Return a difference with its sign, for example "+0.021"; zero after rounding has none."""
    text = f"{value:+.3f}"
    return text[1:] if float(text) == 0.0 else _minus(text)


def as_interval(interval: Interval | None, *, signed: bool = False) -> str:
    """Return the ends of an interval, for example "0.490 to 0.530"."""
    if interval is None:
        return NONE
    form = as_signed if signed else as_mean
    return f"{form(interval.low)} to {form(interval.high)}"


def as_p(value: float) -> str:
    """Return a p-value; what would round to zero is shown as "<0.0001"."""
    text = f"{value:.4f}"
    return "<0.0001" if float(text) == 0.0 else text


def as_count(value: int) -> str:
    """Return a count with thin blanks between thousands."""
    return f"{value:,}".replace(",", "\u202f")


def _plain(value: Any) -> str:
    if value is None:
        return NONE
    return _minus(f"{value:.4f}") if isinstance(value, float) else str(value)


def _minus(text: str) -> str:
    return text.replace("-", "\u2212")


def _ids(relevant: Sequence[str]) -> str:
    more = len(relevant) - MAX_IDS
    return ", ".join(relevant[:MAX_IDS]) + (f" and {more} more" if more > 0 else "")


def _baselines(comparisons: Sequence[Comparison]) -> str:
    return " or ".join(sorted({found.baseline for found in comparisons}))
