"""Does the table keep its own rules: counted by columns, one row group at a time.

What belongs here: the counts behind the asset's check. What does not: the table (`table`), the
check (assets.promotion). As objects, half a million rows took half a minute of every night.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.arrow import arrow_compute
from noctuary.promote.table import GROUP_ROWS, PROPOSE, SCORES, open_table

FAULTS = ("below_threshold", "without_marks", "out_of_range", "own_neighbours")
"""Proposals with G below the threshold, proposals without marks, scores outside [0, 1] or not a
number, rows that were compared with themselves."""

_COLUMNS = ("turn_id", "decision", *SCORES, "marks", "neighbours")


def count_faults(path: Path) -> dict[str, int]:
    """Return how many rows were judged and proposed, and how often each rule is broken.

    Returns:
        "judged", "proposals" and the names in FAULTS.

    Raises:
        StoreError: There is no such table, or it is damaged.
    """
    counts = Counter[str]()
    with open_table(path) as (file, notes):
        threshold = float(notes["threshold"])
        for batch in file.iter_batches(GROUP_ROWS, columns=list(_COLUMNS)):
            counts.update(_count(batch, threshold))
    return {name: counts[name] for name in ("judged", "proposals", *FAULTS)}


def _count(batch: Any, threshold: float) -> dict[str, int]:
    pc = arrow_compute()
    proposed = _flags(pc.equal(batch.column("decision"), PROPOSE))
    # A null becomes NaN, which is in no range.
    scores = np.stack([_numbers(batch.column(name)) for name in SCORES])
    marks = _numbers(pc.list_value_length(batch.column("marks")))
    return {
        "judged": batch.num_rows,
        "proposals": int(proposed.sum()),
        "below_threshold": int((proposed & ~(scores[SCORES.index("g")] >= threshold)).sum()),
        "without_marks": int((proposed & ~(marks > 0)).sum()),
        "out_of_range": int((~((scores >= 0.0) & (scores <= 1.0))).sum()),
        "own_neighbours": _own_neighbours(batch),
    }


def _own_neighbours(batch: Any) -> int:
    pc = arrow_compute()
    neighbours = batch.column("neighbours")
    parents = pc.list_parent_indices(neighbours)
    near = pc.struct_field(pc.list_flatten(neighbours), "memory_id")
    own = pc.filter(parents, pc.equal(near, pc.take(batch.column("turn_id"), parents)))
    return len(pc.unique(own))


def _flags(column: Any) -> NDArray[np.bool_]:
    return np.asarray(column.fill_null(False).to_numpy(zero_copy_only=False), dtype=np.bool_)


def _numbers(column: Any) -> NDArray[np.float64]:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)
