"""What a night is reported as: numbers, tables, plots, and one static HTML page of them."""

from __future__ import annotations

import base64
import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from noctuary.core.store import keep_caches_in_home
from noctuary.evaluate.abstain import Abstention, measure_abstention
from noctuary.evaluate.decide import SERVED, Runs, score_group
from noctuary.evaluate.metrics import (
    HEADLINE_METRIC,
    TIE,
    Comparison,
    Difference,
    Mean,
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

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADLINE_METRICS = ("recall@10", "ndcg@10")  # is the answer there, and where does it stand
MAX_STRATUM_ROWS = 1500  # of a table by stratum: 400 KB of page; what is cut is said below it
MAX_QUERIES = 20  # losers and winners shown per metric: enough to see what they have in common
MAX_IDS = 10  # relevant ids shown per query; the number of the others is given
MAX_ROWS = 45  # the largest differences: a plot stays below 100 KB for Dagster's event log
LABEL_CHARACTERS = 60  # longest label; what is longer loses its middle (tables have the whole name)
_LOSSES_AGAINST = "lexical"  # what the served arm is compared with query by query

# What a night's report is made of: plain data that the night hands over.


@dataclass(frozen=True, slots=True)
class PerQuery:
    """Two arms on the same queries in the same order, and per query id what answers it."""

    ours: Scores
    baseline: Scores
    relevant_ids: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])


@dataclass(frozen=True, slots=True)
class QueryGroup:
    """Everything about queries of one origin; groups are never averaged with each other."""

    name: str  # "labelled", "exact" or another
    reports: Sequence[Report] = ()  # means of every arm; the served one among them
    comparisons: Sequence[Comparison] = ()  # every other arm against the served one
    against_serving: Comparison | None = None  # tonight's candidate against what serves
    per_query: PerQuery | None = None  # where losers and winners come from

    def shown_metrics(self) -> list[str]:
        """Return the headline metrics that were measured, else the first that was."""
        found = [*self.reports, *self.comparisons, self.against_serving]
        measured = list(dict.fromkeys(metric for one in found if one for metric in one.overall))
        return [metric for metric in HEADLINE_METRICS if metric in measured] or measured[:1]


class GateOutcome(NamedTuple):
    """Whether the candidate may serve, why in a sentence, and the losses that this rests on."""

    passed: bool
    sentence: str
    drops: Sequence[Drop] = ()

    @staticmethod
    def of(verdict: GateVerdict, compared: DropReport) -> GateOutcome:
        """Return what the gate said, and what its comparison of recall found."""
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
    """One night, ready to be shown. Holds no text of a memory; what there was none of is None."""

    title: str  # the store's name
    night: str  # its date as text; passed in, so that equal nights make equal pages
    note: Sequence[str] = ()  # what a person should know in the morning, one sentence each
    candidate_digest: str | None = None
    serving_snapshot: str | None = None  # id of the one that was compared with
    encoder_model: str | None = None
    counts: Mapping[str, int] = field(default_factory=dict[str, int])  # for example memories
    query_counts: Sequence[tuple[str, str, int]] = ()  # group, stratum, how many were asked
    groups: Sequence[QueryGroup] = ()  # in the order of the page; names differ
    decision: Mapping[str, Any] | None = None  # as the night wrote it
    gate: GateOutcome | None = None
    abstention: Abstention | None = None  # of the served arm
    query_texts: Mapping[str, str] | None = None  # by query id; None shows ids only
    notes: Sequence[str] = ()  # what was left out, one sentence each


def count_queries(questions: Questions) -> list[tuple[str, str, int]]:
    """Return how many queries of each group and stratum were asked."""
    return [
        (group, stratum, n)
        for group, queries in {**questions.groups, UNANSWERABLE: questions.unanswerable}.items()
        for stratum, n in sorted(Counter(query.stratum for query in queries).items())
    ]


