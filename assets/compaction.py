"""Group compaction: clusters of old turns and their summaries with the gate's report.

Raw turns are never touched.
"""

from __future__ import annotations

from typing import Any

import dagster as dg

from assets.reporting import OWNERS, report_stage
from assets.workers import Workers
from noctuary.compact.tables import iter_summaries
from noctuary.night.compaction import (
    SUMMARY_TABLE,
    TURN_CLUSTERS,
    cluster_old_turns,
    summarize_turn_clusters,
)
from noctuary.night.context import CLUSTERS, SUMMARIES, Night

GROUP = "compaction"


@dg.asset(
    deps=["turns"],
    group_name=GROUP,
    kinds={"parquet"},
    owners=list(OWNERS),
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
    deps=[turn_clusters, "memory_vectors"],
    group_name=GROUP,
    kinds={"parquet"},
    owners=list(OWNERS),
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


@dg.asset_check(asset=summaries)
def every_accepted_summary_names_its_sources(night: dg.ResourceParam[Night]) -> dg.AssetCheckResult:
    """An accepted summary lists at least two turns and a gate report that passed."""
    accepted = bad = 0
    for s in iter_summaries(night.work(SUMMARIES)):
        if s.status == "accepted":
            accepted += 1
            bad += len(s.source_ids) < 2 or s.report is None or not s.report.passed
    return dg.AssetCheckResult(passed=bad == 0, metadata={"accepted": accepted, "bad": bad})
