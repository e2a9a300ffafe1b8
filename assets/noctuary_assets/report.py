"""Group evaluate, its last part: one HTML page about a night that measured something."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg

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
    night_plots,
    render_page,
)
from noctuary.evaluate.questions import UNANSWERABLE, Questions
from noctuary.evaluate.scores import Comparison, Report
from noctuary.snapshot.verdict import Verdict, read_verdict
from noctuary.work.stage import Stage, StageOutput, StageResult
from noctuary_assets import evaluate, publish
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
    # `make ui` serves the page; by its own path it opens without.
    where = {"page": dg.MetadataValue.url(f"/reports/{page.name}"), "dagster/uri": page.as_uri()}
    return report_stage(night, result, more={**images, **where})
