"""Jobs: which assets run together."""

from __future__ import annotations

import dagster as dg

NIGHTLY_JOB = dg.define_asset_job(
    "nightly",
    selection=dg.AssetSelection.all(),
    description="The whole night: export, embed, index, connect, compact, evaluate, publish.",
)
