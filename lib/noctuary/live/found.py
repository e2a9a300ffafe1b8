"""What one kind of store told about itself since a snapshot, before any judgement.

What belongs here: the nouns that every kind of look returns and takes. What does not: the kinds.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

Fields = Mapping[str, object]


class Since(NamedTuple):
    """What the snapshot knows of its store.

    Attributes:
        last_id: The highest id that the store had when it was read, whatever became of that row.
        rows: How many rows it had then; None where that is not known.
        read_us: When it was read, microseconds since the epoch.
    """

    last_id: int
    rows: int | None
    read_us: int


class Limits(NamedTuple):
    """What a look may take.

    Attributes:
        max_rows: Rows at most, the newest first.
        until_s: `time.perf_counter` at which it ends.
    """

    max_rows: int
    until_s: float

    def left_s(self) -> float:
        """Return the time left in seconds; 0 when it is over."""
        return max(self.until_s - time.perf_counter(), 0.0)


class Found(NamedTuple):
    """Rows that are new or may have changed.

    Attributes:
        rows: Id -> columns, of rows that bear no mark of sensitivity.
        withheld: Ids of rows whose text the query left in the store, because they are marked.
        ids: The id, as text, of every row that is there; None where none can have vanished or that
            was not found out.
        missed: What was left undone, in words; empty where nothing was.
    """

    rows: Mapping[int, Fields]
    withheld: tuple[int, ...] = ()
    ids: frozenset[str] | None = None
    missed: str = ""
