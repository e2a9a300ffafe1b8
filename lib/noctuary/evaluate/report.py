"""Reports of a night: numbers, tables, one plot a group, and one static HTML page."""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, NamedTuple
from xml.etree.ElementTree import Element, SubElement, tostring

import numpy as np

from noctuary.evaluate.abstain import Abstention, measure_abstention
from noctuary.evaluate.decide import SERVED, Runs, score_group
from noctuary.evaluate.metrics import (
    HEADLINE_METRIC,
    TIE,
    Comparison,
    Difference,
    Report,
    Scores,
    compare,
    summarize,
)
from noctuary.evaluate.queries import EXACT, UNANSWERABLE, Questions
from noctuary.evaluate.statistics import STANDARD, Interval
from noctuary.snapshot.checks import Drop, DropReport
from noctuary.snapshot.publish import Verdict as GateVerdict
from noctuary.text.marks import visible

HEADLINE_METRICS = ("recall@10", "ndcg@10")  # whether the answer was found, and at which rank
MAX_QUERIES = 20  # of those that changed most: enough to see what they have in common
MAX_IDS = 10  # relevant ids shown per query; the number of the others is given
MAX_ROWS = 45  # the largest differences: a plot stays below 100 KB
LABEL_CHARACTERS = 60  # longest label; longer ones lose their middle (tables have the whole name)
_CHANGED_AGAINST = "lexical"  # the arm that the served one is compared with query by query

# Parts of a report.


@dataclass(frozen=True, slots=True)
class QueryGroup:
    """Everything about queries of one origin; groups are never averaged with each other."""

    name: str  # "labelled" or "exact"
    reports: Sequence[Report] = ()  # means of every arm, the served one included
    comparisons: Sequence[Comparison] = ()  # every other arm against the served one
    against_serving: Comparison | None = None  # tonight's candidate against the current snapshot
    scores: tuple[Scores, Scores] | None = None  # of the served arm and of words alone
    relevant_ids: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])


class GateOutcome(NamedTuple):
    """Whether the candidate may serve, why in a sentence, and the losses found."""

    passed: bool
    sentence: str
    drops: Sequence[Drop] = ()

    @staticmethod
    def of(verdict: GateVerdict, compared: DropReport) -> GateOutcome:
        """Summarise the gate's verdict and its comparison of recall."""
        failed = [check.name for check in verdict.checks if not check.passed]
        said = "The gate passed this candidate"
        if failed:
            said = f"The gate refused this candidate: {', '.join(failed)}."
        elif compared.drops:
            said += f" although {len(compared.drops)} losses were found."
        elif compared.note:
            said += f"; recall was not compared: {compared.note}."
        else:
            said += f": none of {compared.tested} comparisons with the current snapshot shows a "
            said += "significant loss."
        return GateOutcome(not failed, said, compared.drops)


@dataclass(frozen=True, slots=True)
class NightReport:
    """One night, ready to be shown, without any memory's text; None where there is nothing."""

    title: str  # the store's name
    night: str  # its date as text; passed in, so that equal nights make equal pages
    note: Sequence[str] = ()  # the morning note, one sentence each
    facts: Mapping[str, str] = field(default_factory=dict[str, str])  # about the snapshot
    costs: Sequence[tuple[str, float, float]] = ()  # stage that ran, seconds, CPU seconds
    query_counts: Sequence[tuple[str, str, int]] = ()  # group, stratum, number of queries
    groups: Sequence[QueryGroup] = ()  # in the order of the page; names differ
    decision: Mapping[str, Any] | None = None  # as the night wrote it
    gate: GateOutcome | None = None
    abstention: Abstention | None = None  # of the served arm
    query_texts: Mapping[str, str] | None = None  # by query id; None shows ids only
    notes: Sequence[str] = ()  # omissions, one sentence each


def count_queries(questions: Questions) -> list[tuple[str, str, int]]:
    """Return the number of queries by group and stratum."""
    return [
        (group, stratum, n)
        for group, queries in {**questions.groups, UNANSWERABLE: questions.unanswerable}.items()
        for stratum, n in sorted(Counter(query.stratum for query in queries).items())
    ]


