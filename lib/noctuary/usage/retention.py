"""How long the access log keeps single retrievals. Build side.

What belongs here: deleting rows that are old and folded. What does not: the sums, which outlive
their rows (`folding`), and the life of the log's file.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from noctuary.usage.folding import Mark

RETENTION_DAYS = 90
"""How long a single retrieval can be looked up; longer keeps a finer history, shorter keeps less
about a person and a smaller file (about 100 bytes per row)."""

_DAY_US = 86_400_000_000

_ROWS_PER_TRANSACTION = 5_000
"""Deleted at once, some 10 ms; more is done sooner, fewer keep a recall that logs waiting less."""

_WAIT_S = 5.0
"""How long a deletion waits for recalls; it has all night, but a stuck lock must not stop it."""


def prune_access_log(path: Path, *, folded: Mark, now_us: int) -> tuple[int, str | None]:
    """Delete the rows that are older than the retention and in the sums already.

    Args:
        path: The log.
        folded: Up to where the log is in the sums that are safely on disk. Another log than that
            one keeps every row.
        now_us: The present, microseconds since the epoch.

    Returns:
        How many rows were deleted, and what went wrong or None: the next night goes on.
    """
    if not path.exists():
        return 0, None
    oldest_us = now_us - RETENTION_DAYS * _DAY_US
    deleted = 0
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)) as log:
            log.execute(f"PRAGMA busy_timeout={round(_WAIT_S * 1000)}")
            log.execute("PRAGMA synchronous=NORMAL")
            while (count := _delete_some(log, folded, oldest_us)) > 0:
                deleted += count
    except sqlite3.Error as error:
        return deleted, f"old rows of {path.name} were not deleted: {error}"
    return deleted, None


def _delete_some(log: sqlite3.Connection, folded: Mark, oldest_us: int) -> int:
    found = (
        "SELECT position FROM retrievals WHERE position <= ? AND retrieved_at_us < ? "
        "ORDER BY position LIMIT ?"
    )
    with log:
        if log.execute("PRAGMA application_id").fetchone()[0] != folded.log_id:
            return 0
        return log.execute(
            f"DELETE FROM retrievals WHERE position IN ({found})",
            [folded.position, oldest_us, _ROWS_PER_TRANSACTION],
        ).rowcount
