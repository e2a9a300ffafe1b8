"""Group compaction: the plan of what could be archived. A night archives nothing."""

from __future__ import annotations

import json
from typing import Any

import dagster as dg

from assets.reporting import OWNERS, report_stage
from noctuary.night.compaction import COMPACTION_PLAN, PLAN, plan_compaction
from noctuary.night.context import Night

GROUP = "compaction"


@dg.asset(
    deps=["snapshot", "ltp_scores"],
    group_name=GROUP,
    kinds={"json"},
    owners=list(OWNERS),
    code_version=COMPACTION_PLAN.version,
)
def compaction_plan(night: dg.ResourceParam[Night]) -> dg.MaterializeResult[Any]:
    """What `noctuary compact --apply` would archive: candidates with their reasons, in groups.

    Empty unless the profile says adaptive_compaction.
    """
    return report_stage(night, plan_compaction(night))


@dg.asset_check(asset=compaction_plan)
def every_candidate_has_a_low_score_and_a_successor(
    night: dg.ResourceParam[Night],
) -> dg.AssetCheckResult:
    """No candidate is used, none is without a successor, none was accessed too recently."""
    plan = json.loads(night.work(PLAN).read_text(encoding="utf-8"))
    bad = [c["memory_id"] for c in plan["candidates"] if not _is_justified(c, plan["rules"])]
    return dg.AssetCheckResult(
        passed=not bad, metadata={"candidates": len(plan["candidates"]), "bad": len(bad)}
    )


def _is_justified(candidate: dict[str, Any], rules: dict[str, Any]) -> bool:
    return (
        candidate["decayed_ltp"] < rules["compaction_threshold"]
        and bool(candidate["superseded_by"])
        and candidate["superseded_by"] != candidate["memory_id"]
        and candidate["days_since_access"] >= rules["compaction_age_days"]
    )
