"""A store that tells what changed (`noctuary.corpus.changes`), over a SQLite file and a clock.

Everything is decided by the table as it is: nothing here knows what was captured before.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from hashlib import md5
from pathlib import Path
from typing import Any

from noctuary.corpus.changes import RowDigest
from noctuary.corpus.source import (
    DEFAULT_BATCH_ROWS,
    Closing,
    RawRow,
    SourceIdentity,
    batch_rows,
)
from noctuary.types import UNDATED_US, from_micros

MINUTE_US = 60_000_000
HOUR_US = 60 * MINUTE_US
START_US = 1_790_000_000_000_000

_COLUMNS = (
    "id", "content", "category", "tags", "importance", "created_us", "updated_us", "user_id",
    "is_sensitive", "vault_path", "encrypted_content", "deleted_us",
)  # fmt: skip


class FeedStore:
    """The server's side: its table, edited by ordinary SQL, and its clock."""

    def __init__(self, path: Path, *, location: str = "feed://store") -> None:
        self.path = path
        self.location = location
        self.clock_us = START_US
        with closing(sqlite3.connect(path)) as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute(
                "CREATE TABLE memories (id INTEGER PRIMARY KEY, content, category DEFAULT 'facts',"
                " tags DEFAULT '', importance DEFAULT 0.5, created_us, updated_us, user_id,"
                " is_sensitive DEFAULT 0, vault_path, encrypted_content, deleted_us)"
            )

    def now_us(self) -> int:
        """Return the store's clock."""
        return self.clock_us

    def wait(self, us: int) -> None:
        """Let time pass, or go back."""
        self.clock_us += us

    def pass_time(self) -> None:
        """Let an hour pass."""
        self.wait(HOUR_US)

    def ids(self) -> list[int]:
        """Return the ids that are there."""
        return [int(key) for (key,) in self._do("SELECT id FROM memories ORDER BY id")]

    def content_of(self, key: int) -> str:
        """Return a content."""
        return str(self._do("SELECT content FROM memories WHERE id = ?", key)[0][0])

    def insert(self, content: str, *, age_us: int = 0, key: int | None = None) -> None:
        """Add a row that was written `age_us` ago."""
        moment = self.clock_us - age_us
        self._do(
            "INSERT INTO memories (id, content, created_us, updated_us) VALUES (?, ?, ?, ?)",
            key, content, START_US, moment,
        )  # fmt: skip

    def update(self, key: int, columns: Mapping[str, Any], *, age_us: int = 0) -> None:
        """Change columns of a row, `age_us` ago as its updated_at says."""
        values = {"updated_us": self.clock_us - age_us, **columns}
        names = ", ".join(f"{name} = ?" for name in values)
        self._do(f"UPDATE memories SET {names} WHERE id = ?", *values.values(), key)

    def delete(self, key: int) -> None:
        """Remove a row without a trace."""
        self._do("DELETE FROM memories WHERE id = ?", key)

    def open(self) -> FeedSource:
        """Return the store, pinned to its state."""
        return FeedSource(self)

    def _do(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path)) as db, db:
            return db.execute(sql, values).fetchall()


class FeedSource(Closing):
    """One pinned state of a `FeedStore`; counts the texts that it was asked for."""

    def __init__(self, store: FeedStore) -> None:
        self._store = store
        self._now_us = store.clock_us
        self._db = sqlite3.connect(store.path, isolation_level=None)
        self._db.execute("BEGIN")
        self._db.execute("SELECT count(*) FROM memories").fetchone()
        self.texts_read = 0

    def identity(self) -> SourceIdentity:
        """Return what it is."""
        return SourceIdentity("feed", self._store.location, "1", "int", {"rows": self.count()})

    def count(self) -> int:
        """Return the number of rows."""
        return int(self._db.execute("SELECT count(*) FROM memories").fetchone()[0])

    def batches(self, size: int = DEFAULT_BATCH_ROWS) -> Iterator[Sequence[RawRow]]:
        """Yield every row."""
        yield from self._rows("1", (), size)

    def now_us(self) -> int:
        """Return the clock when it was pinned."""
        return self._now_us

    def changed_since(
        self, since_us: int, size: int = DEFAULT_BATCH_ROWS
    ) -> Iterator[Sequence[RawRow]]:
        """Yield the rows with a late enough date."""
        yield from self._rows("updated_us >= ?", (since_us,), size)

    def keys(self, size: int = DEFAULT_BATCH_ROWS) -> Iterator[Sequence[int | str]]:
        """Yield the ids."""
        for page in _pages(self._raw("1", ()), size):
            yield [row[0] for row in page]

    def digests(self, size: int = DEFAULT_BATCH_ROWS) -> Iterator[Sequence[RowDigest]]:
        """Yield what tells the rows apart."""
        for page in _pages(self._raw("1", ()), size):
            yield [RowDigest(row[0], md5(repr(row).encode()).hexdigest()) for row in page]

    def rows_of(
        self, keys: Sequence[int | str], size: int = DEFAULT_BATCH_ROWS
    ) -> Iterator[Sequence[RawRow]]:
        """Yield some rows."""
        yield from self._rows(f"id IN ({', '.join('?' * len(keys))})", tuple(keys), size)

    def close(self) -> None:
        """End the transaction."""
        self._db.close()

    def _raw(self, where: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
        sql = f"SELECT {', '.join(_COLUMNS)} FROM memories WHERE {where} ORDER BY id"
        return self._db.execute(sql, values).fetchall()

    def _rows(
        self, where: str, values: tuple[object, ...], size: int
    ) -> Iterator[Sequence[RawRow]]:
        for batch in batch_rows(map(_raw_row, self._raw(where, values)), size):
            self.texts_read += len(batch)
            yield batch


def _raw_row(values: tuple[Any, ...]) -> RawRow:
    fields: dict[str, Any] = dict(zip(_COLUMNS, values, strict=True))
    locator = f"id {fields['id']}"
    if fields["is_sensitive"]:
        return RawRow(locator, fields["id"], {}, withheld="flagged")
    if fields["vault_path"] or fields["encrypted_content"]:
        return RawRow(locator, fields["id"], {}, withheld="vaulted")
    for name in ("created", "updated", "deleted"):
        moment_us = fields.pop(f"{name}_us")
        moment = from_micros(UNDATED_US if moment_us is None else moment_us)
        fields[f"{name}_at"] = None if moment is None else moment.isoformat()
    return RawRow(locator, fields["id"], fields)


def _pages(rows: Sequence[tuple[Any, ...]], size: int) -> Iterator[Sequence[tuple[Any, ...]]]:
    yield from (rows[start : start + size] for start in range(0, len(rows), size))
