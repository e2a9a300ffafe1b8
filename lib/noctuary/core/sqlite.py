"""SQLite files: logs of the store, files that are only replaced, and foreign ones."""

# Not `from __future__ import annotations`: NamedTuple compiles each annotation that is a text.
import atexit
import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from noctuary.core.files import create_private
from noctuary.core.formats import UPDATE
from noctuary.core.locks import at_fork, let_go, open_directory, take_lock

# `user_version` is a file's format. A file with another version, or a damaged one, is never moved,
# changed or recreated here: it may hold data that cannot be recreated. The caller gets an error.

# Device, inode, time of change in nanoseconds, size: another file has another one.
FileIdentity = tuple[int, int, int, int]
# Errors from reading rows of a damaged file.
READ_FAULTS = (sqlite3.Error, ValueError, TypeError, KeyError, OverflowError)


class FormatError(sqlite3.DatabaseError):
    """A file has another format than this version of noctuary knows."""


def identify(path: Path) -> FileIdentity | None:
    """Return the identity of the file at a path, or None if it is missing or not accessible."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size


def name_fault(error: sqlite3.Error) -> tuple[Literal["locked", "closed", "damaged"], str]:
    """Classify an error and return SQLite's name for it; its full text may quote rows."""
    # "closed" is a matter of permissions, "damaged" everything else.
    if isinstance(error, FormatError):
        return "damaged", str(error)
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return "locked", name
    if name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH")):
        return "closed", name
    return "damaged", name


def _check_format(db: sqlite3.Connection, noun: str, expected: int, *, may_be_new: bool) -> bool:
    """Return whether a file has its format; False where it may be empty or being made, and is."""
    found: int = db.execute("PRAGMA user_version").fetchone()[0]
    if found == expected or (found == 0 and may_be_new):
        return found == expected
    update = f": {UPDATE}" if found > expected else ""
    raise FormatError(f"{noun} has format {found}, expected {expected}{update}")


# Files that are never changed, only replaced: nothing writes to one that readers have open.


def connect_immutable(path: Path, *, check_same_thread: bool = True) -> sqlite3.Connection:
    """Open a SQLite file that nothing changes: without locks, and without files next to it."""
    uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    return sqlite3.connect(uri, uri=True, check_same_thread=check_same_thread)


@contextmanager
def filling(path: Path, schema: str = "") -> Generator[sqlite3.Connection]:
    """Yield a new, still private file, in a transaction; the block may commit."""
    # No journal, no waiting for disks: it is flushed when it is put in place.
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode=OFF")
        db.execute("PRAGMA synchronous=OFF")
        db.executescript(schema)
        db.execute("BEGIN")
        yield db
        if db.in_transaction:
            db.execute("COMMIT")


class ReplacedFile:
    """A file that is replaced as a whole, pinned to one state, with its digest and warning."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.warning: str | None = None  # why it cannot be read
        self.digest = ""  # two readers of one digest answer alike; "" where none is given
        # Before the file is opened: if it is replaced in between, `refreshed` opens it again.
        self._identity = identify(path)
        self.is_missing = self._identity is None

    def refreshed(self) -> Self:
        """Return this reader while its file is the one at the path, else one of the new file."""
        return self if identify(self.path) == self._identity else type(self)(self.path)

    def _read_meta(self, db: sqlite3.Connection, version: int) -> dict[str, Any]:
        """Return the table `meta`, keys to values."""
        _check_format(db, "it", version, may_be_new=False)
        return dict(db.execute("SELECT key, value FROM meta"))


# A foreign file, opened read-only while others may write to it. SQLite itself may leave an empty
# `-wal` and a `-shm` file next to it in WAL mode, as for any reader.


def open_foreign(
    path: Path, wait_s: float, *, check_same_thread: bool = True
) -> tuple[sqlite3.Connection, bool]:
    """Return a connection without a transaction, and whether it reads without locks.

    It reads without locks where SQLite cannot create the WAL files (read-only media, a foreign
    folder) and there is no log to miss. Texts that are not UTF-8 are returned as bytes.
    """
    uri = f"{path.absolute().as_uri()}?mode=ro"
    try:
        return _open(uri, wait_s, check_same_thread), False
    except sqlite3.OperationalError as error:
        has_log = path.with_name(f"{path.name}-wal").exists()
        if name_fault(error)[0] != "closed" or has_log:
            raise
    return _open(f"{uri}&immutable=1", wait_s, check_same_thread), True


def _open(uri: str, wait_s: float, check_same_thread: bool) -> sqlite3.Connection:
    db = sqlite3.connect(
        uri, uri=True, timeout=wait_s, isolation_level=None, check_same_thread=check_same_thread
    )
    try:
        db.text_factory = decode_text
        db.execute("PRAGMA query_only = 1")
        db.execute("PRAGMA temp_store = 2")  # memory: no text of a row in a temporary file
        db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
    except BaseException:
        db.close()
        raise
    return db


def decode_text(raw: bytes) -> str | bytes:
    """Return text, or the bytes themselves where they are no UTF-8 (SQLite does not check)."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw


