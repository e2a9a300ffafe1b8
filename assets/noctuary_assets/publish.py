"""Group publish: the candidate, the gate's verdict and the published snapshot.

The checks shown here only display the verdict. What protects is publishing itself, which refuses
without a PASS for exactly the candidate's digest (noctuary.snapshot.publish).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg

from noctuary.core.errors import (
    PublishRefusedError,
    SnapshotCorruptError,
    SnapshotMissingError,
    StoreError,
)
from noctuary.core.files import read_json, write_json
from noctuary.core.manifest import read_manifest, read_pointer
from noctuary.core.store import record_night
from noctuary.evaluate.decide import KeptAnswers, ProfileRetriever, compare_snapshots
from noctuary.evaluate.metrics import HEADLINE_METRIC, Comparison
from noctuary.evaluate.queries import Questions
from noctuary.recall.engine import Recaller
from noctuary.recall.reader import SnapshotReader
from noctuary.snapshot.checks import (
    DROP_CHECK,
    GATE_CHECKS,
    Drop,
    DropReport,
    GateContext,
    judge_candidate,
)
from noctuary.snapshot.publish import (
    FAIL,
    PASS,
    Publication,
    Verdict,
    find_by_digest,
    find_refusal,
    is_intact,
    publish_candidate,
    read_verdict,
    seal_candidate,
    serves,
    store_verdict,
)
from noctuary.sources.export import clean_kind, skip_clean
from noctuary.work.stage import Stage, StageOutput, StageResult, forget_result, load_result
from noctuary_assets.evaluate import (
    FUSION_DECISION,
    RECALL_ANSWERS_KIND,
    RECALL_EVALUATION,
    embed_queries,
    read_calibration,
    read_questions,
    served_profile,
)
from noctuary_assets.housekeeping import tidy
from noctuary_assets.index import VECTOR_TIERS
from noctuary_assets.ingest import load_report
from noctuary_assets.night import COMPARISON, Night
from noctuary_assets.pack import PACKED, SERVING_PACK, digest_of, embed_again
from noctuary_assets.reporting import report_stage, stage_asset

SNAPSHOT_CANDIDATE = Stage("snapshot_candidate", "3")
GATE_VERDICT = Stage("gate_verdict", "1")
SNAPSHOT = Stage("snapshot", "1")


def seal_snapshot_candidate(
    night: Night, decision: StageResult, abstention: Mapping[str, Any] | None
) -> StageResult:
    """Make the candidate of tonight's pack and of what the evaluation found out about it."""
    pack = digest_of(night, SERVING_PACK)
    ranking = decision.facts["ranking"]

    def body() -> StageOutput:
        manifest = read_manifest(seal_candidate(night.paths, pack, ranking, abstention))
        facts = {"digest": manifest.digest, "adopted": ranking["adopted"] if ranking else None}
        return StageOutput(manifest.counts["memories"], facts)

    known = load_result(night.paths.work, SNAPSHOT_CANDIDATE)
    directory = find_by_digest(night.paths, known.facts["digest"]) if known else None
    if known and not (directory and is_intact(directory, known.facts["digest"])):
        forget_result(night.paths.work, SNAPSHOT_CANDIDATE)
    inputs = {"pack": pack, "ranking": ranking, "abstention": abstention}
    return night.finish(night.run(SNAPSHOT_CANDIDATE, inputs, body))


def judge_snapshot_candidate(night: Night, drops: DropReport) -> Verdict:
    """Judge the candidate and store the verdict under its digest."""
    # A stored PASS for published bytes stands. After a FAIL everything is made again by the next
    # night, which would otherwise take over what was condemned.
    digest = candidate_digest(night)
    known = read_verdict(night.paths, digest)
    if known is not None and serves(night.paths, digest):
        return known
    # Published already after a rollback, or after a kill between the two moves of publishing.
    with skip_clean(night.content(clean_kind("snapshot"))) as scan:
        context = replace(gate_context(night, drops), scan=scan)
        checks = judge_candidate(candidate_path(night), context)
    verdict = store_verdict(night.paths, digest, checks)
    if any(not c.passed for c in checks if c.name != DROP_CHECK):
        for stage in PACKED:
            forget_result(night.paths.work, stage)
    return verdict


def publish_snapshot(night: Night) -> Publication:
    """Publish the candidate if its verdict is PASS, then remove what nothing needs any more."""
    try:
        digest = candidate_digest(night)
    except StoreError as error:
        raise PublishRefusedError(f"there is no candidate to publish: {error}") from error
    publication = publish_candidate(night.paths, digest, night.settings.snapshot.keep)
    record_night(night.paths)
    return replace(publication, removed=(*publication.removed, *tidy(night)))


