"""A look into the store behind a snapshot: what it gained, changed and lost since."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from noctuary.core.errors import ConfigError, NoctuaryError
from noctuary.core.files import hash_text
from noctuary.core.manifest import Manifest
from noctuary.core.settings import CorpusSettings, LiveSettings, SourceSettings
from noctuary.core.sqlite import FileIdentity, identify, open_foreign
from noctuary.core.store import DatabaseName, StorePaths, name_source, names_postgres
from noctuary.core.types import MemoryRecord
from noctuary.text.secrets import FLAG_FIELDS, VAULT_FIELDS, mark_sql

if TYPE_CHECKING:
    from noctuary.sources.echo import KnownInjections
    from noctuary.sources.source import RawRow


# What one kind of store told about itself since a snapshot, before any judgement.

Fields = Mapping[str, object]


class Since(NamedTuple):
    """What the snapshot knows of its store."""

    last_id: int  # The highest id that the store had when it was read, whatever became of that row
    rows: int | None  # How many rows it had then; None where that is not known
    read_us: int  # When it was read, microseconds since the epoch


class Limits(NamedTuple):
    """What a look may take."""

    max_rows: int  # Rows at most, the newest first
    until_s: float  # `time.perf_counter` at which it ends

    def left_s(self) -> float:
        """Return the time left in seconds; 0 when it is over."""
        return max(self.until_s - time.perf_counter(), 0.0)


class Found(NamedTuple):
    """Rows that are new or may have changed."""

    rows: Mapping[int, Fields]  # Id -> columns, of rows that bear no mark of sensitivity
    # Ids of rows whose text the query left in the store, because they are marked
    withheld: tuple[int, ...] = ()
    # The id, as text, of every row that is there; None where none can have vanished or that was not
    # found out
    ids: frozenset[str] | None = None
    missed: str = ""  # What was left undone, in words; empty where nothing was


# A look into a claude-memory PostgreSQL database: what was written since, by its index.
#
# Tombstones are rows that changed, so soft deletes are seen. Rows that were removed outright are
# not: finding them means reading every id (the night does).

LATE_COMMIT_S = 120.0
"""How long before the reading a row may be stamped that was committed after it: the server stamps a
row when its transaction begins."""

_BATCH = 500


def look_into_postgres(
    name: DatabaseName, settings: SourceSettings, since: Since, limits: Limits
) -> Found:
    """Return what a database gained and changed.

    The connection has its own thread: a server that does not answer holds it, and not the recall.

    Raises:
        TimeoutError: The server did not answer in time.
        NoctuaryError: It refused, or is none any more; never with the address in it.
    """
    told: list[Sequence[RawRow] | Exception] = []

    def ask() -> None:
        try:
            told.append(_changed(name, settings, since, limits.max_rows + 1))
        except Exception as error:  # whatever it is, the recall's own thread says it
            told.append(error)

    thread = threading.Thread(target=ask, name="noctuary-live", daemon=True)
    thread.start()
    thread.join(limits.left_s())
    if not told:
        raise TimeoutError("the database did not answer in time")
    rows = told[0]
    if isinstance(rows, Exception):
        raise rows
    missed = ""
    if len(rows) > limits.max_rows:
        missed = "more rows are new or changed than may be taken in (live.max_rows)"
        rows = rows[-limits.max_rows :] if limits.max_rows else ()
    keyed = [(row.key, row) for row in rows if isinstance(row.key, int)]
    return Found(
        {key: row.fields for key, row in keyed if row.withheld is None},
        tuple(key for key, row in keyed if row.withheld is not None),
        None,
        missed,
    )


def _changed(
    name: DatabaseName, settings: SourceSettings, since: Since, at_most: int
) -> Sequence[RawRow]:
    from noctuary.sources.postgres_source import PostgresSource

    since_us = since.read_us - int(LATE_COMMIT_S * 1e6)
    with PostgresSource(name, settings) as source:
        batches = source.changed_since(since_us, _BATCH)
        return list(islice((row for batch in batches for row in batch), at_most))


# A look into a claude-memory SQLite store: new rows by one indexed read, then changes and losses.
#
# New rows are those above the highest id of then (the primary key). The store has no index on
# `updated_at`, so changed rows are found by one pass over the table, and lost ones by counting
# first and comparing ids only where the count says that some are gone. The passes end at the
# deadline; what was found until then counts. Marked rows never leave the database.

REQUIRED = frozenset({"id", "content", "is_sensitive", "updated_at"})
"""Without these a file is not the store that the snapshot was made of."""

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
    """Return size, time of change (ns) and inode of a store and of its write-ahead log."""
    found = [path.stat()]
    with suppress(FileNotFoundError):
        found.append(path.with_name(f"{path.name}-wal").stat())
    # An empty log is what any reader leaves behind.
    return tuple((s.st_size, s.st_mtime_ns, s.st_ino) for s in found if s.st_size)


def look_into_sqlite(path: Path, since: Since, limits: Limits) -> Found:
    """Return what a store gained, changed and lost.

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
    """Ids of rows that were there then, the highest first."""

    written: list[int]  # Written since
    marked: list[int]  # Bear a mark of sensitivity now, whenever it was set


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


