"""Does the table keep its own rules: counted by columns, one row group at a time."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from noctuary.promote.table import GROUP_ROWS, PROPOSE, SCORES, open_table

if TYPE_CHECKING:
    import polars as pl

FAULTS = ("below_threshold", "without_marks", "out_of_range", "own_neighbours")
"""Proposals with G below the threshold, proposals without marks, scores outside [0, 1] or not a
number, rows that were compared with themselves."""


def count_faults(path: Path) -> dict[str, int]:
    """Return how many rows were judged and proposed, and how often each rule is broken.

    Returns:
        "judged", "proposals" and the names in FAULTS.

    Raises:
        StoreError: There is no such table, or it is damaged.
    """
    import polars as pl

    counts = Counter[str]()
    with open_table(path) as (file, notes):
        columns = ["turn_id", "decision", *SCORES, "marks", "neighbours"]
        for batch in file.iter_batches(GROUP_ROWS, columns=columns):
            counts.update(_count(pl.DataFrame(batch), float(notes["threshold"])))
    return {name: counts[name] for name in ("judged", "proposals", *FAULTS)}


def _count(rows: pl.DataFrame, threshold: float) -> dict[str, int]:
    import polars as pl

    is_proposed = _holds(pl.col("decision") == PROPOSE)
    near = pl.col("neighbours").list.eval(pl.element().struct.field("memory_id"))
    counted = rows.with_columns(pl.col(SCORES).fill_nan(None)).select(
        judged=pl.len(),
        proposals=is_proposed.sum(),
        below_threshold=(is_proposed & ~_holds(pl.col("g") >= threshold)).sum(),
        without_marks=(is_proposed & ~_holds(pl.col("marks").list.len() > 0)).sum(),
        out_of_range=pl.sum_horizontal((~_holds(pl.col(s).is_between(0, 1))).sum() for s in SCORES),
        own_neighbours=_holds(near.list.contains(pl.col("turn_id"))).sum(),
    )
    return counted.row(0, named=True)


def _holds(condition: pl.Expr) -> pl.Expr:
    """Return a condition that what is missing does not meet."""
    return condition.fill_null(value=False)
