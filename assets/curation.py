"""Group curation: what could be tidied in the source. Proposals only; nothing is written there."""

from __future__ import annotations

from typing import Any

import dagster as dg

from assets.reporting import OWNERS, report_stage
from noctuary.curate.apply import PROPOSALS
from noctuary.night.context import Night
from noctuary.night.proposals import CURATION, propose_curation

GROUP = "curation"


@dg.asset(
    deps=["memories", "memory_vectors", "supersessions"],
    group_name=GROUP,
    kinds={"parquet"},
    owners=list(OWNERS),
    code_version=CURATION.version,
)
def curation_proposals(night: dg.ResourceParam[Night]) -> dg.MaterializeResult[Any]:
    """Duplicates, superseded facts, contradictions and fragments; empty unless switched on."""
    return report_stage(
        night,
        propose_curation(night),
        table=PROPOSALS,
        columns=("proposal_id", "action", "kind", "confidence"),
    )