# What a look into the store found: rows to search beside the snapshot, memories to hide from it.

UNREACHABLE = "live_unreachable"
"""Warning code: the store could not be looked into, the snapshot answers alone."""

PARTIAL = "live_partial"
"""Warning code: the look did not see all that it looks for."""

_DIGEST_CHARS = 16
_NOT_KEPT = ("content", "expanded_keywords")


class LiveRow(NamedTuple):
    """One memory as the store has it now."""

    memory: MemoryRecord  # Judged by the rules of the export; its position means nothing
    # Token -> how often it stands in what would be indexed; digests in a replay
    counts: Mapping[str, int]
    length: int  # Tokens, repeats included

    @staticmethod
    def of(memory: MemoryRecord, tokens: Sequence[str]) -> LiveRow:
        """Return a row that is indexed under these tokens."""
        return LiveRow(memory, Counter(tokens), len(tokens))


class LiveState(NamedTuple):
    """What differs between a snapshot and its store."""

    rows: tuple[LiveRow, ...] = ()  # New and changed memories by ascending id
    # Ids, as text, of the snapshot's memories that the store changed, lost or marked sensitive
    # since
    hidden: tuple[str, ...] = ()
    faults: tuple[tuple[str, str], ...] = ()  # Warnings, as (code, message); no text of a row
    hashed: bool = False  # Whether `LiveRow.counts` holds `token_digest`s, as in a replay

    @property
    def changes_nothing(self) -> bool:
        """Say whether the snapshot is all there is to search."""
        return not self.rows and not self.hidden


def token_digest(token: str) -> str:
    """Return what stands for a token in a replay packet."""
    return hash_text(token)[:_DIGEST_CHARS]


def record_state(state: LiveState) -> dict[str, Any]:
    """Return a state for a replay packet: JSON values, no text of a memory.

    Tokens are kept as digests: they are enough to rank a memory again.
    """
    return {
        "rows": [_record_row(row, hashed=state.hashed) for row in state.rows],
        "hidden": list(state.hidden),
        "faults": [list(fault) for fault in state.faults],
    }


def read_state(record: Mapping[str, Any]) -> LiveState:
    """Return the state that `record_state` kept; contents are empty.

    Raises:
        KeyError, TypeError, ValueError: If the record is damaged.
    """
    unknown = dict.fromkeys(_NOT_KEPT, "")
    rows = tuple(
        LiveRow(
            MemoryRecord(**row["memory"], **unknown),
            {str(token): int(count) for token, count in row["counts"].items()},
            int(row["length"]),
        )
        for row in record["rows"]
    )
    faults = tuple((str(code), str(message)) for code, message in record["faults"])
    return LiveState(rows, tuple(record["hidden"]), faults, hashed=True)


def _record_row(row: LiveRow, *, hashed: bool) -> dict[str, Any]:
    memory = {
        name: getattr(row.memory, name) for name in MemoryRecord.__slots__ if name not in _NOT_KEPT
    }
    counts = row.counts if hashed else {token_digest(t): n for t, n in row.counts.items()}
    return {"memory": memory, "counts": dict(counts), "length": row.length}


# From rows as the store has them to memories: the rules of the export, applied at once.
#
# They are loaded when there is a row to judge: most recalls find none.

KEPT_TOKENS = 4_096
"""Rows whose tokens are kept for later looks of this process: some kilobytes each."""


