"""One compaction of one store, in a process of its own.

`python -m bench.compaction_growth.measure FOLDER`. The store was made by another process
(`bench.compaction_growth.corpus`), so that the memory of making it is not counted.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from bench.compaction_growth.corpus import WordVectors
from noctuary.compact.clusters import CHRONOLOGICAL, ClusterSources, cluster_sessions, iter_sessions
from noctuary.compact.summaries import (
    SummarySettings,
    recipe_digest,
    summarize_clusters,
    summary_facts,
    summary_kind,
)
from noctuary.compact.summarizers import open_summarizer
from noctuary.core.settings import CompactionSettings
from noctuary.sources.corpus import MEMORIES_FILE, TURNS_FILE
from noctuary.work.content import ContentStore
from noctuary.work.runner import LocalRunner
from noctuary.work.stage import measure

_DEFAULTS = CompactionSettings()
_SUMMARIZER = open_summarizer(_DEFAULTS)
_SETTINGS = SummarySettings.of(_DEFAULTS)
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
        "clustering": asdict(clustering),
        "summarising": asdict(first),
        "nothing_new": asdict(again),
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
            for name in ("clusters.parquet", "summaries.parquet")
        },
    }


def _cluster(folder: Path) -> dict[str, Any]:
    sessions = iter_sessions(folder / TURNS_FILE, folder / MEMORIES_FILE)
    _, facts = cluster_sessions(folder / "clusters.parquet", sessions)
    return facts


def _summarize(folder: Path) -> tuple[dict[str, Any], int]:
    encoder = WordVectors()

    table = folder / "summaries.parquet"
    made = summarize_clusters(
        ClusterSources(
            folder / "clusters.parquet", folder / MEMORIES_FILE, folder / "memories.npy"
        ),
        table,
        ContentStore(folder / "content", summary_kind(_RECIPE)),
        encoder.encode,
        summarizer=_SUMMARIZER,
        settings=_SETTINGS,
        export=None,
        runner=LocalRunner(1),
        shards=folder / "shards",
    )
    return summary_facts(table), made


if __name__ == "__main__":
    print(json.dumps(measure_compaction(Path(sys.argv[1]))))
