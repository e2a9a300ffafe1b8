"""The part of quality.md about the seed store's co-occurrence graph: flawed, repaired, swept."""

from __future__ import annotations

from collections.abc import Sequence

from bench.tables.markdown import Row, difference_cell, mean_cell, number_cell, p_cell, short, table
from bench.tables.quality_document import QualityDocument

GROUP = "graph_seed"
BASELINE = "hybrid_seed"
METRICS = ("recall@10", "all_relevant@10", "ndcg@10")

_CAPTION = """The reference calls its concept graph unevaluated: graph candidates came from outside
the base legs' lists only and were fused with a weight that keeps them behind every
candidate of the base legs, so the first ten never changed (`hybrid_seed_graph_flawed`). Repaired,
the graph is a third leg in the common pool, and its weight is swept; the base legs weigh 1 each.
Differences are to `hybrid_seed`, the same fusion without a graph; weight 0 must give exactly zero.
p is corrected for nothing here: with eight weights per set, look for a trend, not for one bold
cell."""


def graph_blocks(documents: Sequence[QualityDocument]) -> list[str]:
    """Return the experiment's caption and one table per set that took part."""
    blocks: list[str] = []
    for document in documents:
        arms = [arm for arm in document.reports() if document.group(arm) == GROUP]
        if arms:
            rows = [_row(document, arm) for arm in (BASELINE, *arms) if arm in document.reports()]
            header = [
                "arm",
                "graph weight",
                *map(short, METRICS),
                *(f"Δ {short(metric)}" for metric in METRICS),
                f"p ({short(METRICS[0])})",
                f"MDD ({short(METRICS[0])})",
            ]
            queries = document.manifest["n_queries"]
            blocks += [f"### {document.dataset}: graph ({queries} queries)", table(header, rows)]
    return [_CAPTION.replace("\n", " "), *blocks] if blocks else []


def _row(document: QualityDocument, arm: str) -> Row:
    report = document.reports()[arm]
    first = document.difference(arm, BASELINE, METRICS[0])
    weight = document.settings(arm).get("graph_weight")
    return [
        arm,
        "" if weight is None else f"{weight:g}",
        *(mean_cell(report.overall[metric]) for metric in METRICS),
        *(difference_cell(document.difference(arm, BASELINE, metric)) for metric in METRICS),
        p_cell(first.p_value) if first else "",
        number_cell(first.minimum_detectable) if first else "",
    ]