class Snapshot(Protocol):
    """What a look needs of a snapshot; ids are texts."""

    @property
    def manifest(self) -> Manifest:
        """What it is and what it was made from."""
        ...

    def content_hashes(self, memory_ids: Iterable[str]) -> dict[str, str]:
        """Return the content hash of every known id."""
        ...

    def contents(self, memory_ids: Sequence[str]) -> dict[str, str]:
        """Return the text of every known id."""
        ...

    def all_memory_ids(self) -> list[str]:
        """Return every id, in any order."""
        ...


def judge(found: Found, snapshot: Snapshot, injections: Path, until_s: float) -> LiveState:
    """Return what of a look may be searched, and what of the snapshot may not be any more.

    A row that would not be exported (sensitive, set aside, deleted) is not searched, and a snapshot
    memory of its id is hidden. A row that is what the snapshot holds changes nothing.

    Args:
        found: The look.
        snapshot: What it is compared with.
        injections: `StorePaths.injections`, to know what recall put into prompts itself.
        until_s: `time.perf_counter` after which no further row is cut into words.
    """
    asked = [str(key) for key in (*found.rows, *found.withheld)]
    known = snapshot.content_hashes(asked)
    memories = _memories(found, snapshot, injections) if found.rows else []
    same = {m.memory_id for m in memories if known.get(m.memory_id) == m.content_hash}
    hidden = {i for i in asked if i in known and i not in same}
    if found.ids is not None:
        # Turns of agents' transcripts have negative ids and were never in the store.
        ids = (i for i in snapshot.all_memory_ids() if not i.startswith("-"))
        hidden |= {i for i in ids if i not in found.ids}
    rows, left_out = _indexed([m for m in memories if m.memory_id not in same], until_s)
    missed = [found.missed] if found.missed else []
    if left_out:
        missed.append("the time was over before all new and changed rows were read")
    faults = () if not missed else ((PARTIAL, "; ".join(missed)),)
    return LiveState(tuple(rows), tuple(sorted(hidden)), faults)


def _memories(found: Found, snapshot: Snapshot, injections: Path) -> list[MemoryRecord]:
    from noctuary.sources.echo import EchoGuard
    from noctuary.sources.export import Tally, sift
    from noctuary.sources.injected import hash_exact
    from noctuary.sources.source import RawRow

    # Rows are judged as that night judged.
    kept, plain = snapshot.manifest.settings.get("corpus", {}), CorpusSettings()
    settings = CorpusSettings(
        tuple(kept.get("turn_categories", plain.turn_categories)),
        int(kept.get("max_content_bytes", plain.max_content_bytes)),
    )
    held = snapshot.contents([str(key) for key in found.rows])
    guard = EchoGuard(
        _known_injections(injections, identify(injections)),
        {memory_id: hash_exact(content) for memory_id, content in held.items()},
    )
    rows = (RawRow(f"id {key}", key, fields) for key, fields in sorted(found.rows.items()))
    now_us = time.time_ns() // 1000
    return list(
        sift(
            rows,
            now_us=now_us,
            settings=settings,
            tally=Tally(),
            quarantine=lambda _: None,
            guard=guard,
        )
    )


@lru_cache(maxsize=4)
def _known_injections(path: Path, _identity: FileIdentity | None) -> KnownInjections:
    from noctuary.sources.echo import read_injections

    return read_injections(path)


def _indexed(memories: Sequence[MemoryRecord], until_s: float) -> tuple[list[LiveRow], int]:
    """Return the rows by id, the newest ones where the time does not suffice, and the rest's count.

    The first is always read: a look that is always too slow must still see what is newest.
    """
    rows: list[LiveRow] = []
    for memory in reversed(memories):
        if rows and time.perf_counter() > until_s:
            break
        rows.append(LiveRow.of(memory, _tokens(*(getattr(memory, name) for name in _INDEXED))))
    rows.reverse()
    return rows, len(memories) - len(rows)


_INDEXED = ("content", "tags", "expanded_keywords", "category")


@lru_cache(maxsize=KEPT_TOKENS)
def _tokens(content: str, tags: str, keywords: str, category: str) -> tuple[str, ...]:
    from noctuary.text.tokens import document_tokens

    return tuple(document_tokens(content, tags, keywords, category))


# Looking into the store that a snapshot was made of, once per state of the store and process.

SETTLED_NS = 50_000_000
"""A store that was written this shortly before a look is looked into again: two writes within one
tick of the file system's clock leave the same time of change."""

ASK_AGAIN_S = 2.0
"""How long the answer of a database, which has no file to look at, is used again; longer shows new
rows later, shorter connects more often."""

