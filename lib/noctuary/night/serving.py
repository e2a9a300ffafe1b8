"""Stages serving_pack, snapshot_candidate, gate_verdict, snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.compact.archive_apply import applied_summaries
from noctuary.compact.clusters import read_clusters
from noctuary.compact.summaries import VectorRows
from noctuary.core.errors import PublishRefusedError, StoreError
from noctuary.core.files import hash_file, read_array
from noctuary.core.manifest import read_manifest
from noctuary.core.store import record_night
from noctuary.embed.funnel import FUNNEL_MIN_ROWS, PrefixTier
from noctuary.embed.rotation import build_prefix_tier, fit_or_load
from noctuary.graph.build import to_arrays
from noctuary.graph.tables import FILES
from noctuary.night.compaction import SUMMARY_TABLE, TURN_CLUSTERS, accepted_summaries
from noctuary.night.context import CLUSTERS, MEMORIES, VECTORS, Night, embed
from noctuary.night.corpus import CORPUS, load_report, read_at_us
from noctuary.night.graph import CONCEPT_GRAPH, load_tables
from noctuary.night.housekeeping import tidy
from noctuary.night.vectors import (
    LEXICAL_INDEX,
    MEMORY_VECTORS,
    QUERY_ENCODER,
    VECTOR_TIERS,
    chosen_face,
    load_postings,
)
from noctuary.snapshot.checks import DROP_CHECK, DropReport, GateContext, judge_candidate
from noctuary.snapshot.pack import PackInputs, Provenance, build_candidate
from noctuary.snapshot.publish import (
    Publication,
    find_by_digest,
    find_pack,
    is_intact,
    publish_candidate,
    seal_candidate,
    serves,
)
from noctuary.snapshot.verdict import Verdict, read_verdict, store_verdict
from noctuary.sources.corpus import RecordFile
from noctuary.sources.evidence import SHARES_FILE, read_shares
from noctuary.sources.export import ExportReport
from noctuary.work.stage import Memo, Stage, StageResult, forget_result

SERVING_PACK = Stage("serving_pack", "3")
SNAPSHOT_CANDIDATE = Stage("snapshot_candidate", "3")
GATE_VERDICT = Stage("gate_verdict", "1")
SNAPSHOT = Stage("snapshot", "1")

_PACKED = (CORPUS, MEMORY_VECTORS, LEXICAL_INDEX, CONCEPT_GRAPH, TURN_CLUSTERS, SUMMARY_TABLE)


def build_serving_pack(night: Night) -> StageResult:
    """Pack what the stages made into the files that recall reads.

    Nothing is built when they all came out as before and the bytes are still there, as a candidate
    or published.
    """
    inputs: dict[str, Any] = {stage.name: night.result_of(stage).digest for stage in _PACKED}
    inputs["query_encoder"] = night.result_of(QUERY_ENCODER).digest
    inputs["tier"] = _tier_inputs(night)
    # What is archived is decided between nights, by hand: no stage of the night tells of it.
    inputs["archived"] = _archived_summaries(night)
    # Only where somebody shares: what others have packed so far stays as it is.
    if (table := night.work(MEMORIES).parent / SHARES_FILE).exists():
        inputs["shares"] = hash_file(table)

    def body() -> tuple[int, dict[str, Any]]:
        directory = build_candidate(night.paths, _pack_inputs(night), _provenance(night))
        made = read_manifest(directory)
        return made.counts["memories"], {"digest": made.digest, "counts": made.counts}

    known = night.paths.work / "stamps" / f"{SERVING_PACK.name}.json"
    if known.exists() and find_pack(night.paths, _digest_of(night, SERVING_PACK)) is None:
        forget_result(night.paths.work, SERVING_PACK)
    places = (night.paths.candidates,)
    return night.finish(night.run(SERVING_PACK, inputs, body, places=places))


def pack_path(night: Night) -> Path:
    """Return where tonight's pack lies: a candidate, or inside a published snapshot."""
    directory = find_pack(night.paths, _digest_of(night, SERVING_PACK))
    if directory is None:
        raise StoreError("tonight's serving pack is gone: run the nightly job again")
    return directory


def seal_snapshot_candidate(
    night: Night, decision: StageResult, abstention: Mapping[str, Any] | None
) -> StageResult:
    """Make the candidate of tonight's pack and of what the evaluation found out about it.

    Args:
        night: The night.
        decision: What `fusion_decision` decided.
        abstention: The thresholds that `abstention_calibration` chose; None for none.
    """
    pack = _digest_of(night, SERVING_PACK)
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
        for stage in _PACKED:
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
        return _embed(night, texts)

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
    digest = _digest_of(night, SNAPSHOT_CANDIDATE)
    directory = find_by_digest(night.paths, digest)
    return directory is not None and is_intact(directory, digest)


