"""Group evaluate, its last part: the morning note, and one HTML page about a night."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg

from noctuary.compact.summarizers import TRIED_AGAIN
from noctuary.core.errors import (
    SnapshotCorruptError,
    SnapshotMissingError,
)
from noctuary.core.files import write_text
from noctuary.core.manifest import read_manifest, read_pointer
from noctuary.evaluate.arms import measure_abstention, score_group
from noctuary.evaluate.decide import SERVED
from noctuary.evaluate.page import (
    GateOutcome,
    NightReport,
    PerQuery,
    Plot,
    QueryCount,
    QueryGroup,
    RankingDecision,
    as_markdown_image,
    as_signed,
    night_plots,
    render_page,
)
from noctuary.evaluate.questions import UNANSWERABLE, Questions
from noctuary.evaluate.scores import HEADLINE_METRIC, Comparison, Report
from noctuary.snapshot.checks import DROP_CHECK
from noctuary.snapshot.verdict import Verdict, read_verdict
from noctuary.sources.source import QuarantineReason
from noctuary.text.marks import plural, spoken
from noctuary.work.stage import Stage, StageOutput, StageResult
from noctuary_assets import evaluate, ingest, publish
from noctuary_assets.compact import SUMMARY_TABLE
from noctuary_assets.evaluate import (
    FUSION_DECISION,
    GENERATED_QUERIES,
    RECALL_EVALUATION,
    read_calibration,
    read_questions,
    read_runs,
)
from noctuary_assets.graph import CONCEPT_GRAPH
from noctuary_assets.night import DECISION, EVALUATION, Night
from noctuary_assets.proposals import COMPACTION_PLAN, CURATION, PROMOTION
from noctuary_assets.publish import candidate_digest, candidate_path, read_comparisons, read_drops
from noctuary_assets.reporting import report_stage

EVALUATION_REPORT = Stage("evaluation_report", "1")


KEPT_REPORTS = 30
"""Pages that stay: a month of nights, some 300 KB each."""


_LOSSES_AGAINST = "lexical"
"""The arm that the served one is compared with query by query: what keyword search finds alone."""


_ID_CHARS = 12


def report_night(night: Night) -> tuple[StageResult, dict[str, Plot]]:
    """Write tonight's page, if tonight measured anything new; return its plots by name as well."""
    digest = candidate_digest(night)
    verdict = read_verdict(night.paths, digest)
    inputs = {
        "evaluation": night.result_of(RECALL_EVALUATION).digest,
        "decision": night.result_of(FUSION_DECISION).digest,
        "candidate": digest,
        "outcome": verdict.outcome if verdict else None,
        "texts": night.settings.evaluation.report_texts,
    }
    plots: dict[str, Plot] = {}

    def body() -> StageOutput:
        now = datetime.now(UTC)
        report = gather_report(night, now.isoformat(timespec="seconds"), verdict)
        plots.update(night_plots(report))
        path = night.paths.reports / f"{now:%Y%m%dT%H%M%S%f}-{digest[:_ID_CHARS]}.html"
        path.parent.mkdir(exist_ok=True)
        write_text(path, render_page(report, plots))
        for old in sorted(night.paths.reports.glob("*.html"))[:-KEPT_REPORTS]:
            old.unlink()
        return StageOutput(1, {"page": str(path)})

    return night.finish(night.run(EVALUATION_REPORT, inputs, body)), plots


def gather_report(night: Night, moment: str, verdict: Verdict | None) -> NightReport:
    """Gather what the stages of the evaluation left on disk.

    Args:
        night: The night.
        moment: When, as text.
        verdict: The gate's, or None where it has not judged.
    """
    questions, runs = read_questions(night), read_runs(night)
    manifest = read_manifest(candidate_path(night))
    document = json.loads(night.work(DECISION).read_text(encoding="utf-8"))
    return NightReport(
        title=night.paths.root.name,
        note=write_note(night.results, verdict),
        night=moment,
        candidate_digest=manifest.digest,
        serving_snapshot=_serving_id(night),
        encoder_model=str(manifest.encoder["model"]) if manifest.encoder else None,
        counts=manifest.counts,
        query_counts=_counts(questions),
        groups=_groups(night, questions),
        decision=_decision(document),
        gate=_gate(night, verdict),
        abstention=measure_abstention(questions, runs),
        query_texts=_texts(questions) if night.settings.evaluation.report_texts else None,
        notes=(*questions.notes, *read_calibration(night)["said"]),
    )


def _serving_id(night: Night) -> str | None:
    try:
        return read_pointer(night.paths).snapshot_id
    except (SnapshotMissingError, SnapshotCorruptError):
        return None


