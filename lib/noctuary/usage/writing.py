"""Writing usage.sqlite: the counts that recall may read. Build side.

What belongs here: the file as a whole, replaced atomically. What does not: the counting (`folding`,
`window`) and the scores (`scoring`), which are carried from the file before.

Only memories that exist are written: one that was deleted, or turned sensitive, is gone from the
file with the next night.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from noctuary.files import replace_with
from noctuary.immutable import connect_immutable
from noctuary.usage.folding import Folded
from noctuary.usage.usage_file import AS_OF_US, DIGEST, FORMAT, SCHEMA, WINDOW_DAYS
from noctuary.usage.window import Window

_CARRIED_AT_ONCE = 20_000
"""Scores of the file before held at once, some 5 MB."""


def write_usage(
    path: Path,
    folded: Folded,
    window: Window,
    known: Collection[str],
    *,
    window_days: int,
    as_of_us: int,
) -> str:
    """Replace usage.sqlite; LTP scores of the file before stay where their memory does.

    Args:
        path: The file.
        folded: The sums over all time.
        window: The counts of the last weeks.
        known: The memories that exist now; fast to look into.
        window_days: What `window.recent` covers.
        as_of_us: The moment of counting.

    Returns:
        The digest of what recall can learn from it.
    """
    access = [
        (m, folded.by_memory[m][0], window.recent.get(m, 0), folded.days[m][0], last_us)
        for m, (_, last_us) in sorted(folded.by_memory.items())
        if m in known
    ]
    pairs = [pair for pair in window.pairs if pair[0] in known and pair[1] in known]
    hashed = hashlib.sha256(repr((FORMAT, window_days)).encode())
    for row in (*access, *pairs):
        hashed.update(repr(row).encode())
    meta = {WINDOW_DAYS: window_days, AS_OF_US: as_of_us, DIGEST: hashed.hexdigest()}

    def write(tmp: Path) -> None:
        with closing(open_aside(tmp)) as db:
            db.executescript(SCHEMA)
            db.execute("BEGIN")
            db.executemany("INSERT INTO access VALUES (?, ?, ?, ?, ?)", access)
            db.executemany("INSERT INTO co_retrieval VALUES (?, ?, ?)", pairs)
            db.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
            _carry_scores(path, db, known)
            db.execute("COMMIT")

    replace_with(path, write)
    return str(meta[DIGEST])


def open_aside(path: Path) -> sqlite3.Connection:
    """Open a file that nobody else knows yet: no journal, no waiting for the disk.

    Whoever puts it in place flushes it; until then losing it loses nothing.
    """
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode=OFF")
    db.execute("PRAGMA synchronous=OFF")
    return db


def _carry_scores(before: Path, db: sqlite3.Connection, known: Collection[str]) -> None:
    """Take over the scores, and how far the last scan got; of a damaged file what can be read."""
    if not before.exists():
        return
    with closing(connect_immutable(before)) as old:
        if [(FORMAT,)] not in _read(old, "PRAGMA user_version"):
            return
        for rows in _read(old, "SELECT * FROM ltp ORDER BY memory_id"):
            kept = [row for row in rows if row[0] in known]
            db.executemany("INSERT OR IGNORE INTO ltp VALUES (?, ?, ?, ?, ?)", kept)
        for rows in _read(old, "SELECT * FROM meta"):
            db.executemany("INSERT OR IGNORE INTO meta VALUES (?, ?)", rows)


def _read(db: sqlite3.Connection, sql: str) -> Iterator[list[tuple[Any, ...]]]:
    """Yield rows until there are no more, or none that can be read."""
    with suppress(sqlite3.Error):
        cursor = db.execute(sql)
        while rows := cursor.fetchmany(_CARRIED_AT_ONCE):
            yield rows