def gate_context(night: Night, drops: DropReport) -> GateContext:
    """Return what the gate is told beside the candidate."""
    report = load_report(night)
    tiers = night.result_of(VECTOR_TIERS).facts
    return GateContext(
        source_counts={
            "source_rows": report.source_rows,
            "exported": report.exported,
            "quarantined": report.quarantined_rows,
            "sensitive": report.sensitive_rows,
        },
        tier_rows=tiers["rows"],
        tier_faults=tiers["faults"],
        index_gaps=tiers["index_gaps"],
        encoder_digest=night.encoder.fingerprint.digest,
        preserve_threshold=night.settings.compaction.preserve_threshold,
        encode=partial(embed_again, night),
        drops=drops,
    )


def candidate_path(night: Night) -> Path:
    """Return where tonight's candidate lies, published already or not."""
    directory = find_by_digest(night.paths, candidate_digest(night))
    if directory is None:
        raise StoreError("tonight's candidate is gone: run the nightly job again")
    return directory


def candidate_digest(night: Night) -> str:
    """Return the digest of tonight's candidate."""
    return digest_of(night, SNAPSHOT_CANDIDATE)


# Stage recall_comparison: the candidate and the serving snapshot answer the same queries.

RECALL_COMPARISON = Stage("recall_comparison", "2", (COMPARISON,))


@stage_asset(RECALL_COMPARISON, deps=["snapshot_candidate", "recall_evaluation"], kinds={"json"})
def compare_with_serving(night: Night) -> StageResult:
    """The candidate against the current snapshot; a significant loss fails the gate."""
    digest = candidate_digest(night)
    serving = _serving(night)
    known = load_result(night.paths.work, RECALL_COMPARISON)
    if serving and serving[1] == digest and known and known.facts.get("candidate") == digest:
        # It serves by now; what was found before it did is the answer that is worth keeping.
        return night.finish(known)
    inputs = {
        "candidate": digest,
        "serving": serving[1] if serving else None,
        "evaluation": night.result_of(RECALL_EVALUATION).digest,
        "profile": served_profile(night).to_json(),
        "on_drop": night.settings.evaluation.on_drop,
    }

    def body() -> StageOutput:
        questions, found = read_questions(night), dict[str, Comparison]()
        report = DropReport(note=_nothing_to_compare(night, digest, serving, questions))
        if serving and not report.note:
            try:
                found, report = _compare(night, serving[0], questions)
            except SnapshotCorruptError as error:
                report = DropReport(note=f"the serving snapshot cannot be read: {error}")
        groups = {group: comparison.to_json() for group, comparison in found.items()}
        write_json(night.work(COMPARISON), {"report": asdict(report), "groups": groups})
        facts: dict[str, Any] = {
            "candidate": digest,
            "tested": report.tested,
            "dropped": len(report.drops),
        }
        if report.note:
            facts["note"] = report.note
        intervals = facts["intervals"] = dict[str, list[float]]()
        for group, comparison in found.items():
            difference = comparison.overall[HEADLINE_METRIC]
            facts[f"{group} {HEADLINE_METRIC}"] = round(difference.mean, 4)
            if difference.interval is not None:
                ends = (difference.interval.low, difference.interval.high)
                intervals[group] = [round(end, 4) for end in ends]
        return StageOutput(report.queries, facts)

    return night.finish(night.run(RECALL_COMPARISON, inputs, body))


def read_drops(night: Night) -> DropReport:
    """Return what the stage found."""
    night.result_of(RECALL_COMPARISON)
    raw = read_json(night.work(COMPARISON))["report"]
    return DropReport(tuple(Drop(**drop) for drop in raw.pop("drops")), **raw)


def read_comparisons(night: Night) -> dict[str, Comparison]:
    """Return the differences to the serving snapshot by group; empty if none were made."""
    raw = read_json(night.work(COMPARISON))["groups"]
    return {group: Comparison.from_json(found) for group, found in raw.items()}


def _serving(night: Night) -> tuple[Path, str] | None:
    """Return directory and digest of what serves."""
    try:
        pointer = read_pointer(night.paths)
    except (SnapshotMissingError, SnapshotCorruptError):
        return None
    return night.paths.snapshots / pointer.snapshot_id, pointer.digest


def _nothing_to_compare(
    night: Night, digest: str, serving: tuple[Path, str] | None, questions: Questions
) -> str:
    if not night.settings.evaluation.enabled:
        return "the evaluation is switched off"
    if serving is None:
        return "nothing serves yet"
    if serving[1] == digest:
        return "the serving snapshot is this candidate"
    return "" if questions.groups else "there is no query to ask"


