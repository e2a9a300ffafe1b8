"""Group compact: clusters of old turns and their summaries. Raw turns are never touched."""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
from numpy.typing import NDArray

from noctuary.compact.clusters import (
    Cluster,
    ClusterText,
    SessionClusters,
    cluster_session,
    write_clusters,
)
from noctuary.compact.escalation import SummarySettings
from noctuary.compact.summaries import (
    NOTHING_KNOWN,
    SHARD_CLUSTERS,
    BatchResult,
    ClusterSources,
    Known,
    Settled,
    SummarizeClusters,
    cluster_key,
    cluster_rows,
    count_later,
    iter_cluster_texts,
    iter_clusters_only,
    iter_sessions,
    read_settled,
    recipe_digest,
    summarize_batch,
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
from noctuary.compact.tables import SummaryWriter, iter_summaries, read_known
from noctuary.core.errors import StoreError
from noctuary.core.files import remove_tree
from noctuary.core.settings import CompactionSettings
from noctuary.embed.documents import memo_kind, text_key
from noctuary.embed.onnx import onnx_directory
from noctuary.work.fragments import FragmentStore, RecordBatch, fill
from noctuary.work.stage import Memo, Stage, StageResult, load_result
from noctuary_assets import index, ingest
from noctuary_assets.index import MEMORY_VECTORS, chosen_face, vector_kind
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
#
# The tables are what one night leaves to the next; the fragments only let a killed night go on.


_SELF_CONTAINED = (ExtractiveSummarizer, SentenceSummarizer)
"""Summarizers that read nothing but their cluster and load no model."""


def task_of(
    night: Night, summarizer: Summarizer, settings: SummarySettings
) -> SummarizeClusters | None:
    """Return the task that summarises tonight's clusters; None where it must be done here."""
    if not isinstance(summarizer, _SELF_CONTAINED):
        return None
    if vector_kind(night, chosen_face(night)) is None:
        return None
    export = onnx_directory(night.paths.encoders, night.fingerprint())
    return SummarizeClusters(summarizer, settings, export)


@dataclass(frozen=True, slots=True)
class ClusterResults:
    """What the runner made of the clusters that earlier nights did not know.

    Attributes:
        made: Clusters summarised now.
        store: Their results.
        known: What earlier nights made.
        settled: Clusters of which that is used again.
    """

    made: int
    store: FragmentStore
    known: Known
    settled: Set[str]

    def known_of(self, batch: Sequence[ClusterText], vectors: dict[str, bytes]) -> Known:
        """Return summaries and attempts of a batch of clusters, old ones and new ones.

        Args:
            batch: Clusters of tonight.
            vectors: Takes up the vectors of the texts that were judged, by the text's key.

        Raises:
            StoreError: A fragment is damaged.
        """
        new = [item.cluster for item in batch if item.cluster.cluster_id not in self.settled]
        summaries: dict[str, Summary] = dict[str, Summary]()
        attempts: dict[str, tuple[Attempt, ...]] = {}
        for cluster, found in zip(new, self._read(new), strict=True):
            summaries[cluster.cluster_id] = found.summary
            if found.attempts:
                attempts[cluster.cluster_id] = found.attempts
            vectors.update({text_key(text): vector for text, vector in found.vectors.items()})
        for item in batch:
            if (cluster_id := item.cluster.cluster_id) in self.settled:
                summaries[cluster_id] = self.known.summaries[cluster_id]
                attempts[cluster_id] = self.known.attempts.get(cluster_id, ())
        return Known(summaries, attempts)

    def forget(self) -> None:
        """Remove the fragments: the tables hold all of it."""
        remove_tree(self.store.directory)

    def _read(self, clusters: Sequence[Cluster]) -> Iterator[Settled]:
        handles = self.store.find([cluster_key(cluster) for cluster in clusters])
        if (handles < 0).any():
            raise StoreError(
                f"{int((handles < 0).sum())} of {len(handles)} summaries that were just made are "
                f"gone from {self.store.directory}: run the nightly job again"
            )
        values = self.store.take(handles)
        return iter(()) if values is None else map(read_settled, values.to_pylist())


def fill_results(
    night: Night,
    task: SummarizeClusters,
    sources: ClusterSources,
    *,
    known: Known,
    settled: Set[str],
    recipe: str,
    clusters: int,
) -> ClusterResults:
    """Summarise the clusters that are not settled, each once, through tonight's runner.

    Args:
        night: The night.
        task: What `task_of` returned.
        sources: Where clusters, texts and vectors lie.
        known: What earlier nights made with this recipe.
        settled: Ids of clusters of which that is used again.
        recipe: See `recipe_digest`.
        clusters: How many there are, for the progress.

    Raises:
        ShardError: The task failed; what was made is kept.
        EncoderError: The export is absent or damaged.
    """
    store = night.fragments(f"summaries:{recipe}")
    filled = fill(
        store,
        _new_rows(sources, settled),
        task,
        night.runner(),
        night.shards(task.name),
        night.progress,
        total=max(clusters - len(settled), 0),
        shard_rows=SHARD_CLUSTERS,
    )
    return ClusterResults(filled.computed, store, known, settled)


def remember_vectors(memo: Memo, kind: str, vectors: Mapping[str, bytes]) -> int:
    """Put vectors into the memo, for the pack and the gate; return how many were new to it."""
    held = memo.get_many(kind, vectors)
    new = {key: vector for key, vector in vectors.items() if key not in held}
    memo.put_many(kind, new)
    return len(new)


def _new_rows(sources: ClusterSources, settled: Set[str]) -> Iterable[RecordBatch]:
    for batch in iter_cluster_texts(sources, skip=settled):
        new = [item for item in batch if item.cluster.cluster_id not in settled]
        if new:
            yield cluster_rows(new)


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
