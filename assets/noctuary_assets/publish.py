"""Group publish: the candidate, the gate's verdict and the published snapshot.

The checks shown here only display the verdict. What protects is publishing itself, which refuses
without a PASS for exactly the candidate's digest (noctuary.snapshot.publish).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import (
    PublishRefusedError,
    SnapshotCorruptError,
    SnapshotMissingError,
    StoreError,
)
from noctuary.core.files import write_text
from noctuary.core.manifest import read_manifest, read_pointer
from noctuary.core.store import record_night
from noctuary.evaluate.labels import Query
from noctuary.evaluate.run import Run, run_retriever
from noctuary.evaluate.scores import Comparison, Difference, compare, score_run
from noctuary.evaluate.statistics import Resampling, holm
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
    Publication,
    find_by_digest,
    is_intact,
    publish_candidate,
    seal_candidate,
    serves,
)
from noctuary.snapshot.verdict import PASS, Verdict, read_verdict, store_verdict
from noctuary.work.stage import Stage, StageResult, forget_result, load_result
from noctuary_assets import evaluate, ingest, pack
from noctuary_assets.evaluate import (
    FUSION_DECISION,
    PLAN,
    RECALL_EVALUATION,
    ProfileRetriever,
    read_calibration,
    read_questions,
    served_profile,
)
from noctuary_assets.housekeeping import tidy
from noctuary_assets.index import VECTOR_TIERS
from noctuary_assets.ingest import load_report
from noctuary_assets.night import COMPARISON, Night
from noctuary_assets.pack import PACKED, SERVING_PACK, digest_of, embed_again
from noctuary_assets.reporting import report_stage

# Stages serving_pack, snapshot_candidate, gate_verdict, snapshot.


SNAPSHOT_CANDIDATE = Stage("snapshot_candidate", "3")
GATE_VERDICT = Stage("gate_verdict", "1")
SNAPSHOT = Stage("snapshot", "1")


def seal_snapshot_candidate(
    night: Night, decision: StageResult, abstention: Mapping[str, Any] | None
) -> StageResult:
    """Make the candidate of tonight's pack and of what the evaluation found out about it.

    Args:
        night: The night.
        decision: What `fusion_decision` decided.
        abstention: The thresholds that `abstention_calibration` chose; None for none.
    """
    pack = digest_of(night, SERVING_PACK)
    ranking = decision.facts["ranking"]

    def body() -> tuple[int, dict[str, Any]]:
        manifest = read_manifest(seal_candidate(night.paths, pack, ranking, abstention))
        facts = {"digest": manifest.digest, "adopted": ranking["adopted"] if ranking else None}
        return manifest.counts["memories"], facts

    known = night.paths.work / "stamps" / f"{SNAPSHOT_CANDIDATE.name}.json"
    if known.exists() and not _is_still_there(night):
        forget_result(night.paths.work, SNAPSHOT_CANDIDATE)
    inputs = {"pack": pack, "ranking": ranking, "abstention": abstention}
    return night.finish(night.run(SNAPSHOT_CANDIDATE, inputs, body))


def judge_snapshot_candidate(night: Night, drops: DropReport) -> Verdict:
    """Judge the candidate and store the verdict under its digest.

    A stored PASS for published bytes stands. After a FAIL everything that was packed is made again
    by the next night, which would otherwise take over what was condemned and be refused as well.
    """
    digest = candidate_digest(night)
    known = read_verdict(night.paths, digest)
    if known is not None and serves(night.paths, digest):
        return known
    # Published already after a rollback, or after a kill between the two moves of publishing.
    checks = judge_candidate(candidate_path(night), gate_context(night, drops))
    verdict = store_verdict(night.paths, digest, checks)
    if any(not c.passed for c in checks if c.name != DROP_CHECK):
        for stage in PACKED:
            forget_result(night.paths.work, stage)
    return verdict


def publish_snapshot(night: Night) -> Publication:
    """Publish the candidate if its verdict is PASS, then remove what nothing needs any more.

    Raises:
        PublishRefusedError: Without a PASS for exactly this candidate.
    """
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
    fingerprint = night.fingerprint()

    def encode(texts: Sequence[str]) -> NDArray[np.float32]:
        return embed_again(night, texts)

    return GateContext(
        source_counts={
            "source_rows": report.source_rows,
            "exported": report.exported,
            "quarantined": report.quarantined_rows,
            "sensitive": report.sensitive_rows,
        },
        tier_rows=tiers["rows"],
        tier_faults=tiers["faults"],
        unindexed_rows=tiers["unindexed_rows"],
        encoder_digest=fingerprint.digest,
        preserve_threshold=night.settings.compaction.preserve_threshold,
        encode=encode,
        drops=drops,
    )


def candidate_path(night: Night) -> Path:
    """Return where tonight's candidate lies, published already or not."""
    directory = find_by_digest(night.paths, candidate_digest(night))
    if directory is None:
        raise StoreError("tonight's candidate is gone: run the nightly job again")
    return directory


