"""Tending LanceDB tables in this process, on all its cores.

What belongs here: building an index, compacting. What does not: writing rows, when either is due
(`noctuary.vectors.tiers`), what is made of an error of LanceDB (whoever knows the table's place),
other runners.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from noctuary.shards.task import IndexSpec, TablePlace


def build_index(table: TablePlace, spec: IndexSpec) -> None:
    """See `Runner.build_index`."""
    open_table(table).create_index(spec.column, config=_config(spec), replace=True)


def compact_table(table: TablePlace, keep_versions: timedelta) -> None:
    """See `Runner.compact`."""
    open_table(table).optimize(cleanup_older_than=keep_versions)


def open_table(table: TablePlace) -> Any:
    """Return a LanceDB handle of a table at its latest version."""
    import lancedb

    return lancedb.connect(table.uri).open_table(table.name)


def _config(spec: IndexSpec) -> Any:
    from lancedb.index import HnswSq, IvfRq, IvfSq

    if spec.kind == "IVF_HNSW_SQ":
        return HnswSq(
            "cosine",
            num_partitions=spec.partitions,
            m=spec.edges,
            ef_construction=spec.build_width,
        )
    if spec.kind == "IVF_RQ":
        return IvfRq("cosine", num_partitions=spec.partitions, num_bits=spec.bits)
    return IvfSq("cosine", num_partitions=spec.partitions)
