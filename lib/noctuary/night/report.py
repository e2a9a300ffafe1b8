"""Stage evaluation_report: one HTML page about a night that measured something, and its plots."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from noctuary.core.errors import SnapshotCorruptError, SnapshotMissingError
from noctuary.core.files import remove_tree, write_text
from noctuary.core.manifest import read_manifest, read_pointer
from noctuary.evaluate.page import (
    GateOutcome,
    NightReport,
    PerQuery,
    QueryCount,
    QueryGroup,
    RankingDecision,
    night_plots,
    render_page,
)
from noctuary.evaluate.scores import Comparison, Report
from noctuary.night.abstention import read_calibration
from noctuary.night.context import DECISION, EVALUATION, EVALUATION_PLOTS, Night
from noctuary.night.evaluation import (
    FUSION_DECISION,
    RECALL_EVALUATION,
    SERVED,
    measure_abstention,
    read_comparisons,
    read_drops,
    read_runs,
    score_group,
)
from noctuary.night.questions import UNANSWERABLE, Questions, read_questions
from noctuary.night.serving import candidate_digest, candidate_path
from noctuary.snapshot.verdict import Verdict, read_verdict
from noctuary.work.stage import Stage, StageResult

EVALUATION_REPORT = Stage("evaluation_report", "1")
KEPT_REPORTS = 30
"""Pages that stay: a month of nights, some 300 KB each."""

_LOSSES_AGAINST = "lexical"
"""The arm that the served one is compared with query by query: what keyword search finds alone."""

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

    def body() -> tuple[int, dict[str, Any]]:
        now = datetime.now(UTC)
        report = gather_report(night, now.isoformat(timespec="seconds"), verdict)
        path = night.paths.reports / f"{now:%Y%m%dT%H%M%S%f}-{digest[:_ID_CHARS]}.html"
        path.parent.mkdir(exist_ok=True)
        write_text(path, render_page(report))
        for old in sorted(night.paths.reports.glob("*.html"))[:-KEPT_REPORTS]:
            old.unlink()
        return 1, {"page": str(path)}

    return night.finish(night.run(EVALUATION_REPORT, inputs, body))


def evaluation_plots(night: Night, *, fresh: bool) -> dict[str, bytes]:
    """Return the plots of the evaluation as PNG, each small enough for Dagster's metadata.

    Args:
        night: The night.
        fresh: Draw them, because something was measured; else those of the night that did are read.
    """
    directory = night.work(EVALUATION_PLOTS)
    if fresh or not directory.is_dir():
        remove_tree(directory)
        directory.mkdir()
        for name, plot in night_plots(gather_report(night, "", None)).items():
            (directory / f"{name}.png").write_bytes(plot.png)
    return {path.stem: path.read_bytes() for path in sorted(directory.glob("*.png"))}


def gather_report(night: Night, moment: str, verdict: Verdict | None) -> NightReport:
    """Gather what the stages of the evaluation left on disk.

    Args:
        night: The night.
        moment: When, as text.
        verdict: The gate's, or None before it.
    """
    questions = read_questions(night)
    if verdict is None:
        return _measured(night, questions, moment)
    decision = json.loads(night.work(DECISION).read_text(encoding="utf-8"))
    return _measured(night, questions, moment, verdict, decision)


def _measured(
    night: Night,
    questions: Questions,
    moment: str,
    verdict: Verdict | None = None,
    decision: dict[str, Any] | None = None,
) -> NightReport:
    runs = read_runs(night)
    manifest = read_manifest(candidate_path(night)) if verdict else None
    return NightReport(
        title=night.paths.root.name,
        night=moment,
        candidate_digest=manifest.digest if manifest else None,
        serving_snapshot=_serving_id(night),
        encoder_model=str(manifest.encoder["model"]) if manifest and manifest.encoder else None,
        counts=manifest.counts if manifest else {},
        query_counts=_counts(questions),
        groups=_groups(night, questions, with_serving=verdict is not None),
        decision=_decision(decision),
        gate=_gate(night, verdict),
        abstention=measure_abstention(questions, runs),
        query_texts=_texts(questions) if night.settings.evaluation.report_texts else None,
        notes=(*questions.notes, *(read_calibration(night)["said"] if verdict else ())),
    )


def _serving_id(night: Night) -> str | None:
    try:
        return read_pointer(night.paths).snapshot_id
    except (SnapshotMissingError, SnapshotCorruptError):
        return None


def _groups(night: Night, questions: Questions, *, with_serving: bool) -> list[QueryGroup]:
    raw = json.loads(night.work(EVALUATION).read_text(encoding="utf-8"))["groups"]
    against = read_comparisons(night) if with_serving else {}
    runs = read_runs(night)
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


def _decision(document: dict[str, Any] | None) -> RankingDecision | None:
    if document is None:
        return None
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