def gather_groups(
    questions: Questions, runs: Runs, measured: Mapping[str, Any], against: Mapping[str, Comparison]
) -> list[QueryGroup]:
    """Return the groups of what `report_arms` measured, and of the comparison with what serves."""
    groups: list[QueryGroup] = []
    for name, queries in questions.groups.items():
        scores, raw = score_group(questions, runs, name), measured["groups"][name]
        relevant = {query.query_id: query.relevant_ids for query in queries}
        pair = None
        if _LOSSES_AGAINST in scores:
            pair = PerQuery(scores[SERVED], scores[_LOSSES_AGAINST], relevant)
        reports = [Report.from_json(found) for found in raw["reports"]]
        comparisons = [Comparison.from_json(found) for found in raw["comparisons"]]
        groups.append(QueryGroup(name, reports, comparisons, against.get(name), pair))
    return groups


def report_arms(questions: Questions, runs: Runs) -> dict[str, Any]:
    """Return what every arm scored and how it differs from the served one, as plain values."""
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
    """Rows as long as the heads, whose first cell names them; folded until the reader opens it."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    footnote: str = ""
    folded: bool = False


def means_table(reports: Sequence[Report], metric: str) -> Table:
    """Return every arm's overall means with their intervals, the best of a metric first."""
    metrics = list(dict.fromkeys(name for report in reports for name in report.overall))
    missing, rows = Mean(-1.0, None, 0), list[list[str]]()
    for report in sorted(reports, key=lambda r: (-r.overall.get(metric, missing).mean, r.name)):
        found = [report.overall.get(name) for name in metrics]
        cells = [f"{as_mean(m.mean)} ({as_interval(m.interval)})" if m else "" for m in found]
        rows.append([report.name, as_count(report.n), *cells])
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
    footnote = f"{MAX_STRATUM_ROWS} of {len(rows)} rows are shown; the result file has all."
    caption = f"By stratum: {metric}, minus {_baselines(comparisons)}"
    columns, shown = ("stratum", "arm", *DIFFERENCE_COLUMNS), rows[:MAX_STRATUM_ROWS]
    return Table(caption, columns, shown, footnote if shown != rows else "", folded=True)


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
    """Return what was tested before a ranking was chosen."""
    rows: list[list[str]] = []
    for tested in (document["decision"] or {"tested": ()})["tested"]:
        numbers = [tested["difference"][name] for name in ("mean", "low", "high", "p_holm")]
        confirmed = tested["confirmation"] or {"mean": None}
        numbers += [tested["selection_gain"], confirmed["mean"]]
        cells = [NONE if number is None else _minus(f"{number:.4f}") for number in numbers]
        rows.append([tested["name"], *cells, "; ".join(tested["vetoes"])])
    return Table("Tests behind the decision", DECISION_COLUMNS, rows)


def decision_sentence(document: Mapping[str, Any]) -> str:
    """Return the reason, which says by itself if the configured ranking stays."""
    adopted = document["decision"] and document["decision"]["adopted"]
    return f"{adopted} is adopted: {document['reason']}" if adopted else document["reason"]


def queries_table(
    pair: PerQuery, metric: str, texts: Mapping[str, str] | None, *, losers: bool
) -> Table:
    """Return the queries that changed most in a metric, equal changes by id."""
    ours, baseline = pair.ours, pair.baseline
    change = ours.column(metric) - baseline.column(metric)
    gains = -change if losers else change
    places = np.flatnonzero(gains > TIE).tolist()
    places.sort(key=lambda place: (-round(gains[place], 9), ours.query_ids[place]))
    rows: list[list[str]] = []
    for place in places[:MAX_QUERIES]:
        query_id = ours.query_ids[place]
        values = [as_mean(float(arm.column(metric)[place])) for arm in (ours, baseline)]
        relevant = pair.relevant_ids.get(query_id, ())
        more = f" and {len(relevant) - MAX_IDS} more" if len(relevant) > MAX_IDS else ""
        told = [as_signed(float(change[place])), ", ".join(relevant[:MAX_IDS]) + more]
        text = [] if texts is None else [texts.get(query_id, "")]
        rows.append([query_id, ours.strata[place], *values, *told, *text])
    columns = ("query", "stratum", ours.name, baseline.name, "change", "relevant ids")
    footnote = f"{len(rows)} of {len(places)} shown, the largest changes first."
    word = "Losers" if losers else "Winners"
    caption = f"{word} in {metric}, {ours.name} against {baseline.name}"
    columns = columns if texts is None else (*columns, "text")
    return Table(caption, columns, rows, footnote if len(rows) < len(places) else "")


