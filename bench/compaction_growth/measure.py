"""One compaction of one store, in a process of its own.

`python -m bench.compaction_growth.measure FOLDER`. The store was made by another process
(`bench.compaction_growth.corpus`), so that the memory of making it is not counted.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from bench.compaction_growth.corpus import WordVectors
from noctuary.compact.clusters import CHRONOLOGICAL, Cluster, cluster_session, write_clusters
from noctuary.compact.escalation import SummarySettings
from noctuary.compact.summaries import (
    ClusterSources,
    Settled,
    iter_cluster_texts,
    iter_clusters_only,
    iter_sessions,
    read_settled,
    recipe_digest,
    result_key,
    summarize_batch,
    write_settled,
)
from noctuary.compact.summarizers import open_summarizer
from noctuary.compact.tables import SummaryWriter
from noctuary.core.settings import CompactionSettings
from noctuary.sources.corpus import MEMORIES_FILE, TURNS_FILE
from noctuary.work.content import ContentStore
from noctuary.work.stage import measure
from noctuary_assets.compact import ClusterTally, SummaryTally, summary_kind

_DEFAULTS = CompactionSettings()
_SUMMARIZER = open_summarizer(_DEFAULTS)
_SETTINGS = SummarySettings(
    density=_DEFAULTS.density,
    aggressive_density=_DEFAULTS.aggressive_density,
    threshold=_DEFAULTS.preserve_threshold,
)
_RECIPE = recipe_digest("words", _SETTINGS, _SUMMARIZER)


def measure_compaction(folder: Path) -> dict[str, Any]:
    """Return what it costs to cluster and summarise a store, and to do so again unchanged.

    The peak is of the whole process, interpreter and libraries included.
    """
    turns = pq.read_metadata(folder / TURNS_FILE).num_rows
    with measure() as clustering:
        clusters = _cluster(folder)
    with measure() as first:
        summaries, made = _summarize(folder)
    with measure() as again:
        repeated, made_again = _summarize(folder)
    return {
        "turns": turns,
        "strategy": CHRONOLOGICAL,
        "summarizer": _SUMMARIZER.name,
        "clustering": clustering.to_json(),
        "summarising": first.to_json(),
        "nothing_new": again.to_json(),
        "cpu_s": round((clustering.cpu_ms + first.cpu_ms) / 1000, 2),
        "peak_rss_bytes": max(clustering.peak_rss_bytes, first.peak_rss_bytes),
        "nothing_new_peak_rss_bytes": again.peak_rss_bytes,
        "made": made,
        "made_again": made_again,
        "same_facts_again": repeated == summaries,
        "clusters": clusters,
        "summaries": summaries,
        "table_bytes": {
            name: (folder / name).stat().st_size
            for name in ("clusters.parquet", "summaries.parquet", "attempts.parquet")
        },
    }


def _cluster(folder: Path) -> dict[str, Any]:
    tally = ClusterTally()

    def found() -> Iterator[Cluster]:
        for turns in iter_sessions(folder / TURNS_FILE, folder / MEMORIES_FILE):
            session = cluster_session(turns)
            tally.add(session)
            yield from session.clusters

    write_clusters(folder / "clusters.parquet", found())
    return tally.to_facts()


def _summarize(folder: Path) -> tuple[dict[str, Any], int]:
    encoder = WordVectors()
    tally, made = SummaryTally(), 0
    sources = ClusterSources(
        folder / "clusters.parquet", folder / MEMORIES_FILE, folder / "memories.npy"
    )
    tables = folder / "summaries.parquet", folder / "attempts.parquet"
    store = ContentStore(folder / "content", summary_kind(_RECIPE))

    def known(keys: Sequence[bytes]) -> Mapping[bytes, Settled]:
        return {key: read_settled(value) for key, value in store.get(keys).items()}

    settled = {
        item.cluster.cluster_id
        for batch in iter_clusters_only(sources.clusters)
        for item in batch
        if store.find([result_key(item.cluster)])[0] >= 0
    }
    with SummaryWriter.open(*tables) as writer:
        for batch in iter_cluster_texts(sources, skip=settled):
            result = summarize_batch(
                batch, encoder.encode, summarizer=_SUMMARIZER, known=known, settings=_SETTINGS
            )
            store.put(list(result.fresh), list(map(write_settled, result.fresh.values())))
            writer.add(result)
            tally.add(result.summaries, result.attempts)
            made += result.made
    return tally.to_facts(), made


if __name__ == "__main__":
    print(json.dumps(measure_compaction(Path(sys.argv[1]))))