def candidate_digest(night: Night) -> str:
    """Return the digest of tonight's candidate."""
    return _digest_of(night, SNAPSHOT_CANDIDATE)


def _digest_of(night: Night, stage: Stage) -> str:
    return str(night.result_of(stage).facts["digest"])


def _tier_inputs(night: Night) -> dict[str, Any] | None:
    """Return what the pack's short tier depends on beside the vectors; None where it has none.

    Only then: the frozen rotation tells of earlier nights, which a small pack does not.
    """
    dim = night.settings.tiers.small_dims
    full = night.fingerprint().dimension
    if night.result_of(MEMORY_VECTORS).rows < FUNNEL_MIN_ROWS or not 0 < dim < full:
        return None
    facts = night.result_of(VECTOR_TIERS).facts
    exits = {name: found["exit_at"] for name, found in facts["exits"].items()}
    return {"dim": dim, "rotation": facts["rotation"], "exits": exits}


def _pack_inputs(night: Night) -> PackInputs:
    records = RecordFile(night.work(MEMORIES))
    # The edges, the largest table, are wanted as arrays only: let go of before the rest is read.
    graph_arrays = to_arrays(load_tables(night, ["concepts", "edges"]), len(records))
    wanted = _tier_inputs(night)
    summaries = accepted_summaries(night)
    known = {summary.summary_id for summary in summaries}
    found = applied_summaries(night.paths.archive, records)
    applied = [a for a in found if a.summary.summary_id not in known]
    summaries += [a.summary for a in applied]
    return PackInputs(
        records=records,
        vectors=None,
        vectors_file=night.work(VECTORS),
        tier=None if wanted is None else _prefix_tier(night, wanted["dim"]),
        exits={int(name): at for name, at in wanted["exits"].items()} if wanted else {},
        postings=load_postings(night),
        graph=load_tables(night, set(FILES) - {"edges"}),
        graph_arrays=graph_arrays,
        clusters=read_clusters(night.work(CLUSTERS)),
        summaries=summaries,
        summary_vectors=_summary_vectors(night, [s.text for s in summaries]),
        plan_of={a.summary.summary_id: a.plan_id for a in applied},
        shares=read_shares(night.work(MEMORIES).parent),
    )


def _prefix_tier(night: Night, dim: int) -> PrefixTier:
    path, digest = night.work(VECTORS), night.fingerprint().digest
    # Mapped, but of a rotation that is frozen only the shape is looked at.
    rotation = fit_or_load(night.paths.rotations / digest, read_array(path), digest)
    with VectorRows(path) as vectors:
        return build_prefix_tier(vectors, rotation, dim)


def _archived_summaries(night: Night) -> list[list[str]] | None:
    """Return which summaries of compaction plans tonight's pack holds; None without an archive."""
    if not night.paths.archive.exists():
        return None
    found = applied_summaries(night.paths.archive, RecordFile(night.work(MEMORIES)))
    return [[a.plan_id, a.summary.summary_id] for a in found]


def _summary_vectors(night: Night, texts: Sequence[str]) -> NDArray[np.float32]:
    """Return the vectors that the summaries were judged by: remembered, so not embedded again."""
    if not texts:
        return np.empty((0, night.fingerprint().dimension), dtype=np.float32)
    return _embed(night, texts)


def _embed(night: Night, texts: Sequence[str]) -> NDArray[np.float32]:
    with Memo.open(night.paths.memo) as memo:
        return embed(night, chosen_face(night), texts, memo).vectors


def _state_read(night: Night, report: ExportReport) -> dict[str, int]:
    """Return what tells a recall which rows of the store came later (noctuary.sources.live)."""
    marker = report.identity.marker
    told = {name: marker.get(name) for name in ("rows", "last_id")}
    found = {**told, "read_us": read_at_us(night)}
    return {name: value for name, value in found.items() if isinstance(value, int)}


def _provenance(night: Night) -> Provenance:
    report = load_report(night)
    fingerprint = night.fingerprint()
    return Provenance(
        id_kind=report.identity.id_kind,
        encoder=fingerprint.to_json(),
        encoder_digest=fingerprint.digest,
        source={
            "kind": report.identity.kind,
            "schema_version": report.identity.schema_version,
            "location": report.identity.location,
            **_state_read(night, report),
        },
        corpus_digest=report.corpus_digest,
        settings=night.settings.to_json(),
    )
