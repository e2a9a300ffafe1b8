"""Jobs: which assets run together."""

from __future__ import annotations

import dagster as dg

from assets.shards import GROUP as SHARDS

NIGHTLY_JOB = dg.define_asset_job(
    "nightly",
    selection=dg.AssetSelection.all() - dg.AssetSelection.groups(SHARDS),
    description="The whole night: export, embed, index, connect, compact, evaluate, publish.",
)

SHARDS_JOB = dg.define_asset_job(
    "shards",
    selection=dg.AssetSelection.groups(SHARDS),
    description="The heavy steps of one shard, ahead of the night: backfill them all, or run one.",
)
"""Only where the store is cut into shards."""
