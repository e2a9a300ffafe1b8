"""Group usage: what was recalled since the store exists, and what every memory is worth by it."""

from __future__ import annotations

from typing import Any

import dagster as dg

from assets.reporting import OWNERS, report_stage
from noctuary.night.context import Night
from noctuary.night.usage import ACCESS_STATISTICS, LTP_SCORES, fold_accesses, score_memories


@dg.asset(
    deps=["memories"],
    group_name="usage",
    kinds={"sqlite"},
    owners=list(OWNERS),
    code_version=ACCESS_STATISTICS.version,
)
def access_statistics(night: dg.ResourceParam[Night]) -> dg.MaterializeResult[Any]:
    """Retrievals and last access per memory, folded from the access log.

    With them recall's usage.sqlite: recent retrievals, days, and what was recalled together.
    """
    return report_stage(night, fold_accesses(night))


@dg.asset(
    deps=["memories", access_statistics],
    group_name="usage",
    kinds={"sqlite"},
    owners=list(OWNERS),
    code_version=LTP_SCORES.version,
)
def ltp_scores(night: dg.ResourceParam[Night]) -> dg.MaterializeResult[Any]:
    """LTP multiplier, score in [0, 1] and last access of every memory, scanned in batches."""
    return report_stage(night, score_memories(night))