# Logs of the store: changed in place, by nights, recalls and hooks at once. Private to their owner,
# in WAL mode, so that readers do not block writers. A crash of the process loses no committed
# rows; a crash of the machine may lose the latest ones unless `is_flushed`, and damages no file.
# Deleted rows are overwritten.


WAIT_S = 5.0  # for others, of a night or a command: it has time, but a stuck lock must not stop it
_ROWS_PER_DELETION = 5_000  # at once, some 10 ms: fewer keep an append waiting less


class LogFormat(NamedTuple):
    """Format of one kind of log; `event` and the fields after it are used by `append_rows` only."""

    noun: str  # for messages: "the access log"
    version: int  # `user_version` of the file, >= 1; a file of another one is refused
    schema: str  # CREATE ... IF NOT EXISTS statements, a semicolon between two
    event: str = ""  # the event of a row, for messages: "this retrieval"
    insert: str = ""  # of one row
    upkeep: str = ""  # deletes rows that are too old, run with every append
    # Whether rows that could not be written wait for the next append; else they are lost. Rows with
    # texts must not wait: they might have to be forgotten meanwhile.
    may_wait: bool = True
    is_flushed: bool = False  # whether a commit waits for the disk, which takes milliseconds


def open_log(
    path: Path,
    kind: LogFormat,
    mode: Literal["ro", "rw", "rwc"] = "ro",
    *,
    wait_s: float = WAIT_S,
    or_empty: bool = False,
    check_same_thread: bool = True,
) -> sqlite3.Connection:
    """Open a log in autocommit: "ro" reads, "rw" changes, "rwc" makes it first if it is missing.

    With `or_empty`, one that is missing or being made is an empty one in memory.

    Raises:
        FormatError: It has another format.
        sqlite3.Error: It is damaged, locked, or cannot be opened or made.
        OSError: It cannot be made.
    """
    if mode == "rwc":
        create_private(path)
    elif or_empty and not path.exists():
        return _empty_log(kind)
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    log = sqlite3.connect(
        uri, uri=True, timeout=wait_s, isolation_level=None, check_same_thread=check_same_thread
    )
    try:
        may_be_new = or_empty or mode == "rwc"
        is_made = _check_format(log, kind.noun, kind.version, may_be_new=may_be_new)
        log.execute("PRAGMA temp_store=2")  # memory: no text of a row in a temporary file
        if mode != "ro":
            log.execute(f"PRAGMA synchronous={'FULL' if kind.is_flushed else 'NORMAL'}")
            log.execute("PRAGMA secure_delete=ON")
        if mode == "rwc" and not is_made:
            log.execute("PRAGMA journal_mode=WAL")
            with transaction(log):
                _make_tables(log, kind)
                # Distinguishes this log from one created in its place after a deletion, whose
                # row numbers start again. A log of an older version has 0.
                identity = 1 + int.from_bytes(os.urandom(3), "big")
                log.execute(f"PRAGMA application_id={identity}")
                log.execute(f"PRAGMA user_version={kind.version}")
    except BaseException:
        log.close()
        raise
    if is_made or mode == "rwc":
        return log
    log.close()
    return _empty_log(kind)


