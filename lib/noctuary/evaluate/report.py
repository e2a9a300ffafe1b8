"""What a night is reported as: numbers, tables, plots, and one static HTML page of them."""

from __future__ import annotations

import base64
import io
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

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
from noctuary.evaluate.statistics import Interval, Resampling
from noctuary.snapshot.checks import Drop, DropReport
from noctuary.snapshot.verdict import Verdict as GateVerdict
from noctuary.text.marks import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# What a night's report is made of: plain data that the night hands over.


HEADLINE_METRICS = ("recall@10", "ndcg@10")
"""What the page opens with: whether the answer is there, and where it stands."""


class QueryCount(NamedTuple):
    """How many queries of one group ("labelled", "exact", ...) and stratum were asked."""

    group: str
    stratum: str
    n: int


@dataclass(frozen=True, slots=True)
class PerQuery:
    """Two arms on the same queries in the same order, and per query id what answers it."""

    ours: Scores
    baseline: Scores
    relevant_ids: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])

    def __post_init__(self) -> None:
        ours, baseline = self.ours, self.baseline
        if (ours.query_ids, ours.metrics) != (baseline.query_ids, baseline.metrics):
            raise ValueError(
                f"losers and winners need the same queries and metrics in the same order; "
                f"{ours.name!r} and {baseline.name!r} differ"
            )


@dataclass(frozen=True, slots=True)
class QueryGroup:
    """Everything about queries of one origin; groups are never averaged with each other."""

    name: str  # "labelled", "generated", "exact" or another
    reports: Sequence[Report] = ()  # means of every arm; the served one among them
    # every other arm (`ours`) against the served one (`baseline`)
    comparisons: Sequence[Comparison] = ()
    # tonight's candidate against the snapshot that serves
    against_serving: Comparison | None = None
    per_query: PerQuery | None = None  # where losers and winners come from

    def shown_metrics(self) -> list[str]:
        """Return the headline metrics that were measured, else the first that was."""
        found = [*self.reports, *self.comparisons, self.against_serving]
        measured = list(dict.fromkeys(metric for one in found if one for metric in one.overall))
        return [metric for metric in HEADLINE_METRICS if metric in measured] or measured[:1]


class RankingDecision(NamedTuple):
    """The challenger that replaces the configured ranking, if any, and why, in a sentence.

    `tested` has one row per challenger; the keys are the table's columns, the same in every row.
    """

    adopted: str | None
    reason: str
    tested: Sequence[Mapping[str, Any]] = ()

    @staticmethod
    def of(document: Mapping[str, Any]) -> RankingDecision:
        """Return what the night wrote of its decision."""
        found = document["decision"]
        rows = [
            {
                "challenger": row["name"],
                "gain, all queries": row["difference"]["mean"],
                "low": row["difference"]["low"],
                "high": row["difference"]["high"],
                "p (Holm)": row["difference"]["p_holm"],
                "gain where chosen": row["selection_gain"],
                "gain where confirmed": (row["confirmation"] or {"mean": None})["mean"],
                "vetoes": "; ".join(row["vetoes"]),
            }
            for row in (found["tested"] if found else ())
        ]
        return RankingDecision(found["adopted"] if found else None, document["reason"], rows)


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
            said += f": none of {compared.tested} comparisons with what serves shows a significant "
            said += "loss."
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
    # sizes to show, for example memories and edges
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    query_counts: Sequence[QueryCount] = ()
    groups: Sequence[QueryGroup] = ()  # in the order of the page; names differ
    decision: RankingDecision | None = None
    gate: GateOutcome | None = None
    abstention: Abstention | None = None  # of the served arm
    query_texts: Mapping[str, str] | None = None  # by query id; None shows ids only
    notes: Sequence[str] = ()  # what was left out, one sentence each


def count_queries(questions: Questions) -> list[QueryCount]:
    """Return how many queries of each group and stratum were asked."""
    return [
        QueryCount(group, stratum, n)
        for group, queries in {**questions.groups, UNANSWERABLE: questions.unanswerable}.items()
        for stratum, n in sorted(Counter(query.stratum for query in queries).items())
    ]


_LOSSES_AGAINST = "lexical"
"""The arm that the served one is compared with query by query: what keyword search finds alone."""


