"""Group compact: clusters of old turns and their summaries. Raw turns are never touched."""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

import dagster as dg
import numpy as np
from numpy.typing import NDArray

from noctuary.compact.clusters import (
    Cluster,
    SessionClusters,
    cluster_session,
    write_clusters,
)
from noctuary.compact.escalation import SummarySettings
from noctuary.compact.summaries import (
    SHARD_CLUSTERS,
    BatchResult,
    ClusterSources,
    Settled,
    SummarizeClusters,
    cluster_rows,
    count_later,
    iter_cluster_texts,
    iter_clusters_only,
    iter_sessions,
    read_settled,
    recipe_digest,
    result_key,
    summarize_batch,
    write_settled,
)
from noctuary.compact.summarizers import (
    TRIED_AGAIN,
    Attempt,
    ExtractiveSummarizer,
    SentenceSummarizer,
    SessionContext,
    Summarizer,
    Summary,
    open_summarizer,
)
from noctuary.compact.tables import SummaryWriter, iter_summaries
from noctuary.core.errors import StoreError
from noctuary.core.settings import CompactionSettings
from noctuary.embed.documents import put_vectors, text_key, vector_kind
from noctuary.embed.onnx import onnx_directory
from noctuary.work.content import VALUE, ContentStore, fill
from noctuary.work.shards import RecordBatch, open_table
from noctuary.work.stage import Stage, StageResult, load_result
from noctuary_assets import index, ingest
from noctuary_assets.index import MEMORY_VECTORS, chosen_face
from noctuary_assets.ingest import CORPUS
from noctuary_assets.night import (
    ATTEMPTS,
    CLUSTERS,
    MEMORIES,
    SUMMARIES,
    TURNS,
    VECTORS,
    Night,
    embed,
    face_store,
)
from noctuary_assets.reporting import judge, report_stage
from noctuary_assets.workers import Workers

# What the stages of compaction say of their work, counted while it streams past.


_QUANTILES = {"min": 0.0, "p10": 0.1, "median": 0.5, "p90": 0.9, "max": 1.0}
_DECIMALS = 4


class ClusterTally:
    """Counts sessions as they are clustered; every turn is in exactly one of the counts."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._sizes: Counter[int] = Counter()

    def add(self, found: SessionClusters) -> None:
        """Count one session."""
        split = found.split
        sizes = [len(cluster.member_ids) for cluster in found.clusters]
        self._sizes.update(sizes)
        self._counts.update(
            sessions=1,
            clusters=len(sizes),
            clustered_turns=len(split.eligible),
            protected_turns=split.protected,
            bundled_turns=split.bundled,
            future_turns=split.ahead,
            giant_turns=split.giant,
        )

    @property
    def clusters(self) -> int:
        """Return how many clusters there are."""
        return self._sizes.total()

    def to_facts(self) -> dict[str, Any]:
        """Return the stage's facts; `bundled_turns` are among the protected."""
        count = self._counts
        raw = count["protected_turns"] + count["future_turns"] + count["giant_turns"]
        sizes = sorted(self._sizes.elements())
        return {
            "sessions": count["sessions"],
            "turns": count["clustered_turns"] + raw,
            "clustered_turns": count["clustered_turns"],
            "protected_turns": count["protected_turns"],
            "bundled_turns": count["bundled_turns"],
            "future_turns": count["future_turns"],
            "giant_turns": count["giant_turns"],
            "trivial_clusters": self._sizes[1],
            "cluster_turns": quantiles(sizes),
        }


class SummaryTally:
    """Counts summaries and rejected candidates as they are written."""

    def __init__(self) -> None:
        self._status: Counter[str] = Counter()
        self._method: Counter[str] = Counter()
        self._fallback: Counter[str] = Counter()
        self._outcome: Counter[str] = Counter()
        self._sums: Counter[str] = Counter()
        self._align = array("d")
        self._cover = array("d")

    def add(self, summaries: Sequence[Summary], attempts: Sequence[Attempt]) -> None:
        """Count one batch."""
        self._outcome.update(attempt.outcome.value for attempt in attempts)
        for summary in summaries:
            self._status[summary.status] += 1
            if summary.fallback:
                self._fallback[summary.fallback] += 1
            if summary.report is not None:
                self._align.append(summary.report.align)
                self._cover.append(summary.report.cover)
            if summary.status == "accepted":
                self._accept(summary)

    def to_facts(self) -> dict[str, Any]:
        """Return the stage's facts: tokens and facts are those of accepted summaries."""
        sums = self._sums
        before, after = sums["source_tokens"], sums["summary_tokens"]
        return {
            "by_status": _sorted(self._status),
            "by_method": _sorted(self._method),
            "by_fallback": _sorted(self._fallback),
            "attempts_by_outcome": _sorted(self._outcome),
            "summarised_turns": sums["turns"],
            "source_tokens": before,
            "summary_tokens": after,
            "tokens_saved_share": round(1.0 - after / before, _DECIMALS) if before else None,
            "q_align": quantiles(sorted(self._align)),
            "q_cover": quantiles(sorted(self._cover)),
            "facts_kept": sums["facts_kept"],
            "facts_total": sums["facts_total"],
            "facts_kept_share": (
                round(sums["facts_kept"] / sums["facts_total"], _DECIMALS)
                if sums["facts_total"]
                else None
            ),
        }

    def _accept(self, summary: Summary) -> None:
        self._method[summary.method] += 1
        self._sums.update(
            turns=len(summary.source_ids),
            source_tokens=summary.source_tokens,
            summary_tokens=summary.summary_tokens,
            facts_kept=summary.facts.kept if summary.facts else 0,
            facts_total=summary.facts.total if summary.facts else 0,
        )