def gather_groups(
    questions: Questions, runs: Runs, measured: Mapping[str, Any], against: Mapping[str, Comparison]
) -> list[QueryGroup]:
    """Join the numbers of `report_arms` with the comparison against the current snapshot."""
    groups: list[QueryGroup] = []
    for name, queries in questions.groups.items():
        scores, raw = score_group(questions, runs, name), measured["groups"][name]
        both = (scores[SERVED], scores[_CHANGED_AGAINST]) if _CHANGED_AGAINST in scores else None
        reports = [Report.from_json(found) for found in raw["reports"]]
        comparisons = [Comparison.from_json(found) for found in raw["comparisons"]]
        relevant = {query.query_id: query.relevant_ids for query in queries}
        groups.append(QueryGroup(name, reports, comparisons, against.get(name), both, relevant))
    return groups


def report_arms(questions: Questions, runs: Runs) -> dict[str, Any]:
    """Score every arm and compare it with the served one; plain values."""
    groups: dict[str, Any] = {}
    for group in questions.groups:
        scores = score_group(questions, runs, group)
        others = [(arm, scores[SERVED]) for name, arm in scores.items() if name != SERVED]
        groups[group] = {
            "reports": [report.to_json() for report in summarize(list(scores.values()))],
            "comparisons": [found.to_json() for found in compare(others)],
        }
    abstention = measure_abstention(questions, runs)
    return {
        "queries": questions.counts(),
        "notes": list(questions.notes),
        "groups": groups,
        "abstention": abstention.to_json() if abstention else None,
    }


def served_means(report: Mapping[str, Any]) -> dict[str, float]:
    """Return the headline metric of the served arm on every group of a report."""
    return {
        f"{HEADLINE_METRIC} {group}": round(arm["overall"][HEADLINE_METRIC]["mean"], 4)
        for group, found in report["groups"].items()
        for arm in found["reports"]
        if arm["name"] == SERVED
    }


# The page's tables: rows of text in the order shown.

NONE = "none"
DIFFERENCE_COLUMNS = (
    "difference", "interval", "p", "Holm p", "detectable", "n", "better", "worse", "same",
    "verdict",
)  # fmt: skip


class Table(NamedTuple):
    """Rows as long as the heads; the first cell of a row names it."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def group_tables(group: QueryGroup, texts: Mapping[str, str] | None) -> list[Table]:
    """Return the tables of a group; queries with their texts where given."""
    found: list[Table] = []
    if group.against_serving is not None:
        rows = [
            [metric, *difference_cells(difference)]
            for metric, difference in group.against_serving.overall.items()
        ]
        caption = "Tonight's candidate minus the current snapshot"
        found.append(Table(caption, ("metric", *DIFFERENCE_COLUMNS), rows))
    found += [arms_table(group, metric) for metric in HEADLINE_METRICS]
    if group.scores is not None:
        found.append(queries_table(group, HEADLINE_METRIC, texts))
    return [table for table in found if table.rows]


def arms_table(group: QueryGroup, metric: str) -> Table:
    """Return every arm's mean and its difference from the served arm, the best first."""
    differences = {c.ours: c.overall[metric] for c in group.comparisons if metric in c.overall}
    reports = [report for report in group.reports if metric in report.overall]
    reports.sort(key=lambda report: (-report.overall[metric].mean, report.name))
    rows: list[list[str]] = []
    for report in reports:
        found, difference = report.overall[metric], differences.get(report.name)
        cells = difference_cells(difference) if difference else [""] * len(DIFFERENCE_COLUMNS)
        rows.append([report.name, as_mean(found.mean), as_interval(found.interval), *cells])
    columns = ("arm", "mean", "its interval", *DIFFERENCE_COLUMNS)
    return Table(f"Every arm in {metric}, and its difference from {SERVED}", columns, rows)


def queries_table(group: QueryGroup, metric: str, texts: Mapping[str, str] | None) -> Table:
    """Return the queries that differ most between the served arm and words alone, losses first."""
    assert group.scores is not None
    ours, baseline = group.scores
    change = ours.column(metric) - baseline.column(metric)
    places = np.flatnonzero(np.abs(change) > TIE).tolist()
    places.sort(key=lambda p: (-round(abs(change[p]), 9), change[p] > 0, ours.query_ids[p]))
    rows: list[list[str]] = []
    for place in places[:MAX_QUERIES]:
        query_id = ours.query_ids[place]
        values = [as_mean(float(arm.column(metric)[place])) for arm in (ours, baseline)]
        relevant = group.relevant_ids.get(query_id, ())
        more = f" and {len(relevant) - MAX_IDS} more" if len(relevant) > MAX_IDS else ""
        shown = [as_signed(float(change[place])), ", ".join(relevant[:MAX_IDS]) + more]
        text = [] if texts is None else [texts.get(query_id, "")]
        rows.append([query_id, ours.strata[place], *values, *shown, *text])
    columns = ("query", "stratum", ours.name, baseline.name, "change", "relevant ids")
    caption = f"Largest changes in {metric}, {ours.name} against {baseline.name}"
    caption += f": {len(rows)} of {len(places)} queries"
    return Table(caption, columns if texts is None else (*columns, "text"), rows)


