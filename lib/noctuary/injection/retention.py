"""How long the record of injections keeps a wording. Build side.

What belongs here: deleting what is old and not needed. What does not: reading it (`known`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from contextlib import closing
from pathlib import Path

from noctuary.injection.record import RECORD

RETENTION_DAYS = 90
"""How long a wording can be known again after it was last injected. Agents keep transcripts for
some 30 days; longer catches what is imported later, shorter keeps less."""

_DAY_US = 86_400_000_000

_ROWS_PER_TRANSACTION = 5_000
"""Deleted at once, some 10 ms; more is done sooner, fewer keep a recall waiting less."""

_WAIT_S = 5.0
"""How long a deletion waits for recalls; it has all night, but a stuck lock must not stop it."""


def prune_injections(path: Path, *, used: Collection[bytes], now_us: int) -> tuple[int, str | None]:
    """Delete wordings that were not injected for `RETENTION_DAYS`, unless they are in use.

    Args:
        path: The record.
        used: Hashes of wordings for which a row was cut or set aside tonight: without them it would
            come back.
        now_us: The present, microseconds since the epoch.

    Returns:
        How many were deleted, and what went wrong or None: the next night goes on.
    """
    if not path.exists():
        return 0, None
    oldest_us = now_us - RETENTION_DAYS * _DAY_US
    deleted = 0
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)) as record:
            if record.execute("PRAGMA user_version").fetchone()[0] != RECORD.version:
                return 0, None  # being made at this moment, or a newer noctuary's
            record.execute(f"PRAGMA busy_timeout={round(_WAIT_S * 1000)}")
            record.execute("PRAGMA synchronous=NORMAL")
            found = record.execute(
                "SELECT kind, text_hash, memory_hash, user_hash FROM injected WHERE last_us < ?",
                [oldest_us],
            )
            old = [key for key in found if key[1] not in used]
            for start in range(0, len(old), _ROWS_PER_TRANSACTION):
                some = old[start : start + _ROWS_PER_TRANSACTION]
                deleted += _delete(record, some, oldest_us)
    except sqlite3.Error as error:
        return deleted, f"old rows of {path.name} were not deleted: {error}"
    return deleted, None


def _delete(
    record: sqlite3.Connection, keys: list[tuple[str, bytes, bytes, bytes]], oldest_us: int
) -> int:
    """Delete rows that are still old: a recall may have injected them again meanwhile."""
    sql = (
        "DELETE FROM injected WHERE kind = ? AND text_hash = ? AND memory_hash = ? "
        "AND user_hash = ? AND last_us < ?"
    )
    with record:
        return record.executemany(sql, [(*key, oldest_us) for key in keys]).rowcount
