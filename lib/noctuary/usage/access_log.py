"""The access log: one row per returned memory; no text of a query or of a memory is in it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from noctuary.core import formats
from noctuary.core.sqlite import LogFormat, append_rows

ACCESS_LOG = LogFormat(
    noun="the access log",
    event="this retrieval",
    version=formats.ACCESS_LOG.version,
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
    """Append one row per returned memory, best first, from rank 1 on; return what went wrong.

    It never raises; rows of an append that failed wait for the next or the end of the process.
    """
    now_us = time.time_ns() // 1000
    try:
        for text in (snapshot_id, *memory_ids):
            text.encode()
    except UnicodeEncodeError as error:
        return f"this retrieval was not logged: an id is no Unicode text: {error.reason}"
    rows = [(m, rank, snapshot_id, now_us) for rank, m in enumerate(memory_ids, start=1)]
    return append_rows(path, ACCESS_LOG, rows)