def _compare(
    night: Night, serving: Path, questions: Questions
) -> tuple[dict[str, Comparison], DropReport]:
    def asked(name: str, reader: SnapshotReader) -> ProfileRetriever:
        recaller = Recaller(night.paths, reader, name)
        return ProfileRetriever(name, recaller, served_profile(night, reader.adopted))

    candidate = SnapshotReader.open(candidate_path(night))
    with closing(candidate), closing(SnapshotReader.open(serving)) as other:
        for reader in (candidate, other):
            embed_queries(night, reader.manifest, questions.texts())
        found, report = compare_snapshots(
            asked("candidate", candidate),
            asked("serving", other),
            questions,
            KeptAnswers(night.content(RECALL_ANSWERS_KIND)),
            night.progress,
        )
    return found, replace(report, on_drop=night.settings.evaluation.on_drop)


CHECKS = {
    "files_match_the_manifest": "Every file has the size and digest in the manifest.",
    **{check.__name__: str(check.__doc__).partition("\n")[0] for check in GATE_CHECKS},
}
"""What the gate checks, in order, with a sentence each."""


@dg.asset(
    deps=["serving_pack", "fusion_decision", "abstention_calibration"],
    kinds={"sqlite", "numpy"},
    code_version=SNAPSHOT_CANDIDATE.version,
)
def snapshot_candidate(night: dg.ResourceParam[Night]) -> dg.MaterializeResult[Any]:
    """The pack with the adopted ranking and the thresholds for abstaining, under one digest."""
    decision = night.result_of(FUSION_DECISION)
    sealed = read_calibration(night)["sealed"]
    return report_stage(night, seal_snapshot_candidate(night, decision, sealed))


@dg.asset(
    deps=["snapshot_candidate", "recall_comparison", "quarantine"],
    kinds={"json"},
    code_version=GATE_VERDICT.version,
    # None blocks: the page about a refused night comes after the verdict. `release` blocks.
    check_specs=[
        dg.AssetCheckSpec(name, asset="gate_verdict", description=said)
        for name, said in CHECKS.items()
    ],
)
def gate_verdict(night: dg.ResourceParam[Night]) -> Iterator[Any]:
    """PASS or FAIL for exactly this candidate, stored under its digest."""
    verdict = judge_snapshot_candidate(night, read_drops(night))
    failed = [c.name for c in verdict.checks if not c.passed]
    yield dg.MaterializeResult(
        metadata={
            "outcome": verdict.outcome,
            "candidate": verdict.digest,
            "checks": len(verdict.checks),
            "failed": ", ".join(failed) or "none",
        },
        data_version=dg.DataVersion(f"{verdict.digest}:{verdict.outcome}"),
    )
    results = {c.name: c for c in verdict.checks}
    for name in CHECKS:
        result = results.get(name)
        yield dg.AssetCheckResult(
            check_name=name,
            passed=result is not None and result.passed,
            severity=dg.AssetCheckSeverity.ERROR,
            metadata=dict(result.found) if result else {"fault": "not run: the files are damaged"},
        )


@dg.asset(
    deps=[gate_verdict],
    kinds={"json"},
    code_version=GATE_VERDICT.version,
    check_specs=[
        dg.AssetCheckSpec(
            "the_gate_passed_this_candidate",
            asset="release",
            blocking=True,
            description="A PASS verdict names tonight's candidate; otherwise nothing is published.",
        )
    ],
)
def release(night: dg.ResourceParam[Night]) -> Iterator[Any]:
    """Whether tonight's candidate may be published; stops a refused night before it publishes."""
    digest = candidate_digest(night)
    refusal = find_refusal(night.paths, digest)
    outcome = FAIL if refusal else PASS
    yield dg.MaterializeResult(
        metadata={"said": refusal or "it may serve", "candidate": digest, "outcome": outcome},
        data_version=dg.DataVersion(f"{digest}:{outcome}"),
    )
    yield dg.AssetCheckResult(
        passed=refusal is None, severity=dg.AssetCheckSeverity.ERROR, description=refusal
    )


@dg.asset(deps=[release], kinds={"sqlite", "numpy"}, code_version=SNAPSHOT.version)
def snapshot(night: dg.ResourceParam[Night]) -> dg.MaterializeResult[Any]:
    """The snapshot that recall reads: the candidate, once a PASS verdict names it.

    Otherwise yesterday's snapshot stays.
    """
    try:
        publication = publish_snapshot(night)
    except PublishRefusedError as error:
        raise dg.Failure(str(error), allow_retries=False) from error
    said = "published" if publication.published else "nothing changed, nothing was published"
    return dg.MaterializeResult(
        metadata={
            "said": said,
            "snapshot_id": publication.snapshot_id,
            "published": publication.published,
            "removed_by_retention": len(publication.removed),
            "outcome": PASS,
        },
        data_version=dg.DataVersion(publication.snapshot_id),
    )
