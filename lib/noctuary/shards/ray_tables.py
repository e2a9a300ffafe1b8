"""Tending LanceDB tables on a Ray cluster.

What belongs here: building an index by segments, compacting by files. What does not: this process
alone (`local_tables`), tasks (`ray_runner`).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from noctuary.shards.task import IndexKind, IndexSpec, TablePlace

_OPTIONS: dict[IndexKind, Callable[[IndexSpec], dict[str, int]]] = {
    "IVF_HNSW_SQ": lambda spec: {"m": spec.edges, "ef_construction": spec.build_width},
    "IVF_RQ": lambda spec: {"num_bits": spec.bits},
    "IVF_SQ": lambda _: {},
}


def build_index(table: TablePlace, spec: IndexSpec, workers: int) -> None:
    """See `Runner.build_index`."""
    lance_ray: Any = importlib.import_module("lance_ray")
    lance_ray.create_index(
        _uri(table),
        column=spec.column,
        index_type=spec.kind,
        name=f"{spec.column}_idx",
        replace=True,
        num_workers=workers,
        metric="cosine",
        num_partitions=spec.partitions,
        **_OPTIONS[spec.kind](spec),
    )


def compact_table(table: TablePlace, keep_versions: timedelta, workers: int) -> None:
    """See `Runner.compact`."""
    lance_ray: Any = importlib.import_module("lance_ray")
    lance: Any = importlib.import_module("lance")
    lance_ray.compact_files(_uri(table), num_workers=workers)
    dataset = lance.dataset(_uri(table))
    dataset.optimize.optimize_indices()
    dataset.cleanup_old_versions(older_than=keep_versions)


def _uri(table: TablePlace) -> str:
    return f"{table.uri.rstrip('/')}/{table.name}.lance"
