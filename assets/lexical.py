"""Group lexical: the pre-scored BM25 postings."""

from __future__ import annotations

from typing import Any

import dagster as dg

from assets.reporting import OWNERS, report_stage
from assets.workers import Workers
from noctuary.night.context import Night
from noctuary.night.vectors import LEXICAL_INDEX, index_memories


@dg.asset(
    deps=["memories"],
    group_name="lexical",
    kinds={"numpy"},
    owners=list(OWNERS),
    code_version=LEXICAL_INDEX.version,
)
def lexical_index(night: dg.ResourceParam[Night], workers: Workers) -> dg.MaterializeResult[Any]:
    """BM25 scores of every term in every memory, computed ahead of the query."""
    return report_stage(night, index_memories(night))