def gather_groups(
    questions: Questions,
    runs: Runs,
    measured: Mapping[str, Any],
    against: Mapping[str, Comparison],
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


# What every arm scored, as the night keeps it.


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
    """Rows as long as the heads, whose first cell names them; folded until the reader opens it."""

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

    def plain(value: Any) -> str:
        if value is None:
            return NONE
        return _minus(f"{value:.4f}") if isinstance(value, float) else str(value)

    rows = [[plain(row[column]) for column in columns] for row in decision.tested]
    return Table("What was tested before deciding", columns, rows)


def queries_table(
    pair: PerQuery, metric: str, texts: Mapping[str, str] | None, *, losers: bool
) -> Table:
    """Return the queries that changed most in a metric, equal changes by id."""
    ours, baseline = pair.ours.column(metric).tolist(), pair.baseline.column(metric).tolist()
    sign, ids = -1.0 if losers else 1.0, pair.ours.query_ids
    change = [sign * (a - b) for a, b in zip(ours, baseline, strict=True)]
    places = [place for place, gain in enumerate(change) if gain > TIE]
    places.sort(key=lambda place: (-round(change[place], 9), ids[place]))

    def relevant(query_id: str) -> str:
        found = pair.relevant_ids.get(query_id, ())
        more = len(found) - MAX_IDS
        return ", ".join(found[:MAX_IDS]) + (f" and {more} more" if more > 0 else "")

    rows = [
        [
            ids[place],
            pair.ours.strata[place],
            as_mean(ours[place]),
            as_mean(baseline[place]),
            as_signed(ours[place] - baseline[place]),
            relevant(ids[place]),
            *(() if texts is None else (texts.get(ids[place], ""),)),
        ]
        for place in places[:MAX_QUERIES]
    ]
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


def _minus(text: str) -> str:
    return text.replace("-", "\u2212")


def _baselines(comparisons: Sequence[Comparison]) -> str:
    return " or ".join(sorted({found.baseline for found in comparisons}))


# The page's words: the verdict about a night, and what its terms mean.


GOOD, BAD, OPEN = "good", "bad", "open"
_SETTINGS = Resampling()

EXACT_BIAS = (
    "Built from the corpus's own words: it favours lexical search. It shows that what is stored "
    "can be found again, not which ranking answers real questions better."
)
ABSTENTION = (
    "AUROC: chance that a query with an answer scores above one without; 0.5 says nothing. "
    "An answer counts as right where {metric} is above 0. Area: mean risk over all coverages, "
    "lower is better."
)
TERMS = {
    "difference": "Mean over queries of one arm's value minus the other's on the same query. Above "
    "zero the arm that is named first is better.",
    "interval": f"{_SETTINGS.confidence:.0%} bootstrap interval of the mean (BCa, "
    f"{as_count(_SETTINGS.draws)} draws, seeded). \u201cnone\u201d: fewer than two queries.",
    "p, Holm p": "Two-sided paired permutation test. Holm p is corrected for how many strata of "
    "the same metric were tested; in the gate's table, for everything that was tested.",
    "verdict": "better or worse only if the interval excludes zero and Holm p is below "
    f"{_SETTINGS.alpha:g}. Everything else is not significant, which is no proof of equality. Many "
    "arms are shown: a few look significant by chance, because nothing is corrected over arms.",
    "detectable": "Smallest true difference that so many queries would show "
    f"{_SETTINGS.power:.0%} of the time. A result that is not significant says nothing about "
    "smaller ones.",
    "better, worse, same": "How many queries changed in which direction.",
    "metrics": "recall@k: share of the relevant memories among the first k. all_relevant@k: 1 if "
    "all of them are there. precision@k: share of the k that is relevant. ndcg@k: credit falls "
    "with the rank. mrr@k: one over the rank of the first relevant one. map@k: mean precision at "
    "the relevant ones. Repeats never count twice.",
    "intervals of means": "Two arms answered the same queries, so overlapping intervals of their "
    "means do not make them equal. The differences decide.",
    "groups": "labelled: queries that the owner wrote and labelled. generated: written by a "
    f"language model. exact: {EXACT_BIAS[0].lower()}{EXACT_BIAS[1:]} Groups are never averaged "
    "with each other.",
}


class Verdict(NamedTuple):
    """What the page opens with: GOOD, BAD or OPEN, the outcome, and what it rests on.

    The word says the kind again, because a colour alone says nothing to some.
    """

    kind: str
    word: str
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
    return Verdict(*_outcome(report), details)


def difference_sentence(found: Difference) -> str:
    """Say what a difference between the candidate and what serves means."""
    queries = f"n = {as_count(found.n)}"
    if found.interval is None:
        return f"too few queries to say anything ({as_signed(found.mean)}, {queries})."
    ends = as_interval(found.interval, signed=True)
    numbers = f"{_SETTINGS.confidence:.0%} interval {ends}, {queries}"
    if found.significant:
        side = "better" if found.mean > 0 else "worse"
        by = as_mean(abs(found.mean))
        return (
            f"significantly {side} than what serves, by {by} "
            f"({numbers}, Holm p {as_p(found.p_holm)})."
        )
    unseen = ""
    if found.minimum_detectable:
        unseen = f"; a true difference below {as_mean(found.minimum_detectable)} is easily missed"
    return f"no significant difference to what serves ({as_signed(found.mean)}, {numbers}){unseen}."


def decision_sentence(decision: RankingDecision) -> str:
    """Return the reason, which says by itself if the configured ranking stays."""
    adopted = "" if decision.adopted is None else f"{decision.adopted} is adopted: "
    return f"{adopted}{decision.reason}"


def bias_note(*names: str) -> str:
    """Return what has to be known about queries of a group or stratum, or ""."""
    return EXACT_BIAS if EXACT in names else ""


def _outcome(report: NightReport) -> tuple[str, str, str]:
    gate = report.gate
    if gate is not None:
        return (GOOD, "Passed", gate.sentence) if gate.passed else (BAD, "Refused", gate.sentence)
    return OPEN, "Not judged", "The gate has not judged this candidate."


# The night's plots as PNG: mean differences with their intervals, and risk over coverage.
#
# matplotlib is imported inside functions (docs/decisions/0012), and never its pyplot: that keeps
# figures in a global list and chooses a backend for the whole process.


MUTED = "#57606a"
BLUE = "#0072b2"
VERMILLION = "#c44e00"
"""Okabe and Ito's blue and a darker vermillion: told apart with every common colour blindness."""

MAX_ROWS = 45
"""Rows drawn, the largest differences: a plot has to stay below 100 KB for Dagster's event log."""

LABEL_CHARACTERS = 60
"""Longest label; what is longer loses its middle (tables have the whole name)."""

_FONT = "DejaVu Sans"
_PLAIN: dict[str, Any] = {"family": _FONT, "parse_math": False}
_UNKNOWN_GLYPH = "\u25a1"


class Plot(NamedTuple):
    """A drawn plot, and what it shows for those who cannot see it."""

    png: bytes
    alt: str


def night_plots(report: NightReport) -> dict[str, Plot]:
    """Return the plots of a night by name, where there is something to draw.

    "<group>_against_serving": the candidate by stratum. "<group>_differences": every arm against
    the served one. "risk_coverage".
    """
    found: dict[str, Plot] = {}
    for group in report.groups:
        for metric in group.shown_metrics()[:1]:
            serving, comparisons = group.against_serving, group.comparisons
            strata = serving.strata if serving is not None and len(serving.strata) > 1 else {}
            rows = {name: part[metric] for name, part in strata.items() if metric in part}
            words = f"{group.name}: tonight against what serves, by stratum"
            if rows:
                found[f"{group.name}_against_serving"] = _differences(rows, metric, words)
            rows = {c.ours: c.overall[metric] for c in comparisons if metric in c.overall}
            words = f"{group.name}: every arm against the served one"
            if rows:
                found[f"{group.name}_differences"] = _differences(rows, metric, words)
    if report.abstention is not None:
        curve = report.abstention.curve
        alt = (
            f"Risk over coverage of {report.abstention.name}: risk {curve.risk[-1]:.3f} when "
            f"everything is answered, area under the curve {curve.area:.3f}."
        )
        found["risk_coverage"] = Plot(plot_risk_coverage(report.abstention), alt)
    return found


def plot_differences(rows: Mapping[str, Difference], metric: str, title: str) -> bytes:
    """Draw mean paired differences with their intervals, the best at the top.

    Significant ones are filled and coloured. Of more than `MAX_ROWS` the largest are drawn.
    """
    from matplotlib.figure import Figure

    drawn = sorted(rows.items(), key=lambda row: (-abs(row[1].mean), row[0]))[:MAX_ROWS]
    drawn.sort(key=lambda row: (-row[1].mean, row[0]))
    figure = Figure((9.4, 1.4 + 0.27 * len(drawn)), layout="constrained")
    axes = figure.add_subplot()
    for place, (_, found) in enumerate(drawn):
        ends = found.interval
        # A bootstrap interval may leave the mean outside; a bar has no negative length.
        reach = ends and [[max(0.0, found.mean - ends.low)], [max(0.0, ends.high - found.mean)]]
        colour = (BLUE if found.mean > 0 else VERMILLION) if found.significant else MUTED
        shape = ("^" if found.mean > 0 else "v") if found.significant else "o"
        face = colour if found.significant else "white"
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


def plot_risk_coverage(abstention: Abstention) -> bytes:
    """Draw the share of wrong answers over the share of queries that is answered."""
    from matplotlib.figure import Figure

    figure = Figure((7.2, 4.3), layout="constrained")
    axes = figure.add_subplot()
    curve = abstention.curve
    axes.plot(curve.coverage, curve.risk, color=BLUE, marker=".", clip_on=False)
    axes.axhline(curve.risk[-1], color=MUTED, linestyle="--")
    axes.set(xlim=(0.0, 1.0), ylim=(0.0, 1.0))
    axes.grid(alpha=0.3)
    axes.set_xlabel("coverage: share of queries answered, the most confident first")
    axes.set_ylabel(_label(f"risk: share of them wrong ({abstention.metric} = 0)"), **_PLAIN)
    auroc = "" if abstention.auroc is None else f", AUROC {abstention.auroc:.3f}"
    title = f"{_label(abstention.name)}: area {curve.area:.3f}{auroc}"
    axes.set_title(title, loc="left", **_PLAIN)
    return to_png(figure)


def to_png(figure: Figure) -> bytes:
    """Return a figure as PNG bytes without date or version: equal drawings give equal bytes."""
    from PIL import Image

    full, few = io.BytesIO(), io.BytesIO()
    figure.savefig(full, format="png", dpi=100)
    # Full colour makes files four times as large.
    Image.open(full).convert("RGB").quantize(32, Image.Quantize.FASTOCTREE).save(few, "PNG")
    return few.getvalue()


def _differences(rows: Mapping[str, Difference], metric: str, title: str) -> Plot:
    better = sum(found.significant and found.mean > 0 for found in rows.values())
    worse = sum(found.significant and found.mean < 0 for found in rows.values())
    alt = (
        f"Mean differences in {metric} with intervals, {title}: {len(rows)} rows, {better} "
        f"significantly better, {worse} significantly worse; the table has the numbers."
    )
    return Plot(plot_differences(rows, metric, title), alt)


def _label(text: str) -> str:
    """Return a text on one line that the bundled font can draw; other characters become boxes."""
    from matplotlib.font_manager import findfont, get_font

    known = get_font(findfont(_FONT)).get_charmap()
    line = " ".join(text.split())
    shown = "".join(c if ord(c) in known else _UNKNOWN_GLYPH for c in line)
    half = LABEL_CHARACTERS // 2
    return shown if len(shown) <= LABEL_CHARACTERS else f"{shown[:half]}\u2026{shown[-half:]}"


# The page: one static HTML file about a night, complete in itself.
#
# jinja2 is imported inside the function that renders (docs/decisions/0012).


_BREAKS_MARKDOWN = re.compile(r"[\[\]()<>!`\\\s]+")


class Section(NamedTuple):
    """A chapter of the page: heading, sentences, plots, tables."""

    title: str
    notes: Sequence[str] = ()
    plots: Sequence[Plot | None] = ()
    tables: Sequence[Table] = ()


def render_page(report: NightReport, plots: Mapping[str, Plot]) -> str:
    """Return a night's report as one HTML document that loads nothing.

    Every name and text is escaped; the page holds no script and forbids every request by its own
    content security policy. Equal reports give equal pages.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_read_resource),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("template.html.j2").render(
        report=report,
        verdict=word_verdict(report),
        facts=_facts(report),
        sections=list(_sections(report, plots)),
        terms=TERMS,
        as_data_uri=as_data_uri,
    )


def as_data_uri(png: bytes) -> str:
    """Return a PNG as a data URI (RFC 2397), a third longer than its bytes."""
    return f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"


def as_markdown_image(png: bytes, alt: str) -> str:
    """Return a Markdown image that holds its own bytes: it needs no file and no network.

    Keep it under 100 KB, because Dagster stores it in its event log. Characters of `alt` that would
    end the Markdown become blanks.
    """
    return f"![{_BREAKS_MARKDOWN.sub(' ', alt).strip()}]({as_data_uri(png)})"


def _read_resource(name: str) -> str:
    return resources.files("noctuary.evaluate").joinpath(name).read_text(encoding="utf-8")


def _visible(value: Any) -> Any:
    """Return a text without hidden characters; jinja2 marks what is safe by its type."""
    return type(value)(visible(value)) if isinstance(value, str) else value


def _facts(report: NightReport) -> list[tuple[str, str]]:
    return [
        ("night", report.night),
        ("candidate", report.candidate_digest or "none"),
        ("compared with", report.serving_snapshot or "no serving snapshot"),
        ("encoder", report.encoder_model or "none"),
        *((name, as_count(count)) for name, count in report.counts.items()),
    ]


def _sections(report: NightReport, plots: Mapping[str, Plot]) -> Iterable[Section]:
    if report.query_counts:
        rows = [[c.group, c.stratum, as_count(c.n), bias_note(*c[:2])] for c in report.query_counts]
        counts = Table("Queries asked tonight", ("group", "stratum", "n", "note"), rows)
        yield Section("Queries", tables=(counts,))
    elif not report.groups:
        yield Section("Queries", ("There was no query to ask.",))
    if report.gate is not None and report.gate.drops:
        losses = drops_table(report.gate.drops)
        yield Section("Losses that the gate counted", tables=(losses,))
    for group in report.groups:
        yield _group_section(report, group, plots)
    if report.decision is not None:
        tested = decision_table(report.decision)
        yield Section("Ranking", (decision_sentence(report.decision),), tables=(tested,))
    if report.abstention is not None:
        note = ABSTENTION.format(metric=report.abstention.metric)
        found = abstention_table(report.abstention)
        curve = plots.get("risk_coverage")
        yield Section("Knowing when there is no answer", (note,), (curve,), (found,))
    if report.notes:
        yield Section("Left out tonight", report.notes)


def _group_section(report: NightReport, group: QueryGroup, plots: Mapping[str, Plot]) -> Section:
    notes = [note for note in (bias_note(group.name),) if note]
    found = list(_group_tables(group))
    if group.per_query is not None:
        pair, metrics = group.per_query, group.shown_metrics()
        changed = [
            queries_table(pair, metric, report.query_texts, losers=losers)
            for metric in [m for m in metrics if m in pair.ours.metrics] or pair.ours.metrics[:1]
            for losers in (True, False)
        ]
        if not any(table.rows for table in changed):
            notes.append(f"No query changed, {pair.ours.name} against {pair.baseline.name}.")
        found += changed
    if not found:
        notes.append("There is no result for these queries.")
    pictures = [plots.get(f"{group.name}_{name}") for name in ("against_serving", "differences")]
    return Section(f"Queries: {group.name}", notes, pictures, found)


def _group_tables(group: QueryGroup) -> Iterable[Table]:
    metrics = group.shown_metrics()
    serving = group.against_serving
    if serving is not None:
        yield metrics_table(serving)
        if len(serving.strata) > 1:
            yield from (strata_table((serving,), metric) for metric in metrics)
    if group.comparisons:
        measured = dict.fromkeys([*metrics, *(m for c in group.comparisons for m in c.overall)])
        for metric in measured:
            yield arms_table(group.comparisons, metric, folded=metric not in metrics)
        if any(len(found.strata) > 1 for found in group.comparisons):
            yield from (strata_table(group.comparisons, metric) for metric in metrics)
    if group.reports and metrics:
        yield means_table(group.reports, metrics[0])