def quantiles(ascending: Sequence[float]) -> dict[str, float]:
    """Return min, p10, median, p90 and max by nearest rank, rounded; empty for no values.

    Args:
        ascending: Sorted values.
    """
    if not ascending:
        return {}
    last = len(ascending) - 1
    return {
        name: round(ascending[round(last * share)], _DECIMALS) for name, share in _QUANTILES.items()
    }


def _sorted(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items()))


# Summaries of new clusters, made through the runner before the tables are written.


_SELF_CONTAINED = (ExtractiveSummarizer, SentenceSummarizer)
"""Summarizers that read nothing but their cluster and load no model."""


def task_of(
    night: Night, summarizer: Summarizer, settings: SummarySettings
) -> SummarizeClusters | None:
    """Return the task that summarises tonight's clusters; None where it must be done here."""
    if not isinstance(summarizer, _SELF_CONTAINED):
        return None
    if not chosen_face(night).is_onnx:
        return None
    export = onnx_directory(night.paths.encoders, night.fingerprint())
    return SummarizeClusters(summarizer, settings, export)


# Stages turn_clusters and summaries: old turns are grouped, and every group is summarised.
#
# Both stages stream: what is in memory is one session's turns without their texts, or one batch of
# clusters with them.


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
    recipe = summary_recipe(night, summarizer)
    before = load_result(night.paths.work, SUMMARY_TABLE)
    # A model that gave no answer last time may be back, though nothing else has changed.
    waiting = before is not None and not TRIED_AGAIN.isdisjoint(before.facts["by_fallback"])
    notes = {"summaries_made": 0, "texts_embedded": 0}

    def body() -> tuple[int, dict[str, Any]]:
        store = night.content(summary_kind(recipe))
        tally = SummaryTally()
        with SummaryWriter.open(night.work(SUMMARIES), night.work(ATTEMPTS)) as writer:
            for result in _summarize(night, store, summarizer, settings, notes):
                writer.add(result)
                tally.add(result.summaries, result.attempts)
        return clusters.rows, tally.to_facts()

    inputs = {
        "clusters": clusters.digest,
        "vectors": night.result_of(MEMORY_VECTORS).digest,
        "recipe": recipe,
    }
    result = night.run(SUMMARY_TABLE, inputs, body, always=waiting)
    return night.finish(result.with_notes(**notes))


def summary_recipe(night: Night, summarizer: Summarizer) -> str:
    """Return what decides a summary tonight, beside its turns."""
    kind = vector_kind(night.fingerprint(), chosen_face(night).tag)
    return recipe_digest(kind, _summary_settings(night.settings.compaction), summarizer)


def summary_kind(recipe: str) -> str:
    """Return the kind of what became of clusters by a recipe."""
    return f"summaries:{recipe}"


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
    store: ContentStore,
    summarizer: Summarizer,
    settings: SummarySettings,
    notes: dict[str, int],
) -> Iterator[BatchResult]:
    """Yield what became of tonight's clusters, batch by batch; the store keeps it and nothing else.

    Where the runner can make what is new, it does before the first batch is read.
    """
    sources = ClusterSources(night.work(CLUSTERS), night.work(MEMORIES), night.work(VECTORS))
    count, done = night.result_of(TURN_CLUSTERS).rows, 0
    face, context, keys = chosen_face(night), SessionContext(), list[bytes]()
    # A summarizer that is shown earlier summaries may see others: only a batch can tell.
    settled = set[str]() if summarizer.uses_context else _settled_ids(store, sources)
    task = task_of(night, summarizer, settings)
    if task is not None:
        _fill(night, store, task, sources, settled, notes, count)

    def known(wanted: Sequence[bytes]) -> Mapping[bytes, Settled]:
        return {key: read_settled(value) for key, value in store.get(wanted).items()}

    def encode(texts: list[str]) -> NDArray[np.float32]:
        embedded = embed(night, face, texts)
        notes["texts_embedded"] += embedded.computed
        return embedded.vectors

    batches = (
        iter_cluster_texts(sources, skip=settled)
        if task is None
        else iter_clusters_only(night.work(CLUSTERS))
    )
    for batch in batches:
        result = summarize_batch(
            batch, encode, summarizer=summarizer, known=known, settings=settings, context=context
        )
        if task is None:
            store.put(list(result.fresh), list(map(write_settled, result.fresh.values())))
            notes["summaries_made"] += result.made
            done += len(batch)
            night.progress.update(SUMMARY_TABLE.name, done, count)
        elif result.made:
            raise StoreError(
                f"{result.made} of {len(batch)} summaries that were just made are gone from "
                f"{store.directory}: run the nightly job again"
            )
        keys += result.keys
        yield result
    store.prune(keys)


