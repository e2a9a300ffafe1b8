"""The page: one static HTML file about a night, complete in itself.

What belongs here: sections and their order, and rendering. What does not: words (wording.py), rows
(tables.py), plots (plots.py), markup (template.html.j2).
jinja2 is imported inside the function that renders (docs/decisions/0021).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from noctuary.reports import tables
from noctuary.reports.glossary import explain
from noctuary.reports.markdown import as_data_uri
from noctuary.reports.model import NightReport, PerQuery, QueryGroup
from noctuary.reports.numbers import as_count, as_interval, as_mean
from noctuary.reports.plots import (
    AGAINST_SERVING,
    DIFFERENCES,
    MEANS,
    RISK_COVERAGE,
    list_plots,
    metadata_plots,
    shown_metrics,
)
from noctuary.reports.tables import Table
from noctuary.reports.wording import (
    count_note,
    decision_sentence,
    group_notes,
    word_verdict,
)

TEMPLATE = "template.html.j2"
STYLE = "style.css"

_BIDI_CONTROLS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""They turn the text around them; shown as escapes, since every name is isolated by markup."""


@dataclass(frozen=True, slots=True)
class Image:
    """A drawn plot: a data URI and its alternative text."""

    uri: str
    alt: str


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a section.

    Attributes:
        title: Heading, or summary if folded; "" for none.
        image: A plot above the tables, or None.
        tables: Tables, in order; those without rows are left out.
        folded: Closed until the reader opens it.
        note: A sentence below the title, or "".
    """

    title: str
    tables: Sequence[Table]
    image: Image | None = None
    folded: bool = False
    note: str = ""

    @property
    def filled(self) -> bool:
        """Whether there is anything to show."""
        return bool(self.image or self.note or any(table.rows for table in self.tables))


@dataclass(frozen=True, slots=True)
class Section:
    """A chapter of the page: heading, sentences, blocks."""

    anchor: str
    title: str
    notes: Sequence[str] = ()
    blocks: Sequence[Block] = field(default_factory=tuple[Block, ...])


def render_page(report: NightReport, plots: Mapping[str, bytes] | None = None) -> str:
    """Return a night's report as one HTML document that loads nothing.

    Every name and text is escaped; the page holds no script and forbids every request by its own
    content security policy. Equal reports give equal pages.

    Args:
        report: The night; any part of it may be empty.
        plots: What `metadata_plots` returned, if it has been called already.

    Returns:
        HTML, to be written as UTF-8.
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
    drawn = metadata_plots(report) if plots is None else plots
    images = {
        plot.name: Image(as_data_uri(drawn[plot.name]), plot.alt)
        for plot in list_plots(report)
        if plot.name in drawn
    }
    return environment.get_template(TEMPLATE).render(
        report=report,
        verdict=word_verdict(report),
        facts=_facts(report),
        sections=_sections(report, images),
        terms=explain(report.resampling),
    )


def _read_resource(name: str) -> str:
    return resources.files("noctuary.reports").joinpath(name).read_text(encoding="utf-8")


def _visible(value: Any) -> Any:
    """Return a text without characters that HTML forbids or that reorder what stands around."""
    if not isinstance(value, str) or value.isprintable():
        return value
    shown = "".join(map(_escape, value))
    # Markup stays Markup: jinja2 marks what is safe by its type.
    return type(value)(shown)


def _escape(character: str) -> str:
    if character in "\n\t" or (
        unicodedata.category(character) not in ("Cc", "Cs", "Co", "Cn")
        and character not in _BIDI_CONTROLS
    ):
        return character
    return f"\\u{ord(character):04x}"


def _facts(report: NightReport) -> list[tuple[str, str]]:
    return [
        ("night", report.night),
        ("candidate", report.candidate_digest or "none"),
        ("compared with", report.serving_snapshot or "no serving snapshot"),
        ("encoder", report.encoder_model or "none"),
        *((name, as_count(count)) for name, count in report.counts.items()),
    ]


def _sections(report: NightReport, images: Mapping[str, Image]) -> list[Section]:
    found = [
        *_queries_section(report),
        *_gate_section(report),
        *(
            _group_section(report, group, place, images)
            for place, group in enumerate(report.groups)
        ),
        *_decision_section(report),
        *_abstention_section(report, images),
    ]
    if report.notes:
        found.append(Section("notes", "Left out tonight", report.notes))
    return found


def _queries_section(report: NightReport) -> list[Section]:
    rows = [
        [
            tables.Cell(count.group, "name"),
            tables.Cell(count.stratum, "text"),
            tables.Cell(as_count(count.n)),
            tables.Cell(count_note(count.group, count.stratum, count.note), "text"),
        ]
        for count in report.query_counts
    ]
    table = Table("Queries asked tonight", ("group", "stratum", "n", "note"), rows)
    if rows:
        return [Section("queries", "Queries", (), (Block("", (table,)),))]
    return [] if report.groups else [Section("queries", "Queries", ("There was no query to ask.",))]


def _gate_section(report: NightReport) -> list[Section]:
    if report.gate is None or not report.gate.drops:
        return []
    caption = "Significant losses against what serves, corrected over everything tested"
    table = tables.drops_table(report.gate.drops, caption)
    return [Section("gate", "Losses that the gate counted", (), (Block("", (table,)),))]


