"""Jobs: which assets run together."""

from __future__ import annotations

import dagster as dg

OWNER = "team:noctuary"  # of every asset of a night: in a project of others the job selects these

NIGHTLY_JOB = dg.define_asset_job(
    "nightly",
    selection=dg.AssetSelection.owner(OWNER).materializable(),
    # A step of its own would hold the store against the next one.
    executor_def=dg.in_process_executor,
    description="The whole night: export, embed, index, connect, compact, evaluate, publish.",
)