KEPT = 32
"""Snapshots whose last look is remembered: a process serves one store, tests many."""

_READ_MARGIN_US = 120_000_000
"""A file last written this long before the night read it holds nothing that the night missed; as
`LATE_COMMIT_S`."""

_SQLITE, _POSTGRES = "claude-memory-sqlite", "claude-memory-postgres"


class _Looked(NamedTuple):
    stamp: Any
    state: LiveState
    until_s: float


_Key = tuple[str, str, LiveSettings]
_known: dict[_Key, _Looked] = {}
_lock = threading.Lock()


def look_now(
    paths: StorePaths, snapshot: Snapshot, live: LiveSettings, source: SourceSettings
) -> LiveState | None:
    """Return what the store has beyond a snapshot; None where that is nothing.

    Never raises: a store that cannot be looked into is a fault of the state.
    """
    made_of = snapshot.manifest.source
    since, kind = _since(made_of), made_of.get("kind")
    if not live.enabled or since is None or kind not in (_SQLITE, _POSTGRES):
        return None
    key = (str(paths.root), snapshot.manifest.digest, live)

    def look() -> LiveState:
        limits = Limits(live.max_rows, time.perf_counter() + live.deadline_ms / 1000)
        if kind == _SQLITE:
            found = look_into_sqlite(Path(str(made_of["location"])), since, limits)
        else:
            found = look_into_postgres(_database(snapshot, source), source, since, limits)
        return judge(found, snapshot, paths.injections, limits.until_s)

    try:
        if kind == _SQLITE:
            state = _look_at_file(key, Path(str(made_of["location"])), since, look)
        else:
            state = _look_at_database(key, snapshot, look)
    # Whatever is wrong with the store, the snapshot answers.
    except Exception as error:
        state = _unreachable(snapshot, error)
    if state is None or (state.changes_nothing and not state.faults):
        return None
    return state


def _look_at_file(
    key: _Key, path: Path, since: Since, look: Callable[[], LiveState]
) -> LiveState | None:
    stamp = stamp_of(path)
    written_ns = max((changed_ns for _, changed_ns, _ in stamp), default=time.time_ns())
    if written_ns // 1000 < since.read_us - _READ_MARGIN_US:
        return None
    known = _known.get(key)
    if known is not None and known.stamp == stamp:
        return known.state
    now_ns = time.time_ns()
    state = look()
    if now_ns - written_ns > SETTLED_NS:
        _remember(key, _Looked(stamp, state, 0.0))
    return state


def _look_at_database(key: _Key, snapshot: Snapshot, look: Callable[[], LiveState]) -> LiveState:
    known = _known.get(key)
    if known is not None and time.monotonic() < known.until_s:
        return known.state
    try:
        state = look()
    except Exception as error:  # remembered as well: the next recall does not wait again
        state = _unreachable(snapshot, error)
    _remember(key, _Looked(None, state, time.monotonic() + ASK_AGAIN_S))
    return state


def _database(snapshot: Snapshot, source: SourceSettings) -> DatabaseName:
    """Return the database, whose password no manifest holds."""
    location = str(snapshot.manifest.source["location"])
    if names_postgres(source.path):
        named = name_source(source.path)
        if isinstance(named, DatabaseName) and named.display == location:
            return named
    raise ConfigError(f"source.path does not name {location}, which the snapshot was made of")


def _since(source: Mapping[str, Any]) -> Since | None:
    """Return what a manifest says of the reading; None where an older night did not say it."""
    read_us, last_id, rows = (source.get(name) for name in ("read_us", "last_id", "rows"))
    if not isinstance(read_us, int):
        return None
    return Since(
        last_id if isinstance(last_id, int) else 0, rows if isinstance(rows, int) else None, read_us
    )


def _remember(key: _Key, looked: _Looked) -> None:
    with _lock:
        if len(_known) >= KEPT:
            _known.clear()
        _known[key] = looked


def _unreachable(snapshot: Snapshot, error: Exception) -> LiveState:
    """Return what happened; a message of SQLite's may quote a row, one of libpq's an address."""
    what = str(error) if isinstance(error, NoctuaryError | TimeoutError) else type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        what = error.strerror
    shown = f"{what} {getattr(error, 'sqlite_errorname', '')}".strip()
    said = f"{snapshot.manifest.source['location']} could not be looked into: {shown}"
    return LiveState(faults=((UNREACHABLE, said),))