def abstention_table(found: Abstention) -> Table:
    """Return how well the top score tells whether there is an answer."""
    columns = ("arm", "AUROC", "interval", "area", "answerable", "unanswerable")
    row = [
        *(found.name, as_mean(found.auroc), as_interval(found.interval), as_mean(found.curve.area)),
        *(as_count(found.n_answerable), as_count(found.n_unanswerable)),
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
    """Return a p-value; what would round to zero is shown as "<0.0001"."""
    text = f"{value:.4f}"
    return "<0.0001" if float(text) == 0.0 else text


def as_count(value: int) -> str:
    """Return a count with thin blanks between thousands."""
    return f"{value:,}".replace(",", "\u202f")


def _minus(text: str) -> str:
    return text.replace("-", "\u2212")


def _baselines(comparisons: Sequence[Comparison]) -> str:
    return " or ".join(sorted({found.baseline for found in comparisons}))


# The page's words: the verdict about a night, and what its terms mean.

GOOD, BAD, OPEN = "good", "bad", "open"

EXACT_BIAS = (
    "Built from the corpus's own words: it favours lexical search. It shows that stored "
    "memories can be found, not which ranking answers real questions better."
)


class Verdict(NamedTuple):
    """What the page opens with: GOOD, BAD or OPEN, the outcome, and what it rests on."""

    kind: str
    word: str  # says the kind again, because a colour alone says nothing to some
    sentence: str
    details: Sequence[str]


def word_verdict(report: NightReport) -> Verdict:
    """Return the night's outcome in plain sentences."""
    details = [
        f"{group.name}, {metric}: {difference_sentence(found)}"
        for group in report.groups
        if group.against_serving is not None
        for metric in group.shown_metrics()[:1]
        if (found := group.against_serving.overall.get(metric)) is not None
    ]
    if report.decision is not None:
        details.append(f"Ranking: {decision_sentence(report.decision)}")
    gate = report.gate
    if gate is None:
        return Verdict(OPEN, "Not judged", "The gate has not judged this candidate.", details)
    kind, word = (GOOD, "Passed") if gate.passed else (BAD, "Refused")
    return Verdict(kind, word, gate.sentence, details)


def difference_sentence(found: Difference) -> str:
    """Say what a difference between the candidate and what serves means."""
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


def bias_note(*names: str) -> str:
    """Return what has to be known about queries of a group or stratum, or ""."""
    return EXACT_BIAS if EXACT in names else ""


# The night's plots as PNG. matplotlib is imported inside functions (docs/decisions/0012), and never
# its pyplot: that keeps figures in a global list and chooses a backend for the whole process.

MUTED = "#57606a"
BLUE = "#0072b2"
VERMILLION = "#c44e00"
"""Okabe and Ito's blue and a darker vermillion: told apart with every common colour blindness."""

_FONT = "DejaVu Sans"
_PLAIN: dict[str, Any] = {"family": _FONT, "parse_math": False}
_UNKNOWN_GLYPH = "\u25a1"


class Plot(NamedTuple):
    """A drawn plot, and what it shows for those who cannot see it."""

    png: bytes
    alt: str


def night_plots(report: NightReport) -> dict[str, Plot]:
    """Return the plots of a night by name, where there is something to draw."""
    found: dict[str, Plot] = {}
    for group in report.groups:
        for metric in group.shown_metrics()[:1]:
            serving = group.against_serving
            strata = serving.strata if serving is not None and len(serving.strata) > 1 else {}
            arms = {c.ours: c.overall for c in group.comparisons}
            for name, words, parts in (
                ("against_serving", "tonight against the current snapshot, by stratum", strata),
                ("differences", "every arm against the served one", arms),
            ):
                rows = {label: part[metric] for label, part in parts.items() if metric in part}
                if rows:
                    title = f"{group.name}: {words}"
                    found[f"{group.name}_{name}"] = _differences(rows, metric, title)
    if report.abstention is not None:
        curve = report.abstention.curve
        alt = (
            f"Risk over coverage of {report.abstention.name}: risk {curve.risk[-1]:.3f} when "
            f"everything is answered, area under the curve {curve.area:.3f}."
        )
        found["risk_coverage"] = Plot(plot_risk_coverage(report.abstention.to_json()), alt)
    return found


def _differences(rows: Mapping[str, Difference], metric: str, title: str) -> Plot:
    better = sum(found.significant and found.mean > 0 for found in rows.values())
    worse = sum(found.significant and found.mean < 0 for found in rows.values())
    alt = (
        f"Mean differences in {metric} with intervals, {title}: {len(rows)} rows, {better} "
        f"significantly better, {worse} significantly worse; the table has the numbers."
    )
    return Plot(plot_differences(rows, metric, title), alt)


def plot_differences(rows: Mapping[str, Difference], metric: str, title: str) -> bytes:
    """Draw mean differences, the best at the top; significant ones are filled and coloured."""
    drawn = sorted(rows.items(), key=lambda row: (-abs(row[1].mean), row[0]))[:MAX_ROWS]
    drawn.sort(key=lambda row: (-row[1].mean, row[0]))
    figure = _new_figure(9.4, 1.4 + 0.27 * len(drawn))
    axes = figure.add_subplot()
    for place, (_, found) in enumerate(drawn):
        ends = found.interval
        # A bootstrap interval may leave the mean outside; a bar has no negative length.
        reach = ends and [[max(0.0, found.mean - ends.low)], [max(0.0, ends.high - found.mean)]]
        colour, shape, face = MUTED, "o", "white"
        if found.significant:
            colour, shape = (BLUE, "^") if found.mean > 0 else (VERMILLION, "v")
            face = colour
        axes.errorbar(
            found.mean, place, xerr=reach, fmt=shape, color=colour, markerfacecolor=face, capsize=3
        )
    axes.axvline(0.0, color="black", linewidth=1.0)
    axes.grid(axis="x", alpha=0.3)
    axes.set_yticks(range(len(drawn)), [_label(name) for name, _ in drawn], **_PLAIN)
    axes.set_ylim(len(drawn) - 0.4, -0.6)
    words = f"difference in {_label(metric)}; right is better, filled is significant"
    axes.set_xlabel(words, **_PLAIN)
    cut = f" ({len(drawn)} of {len(rows)} rows)" if len(drawn) < len(rows) else ""
    axes.set_title(_label(title) + cut, loc="left", **_PLAIN)
    return to_png(figure)


def plot_risk_coverage(abstention: Mapping[str, Any]) -> bytes:
    """Draw the share of wrong answers over that of answered queries, as `Abstention` writes it."""
    figure = _new_figure(7.2, 4.3)
    axes, curve = figure.add_subplot(), abstention["curve"]
    axes.plot(curve["coverage"], curve["risk"], color=BLUE, marker=".", clip_on=False)
    axes.axhline(curve["risk"][-1], color=MUTED, linestyle="--")
    axes.set(xlim=(0.0, 1.0), ylim=(0.0, 1.0))
    axes.grid(alpha=0.3)
    axes.set_xlabel("coverage: share of queries answered, the most confident first")
    axes.set_ylabel(_label(f"risk: share of them wrong ({abstention['metric']} = 0)"), **_PLAIN)
    auroc = "" if abstention["auroc"] is None else f", AUROC {abstention['auroc']:.3f}"
    title = f"{_label(abstention['name'])}: area {curve['area']:.3f}{auroc}"
    axes.set_title(title, loc="left", **_PLAIN)
    return to_png(figure)


def _new_figure(width: float, height: float) -> Figure:
    """Return an empty figure, in inches; matplotlib keeps its list of fonts below the home."""
    keep_caches_in_home()
    from matplotlib.figure import Figure

    return Figure((width, height), layout="constrained")


def to_png(figure: Figure) -> bytes:
    """Return a figure as PNG bytes without date or version: equal drawings give equal bytes."""
    from PIL import Image

    full, few = io.BytesIO(), io.BytesIO()
    figure.savefig(full, format="png", dpi=100)
    # Full colour makes files four times as large.
    Image.open(full).convert("RGB").quantize(32, Image.Quantize.FASTOCTREE).save(few, "PNG")
    return few.getvalue()


def _label(text: str) -> str:
    """Return a text on one line that the bundled font can draw; other characters become boxes."""
    from matplotlib.font_manager import findfont, get_font

    known = get_font(findfont(_FONT)).get_charmap()
    line = " ".join(text.split())
    shown = "".join(c if ord(c) in known else _UNKNOWN_GLYPH for c in line)
    half = LABEL_CHARACTERS // 2
    return shown if len(shown) <= LABEL_CHARACTERS else f"{shown[:half]}\u2026{shown[-half:]}"


# The page: one static HTML file about a night, complete in itself.


def render_page(report: NightReport) -> str:
    """Return a night's report as one HTML document that loads nothing; all texts are escaped."""
    import jinja2

    def read(name: str) -> str:
        return resources.files("noctuary.evaluate").joinpath(name).read_text(encoding="utf-8")

    def show(value: Any) -> Any:
        """Return a text without hidden characters; jinja2 marks what is safe by its type."""
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
    tables = (
        counts_table,
        drops_table,
        group_tables,
        group_notes,
        decision_table,
        abstention_table,
    )
    return environment.get_template("template.html.j2").render(
        report=report,
        verdict=word_verdict(report),
        plots=night_plots(report),
        settings=STANDARD,
        exact_bias=EXACT_BIAS,
        **{make.__name__: make for make in (*tables, decision_sentence, as_data_uri)},
    )


def as_data_uri(png: bytes) -> str:
    """Return a PNG as a data URI (RFC 2397), a third longer than its bytes."""
    return f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"


def counts_table(counts: Sequence[tuple[str, str, int]]) -> Table:
    """Return how many queries were asked."""
    rows = [[*names, as_count(n), bias_note(*names)] for *names, n in counts]
    return Table("Queries asked tonight", ("group", "stratum", "n", "note"), rows)


def group_notes(group: QueryGroup, tables: Sequence[Table]) -> list[str]:
    """Return what has to be said above the tables of a group."""
    pair, notes = group.per_query, [bias_note(group.name)]
    if pair is not None and not any(table.rows for table in _changed_queries(group, None)):
        notes.append(f"No query changed, {pair.ours.name} against {pair.baseline.name}.")
    if not tables:
        notes.append("There is no result for these queries.")
    return [note for note in notes if note]


def group_tables(group: QueryGroup, texts: Mapping[str, str] | None) -> list[Table]:
    """Return everything that is known of a group; queries with their texts where given."""
    metrics, serving, found = group.shown_metrics(), group.against_serving, list[Table]()
    if serving is not None:
        found.append(metrics_table(serving))
        if len(serving.strata) > 1:
            found += [strata_table((serving,), metric) for metric in metrics]
    measured = dict.fromkeys([*metrics, *(m for c in group.comparisons for m in c.overall)])
    if group.comparisons:
        found += [arms_table(group.comparisons, m, folded=m not in metrics) for m in measured]
    if any(len(one.strata) > 1 for one in group.comparisons):
        found += [strata_table(group.comparisons, metric) for metric in metrics]
    if group.reports and metrics:
        found.append(means_table(group.reports, metrics[0]))
    return [*found, *_changed_queries(group, texts)]


def _changed_queries(group: QueryGroup, texts: Mapping[str, str] | None) -> list[Table]:
    pair, metrics = group.per_query, group.shown_metrics()
    if pair is None:
        return []
    shown = [m for m in metrics if m in pair.ours.metrics] or pair.ours.metrics[:1]
    both = (True, False)
    return [queries_table(pair, m, texts, losers=losers) for m in shown for losers in both]
