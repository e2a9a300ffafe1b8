"""Stages turn_clusters and summaries: old turns are grouped, and every group is summarised.

What belongs here: the wiring of files, settings and encoder. Both stages stream: what is in memory
is one session's turns without their texts, or one batch of clusters with them.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.compact.attempts import TRIED_AGAIN
from noctuary.compact.cluster_table import write_clusters
from noctuary.compact.clusters import Cluster, cluster_session
from noctuary.compact.context import SessionContext
from noctuary.compact.escalation import SummarySettings
from noctuary.compact.streaming import (
    ClusterSources,
    count_later,
    iter_cluster_texts,
    iter_clusters_only,
    iter_sessions,
)
from noctuary.compact.summaries import (
    NOTHING_KNOWN,
    BatchResult,
    Known,
    recipe_digest,
    summarize_batch,
)
from noctuary.compact.summarizers.base import Summarizer
from noctuary.compact.summarizers.opening import open_summarizer
from noctuary.compact.summary import Summary
from noctuary.compact.tables import SummaryWriter, iter_summaries, read_known
from noctuary.errors import StoreError
from noctuary.night.cluster_results import ClusterResults, fill_results, remember_vectors, task_of
from noctuary.night.compaction_facts import ClusterTally, SummaryTally
from noctuary.night.context import (
    ATTEMPTS,
    CLUSTERS,
    MEMORIES,
    SUMMARIES,
    TURNS,
    VECTORS,
    Night,
)
from noctuary.night.corpus import CORPUS
from noctuary.night.embedding import embed
from noctuary.night.vectors import MEMORY_VECTORS, chosen_face
from noctuary.settings import CompactionSettings
from noctuary.vectors.embed import memo_kind
from noctuary.work.memo import Memo
from noctuary.work.stage import Stage, StageResult, load_result

TURN_CLUSTERS = Stage("turn_clusters", "2", (CLUSTERS,))
SUMMARY_TABLE = Stage("summaries", "2", (SUMMARIES, ATTEMPTS))


def cluster_old_turns(night: Night) -> StageResult:
    """Group the turns outside each session's protected tail."""
    corpus = night.result_of(CORPUS)
    settings = night.settings.compaction
    now_us = time.time_ns() // 1000

    def body() -> tuple[int, dict[str, Any]]:
        tally = ClusterTally()
        rows = write_clusters(night.work(CLUSTERS), _clusters(night, now_us, tally))
        return rows, tally.to_facts()

    inputs: dict[str, Any] = {
        "corpus": corpus.digest,
        "cluster_size": settings.cluster_size,
        "protected_tail_turns": settings.protected_tail_turns,
        # Of one corpus they only ever become fewer, so that their number says which they are.
        "future_turns": count_later(night.work(TURNS), now_us),
    }
    return night.finish(night.run(TURN_CLUSTERS, inputs, body))


def summarize_turn_clusters(night: Night) -> StageResult:
    """Summarise every cluster and judge every candidate.

    Those of unchanged clusters are used again: their texts are neither read nor embedded.
    """
    clusters = night.result_of(TURN_CLUSTERS)
    settings = _summary_settings(night.settings.compaction)
    summarizer = open_summarizer(night.settings.compaction)
    recipe = recipe_digest(
        memo_kind(night.fingerprint(), chosen_face(night).tag), settings, summarizer
    )
    # Only what its stamp vouches for: a table that was changed since must not be offered again.
    before = load_result(night.paths.work, SUMMARY_TABLE)
    vouched = before is not None
    # A model that gave no answer last time may be back, though nothing else has changed.
    # (An older noctuary's stamp does not tell, and its recipe is another anyway.)
    waiting = before is not None and not TRIED_AGAIN.isdisjoint(before.facts.get("by_fallback", ()))
    counts = {"made": 0, "texts_embedded": 0}

    def body() -> tuple[int, dict[str, Any]]:
        known = NOTHING_KNOWN
        if vouched:
            known = read_known(night.work(SUMMARIES), night.work(ATTEMPTS), recipe)
        tally = _summarize(night, summarizer, settings, known, recipe, clusters.rows, counts)
        return clusters.rows, tally.to_facts()

    inputs = {
        "clusters": clusters.digest,
        "vectors": night.result_of(MEMORY_VECTORS).digest,
        "recipe": recipe,
    }
    result = night.run(SUMMARY_TABLE, inputs, body, always=waiting)
    return night.finish(
        result.with_notes(summaries_made=counts["made"], texts_embedded=counts["texts_embedded"])
    )