def delete_rows(
    path: Path, kind: LogFormat, table: str, key: str, where: str, values: tuple[Any, ...]
) -> tuple[int, str | None]:
    """Delete rows in several transactions; return how many, and an error or None."""
    found = f"SELECT {key} FROM {table} WHERE {where} ORDER BY {key} LIMIT {_ROWS_PER_DELETION}"
    deleted = 0
    try:
        with closing(open_log(path, kind, "rw", wait_s=WAIT_S, or_empty=True)) as log:
            sql = f"DELETE FROM {table} WHERE ({key}) IN ({found})"
            while (count := log.execute(sql, values).rowcount) > 0:
                deleted += count
    except sqlite3.Error as error:
        return deleted, f"old rows of {path.name} were not deleted: {error}"
    return deleted, None


@contextmanager
def transaction(log: sqlite3.Connection) -> Generator[None]:
    """Run the block in one transaction, waiting for other writers."""
    log.execute("BEGIN IMMEDIATE")
    try:
        yield
        log.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            log.execute("ROLLBACK")
        raise


def _empty_log(kind: LogFormat) -> sqlite3.Connection:
    log = sqlite3.connect(":memory:", isolation_level=None)
    _make_tables(log, kind)
    return log


def _make_tables(log: sqlite3.Connection, kind: LogFormat) -> None:
    for statement in kind.schema.split(";"):
        log.execute(statement)


# Appending from any process: one serialized writer per file, which never raises and never waits
# longer than `WAIT_AT_MOST_S`.

WAIT_AT_MOST_S = 0.25  # of one append, for others, in all: longer stalls a prompt
# The same after one that waited in vain: a forgotten lock costs the whole wait only once.
_WAIT_WHILE_STUCK_S = 0.025
_FIRST_PAUSE_S = 0.0005  # of the backoff, about what one append takes
_LONGEST_PAUSE_S = 0.016  # longer leaves too few attempts within the wait to be fair
_ROWS_WAITING_AT_MOST = 2_000  # in memory, about 0.5 MB, while the file cannot be written
# Of the write-ahead log: hooks end without closing it, and each reads all that the others left.
_WAL_BYTES_AT_MOST = 1 << 18
_OPEN_AT_MOST = 32  # connections of one process, three file descriptors each
# SQLITE_BUSY, SQLITE_LOCKED and SQLITE_PROTOCOL: another connection is at work (sqlite.org
# rescode), the only faults that waiting can mend.
_BUSY_CODES = frozenset({5, 6, 15})

Row = tuple[Any, ...]
_Identity = tuple[int, int]