def costs_table(costs: Sequence[tuple[str, float, float]]) -> Table:
    """Tabulate what the stages cost that ran, and all of them together."""
    total = ("all", sum(wall for _, wall, _ in costs), sum(cpu for *_, cpu in costs))
    rows = [(name, f"{wall:.1f}", f"{cpu:.1f}") for name, wall, cpu in (*costs, total)]
    return Table("Stages up to this report", ("stage", "seconds", "CPU seconds"), rows)


def counts_table(counts: Sequence[tuple[str, str, int]]) -> Table:
    """Return a table of the number of queries."""
    rows = [[group, stratum, as_count(n)] for group, stratum, n in counts]
    return Table("Queries asked tonight", ("group", "stratum", "n"), rows)


def drops_table(drops: Sequence[Drop]) -> Table:
    """Return the losses that the gate counted."""
    rows = [
        [
            *(drop.group, drop.metric, as_signed(drop.mean)),
            f"{as_signed(drop.low)} to {as_signed(drop.high)}",
            *(as_p(drop.p_holm), as_count(drop.n)),
        ]
        for drop in drops
    ]
    caption = "Significant losses against the current snapshot, corrected for all tests"
    return Table(caption, ("group", "metric", "difference", "interval", "Holm p", "n"), rows)


DECISION_COLUMNS = (
    "challenger", "gain, all queries", "low", "high", "p (Holm)", "gain where chosen",
    "gain where confirmed", "vetoes",
)  # fmt: skip


def decision_table(document: Mapping[str, Any]) -> Table:
    """Return the tests behind the choice of a ranking."""
    rows: list[list[str]] = []
    for tested in (document["decision"] or {"tested": ()})["tested"]:
        numbers = [tested["difference"][name] for name in ("mean", "low", "high", "p_holm")]
        confirmed = tested["confirmation"] or {"mean": None}
        numbers += [tested["selection_gain"], confirmed["mean"]]
        cells = [NONE if number is None else _minus(f"{number:.4f}") for number in numbers]
        rows.append([tested["name"], *cells, "; ".join(tested["vetoes"])])
    return Table("Tests behind the decision", DECISION_COLUMNS, rows)


