"""The approximate index of a tier: which kind, how it is kept up to date, what it covers.

What belongs here: the choice by dimensions and its figures. What does not: the rows
(noctuary.vectors.tiers), who builds it (the runner).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from noctuary.errors import ShardError
from noctuary.shards.task import IndexKind, IndexSpec, Runner, TablePlace
from noctuary.vectors.lance import TableHome

ROWS_PER_PARTITION = 65_536
"""Rows of a cell. A search looks into 20 cells by default, so that up to 1.3 million rows every
code is looked at and only the codes' rounding costs recall. Smaller cells make larger stores faster
and miss neighbours in the next cell."""

CODES_FROM_DIMS = 256
"""Dimensions from which RaBitQ codes are used. Measured at 100,000 rows, recall@10 with refining:
at 384 and 256 dimensions 1.00 with 2 bits in a sixteenth of the bytes; at 64 dimensions .85 with 1
bit, so that shorter tiers keep a byte a dimension (IVF_SQ, 1.00)."""

CODE_BITS = 2
"""Bits of a dimension's code: 1 finds .95 of the true ten at 384 dimensions and .92 at 256, 2 finds
all of them for 50 MB more a million rows of 384 dimensions."""

EXACT = "exact"

_MULTIPLE = 8
"""Dimensions that RaBitQ codes fill whole bytes with."""

_KINDS: dict[str, IndexKind] = {
    "IvfRq": "IVF_RQ",
    "IvfSq": "IVF_SQ",
    "IvfHnswSq": "IVF_HNSW_SQ",
}
"""What LanceDB calls an index that is there, and what it is called here."""


def index_spec(dim: int, rows: int) -> IndexSpec:
    """Return the index of a tier.

    Args:
        dim: Its dimensions.
        rows: Its rows, at least 1.
    """
    partitions = max(1, rows // ROWS_PER_PARTITION)
    if dim >= CODES_FROM_DIMS and dim % _MULTIPLE == 0:
        return IndexSpec("IVF_RQ", partitions, bits=CODE_BITS)
    return IndexSpec("IVF_SQ", partitions)


def settle_index(
    home: TableHome,
    table: Any,
    name: str,
    dim: int,
    runner: Runner,
    *,
    changed: bool,
    least: int,
    keep: timedelta,
) -> tuple[str, int]:
    """Bring a tier's index up to date and compact; return the index in use and the rows it misses.

    An index of another kind, left by an earlier version, is replaced.

    Args:
        home: Where the table lies.
        table: Its LanceDB handle; at the latest version afterwards.
        name: Of the table.
        dim: Dimensions of its vectors.
        runner: Builds and compacts.
        changed: Whether rows were written tonight.
        least: Rows from which there is an index.
        keep: How long replaced versions stay.

    Raises:
        ShardError: It could not be built.
    """
    place = TablePlace(home.uri, name)
    rows = table.count_rows()
    spec = index_spec(dim, max(rows, 1))
    held = table.list_indices()
    try:
        if rows < least:
            for index in held:
                table.drop_index(index.name)
        elif [_kind(index) for index in held] != [spec.kind]:
            for index in held:
                table.drop_index(index.name)
            runner.build_index(place, spec)
            table.checkout_latest()
        if changed or any(index.num_unindexed_rows for index in table.list_indices()):
            runner.compact(place, keep)
            table.checkout_latest()
    except ShardError:
        # Where the place was lost, that is what went wrong.
        home.require_reachable()
        raise
    held = table.list_indices()
    return (_kind(held[0]) if held else EXACT), sum(int(i.num_unindexed_rows) for i in held)


def _kind(index: Any) -> str:
    return _KINDS.get(str(index.index_type), str(index.index_type))