class _Writer:
    """The only connection of this process to one log, and the rows that wait for it."""

    # One re-entrant lock serializes its threads. Rows enter through a queue whose operations are
    # atomic, so that the holder of the lock writes for those who wait for it, and an interruption
    # in the middle (a signal, a fork) leaves no second lock behind. Each batch of rows
    # names the process that recorded it: a child must not write its parent's rows again.

    def __init__(self, path: Path, kind: LogFormat) -> None:
        self.path = path
        self.kind = kind
        self.lock = threading.RLock()
        self.used_at = 0.0
        self.connection: sqlite3.Connection | None = None
        self._waiting: deque[tuple[int, list[Row]]] = deque()
        self._dropped = 0
        self._stuck = False
        self._writing = False
        self._connected_in = 0
        self._file: _Identity | None = None
        self._wal: _Identity | None = None

    def append(self, rows: list[Row]) -> str | None:
        """Write these rows and all waiting ones; return an error or None."""
        self._waiting.append((os.getpid(), rows))
        self._drop_overflow()
        return self.flush(_WAIT_WHILE_STUCK_S if self._stuck else WAIT_AT_MOST_S)

    def flush(self, wait_s: float) -> str | None:
        """Write all waiting rows within a time; the rest keeps waiting."""
        deadline = time.monotonic() + wait_s
        if not self.lock.acquire(timeout=wait_s):
            self._stuck = True
            return self._say("another thread has been writing all the time")
        try:
            if self.connection is not None and self._connected_in != os.getpid():
                # After a fork that ran no hooks (one in C code). SQLite counts locks per process:
                # unless the inherited connection is closed first, the child's own would believe
                # that it holds what only the parent holds.
                self.close()
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
        batches: list[tuple[int, list[Row]]] = []
        with suppress(IndexError):
            while True:
                batches.append(self._waiting.popleft())
        batches = [batch for batch in batches if batch[0] == os.getpid()]
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
        if self.kind.may_wait:
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
                is_busy = getattr(error, "sqlite_errorcode", 0) & 0xFF in _BUSY_CODES
                if not is_busy and not isinstance(error, BlockingIOError):
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
        with transaction(log):
            # Again: a newer noctuary may have come to it since it was opened.
            _check_format(log, self.kind.noun, self.kind.version, may_be_new=False)
            log.executemany(self.kind.insert, rows)
            forgotten = log.execute(self.kind.upkeep).rowcount
        with suppress(sqlite3.Error, OSError):  # by now the rows are in the file
            wal_bytes = _beside(self.path, "-wal").stat().st_size
            # Deleted rows must leave the write-ahead log as well.
            if forgotten > 0 or wal_bytes > _WAL_BYTES_AT_MOST:
                log.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        if self._wal is None:
            self._wal = _identity(_beside(self.path, "-wal"))

    def _ready(self) -> sqlite3.Connection:
        """Return a connection to the file that is at the path now; others may replace it."""
        if self.connection is not None and _identity(self.path) == self._file:
            return self.connection
        with directory_lock(self.path.parent):
            self._remove_stray_wal()
            self.close()
            # No waiting inside SQLite: the pauses are this writer's.
            connection = open_log(self.path, self.kind, "rwc", wait_s=0, check_same_thread=False)
        self.connection, self._connected_in = connection, os.getpid()
        self._file, self._wal = _identity(self.path), None
        return connection

    def _remove_stray_wal(self) -> None:
        """Remove the side files of a deleted log, before they are taken for the new log's."""
        # They are strays when there is no log at all, or when the log was replaced and the WAL is
        # still the one that this writer wrote. Under the directory's lock, so none is new.
        file = _identity(self.path)
        wal = _identity(_beside(self.path, "-wal"))
        replaced = self.connection is not None and file != self._file and wal == self._wal
        if file is None or (replaced and wal is not None):
            for ending in ("-wal", "-shm"):
                _beside(self.path, ending).unlink(missing_ok=True)

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
    """Append rows in one transaction; return an error for a warning, or None.

    Rows that could not be written wait in memory for the next append or the end of the process.
    """
    return _writer_of(path.absolute(), kind).append(rows)


def close_logs() -> None:
    """Write waiting rows within WAIT_AT_MOST_S and close all; runs at the end of the process."""
    deadline = time.monotonic() + WAIT_AT_MOST_S
    for writer in tuple(_writers.values()):
        writer.flush(max(0.0, deadline - time.monotonic()))
        _close(writer, max(0.0, deadline - time.monotonic()))


def _close(writer: _Writer, wait_s: float) -> None:
    if writer.lock.acquire(timeout=wait_s):
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
                at_fork(
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
        _close(writer, 0)


def _before_fork() -> None:
    """Let no connection be open and no write be under way at a fork: see `_Writer.flush`."""
    _writers_lock.acquire()
    for writer in _writers.values():
        writer.lock.acquire()
        writer.close()


def _after_fork() -> None:
    for writer in _writers.values():
        writer.lock.release()
    _writers_lock.release()


@contextmanager
def directory_lock(directory: Path) -> Generator[None]:
    """Serialise writers in a directory; BlockingIOError while another one holds the lock."""
    fd = open_directory(directory)
    try:
        take_lock(fd)
        try:
            yield
        finally:
            let_go(fd)  # not by closing alone: a child may hold a copy
    finally:
        os.close(fd)


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _identity(path: Path) -> _Identity | None:
    found = identify(path)
    return None if found is None else found[:2]
