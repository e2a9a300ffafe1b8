"""The table of clusters as Parquet: written row group by row group, replaced whole or not at all.

What belongs here: the schema and its conversion. What does not: how clusters are made. pyarrow is
imported when a table is read or written. Equal clusters give equal bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from noctuary.compact.clusters import Cluster
from noctuary.errors import StoreError
from noctuary.files import replace_with

ROW_GROUP_CLUSTERS = 4_096
"""Clusters held while writing or reading: larger compresses better, smaller bounds memory (a
cluster of 20 turns is about 5 KB as an object)."""

ArrowSchema = Any
# pyarrow ships no types.


def write_clusters(path: Path, clusters: Iterable[Cluster]) -> int:
    """Replace the table with the given clusters, in their order; return how many there were.

    Only one row group is in memory, so that `clusters` may be a generator over any number. Where
    it raises, the old table stays.
    """
    written = 0

    def fill(tmp: Path) -> None:
        nonlocal written
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = _schema()
        with pq.ParquetWriter(tmp, schema, compression="zstd") as writer:
            rest = iter(clusters)
            while rows := [_row_of(cluster) for cluster in islice(rest, ROW_GROUP_CLUSTERS)]:
                writer.write_table(pa.Table.from_pylist(rows, schema=schema))
                written += len(rows)

    replace_with(path, fill)
    return written


def read_clusters(path: Path) -> list[Cluster]:
    """Return the whole table.

    Raises:
        StoreError: The file is missing or is no cluster table.
    """
    return list(iter_clusters(path))


def iter_clusters(path: Path) -> Iterator[Cluster]:
    """Yield the clusters of a table in its order; one row group is in memory at a time.

    Raises:
        StoreError: The file is missing or is no cluster table.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as table:
            _expect_columns(path, table.schema_arrow)
            for group in range(table.num_row_groups):
                for row in table.read_row_group(group).to_pylist():
                    yield _cluster_of(row)
    except (OSError, pa.ArrowException) as error:
        raise StoreError(
            f"{path} cannot be read ({error}); run the night again to rebuild it"
        ) from error


def _expect_columns(path: Path, found: ArrowSchema) -> None:
    expected = _schema()
    if not found.equals(expected):
        raise StoreError(
            f"{path} has columns {found.names}, expected {expected.names}; "
            "run the night again to rebuild it"
        )


def _row_of(cluster: Cluster) -> dict[str, Any]:
    return {name: getattr(cluster, name) for name in Cluster.__slots__}


def _cluster_of(row: dict[str, Any]) -> Cluster:
    row["member_positions"] = tuple(row["member_positions"])
    row["member_ids"] = tuple(row["member_ids"])
    return Cluster(**row)


def _schema() -> ArrowSchema:
    import pyarrow as pa

    return pa.schema(
        [
            ("cluster_id", pa.string()),
            ("session_id", pa.string()),
            ("user", pa.string()),
            ("wing", pa.string()),
            ("strategy", pa.string()),
            ("ordinal", pa.int64()),
            ("member_positions", pa.list_(pa.int64())),
            ("member_ids", pa.list_(pa.string())),
            ("first_us", pa.int64()),
            ("last_us", pa.int64()),
            ("trivial", pa.bool_()),
        ]
    )