def _settled_ids(store: ContentStore, sources: ClusterSources) -> set[str]:
    """Return the clusters whose summaries are used again, so that no text of theirs is read."""
    settled: set[str] = set()
    for batch in iter_clusters_only(sources.clusters):
        held = store.find([result_key(item.cluster) for item in batch]) >= 0
        settled |= {
            item.cluster.cluster_id
            for item, is_held in zip(batch, held.tolist(), strict=True)
            if is_held
        }
    return settled


def _fill(
    night: Night,
    store: ContentStore,
    task: SummarizeClusters,
    sources: ClusterSources,
    settled: Set[str],
    notes: dict[str, int],
    count: int,
) -> None:
    """Summarise the clusters that are not settled, each once, through tonight's runner.

    Raises:
        ShardError: The task failed; what was made is kept.
        EncoderError: The export is absent or damaged.
    """
    before = {fragment.key for fragment in store.fragments}
    filled = fill(
        store,
        _new_rows(sources, settled),
        task,
        night.runner(),
        night.shards(task.name),
        night.progress,
        total=max(count - len(settled), 0),
        shard_rows=SHARD_CLUSTERS,
    )
    notes["summaries_made"] = filled.computed
    vectors = face_store(night, chosen_face(night))
    for fragment in store.fragments:
        if fragment.key not in before:
            made = map(read_settled, open_table(fragment.path)[VALUE].to_pylist())
            found = {text_key(t): v for item in made for t, v in item.vectors.items()}
            is_held = (vectors.find(list(found)) >= 0).tolist()
            new = {k: found[k] for k, held in zip(found, is_held, strict=True) if not held}
            put_vectors(vectors, new)
            notes["texts_embedded"] += len(new)


def _new_rows(sources: ClusterSources, settled: Set[str]) -> Iterable[RecordBatch]:
    for batch in iter_cluster_texts(sources, skip=settled):
        new = [item for item in batch if item.cluster.cluster_id not in settled]
        if new:
            yield cluster_rows(new)


def _summary_settings(settings: CompactionSettings) -> SummarySettings:
    return SummarySettings(
        density=settings.density,
        aggressive_density=settings.aggressive_density,
        threshold=settings.preserve_threshold,
    )


# Stage compaction_plan: what `noctuary compact --apply` would archive after this night.
#
# It comes after publishing: a plan is made of what serves, so that the command finds the same
# plan, under the same id, until the next night. Kept are ids and numbers only: a row that turns
# sensitive leaves no text here.


@dg.asset(
    deps=[ingest.turns],
    kinds={"parquet"},
    code_version=TURN_CLUSTERS.version,
)
def turn_clusters(night: dg.ResourceParam[Night]) -> dg.MaterializeResult[Any]:
    """Clusters of the turns outside each session's protected tail."""
    return report_stage(
        night,
        cluster_old_turns(night),
        table=CLUSTERS,
        columns=("cluster_id", "session_id", "ordinal", "trivial"),
    )


@dg.asset(
    deps=[turn_clusters, index.memory_vectors],
    kinds={"parquet"},
    code_version=SUMMARY_TABLE.version,
)
def summaries(night: dg.ResourceParam[Night], workers: Workers) -> dg.MaterializeResult[Any]:
    """Summaries, each judged by the preservation gate and the fact check.

    Rejected candidates are kept with their reports in a table of their own.
    """
    return report_stage(
        night,
        summarize_turn_clusters(night),
        table=SUMMARIES,
        columns=("summary_id", "status", "method", "gate_align", "gate_cover", "gate_confidence"),
    )


@dg.asset_check(asset=summaries, blocking=True)
def every_accepted_summary_names_its_sources(night: dg.ResourceParam[Night]) -> dg.AssetCheckResult:
    """An accepted summary lists at least two turns and a gate report that passed."""
    accepted = bad = 0
    for s in iter_summaries(night.work(SUMMARIES)):
        if s.status == "accepted":
            accepted += 1
            bad += len(s.source_ids) < 2 or s.report is None or not s.report.passed
    return judge(night, SUMMARY_TABLE, bad == 0, {"accepted": accepted, "bad": bad})
