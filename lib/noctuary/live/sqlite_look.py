"""A look into a claude-memory SQLite store: new rows by one indexed read, then changes and losses.

What belongs here: the queries. What does not: judging the rows (`judging`), remembering what was
found (`looking`).

New rows are those above the highest id of then (the primary key). The store has no index on
`updated_at`, so changed rows are found by one pass over the table, and lost ones by counting first
and comparing ids only where the count says that some are gone. The passes end at the deadline;
what was found until then counts. Marked rows never leave the database.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from noctuary.foreign_file import open_foreign
from noctuary.live.found import Fields, Found, Limits, Since
from noctuary.text.sensitivity_marks import FLAG_FIELDS, VAULT_FIELDS
from noctuary.text.sensitivity_sql import mark_sql

KINDS = frozenset({"claude-memory-sqlite"})

REQUIRED = frozenset({"id", "content", "is_sensitive", "updated_at"})
"""Without these a file is not the store that the snapshot was made of."""

LATE_COMMIT_S = 120.0
"""Rows are taken as changed from this long before the snapshot's reading on: a writer stamps a row
before it commits. Longer compares more unchanged rows, shorter misses slower writers."""

STEPS_BETWEEN_CLOCKS = 2_000
"""Instructions of SQLite's machine between two looks at the clock: some 20 microseconds."""

IDS_PER_STEP = 10_000
"""Ids that one step of the pass over the table looks at: fewer lose less to the deadline, more save
statements."""

SQL_VARIABLES = 500
"""Ids per query, below SQLite's oldest limit of 999."""

_MARKS = frozenset((*FLAG_FIELDS, *VAULT_FIELDS))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def stamp_of(path: Path) -> tuple[tuple[int, int, int], ...]:
    """Return size, time of change (ns) and inode of a store and of its write-ahead log.

    Raises:
        OSError: If the store is not there.
    """
    found = [path.stat()]
    with suppress(FileNotFoundError):
        found.append(path.with_name(f"{path.name}-wal").stat())
    # An empty log is what any reader leaves behind.
    return tuple((s.st_size, s.st_mtime_ns, s.st_ino) for s in found if s.st_size)


def look(path: Path, since: Since, limits: Limits) -> Found:
    """Return what a store gained, changed and lost.

    Args:
        path: The database file.
        since: What the snapshot knows.
        limits: What may be taken. New rows come first, then changes, then losses.

    Raises:
        sqlite3.Error, OSError, ValueError: The store cannot be read, is locked for longer than the
            limits allow, or is none any more. The message may quote a row: it must not be shown.
    """
    opened, _ = open_foreign(path, limits.left_s())
    with closing(opened) as db:
        db.execute("BEGIN")
        columns = _columns(db)
        query = _RowQuery(db, columns)
        with _ending_at(db, limits):
            newest = query.run(
                "id > ? ORDER BY id DESC LIMIT ?", since.last_id, limits.max_rows + 1
            )
        missed: list[str] = []
        if len(newest) > limits.max_rows:
            missed.append(f"only the newest {limits.max_rows:,} new rows were taken in")
            newest = newest[: limits.max_rows]
        changes, ids = _Changes([], []), None
        try:
            with _ending_at(db, limits):
                _find_changes(db, columns, since, changes)
                ids = _ids_left(db, since)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                raise
            missed.append("the time was over before changed and lost rows were all looked for")
        room = limits.max_rows - len(newest)
        if len(changes.written) > room:
            missed.append("more rows changed than may be taken in (live.max_rows)")
        newest += query.of_ids(changes.written[:room])
    rows = {key: fields for key, mark, fields in newest if mark is None}
    withheld = (*changes.marked, *(key for key, mark, _ in newest if mark is not None))
    return Found(rows, withheld, ids, "; ".join(missed))


class _Changes(NamedTuple):
    """Ids of rows that were there then, the highest first.

    Attributes:
        written: Written since.
        marked: Bear a mark of sensitivity now, whenever it was set.
    """

    written: list[int]
    marked: list[int]