def difference_cells(found: Difference) -> list[str]:
    """Return the cells of `DIFFERENCE_COLUMNS`."""
    verdict = "\u25cb not significant"
    if found.significant:
        verdict = "\u25b2 better" if found.mean > 0 else "\u25bc worse"
    return [
        as_signed(found.mean),
        as_interval(found.interval, signed=True),
        *(as_p(found.p_value), as_p(found.p_holm), as_mean(found.minimum_detectable)),
        *map(as_count, (found.n, found.wins, found.losses, found.ties)),
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
    """Return a p-value; one that would round to zero is shown as "<0.0001"."""
    text = f"{value:.4f}"
    return "<0.0001" if float(text) == 0.0 else text


def as_count(value: int) -> str:
    """Return a count with thin blanks between thousands."""
    return f"{value:,}".replace(",", "\u202f")


def _minus(text: str) -> str:
    return text.replace("-", "\u2212")


# The page's sentences.


def word_verdict(report: NightReport) -> tuple[str, str, list[str]]:
    """Return the outcome as CSS class and word, the gate's sentence, and the details under it."""
    details = [
        f"{group.name}, {HEADLINE_METRIC}: {difference_sentence(found)}"
        for group in report.groups
        if group.against_serving is not None
        if (found := group.against_serving.overall.get(HEADLINE_METRIC)) is not None
    ]
    if report.decision is not None:
        details.append(f"Ranking: {decision_sentence(report.decision)}")
    if report.gate is None:
        return "open", "Not judged. The gate has not judged this candidate.", details
    kind, word = ("good", "Passed") if report.gate.passed else ("bad", "Refused")
    return kind, f"{word}. {report.gate.sentence}", details


def decision_sentence(document: Mapping[str, Any]) -> str:
    """Return the reason for the ranking, including one for keeping the configured one."""
    adopted = document["decision"] and document["decision"]["adopted"]
    return f"{adopted} is adopted: {document['reason']}" if adopted else document["reason"]


def difference_sentence(found: Difference) -> str:
    """Explain a difference between the candidate and the current snapshot."""
    queries = f"n = {as_count(found.n)}"
    if found.interval is None:
        return f"too few queries to say anything ({as_signed(found.mean)}, {queries})."
    ends = as_interval(found.interval, signed=True)
    numbers = f"{STANDARD.confidence:.0%} interval {ends}, {queries}"
    if found.significant:
        side = "better" if found.mean > 0 else "worse"
        return (
            f"significantly {side} than the current snapshot, by {as_mean(abs(found.mean))} "
            f"({numbers}, Holm p {as_p(found.p_holm)})."
        )
    unseen = ""
    if found.minimum_detectable:
        unseen = f"; a true difference below {as_mean(found.minimum_detectable)} is easily missed"
    said = f"{as_signed(found.mean)}, {numbers}"
    return f"no significant difference from the current snapshot ({said}){unseen}."


def abstention_sentence(found: Abstention) -> str:
    """Explain how well the best result's score shows whether there is an answer."""
    return (
        f"AUROC {as_mean(found.auroc)} ({as_interval(found.interval)}) over "
        f"{as_count(found.n_answerable)} answerable and {as_count(found.n_unanswerable)} "
        "unanswerable queries: the chance that a query with an answer scores above one without."
    )


# The plot, as SVG with the colours of a white page; style.css gives it those of the report.

_ROW, _CHARACTER, _TICKS = (
    22.0,
    6.7,
    6,
)  # height of a row, width of a letter, most steps of the data
_AREA = 560.0  # width of the part between the labels and the right margin
_LEGEND = {
    "better": "significantly better", "worse": "significantly worse", "same": "not significant",
}  # fmt: skip
_INK = {
    "better": {"fill": "#0072b2", "stroke": "#0072b2"},
    "worse": {"fill": "#c44e00", "stroke": "#c44e00"},
    "same": {"fill": "#ffffff", "stroke": "#57606a"},
    "axis": {"stroke": "#1b1f24"},
    "grid": {"stroke": "#d0d7de"},
}
"""Okabe and Ito's blue and a darker vermillion: distinct with every common colour blindness."""


def plot_group(group: QueryGroup) -> str | None:
    """Return a plot of every arm's difference, or None where there is none."""
    rows = {
        found.ours: found.overall[HEADLINE_METRIC]
        for found in group.comparisons
        if HEADLINE_METRIC in found.overall
    }
    title = f"{group.name}: every arm against the served one"
    return plot_differences(rows, HEADLINE_METRIC, title) if rows else None


def plot_differences(rows: Mapping[str, Difference], metric: str, title: str) -> str:
    """Draw mean differences as SVG, the best at the top; significant ones are filled."""
    drawn = sorted(rows.items(), key=lambda row: (-abs(row[1].mean), row[0]))[:MAX_ROWS]
    drawn.sort(key=lambda row: (-row[1].mean, row[0]))
    cut = f" ({len(drawn)} of {len(rows)} rows)" if len(drawn) < len(rows) else ""
    left = 24.0 + _CHARACTER * max([_width(_label(name)) for name, _ in drawn], default=0)
    top, bottom = 40.0, 40.0 + _ROW * len(drawn)
    width, height = left + _AREA + 24.0, bottom + 74.0
    svg = Element("svg", {
        "xmlns": "http://www.w3.org/2000/svg", "role": "img", "font-size": "12",
        "font-family": "system-ui, Segoe UI, Roboto, DejaVu Sans, sans-serif",
        "viewBox": f"0 0 {width:.0f} {height:.0f}", "width": f"{width:.0f}",
    })  # fmt: skip
    SubElement(svg, "title").text = _label(title) + cut + ". " + _describe(rows, metric)
    paper = {"class": "paper", "width": "100%", "height": "100%", "fill": "#ffffff"}
    SubElement(svg, "rect", paper)
    _write(svg, 12.0, 22.0, _label(title) + cut, "start", **{"font-weight": "600"})
    ticks, digits = _ticks([row for _, row in drawn])

    def at(value: float) -> float:
        return left + _AREA * (value - ticks[0]) / (ticks[-1] - ticks[0])

    for tick in ticks:
        _line(svg, "grid" if tick else "axis", f"M{at(tick):.1f} {top:.1f}V{bottom:.1f}")
        shown = f"{tick:+.{digits}f}" if tick else "0"
        _write(svg, at(tick), bottom + 16.0, _minus(shown), "middle")
    for place, (name, found) in enumerate(drawn):
        y = top + _ROW * (place + 0.5)
        _write(svg, left - 12.0, y + 4.0, _label(name), "end")
        kind = _kind(found)
        if ends := found.interval:
            low, high = at(ends.low), at(ends.high)
            caps = f"M{low:.1f} {y - 3:.1f}v6M{high:.1f} {y - 3:.1f}v6"
            _line(svg, kind, f"M{low:.1f} {y:.1f}H{high:.1f}{caps}")
        _mark(svg, kind, at(found.mean), y)
    words = f"difference in {_label(metric)}; right is better, the bar is the interval"
    _write(svg, left + _AREA / 2, bottom + 36.0, words, "middle")
    for place, (kind, meaning) in enumerate(_LEGEND.items()):
        x = left + _AREA * place / len(_LEGEND) + 12.0
        _mark(svg, kind, x, bottom + 56.0)
        _write(svg, x + 12.0, bottom + 60.0, meaning, "start")
    return tostring(svg, encoding="unicode")


def _describe(rows: Mapping[str, Difference], metric: str) -> str:
    kinds = Counter(_kind(found) for found in rows.values())
    return (
        f"Mean differences in {_label(metric)} with intervals: {len(rows)} arms, {kinds['better']} "
        f"significantly better, {kinds['worse']} significantly worse; the table has the numbers."
    )


def _kind(found: Difference) -> str:
    """Return the class of a row: its shape and colours."""
    return ("better" if found.mean > 0 else "worse") if found.significant else "same"


def _ticks(rows: Sequence[Difference]) -> tuple[list[float], int]:
    """Return round values from below the lowest end to above the highest, and their decimals."""
    values = [0.0, *(found.mean for found in rows)]
    values += [end for found in rows if (ends := found.interval) for end in (ends.low, ends.high)]
    low, high = min(values), max(values)
    least = max(high - low, 0.001) / _TICKS
    power = math.floor(math.log10(least))
    factor = next(factor for factor in (1, 2, 5, 10) if factor * 10.0**power >= least)
    step = factor * 10.0**power
    first, last = math.floor(low / step), max(math.ceil(high / step), 1)
    digits = max(0, -power - (factor == 10))
    return [round(place * step, digits) for place in range(first, last + 1)], digits


def _mark(svg: Element, kind: str, x: float, y: float) -> None:
    """Draw a triangle that points up or down, or a hollow circle."""
    if kind == "same":
        place = {"cx": f"{x:.1f}", "cy": f"{y:.1f}", "r": "4"}
        SubElement(svg, "circle", {"class": kind, **place, **_INK[kind]})
        return
    side = 1 if kind == "better" else -1
    path = f"M{x:.1f} {y - 5 * side:.1f}l5 {9 * side}h-10z"
    SubElement(svg, "path", {"class": kind, "d": path, **_INK[kind]})


def _line(svg: Element, kind: str, path: str) -> None:
    SubElement(svg, "path", {"class": kind, "d": path, **_INK[kind], "fill": "none"})


def _write(svg: Element, x: float, y: float, text: str, anchor: str, **more: str) -> None:
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "text-anchor": anchor, "fill": "#1b1f24"}
    SubElement(svg, "text", {**place, **more}).text = text


