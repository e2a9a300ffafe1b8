"""Group compact: clusters of old turns and their summaries. Raw turns are never touched."""

from __future__ import annotations

import time
from typing import Any

import dagster as dg

from noctuary.compact.clusters import ClusterSources, cluster_sessions, count_later, iter_sessions
from noctuary.compact.summaries import (
    Summary,
    SummarySettings,
    iter_summaries,
    recipe_digest,
    summarize_clusters,
    summary_facts,
    summary_kind,
)
from noctuary.compact.summarizers import TRIED_AGAIN, Summarizer, open_summarizer
from noctuary.embed.documents import vector_kind
from noctuary.work.stage import Stage, StageOutput, StageResult, load_result
from noctuary_assets.index import MEMORY_VECTORS, chosen_backend
from noctuary_assets.ingest import CORPUS
from noctuary_assets.night import CLUSTERS, MEMORIES, SUMMARIES, TURNS, VECTORS, Night
from noctuary_assets.reporting import judge, stage_asset

# Both stages stream: memory holds one session's turns without their texts, or one batch of
# clusters with them.

TURN_CLUSTERS = Stage("turn_clusters", "2", (CLUSTERS,))
SUMMARY_TABLE = Stage("summaries", "3", (SUMMARIES,))


@stage_asset(
    TURN_CLUSTERS,
    deps=["turns"],
    kinds={"parquet"},
    table=CLUSTERS,
    columns=("cluster_id", "session_id", "ordinal", "trivial"),
)
def cluster_old_turns(night: Night) -> StageResult:
    """Clusters of turns outside each session's protected tail."""
    size = night.settings.compaction.cluster_size
    tail = night.settings.compaction.protected_tail_turns
    now_us = time.time_ns() // 1000

    def body() -> StageOutput:
        sessions = iter_sessions(night.work(TURNS), night.work(MEMORIES))
        rows, facts = cluster_sessions(
            night.work(CLUSTERS), sessions, size, protected_tail=tail, now_us=now_us
        )
        return StageOutput(rows, facts)

    inputs: dict[str, Any] = {
        "corpus": night.result_of(CORPUS).digest,
        "cluster_size": size,
        "protected_tail_turns": tail,
        # Of one corpus they only ever become fewer, so that their number says which they are.
        "future_turns": count_later(night.work(TURNS), now_us),
    }
    return night.finish(night.run(TURN_CLUSTERS, inputs, body))


@stage_asset(
    SUMMARY_TABLE,
    deps=["turn_clusters", "memory_vectors"],
    kinds={"parquet"},
    table=SUMMARIES,
    columns=("summary_id", "status", "method", "gate_align", "gate_cover", "gate_confidence"),
    workers=True,
)
def summarize_turn_clusters(night: Night) -> StageResult:
    """Summaries, each judged by the preservation gate and the fact check."""
    clusters = night.result_of(TURN_CLUSTERS)
    summarizer = open_summarizer(night.settings.compaction)
    recipe = summary_recipe(night, summarizer)
    before = load_result(night.paths.work, SUMMARY_TABLE)
    # A model that gave no answer last time may be back, though nothing else has changed.
    waiting = before is not None and not TRIED_AGAIN.isdisjoint(before.facts["by_fallback"])

    def body() -> StageOutput:
        backend, encoder = chosen_backend(night), night.encoder
        made = summarize_clusters(
            ClusterSources(night.work(CLUSTERS), night.work(MEMORIES), night.work(VECTORS)),
            night.work(SUMMARIES),
            night.content(summary_kind(recipe)),
            lambda texts: encoder.embed(backend, texts).vectors,
            lambda vectors: encoder.keep(backend, vectors),
            summarizer=summarizer,
            settings=SummarySettings.of(night.settings.compaction),
            export=encoder.onnx_directory if backend.is_onnx and summarizer.is_local else None,
            runner=night.runner,
            shards=night.shards(SUMMARY_TABLE.name),
            progress=night.progress,
        )
        facts = summary_facts(night.work(SUMMARIES))
        return StageOutput(clusters.rows, facts, {"summaries_made": made})

    inputs = {
        "clusters": clusters.digest,
        "vectors": night.result_of(MEMORY_VECTORS).digest,
        "recipe": recipe,
    }
    return night.finish(night.run(SUMMARY_TABLE, inputs, body, always=waiting))


def summary_recipe(night: Night, summarizer: Summarizer) -> str:
    """Digest what decides a summary tonight, besides its turns."""
    kind = vector_kind(night.encoder.fingerprint, chosen_backend(night).tag)
    return recipe_digest(kind, SummarySettings.of(night.settings.compaction), summarizer)


def accepted_summaries(night: Night) -> list[Summary]:
    """Return the summaries that may reach a snapshot."""
    return [s for s in iter_summaries(night.work(SUMMARIES)) if s.status == "accepted"]


@dg.asset_check(asset=SUMMARY_TABLE.name, blocking=True)
def every_accepted_summary_names_its_sources(night: dg.ResourceParam[Night]) -> dg.AssetCheckResult:
    """An accepted summary lists at least two turns and a gate report that passed."""
    accepted = bad = 0
    for s in iter_summaries(night.work(SUMMARIES)):
        if s.status == "accepted":
            accepted += 1
            bad += len(s.source_ids) < 2 or s.report is None or not s.report.passed
    return judge(night, SUMMARY_TABLE, bad == 0, {"accepted": accepted, "bad": bad})
