"""Stages turn_clusters and summaries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemon.compact.clusters import cluster_turns
from mnemon.compact.summaries import (
    Summary,
    SummarySettings,
    recipe_digest,
    summarize_clusters,
)
from mnemon.compact.tables import (
    read_clusters,
    read_known,
    read_summaries,
    write_clusters,
    write_summaries,
)
from mnemon.corpus.export import read_records
from mnemon.files import read_array
from mnemon.hooks import fire, has_hooks
from mnemon.night.context import CLUSTERS, MEMORIES, SUMMARIES, VECTORS, Night
from mnemon.night.corpus import CORPUS
from mnemon.night.embedding import embed
from mnemon.night.vectors import MEMORY_VECTORS, chosen_face
from mnemon.text.sensitivity import find_text_sensitivity
from mnemon.vectors.embed import memo_kind
from mnemon.work.memo import Memo
from mnemon.work.stage import Stage, StageResult, load_result

PLAN_HOOK = "post_compaction_plan"
TURN_CLUSTERS = Stage("turn_clusters", "1", (CLUSTERS,))
SUMMARY_TABLE = Stage("summaries", "1", (SUMMARIES,))


def cluster_old_turns(night: Night) -> StageResult:
    """Partition the turns outside each session's protected tail."""
    corpus = night.result_of(CORPUS)
    settings = night.settings.compaction

    def body() -> tuple[int, dict[str, Any]]:
        records = read_records(night.work(MEMORIES))
        clusters = cluster_turns(
            records, target=settings.cluster_size, protected_tail=settings.protected_tail_turns
        )
        write_clusters(night.work(CLUSTERS), clusters)
        turns = sum(r.is_turn for r in records)
        clustered = sum(len(c.member_positions) for c in clusters)
        return len(clusters), {
            "turns": turns,
            "clustered_turns": clustered,
            "protected_turns": turns - clustered,
            "trivial_clusters": sum(c.trivial for c in clusters),
        }

    inputs = {
        "corpus": corpus.digest,
        "cluster_size": settings.cluster_size,
        "protected_tail_turns": settings.protected_tail_turns,
    }
    result = night.run(TURN_CLUSTERS, inputs, body)
    return night.finish(result.with_notes(hook_faults=_tell_plan(night)))


def _tell_plan(night: Night) -> str | None:
    """Tell the hooks what compaction is about to summarise; return what went wrong there.

    Nothing is archived yet: raw turns stay, and a summary stands beside them.
    """
    if not has_hooks(PLAN_HOOK):
        return None
    clusters = read_clusters(night.work(CLUSTERS))
    groups = [
        {
            "cluster_id": c.cluster_id,
            "session_id": c.session_id,
            "trivial": c.trivial,
            "memory_ids": list(c.member_ids),
        }
        for c in clusters
    ]
    candidates = [
        {"memory_id": memory_id, "cluster_id": c.cluster_id}
        for c in clusters
        for memory_id in c.member_ids
    ]
    context = {
        "candidates": candidates,
        "groups": groups,
        "would_archive": 0,
        "would_create_summaries": sum(not c.trivial for c in clusters),
    }
    return "; ".join(fire(PLAN_HOOK, context)) or None


def summarize_turn_clusters(night: Night) -> StageResult:
    """Summarise every cluster and judge every summary.

    Those of unchanged clusters are used again.
    """
    clusters_result = night.result_of(TURN_CLUSTERS)
    vectors_result = night.result_of(MEMORY_VECTORS)
    fingerprint = night.fingerprint()
    settings = SummarySettings(threshold=night.settings.compaction.preserve_threshold)
    face = chosen_face(night)
    recipe = recipe_digest(memo_kind(fingerprint, face.tag), settings)
    counts = {"made": 0}
    # Only what its stamp vouches for: a table that was changed since must not be offered again.
    vouched = load_result(night.paths.work, SUMMARY_TABLE) is not None

    def body() -> tuple[int, dict[str, Any]]:
        clusters = read_clusters(night.work(CLUSTERS))
        contents = [r.content for r in read_records(night.work(MEMORIES))]
        vectors = read_array(night.work(VECTORS))
        known = read_known(night.work(SUMMARIES), recipe) if vouched else {}
        counts["made"] = sum(c.cluster_id not in known for c in clusters)
        with Memo.open(night.paths.memo) as memo:

            def encode(texts: list[str]) -> NDArray[np.float32]:
                return embed(night, face, texts, memo).vectors

            summaries = summarize_clusters(
                clusters,
                lambda positions: [contents[p] for p in positions],
                lambda positions: vectors[list(positions)],
                encode,
                known,
                night.progress,
                settings=settings,
            )
        summaries = [_withhold_secret(s) for s in summaries]
        write_summaries(night.work(SUMMARIES), summaries, recipe=recipe)
        return len(summaries), _facts(summaries)

    inputs = {
        "clusters": clusters_result.digest,
        "vectors": vectors_result.digest,
        "recipe": recipe,
    }
    result = night.run(SUMMARY_TABLE, inputs, body)
    return night.finish(result.with_notes(summaries_made=counts["made"]))


def _withhold_secret(summary: Summary) -> Summary:
    """Decline a summary that reads like a secret although none of its turns does.

    Turns are joined: "the password?" and the answer to it may meet. The gate would refuse the whole
    night for it.
    """
    reason = find_text_sensitivity(summary.text) if summary.status == "accepted" else None
    if reason is None:
        return summary
    return replace(summary, status="declined", reason=f"its text reads like {reason}")


def accepted_summaries(night: Night) -> list[Summary]:
    """Return the summaries that may reach a snapshot."""
    return [s for s in read_summaries(night.work(SUMMARIES)) if s.status == "accepted"]


def _facts(summaries: Sequence[Summary]) -> dict[str, Any]:
    accepted = [s for s in summaries if s.status == "accepted"]
    sources = sum(s.source_tokens for s in accepted)
    aligns = sorted(s.report.align for s in summaries if s.report is not None)
    return {
        "by_status": dict(sorted(Counter(s.status for s in summaries).items())),
        "source_tokens": sources,
        "summary_tokens": sum(s.summary_tokens for s in accepted),
        "lowest_q_align": round(aligns[0], 4) if aligns else None,
        "median_q_align": round(aligns[len(aligns) // 2], 4) if aligns else None,
    }
