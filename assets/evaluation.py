"""Group evaluation: what the night asks itself, what follows from it, and the page about it.

Metadata holds numbers, query ids and plots; never the text of a query or a memory.
"""

from __future__ import annotations

from typing import Any

import dagster as dg

from assets.reporting import OWNERS, report_stage
from noctuary.evaluate.page import as_markdown_image, plot_risk_coverage
from noctuary.night.abstention import ABSTENTION_CALIBRATION, calibrate_abstention, read_judged
from noctuary.night.context import Night
from noctuary.night.evaluation import (
    FUSION_DECISION,
    RECALL_COMPARISON,
    RECALL_EVALUATION,
    compare_with_serving,
    decide_fusion,
    evaluate_pack,
)
from noctuary.night.questions import GENERATED_QUERIES, write_queries
from noctuary.night.report import EVALUATION_REPORT, evaluation_plots, report_night

GROUP = "evaluation"


@dg.asset(
    deps=["memories", "edges"],
    group_name=GROUP,
    kinds={"json"},
    owners=list(OWNERS),
    code_version=GENERATED_QUERIES.version,
)
def generated_queries(night: dg.ResourceParam[Night]) -> dg.MaterializeResult[Any]:
    """Queries that a language model wrote and another one graded; empty unless configured."""
    return report_stage(night, write_queries(night))


@dg.asset(
    deps=["serving_pack", generated_queries],
    group_name=GROUP,
    kinds={"json"},
    owners=list(OWNERS),
    code_version=RECALL_EVALUATION.version,
)
def recall_evaluation(night: dg.ResourceParam[Night]) -> dg.MaterializeResult[Any]:
    """The pack's recall on phrases of its own and on labelled queries: served, legs, challengers.

    The exact group is built from the corpus's own words and favours lexical search.
    """
    result = evaluate_pack(night)
    described = report_stage(night, result)
    plots = evaluation_plots(night, fresh=not result.reused)
    images = {
        f"plot_{name}": dg.MetadataValue.md(as_markdown_image(png, name))
        for name, png in plots.items()
    }
    return dg.MaterializeResult(
        metadata={**(described.metadata or {}), **images}, data_version=described.data_version
    )


@dg.asset(
    deps=[recall_evaluation],
    group_name=GROUP,
    kinds={"json"},
    owners=list(OWNERS),
    code_version=FUSION_DECISION.version,
)
def fusion_decision(night: dg.ResourceParam[Night]) -> dg.MaterializeResult[Any]:
    """Fusion and graph weight of tonight's snapshot: the settings', unless another one is proven.

    Proven means that its interval excludes zero on queries it was not chosen on.
    """
    return report_stage(night, decide_fusion(night))


@dg.asset(
    deps=["serving_pack", recall_evaluation, fusion_decision],
    group_name=GROUP,
    kinds={"json"},
    owners=list(OWNERS),
    code_version=ABSTENTION_CALIBRATION.version,
)
def abstention_calibration(night: dg.ResourceParam[Night]) -> dg.MaterializeResult[Any]:
    """Below which score the snapshot has no answer, and the bar of a single memory.

    Chosen by everyday prompts, by questions that the night makes of the store's own memories and,
    where there are some, by the owner's labels. Its plots are with the night that chose it.
    """
    result = calibrate_abstention(night)
    described = report_stage(night, result)
    judged = {} if result.reused else read_judged(night)
    plots = {
        f"plot_{name}": dg.MetadataValue.md(as_markdown_image(plot_risk_coverage(found), name))
        for name, found in judged.items()
    }
    return dg.MaterializeResult(
        metadata={**(described.metadata or {}), **plots}, data_version=described.data_version
    )


@dg.asset(
    deps=["snapshot_candidate", recall_evaluation],
    group_name=GROUP,
    kinds={"json"},
    owners=list(OWNERS),
    code_version=RECALL_COMPARISON.version,
)
def recall_comparison(night: dg.ResourceParam[Night]) -> dg.MaterializeResult[Any]:
    """The candidate against what serves, on the same queries; a significant loss fails the gate."""
    return report_stage(night, compare_with_serving(night))


@dg.asset(
    deps=["gate_verdict", recall_evaluation, fusion_decision, recall_comparison],
    group_name=GROUP,
    kinds={"html"},
    owners=list(OWNERS),
    code_version=EVALUATION_REPORT.version,
)
def evaluation_report(night: dg.ResourceParam[Night]) -> dg.MaterializeResult[Any]:
    """One HTML page about tonight's evaluation and the verdict; nothing in it needs a network."""
    return report_stage(night, report_night(night))
