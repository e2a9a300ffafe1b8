"""Group promotion: which turns should be remembered for good. Proposals only."""

from __future__ import annotations

from typing import Any

import dagster as dg

from assets.reporting import OWNERS, report_stage
from mnemon.night.context import Night
from mnemon.night.promotion import PROMOTION, propose_promotions
from mnemon.promote.table import PROPOSALS, PROPOSE, SCORES, PromotionTable, read_table

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
    table = read_table(night.work(PROPOSALS))
    bad = count_faults(table)
    return dg.AssetCheckResult(
        passed=not any(bad.values()),
        metadata={"proposals": len(table.proposals()), "judged": len(table.rows), **bad},
    )


def count_faults(table: PromotionTable) -> dict[str, int]:
    """Return how many rows break each rule of the table."""
    proposed = [row for row in table.rows if row.decision == PROPOSE]
    return {
        "below_threshold": sum(row.scores["g"] < table.threshold for row in proposed),
        "without_marks": sum(not row.marks for row in proposed),
        "out_of_range": sum(
            not 0.0 <= row.scores[name] <= 1.0 for row in table.rows for name in SCORES
        ),
        "own_neighbours": sum(
            row.turn_id in {n.memory_id for n in row.neighbours} for row in table.rows
        ),
    }
