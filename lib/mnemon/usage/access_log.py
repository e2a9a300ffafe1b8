"""The access log: one row per returned memory.

Appending never raises and never waits long; no query text is kept.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

# How long a recall may wait for another process's append; longer stalls a prompt, shorter loses
# more rows under load.
_BUSY_TIMEOUT_S = 0.05

_SCHEMA = """
CREATE TABLE IF NOT EXISTS retrievals (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    memory_id TEXT NOT NULL,
    rank INTEGER NOT NULL,
    snapshot_id TEXT NOT NULL,
    retrieved_at_us INTEGER NOT NULL
)
"""


def append_retrievals(path: Path, *, snapshot_id: str, memory_ids: Sequence[str]) -> str | None:
    """Append one row per returned memory, in rank order, in one transaction.

    Returns:
        None on success, else what went wrong (locked, full disk, read-only): the caller reports it
        as a warning.
    """
    now_us = time.time_ns() // 1000
    rows = [(m, rank, snapshot_id, now_us) for rank, m in enumerate(memory_ids, start=1)]
    try:
        with closing(sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S)) as log, log:
            if log.execute("PRAGMA user_version").fetchone()[0] == 0:
                log.execute("PRAGMA journal_mode=WAL")
                log.execute(_SCHEMA)
                log.execute("PRAGMA user_version=1")
            log.execute("PRAGMA synchronous=NORMAL")
            log.executemany(
                "INSERT INTO retrievals (memory_id, rank, snapshot_id, retrieved_at_us) VALUES "
                "(?, ?, ?, ?)",
                rows,
            )
    except (sqlite3.Error, OSError) as error:
        return f"this retrieval was not logged: {error}"
    return None
