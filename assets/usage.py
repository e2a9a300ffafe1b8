"""Group usage: what was recalled since the store exists."""

from __future__ import annotations

from typing import Any

import dagster as dg

from assets.reporting import OWNERS, report_stage
from mnemon.night.context import Night
from mnemon.night.usage import ACCESS_STATISTICS, fold_accesses


@dg.asset(
    deps=["memories"],
    group_name="usage",
    kinds={"sqlite"},
    owners=list(OWNERS),
    code_version=ACCESS_STATISTICS.version,
)
def access_statistics(night: dg.ResourceParam[Night]) -> dg.MaterializeResult[Any]:
    """Retrievals and last access per memory, folded from the access log."""
    return report_stage(night, fold_accesses(night))
