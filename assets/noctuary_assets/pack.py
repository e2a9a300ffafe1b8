"""Group publish, its first half: the files that recall will read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.compact.archive_apply import applied_summaries
from noctuary.compact.clusters import VectorRows, iter_clusters
from noctuary.core.errors import StoreError
from noctuary.core.files import hash_file, read_array
from noctuary.core.manifest import read_manifest
from noctuary.embed.funnel import FUNNEL_MIN_ROWS, PrefixTier
from noctuary.embed.rotation import build_prefix_tier, fit_or_load
from noctuary.graph.build import to_arrays
from noctuary.graph.tables import FILES
from noctuary.lexical.build import Near, Postings, find_near
from noctuary.snapshot.pack import PackInputs, Provenance, build_candidate
from noctuary.snapshot.publish import find_pack
from noctuary.sources.corpus import RecordFile
from noctuary.sources.evidence import SHARES_FILE, read_evidence
from noctuary.sources.export import ExportReport
from noctuary.sources.source import Share
from noctuary.work.stage import Stage, StageOutput, StageResult, forget_result
from noctuary_assets.compact import SUMMARY_TABLE, TURN_CLUSTERS, accepted_summaries
from noctuary_assets.graph import CONCEPT_GRAPH, load_tables
from noctuary_assets.index import (
    LEXICAL_INDEX,
    MEMORY_VECTORS,
    QUERY_ENCODER,
    VECTOR_TIERS,
    chosen_backend,
    compared_words,
    kept_postings,
)
from noctuary_assets.ingest import CORPUS, load_report, read_at_us
from noctuary_assets.night import CLUSTERS, MEMORIES, VECTORS, Night
from noctuary_assets.reporting import stage_asset

SERVING_PACK = Stage("serving_pack", "7")

PACKED = (CORPUS, MEMORY_VECTORS, LEXICAL_INDEX, CONCEPT_GRAPH, TURN_CLUSTERS, SUMMARY_TABLE)


@stage_asset(
    SERVING_PACK,
    deps=[
        "memories", "query_encoder", "vector_tiers", "lexical_index", "ltp_scores", "concepts",
        "memory_concepts", "concept_edges", "edges", "supersessions", "summaries",
    ],
    kinds={"sqlite", "numpy"},
)  # fmt: skip
def build_serving_pack(night: Night) -> StageResult:
    """The files that recall will read tonight.

    Memory-mapped arrays and one SQLite file, named by their digest.
    """
    # Nothing is built where all came out as before and the bytes are still there.
    inputs: dict[str, Any] = {stage.name: night.result_of(stage).digest for stage in PACKED}
    inputs["query_encoder"] = night.result_of(QUERY_ENCODER).digest
    inputs["tier"] = _tier_inputs(night)
    # What is archived is decided between nights, by hand: no stage of the night tells of it.
    inputs["archived"] = _archived_summaries(night)
    # Only where somebody shares: what others have packed so far stays as it is.
    if (table := night.work(MEMORIES).parent / SHARES_FILE).exists():
        inputs["shares"] = hash_file(table)

    def body() -> StageOutput:
        directory = build_candidate(night.paths, _pack_inputs(night), _provenance(night))
        made = read_manifest(directory)
        facts = {"digest": made.digest, "counts": made.counts}
        return StageOutput(made.counts["memories"], facts)

    known = night.paths.work / "stamps" / f"{SERVING_PACK.name}.json"
    if known.exists() and find_pack(night.paths, digest_of(night, SERVING_PACK)) is None:
        forget_result(night.paths.work, SERVING_PACK)
    places = (night.paths.candidates,)
    return night.finish(night.run(SERVING_PACK, inputs, body, places=places))


def pack_path(night: Night) -> Path:
    """Return where tonight's pack lies: a candidate, or inside a published snapshot."""
    directory = find_pack(night.paths, digest_of(night, SERVING_PACK))
    if directory is None:
        raise StoreError("tonight's serving pack is gone: run the nightly job again")
    return directory


def digest_of(night: Night, stage: Stage) -> str:
    """Return the digest of the files that a stage left outside the work directory."""
    return str(night.result_of(stage).facts["digest"])


def _tier_inputs(night: Night) -> dict[str, Any] | None:
    """Return what the pack's short tier depends on beside the vectors; None where it has none."""
    # Only then: the frozen rotation tells of earlier nights, which a small pack does not.
    dim = night.settings.tiers.small_dims
    full = night.encoder.fingerprint.dimension
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
    postings = kept_postings(night)
    return PackInputs(
        records=records,
        vectors=None,
        vectors_file=night.work(VECTORS),
        tier=None if wanted is None else _prefix_tier(night, wanted["dim"]),
        exits={int(name): at for name, at in wanted["exits"].items()} if wanted else {},
        postings=postings,
        near=_near_words(night, postings),
        graph=load_tables(night, set(FILES) - {"edges"}),
        graph_arrays=graph_arrays,
        clusters=list(iter_clusters(night.work(CLUSTERS))),
        summaries=summaries,
        summary_vectors=_summary_vectors(night, [s.text for s in summaries]),
        plan_of={a.summary.summary_id: a.plan_id for a in applied},
        shares=read_evidence(night.work(MEMORIES).parent, Share),
    )


def _near_words(night: Night, postings: Postings) -> Near:
    backend, words = chosen_backend(night), compared_words(night, postings)
    if not words:
        return {}
    vectors = night.encoder.embed(backend, list(words.values()), "word_vectors").vectors
    return find_near(list(words), vectors, postings)


def _prefix_tier(night: Night, dim: int) -> PrefixTier:
    path, digest = night.work(VECTORS), night.encoder.fingerprint.digest
    # Mapped, but of a rotation that is frozen only the shape is looked at.
    rotation = fit_or_load(night.paths.rotations / digest, read_array(path), digest)
    vectors = VectorRows(path)
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
        return np.empty((0, night.encoder.fingerprint.dimension), dtype=np.float32)
    return embed_again(night, texts)


def embed_again(night: Night, texts: Sequence[str]) -> NDArray[np.float32]:
    """Return the vectors of summaries, which were embedded once when they were judged."""
    return night.encoder.embed(chosen_backend(night), texts).vectors


def _state_read(night: Night, report: ExportReport) -> dict[str, int]:
    """Return what tells a recall which rows of the store came later (noctuary.sources.live)."""
    marker = report.identity.marker
    told = {name: marker.get(name) for name in ("rows", "last_id")}
    found = {**told, "read_us": read_at_us(night)}
    return {name: value for name, value in found.items() if isinstance(value, int)}


def _provenance(night: Night) -> Provenance:
    report = load_report(night)
    fingerprint = night.encoder.fingerprint
    return Provenance(
        id_kind=report.identity.id_kind,
        encoder=fingerprint.to_json(),
        encoder_digest=fingerprint.digest,
        source={
            "kind": report.identity.kind,
            "schema_version": report.identity.schema_version,
            "location": report.identity.location,
            **_state_read(night, report),
            **({"members": dict(members)} if (members := report.identity.members) else {}),
        },
        corpus_digest=report.corpus_digest,
        settings=night.settings.to_json(),
    )
