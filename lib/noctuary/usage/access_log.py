"""The access log: one row per returned memory, appended by one serialized writer per store.

No text of a query or of a memory has a place in it, and memories that are not in a snapshot
(sensitive ones) never get here. Appending never raises and never waits longer than
`WAIT_AT_MOST_S`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from noctuary.core.sqlite import LogFormat, append_rows

ACCESS_LOG = LogFormat(
    noun="the access log",
    event="this retrieval",
    version=1,
    schema="""
CREATE TABLE IF NOT EXISTS retrievals (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    memory_id TEXT NOT NULL,
    rank INTEGER NOT NULL,
    snapshot_id TEXT NOT NULL,
    retrieved_at_us INTEGER NOT NULL
)
""",
    insert="INSERT INTO retrievals (memory_id, rank, snapshot_id, retrieved_at_us) "
    "VALUES (?, ?, ?, ?)",
)


def append_retrievals(path: Path, *, snapshot_id: str, memory_ids: Sequence[str]) -> str | None:
    """Append one row per returned memory, best first, from rank 1 on, in one transaction.

    Returns:
        None on success, else what went wrong (locked, full disk, read-only): the caller reports it,
        and the rows wait in memory for the next append or the end of the process.
    """
    now_us = time.time_ns() // 1000
    try:
        for text in (snapshot_id, *memory_ids):
            text.encode()
    except UnicodeEncodeError as error:
        return f"this retrieval was not logged: an id is no Unicode text: {error.reason}"
    rows = [(m, rank, snapshot_id, now_us) for rank, m in enumerate(memory_ids, start=1)]
    return append_rows(path, ACCESS_LOG, rows)