def _group_section(
    report: NightReport, group: QueryGroup, place: int, images: Mapping[str, Image]
) -> Section:
    metrics = shown_metrics(report, group)
    blocks = [
        *_serving_blocks(group, metrics, images.get(f"{group.name}_{AGAINST_SERVING}")),
        *_difference_blocks(group, metrics, images.get(f"{group.name}_{DIFFERENCES}")),
        *_means_blocks(group, metrics, images.get(f"{group.name}_{MEANS}")),
        *_query_blocks(group.per_query, report, metrics),
    ]
    notes = group_notes(report, group.name)
    if not any(block.filled for block in blocks):
        notes.append("There is no result for these queries.")
    return Section(f"group-{place}", f"Queries: {group.name}", notes, blocks)


def _serving_blocks(
    group: QueryGroup, metrics: Sequence[str], image: Image | None
) -> Iterable[Block]:
    comparison = group.against_serving
    if comparison is None:
        return
    caption = f"{comparison.ours} minus {comparison.baseline}, every query counting once"
    yield Block(
        "Tonight's candidate against what serves",
        (tables.metrics_table(comparison, caption),),
        image,
    )
    if len(comparison.strata) > 1:
        for metric in metrics:
            caption = f"{comparison.ours} minus {comparison.baseline} in {metric}, by stratum"
            table = tables.strata_table((comparison,), metric, caption)
            yield Block(f"By stratum: {metric}", (table,), folded=True)


def _difference_blocks(
    group: QueryGroup, metrics: Sequence[str], image: Image | None
) -> Iterable[Block]:
    if not group.comparisons:
        return
    baselines = " or ".join(sorted({found.baseline for found in group.comparisons}))

    def table(metric: str) -> Table:
        caption = f"Every arm minus {baselines} in {metric}"
        return tables.arms_table(group.comparisons, metric, caption)

    yield Block("Other rankings against the served one", [table(m) for m in metrics], image)
    others = dict.fromkeys(m for found in group.comparisons for m in found.overall)
    for metric in others:
        if metric not in metrics:
            yield Block(f"The same in {metric}", (table(metric),), folded=True)
    if any(len(found.strata) > 1 for found in group.comparisons):
        for metric in metrics:
            caption = f"Every arm minus {baselines} in {metric}, by stratum"
            found = tables.strata_table(group.comparisons, metric, caption)
            yield Block(f"By stratum: {metric}", (found,), folded=True)


def _means_blocks(
    group: QueryGroup, metrics: Sequence[str], image: Image | None
) -> Iterable[Block]:
    if not group.reports or not metrics:
        return
    caption = "Mean and interval over all queries of the group"
    yield Block("Means", (tables.means_table(group.reports, metrics[0], caption),), image)
    if any(len(arm.strata) > 1 for arm in group.reports):
        caption = "Macro: mean of the strata's means, every stratum counting once"
        yield Block("Macro means", (tables.macro_table(group.reports, caption),), folded=True)
        for metric in metrics:
            caption = f"Mean {metric} and interval within each stratum"
            table = tables.strata_means_table(group.reports, metric, caption)
            yield Block(f"Means by stratum: {metric}", (table,), folded=True)


def _query_blocks(
    pair: PerQuery | None, report: NightReport, metrics: Sequence[str]
) -> Iterable[Block]:
    if pair is None:
        return
    shown = [m for m in metrics if m in pair.ours.metrics] or pair.ours.metrics[:1]
    against = f"{pair.ours.name} against {pair.baseline.name}"
    for metric in shown:
        parts = [
            tables.queries_table(
                pair, metric, report.query_texts, f"{word} in {metric}, {against}", losers=losers
            )
            for word, losers in (("Losers", True), ("Winners", False))
        ]
        note = "" if any(table.rows for table in parts) else f"No query changed, {against}."
        yield Block(f"Losers and winners: {metric}", parts, note=note)


def _decision_section(report: NightReport) -> list[Section]:
    decision = report.decision
    if decision is None:
        return []
    table = tables.decision_table(decision, "What was tested before deciding")
    notes = (decision_sentence(decision),)
    return [Section("decision", "Ranking", notes, (Block("", (table,)),))]


def _abstention_section(report: NightReport, images: Mapping[str, Image]) -> list[Section]:
    found = report.abstention
    if found is None:
        return []
    columns = ("arm", "AUROC", "interval", "area", "answerable", "unanswerable")
    row = [
        tables.Cell(found.name, "name"),
        tables.Cell(as_mean(found.auroc)),
        tables.Cell(as_interval(found.interval)),
        tables.Cell(as_mean(found.curve.area)),
        tables.Cell(as_count(found.n_answerable)),
        tables.Cell(as_count(found.n_unanswerable)),
    ]
    table = Table("Does the best result's score tell that there is an answer?", columns, [row])
    note = (
        "AUROC: chance that a query with an answer scores above one without; 0.5 says nothing. "
        f"An answer counts as right where {found.metric} is above 0. Area: mean risk over all "
        "coverages, lower is better."
    )
    block = Block("", (table,), images.get(RISK_COVERAGE))
    return [Section("abstention", "Knowing when there is no answer", (note,), (block,))]