def _label(text: str) -> str:
    """Return a text on one line without hidden characters; a long one loses its middle."""
    shown = visible(" ".join(text.split()))
    half = LABEL_CHARACTERS // 2
    return shown if len(shown) <= LABEL_CHARACTERS else f"{shown[:half]}\u2026{shown[-half:]}"


def _width(text: str) -> int:
    """Return the width of a text in letters; Chinese, Japanese and Korean ones count twice."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


# The page: one static HTML file about a night, complete in itself.


def render_page(report: NightReport) -> str:
    """Return a night's report as one HTML document that loads nothing; all texts are escaped."""
    import jinja2

    def read(name: str) -> str:
        return resources.files("noctuary.evaluate").joinpath(name).read_text(encoding="utf-8")

    def show(value: Any) -> Any:
        """Return a text without hidden characters; jinja2 marks safe text by its type."""
        return type(value)(visible(value)) if isinstance(value, str) else value

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(read),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=show,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["count_text"] = as_count
    kind, sentence, details = word_verdict(report)
    makers = (
        costs_table, counts_table, drops_table, group_tables, decision_table, decision_sentence,
        abstention_sentence, plot_group,
    )  # fmt: skip
    return environment.get_template("template.html.j2").render(
        report=report,
        kind=kind,
        sentence=sentence,
        details=details,
        settings=STANDARD,
        exact=EXACT,
        **{make.__name__: make for make in makers},
    )
