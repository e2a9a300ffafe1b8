"""How a stage's result becomes Dagster metadata: numbers and ids only, no text of a memory."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from noctuary.work.stage import Stage, StageResult, forget_result
from noctuary_assets.night import Night

Workers = dg.ResourceParam[Any]  # Ray, up while heavy assets run; None: the night's own processes

_SAMPLE_ROWS = 5
_NOT_PUBLISHED = (
    "nothing was published, what serves is untouched, and the next night makes it again"
)


STAGE_ASSETS: defaultdict[str, list[dg.AssetsDefinition]] = defaultdict(list)
"""Assets that `stage_asset` made, by the module that declares them."""

Work = Callable[[Night], StageResult]


def stage_asset(
    stage: Stage,
    *,
    deps: Collection[str],
    kinds: Collection[str],
    table: str | None = None,
    columns: Sequence[str] = (),
    workers: bool = False,
) -> Callable[[Work], Work]:
    """Declare the asset of a stage: named as it, described by the docstring of its function."""

    def declare(work: Work) -> Work:
        def materialize(night: dg.ResourceParam[Night]) -> dg.MaterializeResult[Any]:
            return report_stage(night, work(night), table=table, columns=columns)

        def with_workers(
            night: dg.ResourceParam[Night], workers: Workers
        ) -> dg.MaterializeResult[Any]:
            return materialize(night)

        asset = dg.asset(
            name=stage.name,
            deps=list(deps),
            kinds=set(kinds),
            code_version=stage.version,
            description=inspect.getdoc(work),
        )
        STAGE_ASSETS[work.__module__].append(asset(with_workers if workers else materialize))
        return work

    return declare


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
    """Describe what a stage did: rows, facts, cost, re-use and a sample without content."""
    # `asset_key` and `rows` are for multi-assets; `columns`, of the sample, never hold memory text.
    metadata: dict[str, Any] = {
        "dagster/row_count": result.rows if rows is None else rows,
        "reused": result.reused,
        **{name: _value(v) for name, v in {**result.facts, **result.notes}.items()},
        **{name: _value(v) for name, v in result.cost.items()},
        **(more or {}),
    }
    if table is not None:
        metadata |= describe_table(night.work(table), columns)
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
    """Return what a blocking check found; what does not hold is made again by the next night."""
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


def describe_table(path: Path, columns: Sequence[str]) -> dict[str, Any]:
    """Return Dagster metadata of a Parquet file: its place, its columns, a sample without texts."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as table:
        schema = dg.TableSchema(
            columns=[dg.TableColumn(field.name, str(field.type)) for field in table.schema_arrow]
        )
        first = next(table.iter_batches(_SAMPLE_ROWS, columns=list(columns)), None)
    rows = [] if first is None else first.to_pylist()
    return {
        "dagster/uri": path.as_uri(),
        "dagster/column_schema": schema,
        "sample": dg.MetadataValue.table(
            [dg.TableRecord({name: _cell(row[name]) for name in columns}) for row in rows],
            schema=dg.TableSchema(columns=[c for c in schema.columns if c.name in columns]),
        ),
    }


def _cell(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dg.MetadataValue.json(dict(value))
    return "none" if value is None else value
