"""SQLite files: opened beside somebody else's writer, and logs that any process appends to."""

from __future__ import annotations

import atexit
import fcntl
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from noctuary.core.files import create_private

# Files that are never changed, only replaced: opening one as SQLite, noticing a replacement.
#
# Standard library only.


FileIdentity = tuple[int, int, int, int]
"""Device, inode, time of change in nanoseconds, size: another file has another one."""


def connect_immutable(path: Path, *, check_same_thread: bool = True) -> sqlite3.Connection:
    """Open a SQLite file that nobody changes: no lock is taken and no file is left beside it.

    Args:
        path: The file.
        check_same_thread: As of sqlite3.connect; off for a connection that a lock guards.

    Raises:
        sqlite3.Error: If it is not there; a damaged one fails when it is read.
    """
    uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    return sqlite3.connect(uri, uri=True, check_same_thread=check_same_thread)


def identify(path: Path) -> FileIdentity | None:
    """Return which file lies at a path, or None where there is none or it cannot be looked at."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size


# A SQLite file of somebody else, opened read-only beside its live writer.
#
# Nothing is ever written; SQLite itself may leave an empty `-wal` and a `-shm` file beside a file
# in WAL mode, as any reader of it does.


_CANNOT_OPEN = (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)


def open_foreign(
    path: Path, wait_s: float, *, check_same_thread: bool = True
) -> tuple[sqlite3.Connection, bool]:
    """Return a connection without a transaction, and whether it reads without locks.

    Texts that are not UTF-8 come as bytes. Without locks is only read where SQLite cannot make the
    files of a WAL beside it (read-only media, a folder of others) and there is no log to miss.

    Args:
        path: The file.
        wait_s: How long each access waits for a writer.
        check_same_thread: False where one thread opens it and another reads it, never both at once.

    Raises:
        sqlite3.Error: It cannot be opened, or is no database. The message may quote a row.
    """
    uri = f"{path.absolute().as_uri()}?mode=ro"
    try:
        return _open(uri, wait_s, check_same_thread), False
    except sqlite3.OperationalError as error:
        has_log = path.with_name(f"{path.name}-wal").exists()
        if error.sqlite_errorcode & 0xFF not in _CANNOT_OPEN or has_log:
            raise
    return _open(f"{uri}&immutable=1", wait_s, check_same_thread), True


def _open(uri: str, wait_s: float, check_same_thread: bool) -> sqlite3.Connection:
    db = sqlite3.connect(
        uri, uri=True, timeout=wait_s, isolation_level=None, check_same_thread=check_same_thread
    )
    try:
        db.text_factory = _decode
        db.execute("PRAGMA query_only = 1")
        db.execute("PRAGMA temp_store = 2")  # memory: no text of a row in a temporary file
        db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
    except BaseException:
        db.close()
        raise
    return db


def _decode(raw: bytes) -> str | bytes:
    """Return text, or the bytes themselves where they are no UTF-8 (SQLite does not check)."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw


# Appending rows to a small SQLite log from any process: one serialized writer per file.
#
# Appending never raises and never waits longer than `WAIT_AT_MOST_S`. Standard library and
# `noctuary.core.files` only.


WAIT_AT_MOST_S = 0.25
"""How long one append may wait for others in all; longer stalls a prompt, shorter postpones rows
under load."""

_WAIT_WHILE_STUCK_S = 0.025
"""The same after an append that waited in vain: a lock that somebody forgot costs the whole wait
once, not with every prompt; longer catches the end of a short jam sooner."""

_FIRST_PAUSE_S = 0.0005
"""First pause of the backoff, about what one append takes; shorter burns a core on retries."""

_LONGEST_PAUSE_S = 0.016
"""Longest pause of the backoff; longer leaves too few attempts within the wait to be fair."""

_ROWS_WAITING_AT_MOST = 2_000
"""Rows kept in memory for the next append while the file cannot be written (about 0.5 MB); more
bridges a longer fault, fewer cost less to retry each time."""

_OPEN_AT_MOST = 32
"""Connections kept open in one process, three file descriptors each; fewer reopen more often."""

_BUSY_CODES = frozenset({5, 6, 15})
"""SQLITE_BUSY, SQLITE_LOCKED and SQLITE_PROTOCOL: another connection is at work (sqlite.org
rescode): the only faults that waiting can mend."""


class LogFormat(NamedTuple):
    """What one kind of log looks like.

    Attributes:
        noun: What the file is, for messages ("access log").
        event: What a row tells of, for messages ("this retrieval").
        version: `user_version` of the file, >= 1; a file of a higher one is refused.
        schema: One CREATE TABLE IF NOT EXISTS statement.
        insert: The INSERT of one row.
    """

    noun: str
    event: str
    version: int
    schema: str
    insert: str


Row = tuple[Any, ...]
"""The values of one INSERT."""