def _is_still_there(night: Night) -> bool:
    digest = digest_of(night, SNAPSHOT_CANDIDATE)
    directory = find_by_digest(night.paths, digest)
    return directory is not None and is_intact(directory, digest)


def candidate_digest(night: Night) -> str:
    """Return the digest of tonight's candidate."""
    return digest_of(night, SNAPSHOT_CANDIDATE)


# Stages recall_evaluation, fusion_decision and recall_comparison.


RECALL_COMPARISON = Stage("recall_comparison", "2", (COMPARISON,))


DROP_METRICS = ("recall@10", "ndcg@10")
"""What a drop is told by: whether the answer is there at all, and where it stands."""


Pair = tuple[Run, Run, Sequence[Query]]


def compare_with_serving(night: Night) -> StageResult:
    """Ask the candidate and the serving snapshot the same queries and keep the differences."""
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

    def body() -> tuple[int, dict[str, Any]]:
        note = _nothing_to_compare(night, digest, serving)
        if serving is None or note:
            return _write_comparison(night, digest, [], DropReport(note=note))
        try:
            found, report = _compare(night, serving[0])
        except SnapshotCorruptError as error:
            note = f"the serving snapshot is damaged: {error}"
            return _write_comparison(night, digest, [], DropReport(note=note))
        return _write_comparison(night, digest, found, report)

    return night.finish(night.run(RECALL_COMPARISON, inputs, body))


def read_drops(night: Night) -> DropReport:
    """Return what the stage found.

    Raises:
        StoreError: If it has not run for tonight's candidate.
    """
    night.result_of(RECALL_COMPARISON)
    raw = json.loads(night.work(COMPARISON).read_text(encoding="utf-8"))["report"]
    fields: dict[str, Any] = {**raw, "drops": tuple(Drop(**drop) for drop in raw["drops"])}
    return DropReport(**fields)


def read_comparisons(night: Night) -> dict[str, Comparison]:
    """Return the differences to the serving snapshot by group; empty if none were made."""
    raw = json.loads(night.work(COMPARISON).read_text(encoding="utf-8"))["groups"]
    return {group: Comparison.from_json(found) for group, found in raw.items()}


def find_drops(
    comparisons: Sequence[tuple[str, Comparison]],
    resampling: Resampling = Resampling(),  # noqa: B008
) -> tuple[list[Drop], int]:
    """Return the significant losses and how many pairs were tested.

    A loss is significant if its paired interval lies below zero and its permutation p, corrected
    over every group, stratum and metric together (Holm), is below alpha.

    Args:
        comparisons: Group name and candidate against serving snapshot.
        resampling: Where alpha comes from.
    """
    tested = [
        (name, metric, difference)
        for group, comparison in comparisons
        for name, metric, difference in _differences(group, comparison)
    ]
    corrected = holm([difference.p_value for _, _, difference in tested])
    drops = [
        Drop(name, metric, d.mean, d.interval.low, d.interval.high, d.n, p)
        for (name, metric, d), p in zip(tested, corrected, strict=True)
        if d.interval is not None and d.interval.high < 0.0 and p < resampling.alpha
    ]
    return drops, len(tested)


def _differences(group: str, comparison: Comparison) -> Iterator[tuple[str, str, Difference]]:
    parts = {group: comparison.overall}
    if len(comparison.strata) > 1:
        parts |= {f"{group}: {stratum}": part for stratum, part in comparison.strata.items()}
    for name, part in parts.items():
        for metric in DROP_METRICS:
            yield name, metric, part[metric]


def _serving(night: Night) -> tuple[Path, str] | None:
    """Return directory and digest of what serves."""
    try:
        pointer = read_pointer(night.paths)
    except (SnapshotMissingError, SnapshotCorruptError):
        return None
    return night.paths.snapshots / pointer.snapshot_id, pointer.digest


def _nothing_to_compare(night: Night, digest: str, serving: tuple[Path, str] | None) -> str:
    if not night.settings.evaluation.enabled:
        return "the evaluation is switched off"
    if serving is None:
        return "nothing serves yet"
    if serving[1] == digest:
        return "the serving snapshot is this candidate"
    if not read_questions(night).groups:
        return "there is no query to ask"
    return ""


