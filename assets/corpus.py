"""Group corpus: what was exported, which of it are turns, what was set aside.

Nothing sensitive gets past here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import dagster as dg

from assets.reporting import OWNERS, report_stage
from noctuary.night.context import MEMORIES, QUARANTINE, TURNS, Night
from noctuary.night.corpus import CORPUS, export_memories, scan_export

GROUP = "corpus"


def _spec(key: str, kinds: set[str], description: str) -> dg.AssetSpec:
    return dg.AssetSpec(
        key,
        group_name=GROUP,
        kinds=kinds,
        owners=OWNERS,
        description=description,
        code_version=CORPUS.version,
    )


@dg.multi_asset(
    name="corpus_export",
    specs=[
        _spec(
            "memories", {"sqlite", "parquet"}, "Every exportable row of the source, in key order."
        ),
        _spec("turns", {"parquet"}, "The memories that are turns of a conversation, by session."),
        _spec(
            "quarantine",
            {"parquet"},
            "Rows that could not be exported, with the reason; no content.",
        ),
    ],
    check_specs=[
        dg.AssetCheckSpec("exported_quarantined_and_sensitive_add_up_to_source", asset="memories"),
        # Nothing is made of a table that holds what it must not.
        dg.AssetCheckSpec("no_exported_memory_is_sensitive", asset="memories", blocking=True),
    ],
)
def corpus_export(night: dg.ResourceParam[Night]) -> Iterator[Any]:
    """Read the source and write the corpus."""
    result = export_memories(night)
    facts = result.facts
    yield report_stage(
        night,
        result,
        asset_key="memories",
        table=MEMORIES,
        columns=("position", "memory_id", "category", "wing", "importance"),
    )
    yield report_stage(
        night,
        result,
        asset_key="turns",
        rows=facts["turns"],
        table=TURNS,
        columns=("position", "session_id", "ordinal"),
    )
    yield report_stage(
        night,
        result,
        asset_key="quarantine",
        rows=facts["quarantined"],
        table=QUARANTINE,
        columns=("locator", "reason"),
    )
    total = facts["exported"] + facts["quarantined"] + facts["sensitive"]
    yield dg.AssetCheckResult(
        asset_key="memories",
        check_name="exported_quarantined_and_sensitive_add_up_to_source",
        passed=total == facts["source_rows"],
        metadata={k: facts[k] for k in ("source_rows", "exported", "quarantined", "sensitive")},
    )
    scan = scan_export(night)
    yield dg.AssetCheckResult(
        asset_key="memories",
        check_name="no_exported_memory_is_sensitive",
        passed=not scan["found"],
        metadata=scan,
    )