def _groups(night: Night, questions: Questions) -> list[QueryGroup]:
    raw = json.loads(night.work(EVALUATION).read_text(encoding="utf-8"))["groups"]
    against, runs = read_comparisons(night), read_runs(night)
    groups: list[QueryGroup] = []
    for name, queries in questions.groups.items():
        scores = score_group(questions, runs, name)
        relevant = {query.query_id: query.relevant_ids for query in queries}
        groups.append(
            QueryGroup(
                name=name,
                reports=[Report.from_json(found) for found in raw[name]["reports"]],
                comparisons=[Comparison.from_json(found) for found in raw[name]["comparisons"]],
                against_serving=against.get(name),
                per_query=PerQuery(scores[SERVED], scores[_LOSSES_AGAINST], relevant)
                if _LOSSES_AGAINST in scores
                else None,
            )
        )
    return groups


def _counts(questions: Questions) -> list[QueryCount]:
    groups = {**questions.groups, UNANSWERABLE: questions.unanswerable}
    return [
        QueryCount(group, stratum, n)
        for group, queries in groups.items()
        for stratum, n in sorted(Counter(query.stratum for query in queries).items())
    ]


def _texts(questions: Questions) -> dict[str, str]:
    found = [query for queries in questions.groups.values() for query in queries]
    return {query.query_id: query.text for query in found}


def _decision(document: dict[str, Any]) -> RankingDecision:
    found = document["decision"]
    rows = [_flat(row) for row in found["tested"]] if found else []
    return RankingDecision(found["adopted"] if found else None, document["reason"], rows)


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    difference, confirmation = row["difference"], row["confirmation"]
    return {
        "challenger": row["name"],
        "gain, all queries": difference["mean"],
        "low": difference["low"],
        "high": difference["high"],
        "p (Holm)": difference["p_holm"],
        "gain where chosen": row["selection_gain"],
        "gain where confirmed": confirmation["mean"] if confirmation else None,
        "vetoes": "; ".join(row["vetoes"]),
    }


def _gate(night: Night, verdict: Verdict | None) -> GateOutcome | None:
    if verdict is None:
        return None
    drops = read_drops(night)
    failed = [check.name for check in verdict.checks if not check.passed]
    if failed:
        sentence = f"The gate refused this candidate: {', '.join(failed)}."
    elif drops.drops:
        sentence = f"The gate passed this candidate although {len(drops.drops)} losses were found."
    elif drops.note:
        sentence = f"The gate passed this candidate; recall was not compared: {drops.note}."
    else:
        sentence = (
            f"The gate passed this candidate: none of {drops.tested} comparisons with what serves "
            "shows a significant loss."
        )
    return GateOutcome(not failed, sentence, drops.drops)


# The morning note: what a person should know of a night, from what its stages say of themselves.


_REPEATS = (QuarantineReason.INJECTED_BLOCK, QuarantineReason.INJECTED_LINES)

_RUN_AGAIN = (
    "run the night again, which makes everything of the candidate anew; if it is refused again, "
    "`noctuary doctor` looks for the cause"
)

_REMEDIES = {
    DROP_CHECK: (
        "look at the report; if the loss is meant, set evaluation.on_drop to report and run the "
        "night again"
    ),
    "counts_are_conserved_from_source_to_snapshot": (
        "keep the store and report the numbers: this is a defect of noctuary"
    ),
    "no_sensitive_row_is_anywhere": (
        "flag or remove these rows in the source and run the night again"
    ),
    "every_tier_row_has_its_memory": "remove the store's lance directory and run the night again",
    "no_tier_row_is_unindexed": "remove the store's lance directory and run the night again",
}
"""What to do about a failed check, where running the night again is not all (docs/gates.md)."""


def write_note(stages: Sequence[StageResult], verdict: Verdict | None = None) -> list[str]:
    """Return what a night came to in a few sentences; numbers and ids, never a text of a memory.

    Args:
        stages: What was done tonight. Of a stage that is missing nothing is said, nor of what is
            zero.
        verdict: The gate's on tonight's candidate, or None.
    """
    done = {stage.name: stage for stage in stages}
    parts = (
        _note_corpus, _note_withheld, _note_graph, _note_summaries, _note_recall, _note_ranking,
        _note_proposals, _note_warnings,
    )  # fmt: skip
    lines = [line for part in parts for line in part(done)]
    lines += _note_refusal(verdict)
    report = done.get(EVALUATION_REPORT.name)
    if report is not None and report.reused:
        lines.append(f"Nothing new was measured; the last report is {report.facts['page']}.")
    return lines


Done = Mapping[str, StageResult]


def _told(done: Done, name: str) -> dict[str, Any]:
    """Return what a stage counted; empty where it did not run."""
    stage = done.get(name)
    return {**stage.facts, **stage.notes} if stage is not None else {}


