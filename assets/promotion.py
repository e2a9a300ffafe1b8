"""Group promotion: which turns should be remembered for good. Proposals only."""

from __future__ import annotations

from typing import Any

import dagster as dg

from assets.reporting import OWNERS, report_stage
from noctuary.curate.promotions import FAULTS, count_faults
from noctuary.curate.promotions import PROMOTIONS as PROPOSALS
from noctuary.night.context import Night
from noctuary.night.proposals import PROMOTION, propose_promotions

GROUP = "promotion"


@dg.asset(
    deps=["memories", "turns", "memory_vectors"],
    group_name=GROUP,
    kinds={"parquet"},
    owners=list(OWNERS),
    code_version=PROMOTION.version,
)
def promotion_proposals(night: dg.ResourceParam[Night]) -> dg.MaterializeResult[Any]:
    """Every turn that a person said with its gating scalar, and whether it is proposed."""
    return report_stage(
        night,
        propose_promotions(night),
        table=PROPOSALS,
        columns=("turn_id", "decision", "reason", "g", "t", "h", "r"),
    )


@dg.asset_check(asset=promotion_proposals)
def every_proposal_reached_the_threshold_and_says_something(
    night: dg.ResourceParam[Night],
) -> dg.AssetCheckResult:
    """Every proposal has G at the threshold or above, marks of its own and no self as neighbour."""
    counts = count_faults(night.work(PROPOSALS))
    return dg.AssetCheckResult(passed=not any(counts[name] for name in FAULTS), metadata=counts)
