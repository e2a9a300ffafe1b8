"""How a stage's result becomes Dagster metadata.

Numbers and ids only: the event log must hold no memory text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from noctuary.work.stage import Stage, StageResult, forget_result
from noctuary_assets.night import Night

_SAMPLE_ROWS = 5
_NOT_PUBLISHED = (
    "nothing was published, what serves is untouched, and the next night makes it again"
)


def report_stage(
    night: Night,
    result: StageResult,
    *,
    asset_key: str | None = None,
    rows: int | None = None,
    table: str | None = None,
    columns: Sequence[str] = (),
    more: Mapping[str, Any] | None = None,
) -> dg.MaterializeResult[Any]:
    """Describe what a stage did: rows, facts, cost, re-use and a sample without content.

    Args:
        night: The night.
        result: What the stage returned.
        asset_key: For multi-assets, which one this is.
        rows: Rows of this asset, where the stage made several.
        table: Parquet artifact to sample.
        columns: Columns of the sample; never one that holds memory text.
        more: Dagster metadata by name, to be shown beside the numbers.
    """
    metadata: dict[str, Any] = {
        "dagster/row_count": result.rows if rows is None else rows,
        "reused": result.reused,
        **{name: _value(v) for name, v in {**result.facts, **result.notes}.items()},
        **{name: _value(v) for name, v in result.cost.items()},
        **(more or {}),
    }
    if table is not None:
        path = night.work(table)
        metadata["dagster/uri"] = str(path)
        metadata["sample"] = dg.MetadataValue.md(sample_table(path, columns))
    return dg.MaterializeResult(
        asset_key=asset_key, metadata=metadata, data_version=dg.DataVersion(result.digest)
    )


def judge(
    night: Night,
    stage: Stage,
    passed: bool,
    found: Mapping[str, Any],
    *,
    asset_key: str | None = None,
    check_name: str | None = None,
) -> dg.AssetCheckResult:
    """Return what a blocking check found; what does not hold is made again by the next night.

    Args:
        night: The night.
        stage: Whose output was looked at.
        passed: Whether it holds.
        found: The numbers behind it.
        asset_key: For multi-assets, which one the check is of.
        check_name: For checks inside of an asset, which one.
    """
    if not passed:
        # Its stamp would vouch for it, and every night would stop here.
        forget_result(night.paths.work, stage)
    return dg.AssetCheckResult(
        passed=passed,
        asset_key=asset_key,
        check_name=check_name,
        severity=dg.AssetCheckSeverity.ERROR,
        description=None if passed else _NOT_PUBLISHED,
        metadata={name: _value(value) for name, value in found.items()},
    )


def sample_table(path: Path, columns: Sequence[str]) -> str:
    """Return the first rows of some columns of a Parquet file as a Markdown table."""
    import pyarrow.parquet as pq

    rows = pq.read_table(path, columns=list(columns)).slice(0, _SAMPLE_ROWS).to_pylist()
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    lines += [f"| {' | '.join(_cell(row[c]) for c in columns)} |" for row in rows]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    return str("" if value is None else value).replace("|", "\\|").replace("\n", " ")


def _value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dg.MetadataValue.json(dict(value))
    return "none" if value is None else value