def _news(done: Done, name: str) -> dict[str, Any]:
    """Return the same, but empty as well where nothing of it is new tonight."""
    return _told(done, name) if name in done and not done[name].reused else {}


def _note_corpus(done: Done) -> Iterator[str]:
    told = _told(done, ingest.CORPUS.name)
    if "added" not in told:
        return
    counts = {"new": told["added"], "changed": told["edited"], "gone": told["deleted"]}
    changes = ", ".join(f"{count:,} {word}" for word, count in counts.items() if count)
    is_first = told["added"] == told["exported"]
    all_of_them = "" if is_first and changes else f"; {told['exported']:,} in all"
    yield f"Memories: {changes or 'nothing new, changed or gone'}{all_of_them}."
    if turned := told["turned_sensitive"]:
        they = "it is" if turned == 1 else "they are"
        rows = plural(turned, "memory has", "memories have")
        yield f"{rows} turned sensitive: {they} taken out of every snapshot."


def _note_withheld(done: Done) -> Iterator[str]:
    told = _told(done, ingest.CORPUS.name)
    if not told:
        return
    reasons = dict(told["quarantined_by_reason"])
    repeats = sum(reasons.pop(reason, 0) for reason in _REPEATS)
    kinds = Counter[str]()
    for reason, count in told["sensitive_by_reason"].items():
        kinds[str(reason).partition(":")[0]] += count
    withheld = (
        (kinds.total(), plural(kinds.total(), "sensitive row") + _itemise(kinds)),
        (
            sum(reasons.values()),
            plural(sum(reasons.values()), "quarantined row") + _itemise(reasons),
        ),
        (repeats, plural(repeats, "repeat") + " of what recall had injected"),
    )
    if found := [said for count, said in withheld if count]:
        yield f"Withheld: {', '.join(found)}."


def _itemise(counts: Mapping[str, int]) -> str:
    found = [f"{count:,} {spoken(name)}" for name, count in sorted(counts.items()) if count]
    return f" ({', '.join(found)})" if found else ""


def _note_graph(done: Done) -> Iterator[str]:
    told = _news(done, CONCEPT_GRAPH.name)
    counts = (
        ("concepts", "concept", "concepts"),
        ("merges", "merged name", "merged names"),
        ("supersessions", "superseded memory", "superseded memories"),
    )
    before = done[CONCEPT_GRAPH.name].before if told else {}
    found = [
        plural(told[key], *nouns) + _change(told, before, key)
        for key, *nouns in counts
        if told.get(key) or before.get(key)
    ]
    if found:
        yield f"Graph: {', '.join(found)}."


def _change(told: Mapping[str, int], before: Mapping[str, int], key: str) -> str:
    """Return how a count differs from last night's; empty where it does not, or none is known."""
    change = told[key] - before[key] if key in before else 0
    return f" ({change:+,})".replace("-", "\u2212") if change else ""


def _note_summaries(done: Done) -> Iterator[str]:
    told = _news(done, SUMMARY_TABLE.name)
    status: Mapping[str, int] = told.get("by_status", {})
    if accepted := status.get("accepted", 0):
        verb = "stands" if accepted == 1 else "stand"
        saved = told["source_tokens"] - told["summary_tokens"]
        change = _change(status, done[SUMMARY_TABLE.name].before.get("by_status", {}), "accepted")
        yield (
            f"Summaries: {accepted:,}{change} {verb} for "
            f"{plural(told['summarised_turns'], 'turn')} and "
            f"{'saves' if accepted == 1 else 'save'} {plural(saved, 'token')} "
            f"({told['tokens_saved_share']:.0%})."
        )
    if declined := status.get("declined", 0):
        verb = "was" if declined == 1 else "were"
        yield f"{plural(declined, 'summary', 'summaries')} {verb} declined; the turns stay."


def _note_recall(done: Done) -> Iterator[str]:
    measured = _told(done, RECALL_EVALUATION.name)
    compared = _news(done, publish.RECALL_COMPARISON.name)
    means = {name: value for name, value in measured.items() if name.startswith(HEADLINE_METRIC)}
    groups = {name.removeprefix(HEADLINE_METRIC).strip(): mean for name, mean in means.items()}
    if groups and (compared or _news(done, RECALL_EVALUATION.name)):
        shown = ", ".join(f"{group} {mean:.3f}" for group, mean in groups.items())
        why = (
            f"; not compared with the last night: {compared['note']}" if "note" in compared else ""
        )
        yield f"{HEADLINE_METRIC.capitalize()}: {shown}{why}."
    if found := [_against(compared, group) for group in groups if _difference(group) in compared]:
        losses = compared["dropped"]
        lost = f"; {plural(losses, 'significant loss', 'significant losses')}" if losses else ""
        yield f"Against what served, on the same questions: {', '.join(found)}{lost}."
    if missing := _news(done, RECALL_EVALUATION.name).get("note"):
        yield f"Questions: {missing}."