def accepted_summaries(night: Night) -> list[Summary]:
    """Return the summaries that may reach a snapshot."""
    return [s for s in iter_summaries(night.work(SUMMARIES)) if s.status == "accepted"]


def _clusters(night: Night, now_us: int, tally: ClusterTally) -> Iterator[Cluster]:
    settings = night.settings.compaction
    size, tail = settings.cluster_size, settings.protected_tail_turns
    for turns in iter_sessions(night.work(TURNS), night.work(MEMORIES)):
        found = cluster_session(turns, size, protected_tail=tail, now_us=now_us)
        tally.add(found)
        yield from found.clusters


def _summarize(
    night: Night,
    summarizer: Summarizer,
    settings: SummarySettings,
    known: Known,
    recipe: str,
    clusters: int,
    counts: dict[str, int],
) -> SummaryTally:
    """Write both tables batch by batch."""
    sources = ClusterSources(night.work(CLUSTERS), night.work(MEMORIES), night.work(VECTORS))
    tables: tuple[Path, Path] = night.work(SUMMARIES), night.work(ATTEMPTS)
    tally, settled = SummaryTally(), settled_ids(known, summarizer)
    task = task_of(night, summarizer, settings)
    with Memo.open(night.paths.memo) as memo:
        if task is None:
            batches = _summarize_here(
                night, memo, sources, settled, counts,
                summarizer=summarizer, known=known, settings=settings,
            )  # fmt: skip
            _write_tables(tables, recipe, tally, batches)
            return tally
        results = fill_results(
            night, task, sources,
            known=known, settled=settled, recipe=recipe, clusters=clusters,
        )  # fmt: skip
        counts["made"] = results.made
        _write_tables(tables, recipe, tally, _bind_results(night, memo, results, counts))
    results.forget()
    return tally


def _write_tables(
    tables: tuple[Path, Path], recipe: str, tally: SummaryTally, batches: Iterable[BatchResult]
) -> None:
    with SummaryWriter.open(*tables, recipe=recipe) as writer:
        for result in batches:
            writer.add(result)
            tally.add(result.summaries, result.attempts)


def _summarize_here(
    night: Night,
    memo: Memo,
    sources: ClusterSources,
    settled: frozenset[str],
    counts: dict[str, int],
    **how: Any,
) -> Iterator[BatchResult]:
    """Summarise batch by batch in this process, with what earlier summaries a summarizer needs."""
    face, context, done = chosen_face(night), SessionContext(), 0
    clusters = night.result_of(TURN_CLUSTERS).rows

    def encode(texts: list[str]) -> NDArray[np.float32]:
        embedded = embed(night, face, texts, memo)
        counts["texts_embedded"] += embedded.computed
        return embedded.vectors

    for batch in iter_cluster_texts(sources, skip=settled):
        result = summarize_batch(batch, encode, context=context, **how)
        counts["made"] += result.made
        done += len(batch)
        night.progress.update(SUMMARY_TABLE.name, done, clusters)
        yield result


def _bind_results(
    night: Night, memo: Memo, results: ClusterResults, counts: dict[str, int]
) -> Iterator[BatchResult]:
    """Give what is settled, old or made just now, to tonight's clusters, batch by batch."""
    kind = memo_kind(night.fingerprint(), chosen_face(night).tag)
    for batch in iter_clusters_only(night.work(CLUSTERS)):
        vectors: dict[str, bytes] = {}
        known = results.known_of(batch, vectors)
        counts["texts_embedded"] += remember_vectors(memo, kind, vectors)
        result = summarize_batch(batch, _encode_nothing, known=known)
        if result.made:
            raise StoreError(
                f"found {result.made} clusters without a usable summary, expected none: run the "
                "nightly job again"
            )
        yield result


def _encode_nothing(texts: list[str]) -> NDArray[np.float32]:
    return np.empty((len(texts), 0), dtype=np.float32)


def settled_ids(known: Known, summarizer: Summarizer) -> frozenset[str]:
    """Return the clusters whose summaries are certainly used again, so that no text is read.

    Where a summarizer is shown earlier summaries, only `summarize_batch` can tell.
    """
    if summarizer.uses_context:
        return frozenset()
    return frozenset(
        cluster_id
        for cluster_id, summary in known.summaries.items()
        if summary.fallback not in TRIED_AGAIN
    )


def _summary_settings(settings: CompactionSettings) -> SummarySettings:
    return SummarySettings(
        density=settings.density,
        aggressive_density=settings.aggressive_density,
        threshold=settings.preserve_threshold,
    )
