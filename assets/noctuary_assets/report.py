"""Group evaluate, its last part: the morning note, and one HTML page about a night."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg

from noctuary.core.files import read_json, write_text
from noctuary.core.manifest import read_manifest
from noctuary.evaluate.abstain import measure_abstention
from noctuary.evaluate.decide import MIN_HALF
from noctuary.evaluate.note import write_note
from noctuary.evaluate.queries import LABELLED, Questions
from noctuary.evaluate.report import (
    GateOutcome,
    NightReport,
    count_queries,
    gather_groups,
    render_page,
)
from noctuary.snapshot.publish import Verdict, read_verdict, serving_id
from noctuary.text.marks import plural
from noctuary.work.stage import Stage, StageOutput, StageResult
from noctuary_assets.evaluate import (
    FUSION_DECISION,
    RECALL_EVALUATION,
    read_calibration,
    read_questions,
    read_runs,
)
from noctuary_assets.night import DECISION, EVALUATION, Night
from noctuary_assets.publish import candidate_digest, candidate_path, read_comparisons, read_drops
from noctuary_assets.reporting import report_stage

EVALUATION_REPORT = Stage("evaluation_report", "2")

KEPT_REPORTS = 30  # pages that stay: a month of nights, some 300 KB each

_ID_CHARS = 12


def report_night(night: Night) -> StageResult:
    """Write tonight's page, if tonight measured anything new."""
    digest = candidate_digest(night)
    verdict = read_verdict(night.paths, digest)
    inputs = {
        "evaluation": night.result_of(RECALL_EVALUATION).digest,
        "decision": night.result_of(FUSION_DECISION).digest,
        "candidate": digest,
        "outcome": verdict.outcome if verdict else None,
        "texts": night.settings.evaluation.report_texts,
    }

    def body() -> StageOutput:
        now = datetime.now(UTC)
        report = gather_report(night, now.isoformat(timespec="seconds"), verdict)
        path = night.paths.reports / f"{now:%Y%m%dT%H%M%S%f}-{digest[:_ID_CHARS]}.html"
        path.parent.mkdir(exist_ok=True)
        write_text(path, render_page(report))
        for old in sorted(night.paths.reports.glob("*.html"))[:-KEPT_REPORTS]:
            old.unlink()
        return StageOutput(1, {"page": str(path)})

    return night.finish(night.run(EVALUATION_REPORT, inputs, body))


def gather_report(night: Night, moment: str, verdict: Verdict | None) -> NightReport:
    """Gather what the stages of the evaluation left on disk; the gate may not have judged."""
    questions, runs = read_questions(night), read_runs(night)
    manifest = read_manifest(candidate_path(night))
    measured = read_json(night.work(EVALUATION))
    texts = {query.query_id: query.text for group in questions.groups.values() for query in group}
    return NightReport(
        title=night.paths.root.name,
        note=write_note(night.results, verdict),
        night=moment,
        facts={
            "candidate": manifest.digest,
            "compared with": serving_id(night.paths) or "no serving snapshot",
            "encoder": str(manifest.encoder["model"]) if manifest.encoder else "none",
            **{name: f"{count:,}" for name, count in manifest.counts.items()},
        },
        costs=[
            (r.name, r.cost["wall_ms"] / 1000, r.cost["cpu_ms"] / 1000)
            for r in night.results
            if not r.reused and "cpu_ms" in r.cost
        ],
        query_counts=count_queries(questions),
        groups=gather_groups(questions, runs, measured, read_comparisons(night)),
        decision=read_json(night.work(DECISION)),
        gate=None if verdict is None else GateOutcome.of(verdict, read_drops(night)),
        abstention=measure_abstention(questions, runs),
        query_texts=texts if night.settings.evaluation.report_texts else None,
        notes=(*questions.notes, *_unasked(questions), *read_calibration(night)["said"]),
    )


def _unasked(questions: Questions) -> list[str]:
    """Return why other rankings were not asked, one sentence; none where they were."""
    n, needed = len(questions.groups.get(LABELLED, ())), 2 * MIN_HALF
    if not questions.groups or n >= needed:
        return []
    few = plural(n, "labelled query", "labelled queries")
    only = "only the configured one and words alone were asked"
    return [f"{few} cannot decide about a ranking, which takes {needed}: {only}"]


@dg.asset(
    deps=["recall_evaluation", "fusion_decision", "recall_comparison", "gate_verdict"],
    kinds={"html"},
    code_version=EVALUATION_REPORT.version,
)
def evaluation_report(night: dg.ResourceParam[Night]) -> dg.MaterializeResult[Any]:
    """One HTML page about tonight's evaluation and the verdict; it needs no network."""
    result = report_night(night)
    page = Path(result.facts["page"])
    verdict = read_verdict(night.paths, candidate_digest(night))
    more = {
        "morning_note": dg.MetadataValue.text("\n".join(write_note(night.results, verdict))),
        # `noctuary ui` serves the page; by its own path it opens without.
        "page": dg.MetadataValue.url(f"/reports/{page.name}"),
        "dagster/uri": page.as_uri(),
    }
    return report_stage(night, result, more=more)