class _RowQuery:
    """Fetches whole rows, of marked ones the id alone."""

    def __init__(self, db: sqlite3.Connection, columns: Sequence[str]) -> None:
        self._db = db
        self._names = [name for name in columns if name not in _MARKS]
        # Names of columns are those of the table itself, quoted.
        shown = ", ".join(f'm."{name}"' for name in self._names)
        self._sql = (
            f"SELECT row_id, mark, {shown} FROM (SELECT id AS row_id, {mark_sql(columns)} AS mark "
            "FROM memories WHERE {where}) LEFT JOIN memories m ON m.id = row_id AND mark IS NULL"
        )

    def run(self, where: str, *values: Any) -> list[tuple[int, Any, Fields]]:
        found = self._db.execute(self._sql.replace("{where}", where), values)
        return [
            (int(key), mark, dict(zip(self._names, fields, strict=True)))
            for key, mark, *fields in found
        ]

    def of_ids(self, ids: Sequence[int]) -> list[tuple[int, Any, Fields]]:
        found: list[tuple[int, Any, Fields]] = []
        for start in range(0, len(ids), SQL_VARIABLES):
            chunk = ids[start : start + SQL_VARIABLES]
            found += self.run(f"id IN ({','.join('?' * len(chunk))})", *chunk)
        return found


def _find_changes(
    db: sqlite3.Connection, columns: Sequence[str], since: Since, found: _Changes
) -> None:
    """Add the rows that were written since or are marked now, in steps from the highest id down.

    A row may be marked without a new stamp; a mark is seen whatever the stamp says. What was found
    before an interruption stays found: the newest rows are the likeliest to change.
    """
    moment = _EPOCH + timedelta(microseconds=since.read_us, seconds=-LATE_COMMIT_S)
    text = moment.replace(tzinfo=None).isoformat(timespec="seconds")
    mark = f"{mark_sql(columns)} IS NOT NULL"
    # Stores write "T" between day and hour; a blank there sorts before it.
    sql = (
        f"SELECT id, {mark} FROM memories WHERE id > ?1 AND id <= ?2 AND (updated_at >= ?3 OR "
        f"(updated_at >= ?4 AND substr(updated_at, 11, 1) = ' ') OR {mark}) ORDER BY id DESC"
    )
    (lowest,) = db.execute("SELECT min(id) FROM memories").fetchone()
    top = since.last_id
    while lowest is not None and top >= lowest:
        bounds = (top - IDS_PER_STEP, top, text, text.replace("T", " "))
        for key, is_marked in db.execute(sql, bounds):
            (found.marked if is_marked else found.written).append(int(key))
        top -= IDS_PER_STEP


def _ids_left(db: sqlite3.Connection, since: Since) -> frozenset[str] | None:
    """Return every id, as text, where some are gone since the snapshot was read, else None.

    Ids only grow (AUTOINCREMENT), so the count of those that were there then tells.
    """
    if since.rows is not None:
        (now,) = db.execute("SELECT count(*) FROM memories").fetchone()
        (gained,) = db.execute(
            "SELECT count(*) FROM memories WHERE id > ?", (since.last_id,)
        ).fetchone()
        if now - gained >= since.rows:
            return None
    # One text in the place of a row per id: half the time.
    (ids,) = db.execute("SELECT group_concat(id) FROM memories").fetchone()
    return frozenset() if ids is None else frozenset(str(ids).split(","))


def _columns(db: sqlite3.Connection) -> list[str]:
    columns = [str(row[1]) for row in db.execute("PRAGMA table_info(memories)")]
    if missing := REQUIRED - set(columns):
        raise ValueError(f"the table 'memories' has no column {', '.join(sorted(missing))}")
    return columns


@contextmanager
def _ending_at(db: sqlite3.Connection, limits: Limits) -> Generator[None]:
    """Interrupt what runs inside when the time is over."""
    db.set_progress_handler(lambda: int(time.perf_counter() > limits.until_s), STEPS_BETWEEN_CLOCKS)
    try:
        yield
    finally:
        db.set_progress_handler(None, 0)
