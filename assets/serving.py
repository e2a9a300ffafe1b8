"""Group serving: the pack, the candidate, the gate's verdict and the published snapshot.

The checks shown here only display the verdict. What protects is publishing itself, which refuses
without a PASS for exactly the candidate's digest (noctuary.snapshot.publish).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dagster as dg

from assets.reporting import OWNERS, report_stage
from noctuary.core.errors import PublishRefusedError
from noctuary.night.abstention import read_calibration
from noctuary.night.context import Night
from noctuary.night.evaluation import FUSION_DECISION, read_drops
from noctuary.night.serving import (
    GATE_VERDICT,
    SERVING_PACK,
    SNAPSHOT,
    SNAPSHOT_CANDIDATE,
    build_serving_pack,
    judge_snapshot_candidate,
    publish_snapshot,
    seal_snapshot_candidate,
)
from noctuary.snapshot.checks import GATE_CHECKS
from noctuary.snapshot.verdict import PASS

GROUP = "serving"
CHECK_NAMES = ("files_match_the_manifest", *(check.__name__ for check in GATE_CHECKS))


@dg.asset(
    deps=[
        "memories",
        "query_encoder",
        "vector_tiers",
        "lexical_index",
        "concepts",
        "memory_concepts",
        "concept_edges",
        "edges",
        "supersessions",
        "summaries",
        "ltp_scores",
    ],
    group_name=GROUP,
    kinds={"sqlite", "numpy"},
    owners=list(OWNERS),
    code_version=SERVING_PACK.version,
)
def serving_pack(night: dg.ResourceParam[Night]) -> dg.MaterializeResult[Any]:
    """What recall will read tonight.

    Memory-mapped arrays and one SQLite file, named by their digest.
    """
    return report_stage(night, build_serving_pack(night))


@dg.asset(
    deps=[serving_pack, "fusion_decision", "abstention_calibration"],
    group_name=GROUP,
    kinds={"sqlite", "numpy"},
    owners=list(OWNERS),
    code_version=SNAPSHOT_CANDIDATE.version,
)
def snapshot_candidate(night: dg.ResourceParam[Night]) -> dg.MaterializeResult[Any]:
    """The pack with the adopted ranking and the thresholds for abstaining, under one digest."""
    decision = night.result_of(FUSION_DECISION)
    sealed = read_calibration(night)["sealed"]
    return report_stage(night, seal_snapshot_candidate(night, decision, sealed))


@dg.asset(
    deps=[snapshot_candidate, "recall_comparison", "quarantine"],
    group_name=GROUP,
    kinds={"json"},
    owners=list(OWNERS),
    code_version=GATE_VERDICT.version,
    check_specs=[dg.AssetCheckSpec(name, asset="gate_verdict") for name in CHECK_NAMES],
)
def gate_verdict(night: dg.ResourceParam[Night]) -> Iterator[Any]:
    """PASS or FAIL for exactly this candidate, stored under its digest."""
    verdict = judge_snapshot_candidate(night, read_drops(night))
    failed = [c.name for c in verdict.checks if not c.passed]
    yield dg.MaterializeResult(
        metadata={
            "outcome": verdict.outcome,
            "candidate": verdict.digest,
            "checks": len(verdict.checks),
            "failed": ", ".join(failed) or "none",
        },
        data_version=dg.DataVersion(f"{verdict.digest}:{verdict.outcome}"),
    )
    results = {c.name: c for c in verdict.checks}
    for name in CHECK_NAMES:
        result = results.get(name)
        yield dg.AssetCheckResult(
            check_name=name,
            passed=result is not None and result.passed,
            metadata=dict(result.found) if result else {"fault": "not run: the files are damaged"},
        )


@dg.asset(
    deps=[gate_verdict],
    group_name=GROUP,
    kinds={"sqlite", "numpy"},
    owners=list(OWNERS),
    code_version=SNAPSHOT.version,
)
def snapshot(night: dg.ResourceParam[Night]) -> dg.MaterializeResult[Any]:
    """What recall reads: the candidate, once a PASS verdict names it.

    Else yesterday's snapshot stays.
    """
    try:
        publication = publish_snapshot(night)
    except PublishRefusedError as error:
        raise dg.Failure(str(error), allow_retries=False) from error
    said = "published" if publication.published else "nothing changed, nothing was published"
    return dg.MaterializeResult(
        metadata={
            "said": said,
            "snapshot_id": publication.snapshot_id,
            "published": publication.published,
            "removed_by_retention": len(publication.removed),
            "outcome": PASS,
        },
        data_version=dg.DataVersion(publication.snapshot_id),
    )