def _compare(
    night: Night, serving_directory: Path
) -> tuple[list[tuple[str, Comparison]], DropReport]:
    candidate = SnapshotReader.open(candidate_path(night))
    with closing(candidate), closing(SnapshotReader.open(serving_directory)) as serving:
        pairs = {
            group: pair
            for group, queries in read_questions(night).groups.items()
            if (pair := _ask_both(night, candidate, serving, queries)) is not None
        }
    found = [
        (group, compare([(score_run(ours, queries), score_run(theirs, queries))])[0])
        for group, (ours, theirs, queries) in pairs.items()
    ]
    drops, tested = find_drops(found)
    return found, DropReport(
        drops=tuple(drops),
        tested=tested,
        queries=sum(len(queries) for _, _, queries in pairs.values()),
        note="" if found else "no query can be answered by both snapshots",
        on_drop=night.settings.evaluation.on_drop,
    )


def _ask_both(
    night: Night, candidate: SnapshotReader, serving: SnapshotReader, queries: Sequence[Query]
) -> Pair | None:
    """Run both snapshots on the queries whose relevant memories stand unchanged in both."""
    labels = {i for query in queries for i in query.relevant_ids}
    here, there = candidate.content_hashes(labels), serving.content_hashes(labels)
    kept = [
        query
        for query in queries
        if all(i in there and there[i] == here.get(i) for i in query.relevant_ids)
    ]
    if not kept:
        return None
    runs: list[Run] = []
    for name, reader in (("candidate", candidate), ("serving", serving)):
        recaller = Recaller(night.paths, reader, name)
        retriever = ProfileRetriever(name, recaller, served_profile(night, reader.adopted))
        runs.append(run_retriever(retriever, kept, PLAN, progress=night.progress))
    return runs[0], runs[1], kept


def _write_comparison(
    night: Night, digest: str, found: Sequence[tuple[str, Comparison]], report: DropReport
) -> tuple[int, dict[str, Any]]:
    document = {
        "report": asdict(report),
        "groups": {group: comparison.to_json() for group, comparison in found},
    }
    write_text(night.work(COMPARISON), json.dumps(document, indent=1) + "\n")
    facts: dict[str, Any] = {
        "candidate": digest,
        "tested": report.tested,
        "dropped": len(report.drops),
    }
    if report.note:
        facts["note"] = report.note
    intervals = facts["intervals"] = dict[str, list[float]]()
    for group, comparison in found:
        difference = comparison.overall[DROP_METRICS[0]]
        facts[f"{group} {DROP_METRICS[0]}"] = round(difference.mean, 4)
        if difference.interval is not None:
            ends = (difference.interval.low, difference.interval.high)
            intervals[group] = [round(end, 4) for end in ends]
    return report.queries, facts


# Stage evaluation_report: one HTML page about a night that measured something, and its plots.


CHECK_NAMES = ("files_match_the_manifest", *(check.__name__ for check in GATE_CHECKS))


@dg.asset(
    deps=[pack.serving_pack, evaluate.fusion_decision, evaluate.abstention_calibration],
    kinds={"sqlite", "numpy"},
    code_version=SNAPSHOT_CANDIDATE.version,
)
def snapshot_candidate(night: dg.ResourceParam[Night]) -> dg.MaterializeResult[Any]:
    """The pack with the adopted ranking and the thresholds for abstaining, under one digest."""
    decision = night.result_of(FUSION_DECISION)
    sealed = read_calibration(night)["sealed"]
    return report_stage(night, seal_snapshot_candidate(night, decision, sealed))


@dg.asset(
    deps=[snapshot_candidate, evaluate.recall_evaluation],
    kinds={"json"},
    code_version=RECALL_COMPARISON.version,
)
def recall_comparison(night: dg.ResourceParam[Night]) -> dg.MaterializeResult[Any]:
    """The candidate against what serves, on the same queries; a significant loss fails the gate."""
    return report_stage(night, compare_with_serving(night))


@dg.asset(
    deps=[snapshot_candidate, recall_comparison, ingest.quarantine],
    kinds={"json"},
    code_version=GATE_VERDICT.version,
    check_specs=[dg.AssetCheckSpec(name, asset="gate_verdict") for name in CHECK_NAMES],
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
    for name in CHECK_NAMES:
        result = results.get(name)
        yield dg.AssetCheckResult(
            check_name=name,
            passed=result is not None and result.passed,
            metadata=dict(result.found) if result else {"fault": "not run: the files are damaged"},
        )


@dg.asset(
    deps=[gate_verdict],
    kinds={"sqlite", "numpy"},
    code_version=SNAPSHOT.version,
)
def snapshot(night: dg.ResourceParam[Night]) -> dg.MaterializeResult[Any]:
    """What recall reads: the candidate, once a PASS verdict names it.

    Else yesterday's snapshot stays.
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
