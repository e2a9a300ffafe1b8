"""Clusters and summaries as Parquet. Equal rows give equal bytes; a file is replaced atomically.

What belongs here: the two schemas and their conversion. What does not: any decision about a
summary. pyarrow is imported when a table is read or written.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mnemon.compact.clusters import Cluster
from mnemon.compact.gate import GateReport
from mnemon.compact.summaries import Summary
from mnemon.errors import StoreError
from mnemon.files import replace_with

ArrowSchema = Any
ArrowTable = Any
# pyarrow ships no types.

_RECIPE_KEY = b"mnemon.recipe"
_GATE_PREFIX = "gate_"


def write_clusters(path: Path, clusters: Sequence[Cluster]) -> None:
    """Replace the cluster table; rows keep the given order."""
    _write(path, [_cluster_row(cluster) for cluster in clusters], _cluster_schema())


def read_clusters(path: Path) -> list[Cluster]:
    """Read a cluster table.

    Raises:
        StoreError: The file is missing or is no cluster table.
    """
    return [_cluster_of(row) for row in _read(path, _cluster_schema()).to_pylist()]


def write_summaries(path: Path, summaries: Sequence[Summary], *, recipe: str = "") -> None:
    """Replace the summary table, declined and trivial ones included; rows keep the given order.

    Args:
        path: The Parquet file.
        summaries: What to store.
        recipe: The `recipe_digest` they were made with; decides whether `read_known` offers them
            again.
    """
    schema = _summary_schema().with_metadata({_RECIPE_KEY: recipe.encode()})
    _write(path, [_summary_row(summary) for summary in summaries], schema)


def read_summaries(path: Path) -> list[Summary]:
    """Read a summary table.

    Raises:
        StoreError: The file is missing or is no summary table.
    """
    return [_summary_of(row) for row in _read(path, _summary_schema()).to_pylist()]


def read_known(path: Path, recipe: str) -> dict[str, Summary]:
    """Return earlier summaries by cluster id, or nothing where they cannot be re-used.

    A missing or damaged file, or one made with another recipe, costs only the work of making them
    again.
    """
    try:
        table = _read(path, _summary_schema())
    except StoreError:
        return {}
    if (table.schema.metadata or {}).get(_RECIPE_KEY) != recipe.encode():
        return {}
    return {row["cluster_id"]: _summary_of(row) for row in table.to_pylist()}


def _cluster_row(cluster: Cluster) -> dict[str, Any]:
    return {name: getattr(cluster, name) for name in Cluster.__slots__}


def _cluster_of(row: dict[str, Any]) -> Cluster:
    row["member_positions"] = tuple(row["member_positions"])
    row["member_ids"] = tuple(row["member_ids"])
    return Cluster(**row)


def _summary_row(summary: Summary) -> dict[str, Any]:
    row = {name: getattr(summary, name) for name in Summary.__slots__ if name != "report"}
    for name in GateReport.__slots__:
        row[_GATE_PREFIX + name] = getattr(summary.report, name) if summary.report else None
    return row


def _summary_of(row: dict[str, Any]) -> Summary:
    gate = {name: row.pop(_GATE_PREFIX + name) for name in GateReport.__slots__}
    report = None
    if gate["passed"] is not None:
        gate["reasons"] = tuple(gate["reasons"])
        report = GateReport(**gate)
    row["source_ids"] = tuple(row["source_ids"])
    row["source_positions"] = tuple(row["source_positions"])
    return Summary(report=report, **row)


def _cluster_schema() -> ArrowSchema:
    import pyarrow as pa

    return pa.schema(
        [
            ("cluster_id", pa.string()),
            ("session_id", pa.string()),
            ("ordinal", pa.int64()),
            ("member_positions", pa.list_(pa.int64())),
            ("member_ids", pa.list_(pa.string())),
            ("first_us", pa.int64()),
            ("last_us", pa.int64()),
            ("trivial", pa.bool_()),
        ]
    )


def _summary_schema() -> ArrowSchema:
    import pyarrow as pa

    return pa.schema(
        [
            ("summary_id", pa.string()),
            ("cluster_id", pa.string()),
            ("session_id", pa.string()),
            ("text", pa.string()),
            ("status", pa.string()),
            ("method", pa.string()),
            ("source_ids", pa.list_(pa.string())),
            ("source_positions", pa.list_(pa.int64())),
            ("first_us", pa.int64()),
            ("last_us", pa.int64()),
            ("source_tokens", pa.int64()),
            ("summary_tokens", pa.int64()),
            ("reason", pa.string()),
            ("gate_align", pa.float64()),
            ("gate_cover", pa.float64()),
            ("gate_confidence", pa.float64()),
            ("gate_decay_rate", pa.float64()),
            ("gate_threshold", pa.float64()),
            ("gate_passed", pa.bool_()),
            ("gate_reasons", pa.list_(pa.string())),
        ]
    )


def _write(path: Path, rows: list[dict[str, Any]], schema: ArrowSchema) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist(rows, schema=schema)
    replace_with(path, lambda tmp: pq.write_table(table, tmp, compression="zstd"))


def _read(path: Path, expected: ArrowSchema) -> ArrowTable:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise StoreError(
            f"{path} cannot be read ({error}); run the night again to rebuild it"
        ) from error
    if not table.schema.equals(expected):
        raise StoreError(
            f"{path} has columns {table.schema.names}, expected {expected.names}; "
            "run the night again to rebuild it"
        )
    return table