def _difference(group: str) -> str:
    return f"{group} {HEADLINE_METRIC}"


def _against(compared: Mapping[str, Any], group: str) -> str:
    """Return the difference of a group to what serves, with its interval where it has one."""
    difference, ends = compared[_difference(group)], compared["intervals"].get(group)
    if not difference and not any(ends or ()):
        return f"{group} no different"
    shown = f" ({as_signed(ends[0])} to {as_signed(ends[1])})" if ends else ""
    return f"{group} {as_signed(difference)}{shown}"


def _note_ranking(done: Done) -> Iterator[str]:
    told = _news(done, FUSION_DECISION.name)
    if told.get("adopted"):
        yield f"Ranking: {told['adopted']} is adopted; {told['reason']}."


def _note_proposals(done: Done) -> Iterator[str]:
    tidy = sum(_told(done, CURATION.name).get("by_action", {}).values())
    heard = _told(done, PROMOTION.name).get("proposed", 0)
    old = _told(done, COMPACTION_PLAN.name).get("would_archive", 0)
    proposals = (
        (tidy, plural(tidy, "change") + " to the source (`noctuary curate`)"),
        (heard, plural(heard, "turn") + " worth keeping for good (`noctuary promotions`)"),
        (old, plural(old, "memory", "memories") + " to archive (`noctuary compact`)"),
    )
    if found := [said for count, said in proposals if count]:
        yield f"Proposed: {', '.join(found)}."


def _note_warnings(done: Done) -> Iterator[str]:
    warnings = [str(w["message"]) for w in _told(done, CONCEPT_GRAPH.name).get("warnings", ())]
    written = _told(done, GENERATED_QUERIES.name)
    if written.get("faults") or written.get("pending"):
        warnings.append(str(written.get("note", "")))
    unanswered = _told(done, SUMMARY_TABLE.name).get("by_fallback", {})
    if waiting := sum(unanswered.get(outcome, 0) for outcome in TRIED_AGAIN):
        groups = plural(waiting, "group of turns", "groups of turns")
        warnings.append(f"the summaries' model gave no answer for {groups}; asked again next night")
    for stage in done.values():
        told = _told(done, stage.name)
        named = ("fault", "injections_fault", "warning", "hook_faults")
        warnings += [f"{spoken(stage.name)}: {told[name]}" for name in named if told.get(name)]
    found = [" ".join(warning.split()) for warning in warnings if warning]
    yield from (f"Warning: {warning}." for warning in found)
    if found:
        yield "`noctuary doctor` says how the store is."


def _note_refusal(verdict: Verdict | None) -> Iterator[str]:
    failed = [check for check in verdict.checks if not check.passed] if verdict is not None else []
    if failed:
        yield "The gate refused tonight's candidate: what served keeps serving."
    for check in failed:
        numbers = ", ".join(f"{spoken(name)} {value}" for name, value in check.found.items())
        if "dropped" in check.found:
            losses = plural(int(check.found["dropped"]), "significant loss", "significant losses")
            numbers = f"{losses} in {plural(int(check.found['queries']), 'query', 'queries')}"
        yield f"{check.name} found {numbers}."
    for remedy in dict.fromkeys(_REMEDIES.get(check.name, _RUN_AGAIN) for check in failed):
        yield f"What to do: {remedy}."


@dg.asset(
    deps=[
        evaluate.recall_evaluation,
        evaluate.fusion_decision,
        publish.recall_comparison,
        publish.gate_verdict,
    ],
    kinds={"html"},
    code_version=EVALUATION_REPORT.version,
)
def evaluation_report(night: dg.ResourceParam[Night]) -> dg.MaterializeResult[Any]:
    """One HTML page about tonight's evaluation and the verdict; nothing in it needs a network.

    Its plots are with the night that measured something.
    """
    result, plots = report_night(night)
    images = {
        name: dg.MetadataValue.md(as_markdown_image(p.png, p.alt)) for name, p in plots.items()
    }
    page = Path(result.facts["page"])
    verdict = read_verdict(night.paths, candidate_digest(night))
    more = {
        "morning_note": dg.MetadataValue.text("\n".join(write_note(night.results, verdict))),
        **images,
        # `noctuary ui` serves the page; by its own path it opens without.
        "page": dg.MetadataValue.url(f"/reports/{page.name}"),
        "dagster/uri": page.as_uri(),
    }
    return report_stage(night, result, more=more)
