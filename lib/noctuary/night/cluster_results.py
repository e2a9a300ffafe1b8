"""Summaries of new clusters, made through the runner before the tables are written.

What belongs here: filling the fragments, reading them batch by batch, forgetting them. What does
not: the task (noctuary.compact.cluster_task), the tables (`compaction`), summarizers that need more
than their cluster.

The tables are what one night leaves to the next; the fragments only let a killed night go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from noctuary.compact.attempts import Attempt
from noctuary.compact.cluster_task import (
    SHARD_CLUSTERS,
    Settled,
    SummarizeClusters,
    cluster_key,
    cluster_rows,
    read_settled,
)
from noctuary.compact.cluster_text import ClusterText
from noctuary.compact.clusters import Cluster
from noctuary.compact.escalation import SummarySettings
from noctuary.compact.extractive import ExtractiveSummarizer
from noctuary.compact.streaming import ClusterSources, iter_cluster_texts
from noctuary.compact.summaries import Known
from noctuary.compact.summarizers.base import Summarizer
from noctuary.compact.summarizers.sentences import SentenceSummarizer
from noctuary.compact.summary import Summary
from noctuary.encode.onnx_format import onnx_directory
from noctuary.errors import StoreError
from noctuary.files import remove_tree
from noctuary.night.context import Night
from noctuary.night.vector_rows import vector_kind
from noctuary.night.vectors import chosen_face
from noctuary.shards.filling import fill
from noctuary.shards.fragment_store import FragmentStore
from noctuary.shards.task import RecordBatch
from noctuary.vectors.embed import text_key
from noctuary.work.memo import Memo

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