_Batch = tuple[int, list[Row]]
_Identity = tuple[int, int]


class _Writer:
    """The only connection of this process to one log, and the rows that wait for it.

    One re-entrant lock serializes its threads. Rows enter through a queue whose operations are
    atomic, so that whoever holds the lock writes for those who wait for it, and nobody who is
    interrupted in the middle (a signal, a fork) leaves a second lock behind. Each batch of rows
    names the process that recorded it: a child must not write its parent's rows again.
    """

    def __init__(self, path: Path, kind: LogFormat) -> None:
        self.path = path
        self.kind = kind
        self.lock = threading.RLock()
        self.used_at = 0.0
        self.connection: sqlite3.Connection | None = None
        self._waiting: deque[_Batch] = deque()
        self._dropped = 0
        self._stuck = False
        self._writing = False
        self._connected_in = 0
        self._file: _Identity | None = None
        self._wal: _Identity | None = None

    def append(self, rows: list[Row]) -> str | None:
        """Write these rows and all that wait; return what went wrong."""
        self._waiting.append((os.getpid(), rows))
        self._drop_overflow()
        return self.flush(_WAIT_WHILE_STUCK_S if self._stuck else WAIT_AT_MOST_S)

    def flush(self, wait_s: float) -> str | None:
        """Write all that wait within a time; what could not be written keeps waiting."""
        deadline = time.monotonic() + wait_s
        if not self.lock.acquire(timeout=wait_s):
            self._stuck = True
            return self._say("another thread has been writing all the time")
        try:
            self._leave_parent()
            # Only a signal handler gets here during a write of the same thread: that write, or the
            # next, takes its rows along.
            return None if self._writing else self._write_waiting(deadline)
        finally:
            self.lock.release()

    def close(self) -> None:
        """Close the connection; the next append opens another. Call with the lock held."""
        connection, self.connection = self.connection, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def _write_waiting(self, deadline: float) -> str | None:
        batches = self._take()
        if not batches:
            return None
        self._writing = True
        try:
            fault = self._write_patiently([row for _, rows in batches for row in rows], deadline)
        finally:
            self._writing = False
        self._stuck = fault is not None
        if fault is None:
            return None
        self._waiting.extendleft(reversed(batches))
        self._drop_overflow()
        return self._say(fault)

    def _write_patiently(self, rows: list[Row], deadline: float) -> str | None:
        """Retry while others are at work: each pause up to twice as long, of random length."""
        pause = _FIRST_PAUSE_S
        while True:
            try:
                self._write(rows)
            except (sqlite3.Error, OSError) as error:
                left = deadline - time.monotonic()
                if not _is_busy(error):
                    # Whatever it was, the next attempt starts from the file that is there then.
                    self.close()
                    return str(error)
                if left <= 0:
                    return str(error)
                time.sleep(min(left, pause * (0.5 + os.urandom(1)[0] / 256)))
                pause = min(2 * pause, _LONGEST_PAUSE_S)
            else:
                return None

    def _write(self, rows: list[Row]) -> None:
        self.used_at = time.monotonic()
        log = self._ready()
        log.execute("BEGIN IMMEDIATE")
        try:
            log.executemany(self.kind.insert, rows)
            log.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                log.execute("ROLLBACK")
            raise
        if self._wal is None:
            self._wal = _identity(_beside(self.path, "-wal"))

    def _ready(self) -> sqlite3.Connection:
        """Return a connection to the file that is at the path now: others may delete or replace it.

        Writing on to the old one would succeed and be lost.
        """
        if self.connection is not None and _identity(self.path) == self._file:
            return self.connection
        with _directory_lock(self.path.parent):
            self._remove_stray_wal()
            self.close()
            connection = _connect(self.path, self.kind)
        self.connection, self._connected_in = connection, os.getpid()
        self._file, self._wal = _identity(self.path), None
        return connection

    def _remove_stray_wal(self) -> None:
        """Remove the side files of a log that is gone, before they are taken for the new log's.

        They are strays when there is no log at all, or when the log was replaced and the WAL is
        still the one that this writer wrote. Under the directory's lock, so that no other process
        has made new ones since.
        """
        file = _identity(self.path)
        wal = _identity(_beside(self.path, "-wal"))
        replaced = self.connection is not None and file != self._file and wal == self._wal
        if file is None or (replaced and wal is not None):
            for ending in ("-wal", "-shm"):
                _beside(self.path, ending).unlink(missing_ok=True)

    def _leave_parent(self) -> None:
        """Part from the parent after a fork that ran no hooks (one in C code).

        SQLite counts locks per process: unless the inherited connection is closed first, the
        child's own would believe that it holds what only the parent holds.
        """
        if self.connection is not None and self._connected_in != os.getpid():
            self.close()

    def _take(self) -> list[_Batch]:
        batches: list[_Batch] = []
        with suppress(IndexError):
            while True:
                batches.append(self._waiting.popleft())
        return [batch for batch in batches if batch[0] == os.getpid()]

    def _drop_overflow(self) -> None:
        with suppress(IndexError):
            # The newest answer is kept, however long it is.
            while len(self._waiting) > 1 and self._rows_waiting() > _ROWS_WAITING_AT_MOST:
                self._dropped += len(self._waiting.popleft()[1])

    def _rows_waiting(self) -> int:
        return sum(len(rows) for _, rows in tuple(self._waiting))

    def _say(self, fault: str) -> str:
        dropped = f", {self._dropped} older dropped" if self._dropped else ""
        waiting = f"{self._rows_waiting()} rows wait for the next{dropped}"
        return f"{self.kind.event} was not logged: {fault} ({waiting})"


