"""Group shards: the heavy steps of a store of many millions, shard by shard; made on demand.

The night needs none of them: it finds what they prepared, and computes the rest itself.
"""

from __future__ import annotations

from typing import Any

import dagster as dg

from assets.reporting import OWNERS
from assets.workers import Workers
from noctuary.corpus.partition import find_partition, partition_names
from noctuary.night.context import Night
from noctuary.night.shard import Prepared, prepare_shard
from noctuary.settings.scale_sections import ShardSettings

GROUP = "shards"

BACKFILL_TAG = "dagster/backfill"
"""Of every run that belongs to a backfill; Dagster sets it."""

_DESCRIPTIONS = {
    "shard_vectors": ("onnx", "Vectors of one shard's memories, ahead of memory_vectors."),
    "shard_tokens": ("arrow", "Tokens of one shard's memories, ahead of lexical_index."),
    "shard_extractions": ("arrow", "Extractions of one shard's memories, ahead of the graph."),
}


def make_shard_assets(settings: ShardSettings) -> list[dg.AssetsDefinition]:
    """Return one partitioned asset per heavy step; none where the store is not cut."""
    if not settings.shown:
        return []
    partitions = dg.StaticPartitionsDefinition(partition_names(settings.count))
    return [_make_asset(name, partitions, settings.count) for name in _DESCRIPTIONS]


def _make_asset(
    name: str, partitions: dg.StaticPartitionsDefinition, count: int
) -> dg.AssetsDefinition:
    kind, description = _DESCRIPTIONS[name]

    @dg.asset(
        name=name,
        deps=["memories"],
        group_name=GROUP,
        kinds={kind},
        owners=list(OWNERS),
        description=description,
        code_version="1",
        partitions_def=partitions,
    )
    def shard(shard_night: dg.ResourceParam[Night], workers: Workers) -> dg.MaterializeResult[Any]:
        context = dg.AssetExecutionContext.get()
        partition = find_partition(context.partition_key, count)
        # A backfill goes on where it was; whoever runs one shard wants it computed again.
        again = BACKFILL_TAG not in context.run.tags
        return _report(prepare_shard(shard_night, name, partition, again=again))

    return shard


def _report(prepared: Prepared) -> dg.MaterializeResult[Any]:
    """Describe what was done: numbers and digests only."""
    metadata: dict[str, Any] = {
        "dagster/row_count": prepared.rows,
        "computed": prepared.computed,
        "reused": prepared.reused,
        "forgotten": prepared.forgotten,
        "corpus": prepared.corpus,
        **prepared.cost.to_json(),
    }
    if prepared.declined:
        metadata["declined"] = prepared.declined
    return dg.MaterializeResult(metadata=metadata)
