"""Group vectors: embeddings, the query encoder of the read side, the LanceDB tiers."""

from __future__ import annotations

from typing import Any

import dagster as dg

from assets.reporting import OWNERS, report_stage
from assets.workers import Workers
from noctuary.core.files import read_array
from noctuary.embed.rotation import count_bad_rows
from noctuary.night.context import VECTORS, Night
from noctuary.night.vectors import (
    MEMORY_VECTORS,
    QUERY_ENCODER,
    VECTOR_TIERS,
    embed_memories,
    export_query_encoder,
    sync_vector_tiers,
)
from noctuary.snapshot.content_checks import UNIT_NORM_TOLERANCE

GROUP = "vectors"


@dg.asset(
    deps=["memories"],
    group_name=GROUP,
    kinds={"numpy"},
    owners=list(OWNERS),
    code_version=QUERY_ENCODER.version,
)
def query_encoder(night: dg.ResourceParam[Night]) -> dg.MaterializeResult[Any]:
    """The same model for the read side, without torch; agreement with the original is measured."""
    return report_stage(night, export_query_encoder(night))


@dg.asset(
    deps=["memories", query_encoder],
    group_name=GROUP,
    kinds={"numpy", "onnx"},
    owners=list(OWNERS),
    code_version=MEMORY_VECTORS.version,
)
def memory_vectors(night: dg.ResourceParam[Night], workers: Workers) -> dg.MaterializeResult[Any]:
    """One unit vector per memory, memoised by content, encoder and implementation."""
    return report_stage(night, embed_memories(night))


@dg.asset_check(asset=memory_vectors)
def every_memory_vector_is_finite_and_unit(night: dg.ResourceParam[Night]) -> dg.AssetCheckResult:
    """No vector holds NaN or has a length other than 1."""
    vectors = read_array(night.work(VECTORS))
    bad = count_bad_rows(vectors, UNIT_NORM_TOLERANCE)
    return dg.AssetCheckResult(passed=bad == 0, metadata={"rows": len(vectors), "bad_rows": bad})


@dg.asset(
    deps=[memory_vectors],
    group_name=GROUP,
    kinds={"lancedb"},
    owners=list(OWNERS),
    code_version=VECTOR_TIERS.version,
)
def vector_tiers(night: dg.ResourceParam[Night], workers: Workers) -> dg.MaterializeResult[Any]:
    """LanceDB tables of rotated prefixes (64, 256, full).

    A rebuildable projection of memory_vectors.
    """
    return report_stage(night, sync_vector_tiers(night))


@dg.asset_check(asset=vector_tiers)
def every_tier_holds_every_memory_once(night: dg.ResourceParam[Night]) -> dg.AssetCheckResult:
    """No tier row lacks its memory and no memory lacks its tier row."""
    facts = night.result_of(VECTOR_TIERS).facts
    return dg.AssetCheckResult(
        passed=not any(facts["faults"].values()),
        metadata={"faults": dg.MetadataValue.json(facts["faults"])},
    )


@dg.asset_check(asset=vector_tiers)
def no_tier_has_unindexed_rows(night: dg.ResourceParam[Night]) -> dg.AssetCheckResult:
    """Every index covers every row."""
    unindexed = night.result_of(VECTOR_TIERS).facts["unindexed_rows"]
    return dg.AssetCheckResult(
        passed=not any(unindexed.values()),
        metadata={"unindexed_rows": dg.MetadataValue.json(unindexed)},
    )