_writers: dict[Path, _Writer] = {}
_writers_lock = threading.RLock()


def append_rows(path: Path, kind: LogFormat, rows: list[Row]) -> str | None:
    """Append rows in one transaction.

    The rows of an append that failed wait in memory for the next one or for the end of the
    process.

    Args:
        path: The log; made if it is missing, in a directory that exists.
        kind: What it looks like; always the same for one path.
        rows: Values that SQLite can store, texts without lone surrogates.

    Returns:
        None on success, else what went wrong (locked, full disk, read-only): the caller reports it
        as a warning.
    """
    return _writer_of(path.absolute(), kind).append(rows)


def close_logs() -> None:
    """Write what waits and close every connection of this process; runs by itself at its end.

    Waits for others for `WAIT_AT_MOST_S` in all; what cannot be written by then is lost.
    """
    deadline = time.monotonic() + WAIT_AT_MOST_S
    for writer in tuple(_writers.values()):
        writer.flush(max(0.0, deadline - time.monotonic()))
        if writer.lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            try:
                writer.close()
            finally:
                writer.lock.release()


def _writer_of(path: Path, kind: LogFormat) -> _Writer:
    writer = _writers.get(path)
    if writer is None or writer.connection is None:
        with _writers_lock:
            if not _writers:
                atexit.register(close_logs)
                os.register_at_fork(
                    before=_before_fork,
                    after_in_parent=_after_fork,
                    after_in_child=_after_fork,
                )
            writer = _writers.setdefault(path, _Writer(path, kind))
            _close_idlest()
    return writer


def _close_idlest() -> None:
    """Make room for one more connection, unless all are in use at this moment."""
    connected = [w for w in tuple(_writers.values()) if w.connection is not None]
    for writer in sorted(connected, key=lambda w: w.used_at)[: len(connected) + 1 - _OPEN_AT_MOST]:
        if writer.lock.acquire(blocking=False):
            try:
                writer.close()
            finally:
                writer.lock.release()


def _before_fork() -> None:
    """Let no connection be open and no write be under way at a fork: see `_leave_parent`."""
    _writers_lock.acquire()
    for writer in _writers.values():
        writer.lock.acquire()
        writer.close()


def _after_fork() -> None:
    for writer in _writers.values():
        writer.lock.release()
    _writers_lock.release()


def _connect(path: Path, kind: LogFormat) -> sqlite3.Connection:
    # Autocommit and no waiting inside SQLite: transactions and pauses are the writer's.
    create_private(path)
    log = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        if _version_of(log, kind) == 0:
            _create(log, kind)
        # A crash of the machine may lose the latest rows, not damage the file; a crash of the
        # process loses nothing that was committed.
        log.execute("PRAGMA synchronous=NORMAL")
    except BaseException:
        log.close()
        raise
    return log


def _version_of(log: sqlite3.Connection, kind: LogFormat) -> int:
    found: int = log.execute("PRAGMA user_version").fetchone()[0]
    if found > kind.version:
        raise sqlite3.DatabaseError(
            f"the {kind.noun} has format {found}, expected {kind.version}: update noctuary"
        )
    return found


def _create(log: sqlite3.Connection, kind: LogFormat) -> None:
    log.execute("PRAGMA journal_mode=WAL")
    log.execute("BEGIN IMMEDIATE")
    log.execute(kind.schema)
    # Tells this log from one that is made at its place after a deletion, where positions start
    # anew. A log of an older version has 0.
    identity = 1 + int.from_bytes(os.urandom(3), "big")
    log.execute(f"PRAGMA application_id={identity}")
    log.execute(f"PRAGMA user_version={kind.version}")
    log.execute("COMMIT")


@contextmanager
def _directory_lock(directory: Path) -> Generator[None]:
    """Let one process at a time make the log; raises BlockingIOError while another does."""
    fd = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(fd)


def _is_busy(error: Exception) -> bool:
    code: int = getattr(error, "sqlite_errorcode", 0)
    return isinstance(error, BlockingIOError) or code & 0xFF in _BUSY_CODES


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _identity(path: Path) -> _Identity | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return (stat.st_dev, stat.st_ino)
