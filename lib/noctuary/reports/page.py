"""The page: one static HTML file about a night, complete in itself.

jinja2 is imported inside the function that renders (docs/decisions/0021).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Any, NamedTuple

from noctuary.reports import tables
from noctuary.reports.model import NightReport, PerQuery, QueryGroup
from noctuary.reports.plots import Plot, night_plots
from noctuary.reports.tables import Table, as_count
from noctuary.reports.wording import ABSTENTION, TERMS, bias_note, decision_sentence, word_verdict
from noctuary.text.visible import visible

_BREAKS_MARKDOWN = re.compile(r"[\[\]()<>!`\\\s]+")


class Section(NamedTuple):
    """A chapter of the page: heading, sentences, plots, tables."""

    anchor: str
    title: str
    notes: Sequence[str] = ()
    plots: Sequence[Plot | None] = ()
    tables: Sequence[Table] = ()


def render_page(report: NightReport) -> str:
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
        sections=list(_sections(report, night_plots(report))),
        terms=TERMS,
        as_data_uri=as_data_uri,
    )


def as_data_uri(png: bytes) -> str:
    """Return a PNG as a data URI (RFC 2397), a third longer than its bytes."""
    return f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"


def as_markdown_image(png: bytes, alt: str) -> str:
    """Return a Markdown image that holds its own bytes, so that it needs no file and no network.

    Args:
        png: The image; keep it under 100 KB, because Dagster stores it in its event log.
        alt: What it shows; characters that would end the Markdown become blanks.
    """
    return f"![{_BREAKS_MARKDOWN.sub(' ', alt).strip()}]({as_data_uri(png)})"


def _read_resource(name: str) -> str:
    return resources.files("noctuary.reports").joinpath(name).read_text(encoding="utf-8")


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
        yield Section("queries", "Queries", tables=(_counts_table(report),))
    elif not report.groups:
        yield Section("queries", "Queries", ("There was no query to ask.",))
    if report.gate is not None and report.gate.drops:
        losses = tables.drops_table(report.gate.drops)
        yield Section("gate", "Losses that the gate counted", tables=(losses,))
    for place, group in enumerate(report.groups):
        yield _group_section(report, group, f"group-{place}", plots)
    if report.decision is not None:
        tested = tables.decision_table(report.decision)
        yield Section(
            "decision", "Ranking", (decision_sentence(report.decision),), tables=(tested,)
        )
    if report.abstention is not None:
        note = ABSTENTION.format(metric=report.abstention.metric)
        found = tables.abstention_table(report.abstention)
        curve = plots.get("risk_coverage")
        yield Section("abstention", "Knowing when there is no answer", (note,), (curve,), (found,))
    if report.notes:
        yield Section("notes", "Left out tonight", report.notes)


def _counts_table(report: NightReport) -> Table:
    rows = [
        [count.group, count.stratum, as_count(count.n), bias_note(count.group, count.stratum)]
        for count in report.query_counts
    ]
    return Table("Queries asked tonight", ("group", "stratum", "n", "note"), rows)


def _group_section(
    report: NightReport, group: QueryGroup, anchor: str, plots: Mapping[str, Plot]
) -> Section:
    notes = [note for note in (bias_note(group.name),) if note]
    found = list(_group_tables(group))
    if group.per_query is not None:
        changed = _query_tables(group.per_query, report, group.shown_metrics())
        if not any(table.rows for table in changed):
            ours, baseline = group.per_query.ours.name, group.per_query.baseline.name
            notes.append(f"No query changed, {ours} against {baseline}.")
        found += changed
    if not found:
        notes.append("There is no result for these queries.")
    pictures = [plots.get(f"{group.name}_{name}") for name in ("against_serving", "differences")]
    return Section(anchor, f"Queries: {group.name}", notes, pictures, found)


def _group_tables(group: QueryGroup) -> Iterable[Table]:
    metrics = group.shown_metrics()
    serving = group.against_serving
    if serving is not None:
        yield tables.metrics_table(serving)
        if len(serving.strata) > 1:
            yield from (tables.strata_table((serving,), metric) for metric in metrics)
    if group.comparisons:
        measured = dict.fromkeys([*metrics, *(m for c in group.comparisons for m in c.overall)])
        for metric in measured:
            yield tables.arms_table(group.comparisons, metric, folded=metric not in metrics)
        if any(len(found.strata) > 1 for found in group.comparisons):
            yield from (tables.strata_table(group.comparisons, metric) for metric in metrics)
    if group.reports and metrics:
        yield tables.means_table(group.reports, metrics[0])


def _query_tables(pair: PerQuery, report: NightReport, metrics: Sequence[str]) -> list[Table]:
    shown = [m for m in metrics if m in pair.ours.metrics] or pair.ours.metrics[:1]
    return [
        tables.queries_table(pair, metric, report.query_texts, losers=losers)
        for metric in shown
        for losers in (True, False)
    ]
