"""The parts of quality.md about what the labels cannot say: holes and abstention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.tables.markdown import mean_cell, number_cell, table
from bench.tables.quality_document import QualityDocument
from noctuary.evaluate.metrics import Mean

HOLES_ARMS = ("fts_seed", "hybrid_seed", "lexical_only", "dense", "noctuary", "noctuary_decided")
"""Arms of the summary; every arm's holes are in the JSON files."""

_HOLES_CAPTION = """The sets publish relevant ids only: whatever else an arm returns counts as
wrong, whether anybody looked at it or not. holes@10 is the share of an arm's first ten results
that lie outside a judging pool made of the labelled ids and the first ten results of {pool}.
Those arms have no holes by construction. An arm with many holes is one that this pool could not
judge fairly."""

_ABSTENTION_CAPTION = """Some sets come with questions that their corpus does not answer
(`adversarial.jsonl`). AUROC is the probability that a question with an answer gets a higher top
score than one without (0.5: the top score says nothing), with its percentile bootstrap interval.
Risk at full coverage and the area under the risk-coverage curve are in the JSON file."""


def holes_block(documents: Sequence[QualityDocument]) -> list[str]:
    """Return the table of holes, one row per set."""
    found = [document for document in documents if document.raw["holes"]]
    if not found:
        return []
    pool = ", ".join(f"`{arm}`" for arm in found[0].raw["holes"]["pool_arms"])
    rows = [
        [
            document.dataset,
            number_cell(document.raw["holes"]["pool_size"], 1),
            *(_hole_cell(document.raw["holes"]["arms"].get(arm)) for arm in HOLES_ARMS),
        ]
        for document in found
    ]
    header = ["set", "pool per query", *HOLES_ARMS]
    return [_HOLES_CAPTION.format(pool=pool).replace("\n", " "), table(header, rows)]


def _hole_cell(raw: dict[str, Any] | None) -> str:
    return "" if raw is None else mean_cell(Mean.from_json(raw))


def abstention_block(documents: Sequence[QualityDocument]) -> str:
    """Return the table of abstention over the sets that have unanswerable questions."""
    rows = [
        [
            document.dataset,
            arm,
            f"{raw['n_answerable']} / {raw['n_unanswerable']}",
            f"{raw['auroc']:.3f} [{raw['low']:.3f}, {raw['high']:.3f}]",
        ]
        for document in documents
        for arm, raw in document.raw["abstention"].items()
        if raw["low"] is not None
    ]
    if not rows:
        return ""
    header = ["set", "arm", "answerable / not", "AUROC"]
    return f"{_ABSTENTION_CAPTION.replace(chr(10), ' ')}\n\n{table(header, rows)}"
