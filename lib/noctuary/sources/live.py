"""Poll a store for changes since its snapshot: rows added, changed and removed."""

from __future__ import annotations

import json
import math
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
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
from noctuary.core.tombstones import FileStamp, Tombstones
from noctuary.core.types import HELD_KINDS, LIVE_KINDS, MemoryRecord, with_origin
from noctuary.text.flags import MARKS, find_mark, mark_sql
from noctuary.text.marks import DATE_MARK
from noctuary.text.reach import reach_of

if TYPE_CHECKING:
    from noctuary.sources.echo import KnownInjections
    from noctuary.sources.source import RawRow


class Since(NamedTuple):
    """The state of a store when its snapshot was made."""

    last_id: int  # The highest id at that time
    rows: int | None  # Number of rows it had then, or None if unknown
    read_us: int  # When it was read, microseconds since the epoch


class Limits(NamedTuple):
    """Bounds of one poll of the store."""

    max_rows: int  # Maximum of rows to read, newest first
    until_s: float  # Deadline on the clock of `time.perf_counter`

    def left_s(self) -> float:
        """Return the seconds left until the deadline, at least 0."""
        return max(self.until_s - time.perf_counter(), 0.0)


class Found(NamedTuple):
    """Result of a poll: rows that are new or may have changed, and a note on skipped ones."""

    rows: Mapping[Any, Mapping[str, object]]  # Columns by id, of rows without a mark
    withheld: tuple[Any, ...] = ()  # Ids of marked rows, whose text stayed in the store
    ids: frozenset[str] | None = None  # All ids, as text; None if no row is known to be gone
    missed: str = ""  # A sentence about unread rows, or ""


MAX_LOOK_BYTES = 2_097_152  # of all rows read by a poll: judging them takes some 100 MB at most
MAX_ROW_BYTES = 1_179_648  # of one row: more than a memory may have, with its tags and keywords
_TOO_LARGE = "rows that are too long, or too many bytes, are left to the night"
_TOO_MANY = (
    "more rows are new or changed than may be taken in (live.max_rows): only the newest {:,}"
)

# A row may be stamped (when its transaction begins) this long before the read that missed it.
LATE_COMMIT_S = 120.0


def look_into_postgres(
    name: DatabaseName, settings: SourceSettings, since: Since, limits: Limits
) -> Found:
    """Return the rows of a database added or changed since; TimeoutError if it does not answer.

    Soft deletes are found. Rows deleted outright are not: that takes reading every id, which the
    night does.
    """
    answers: list[Found | Exception] = []
    since_us = since.read_us - int(LATE_COMMIT_S * 1e6)

    def ask() -> None:
        from noctuary.sources.postgres import PostgresSource

        try:
            with PostgresSource(name, settings) as source:
                answers.append(_collect(source.changed_since(since_us), limits.max_rows))
        except Exception as error:  # of any kind: the recall's own thread re-raises it
            answers.append(error)

    # A silent server blocks this thread, not the recall.
    thread = threading.Thread(target=ask, name="noctuary-live", daemon=True)
    thread.start()
    thread.join(limits.left_s())
    if not answers:
        raise TimeoutError("the database did not answer in time")
    if isinstance(answers[0], Exception):
        raise answers[0]
    return answers[0]


def _collect(rows: Iterable[RawRow], most: int) -> Found:
    """Collect rows up to the bounds; of rows that are too large only the id is kept."""
    clean, withheld, total = dict[Any, Mapping[str, object]](), list[Any](), 0
    missed: dict[str, None] = {}
    for row in rows:
        size = sum(len(value) for value in row.fields.values() if isinstance(value, str))
        if row.withheld is not None:
            withheld.append(row.key)
        elif len(clean) >= most:
            missed[_TOO_MANY.format(most)] = None
            break
        elif size > MAX_ROW_BYTES or total + size > MAX_LOOK_BYTES:
            withheld.append(row.key)
            missed[_TOO_LARGE] = None
        else:
            clean[row.key], total = row.fields, total + size
    return Found(clean, tuple(withheld), missed="; ".join(missed))


# A file without these columns is not the store that the snapshot was made from.
_REQUIRED = frozenset({"id", "content", "is_sensitive", "updated_at"})
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def stamp_of(path: Path) -> tuple[tuple[int, int, int], ...]:
    """Return size, mtime (ns) and inode of a store and of its write-ahead log."""
    found = [path.stat()]
    with suppress(FileNotFoundError):
        found.append(path.with_name(f"{path.name}-wal").stat())
    # Any reader leaves an empty log.
    return tuple((s.st_size, s.st_mtime_ns, s.st_ino) for s in found if s.st_size)


def look_into_sqlite(path: Path, since: Since, limits: Limits) -> Found:
    """Return the rows of a store added, changed or lost since, as far as found by the deadline.

    New rows are found by id, changed and marked ones by one scan, lost ones by a count. Messages of
    sqlite3.Error, OSError or ValueError may quote a row and must not be shown.
    """
    with closing(open_foreign(path, limits.left_s())[0]) as db:
        db.execute("BEGIN")
        columns = [str(row[1]) for row in db.execute("PRAGMA table_info(memories)")]
        if missing := _REQUIRED - set(columns):
            raise ValueError(f"the table 'memories' has no column {', '.join(sorted(missing))}")
        # Called every 2,000 instructions of SQLite's virtual machine: some 20 microseconds.
        db.set_progress_handler(lambda: int(time.perf_counter() > limits.until_s), 2_000)
        clean, withheld, missed, ids = list[int](), list[int](), list[str](), None
        try:
            for key, is_marked in _find_changed(db, mark_sql(columns), since):
                (withheld if is_marked else clean).append(int(key))
            ids = _ids_left(db, since)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                raise
            missed.append("the time was over before changed and lost rows were all looked for")
        finally:
            db.set_progress_handler(None, 0)
        if len(clean) > limits.max_rows:
            missed.append(_TOO_MANY.format(limits.max_rows))
        keys = clean[: limits.max_rows]
        rows = _read_rows(db, [name for name in columns if name not in MARKS], keys, limits)
        if len(rows) < len(keys):
            missed.append(_TOO_LARGE)
            # The snapshot's copies of these rows are as outdated as those of the rows read.
            withheld += [key for key in keys if key not in rows]
    return Found(rows, tuple(withheld), ids, "; ".join(missed))


def _find_changed(db: sqlite3.Connection, mark: str, since: Since) -> Iterator[tuple[int, int]]:
    """Yield (id, is marked) of rows that are new, changed or marked, newest first."""
    moment = _EPOCH + timedelta(microseconds=since.read_us, seconds=-LATE_COMMIT_S)
    text = moment.replace(tzinfo=None).isoformat(timespec="seconds")
    values = {"last": since.last_id, "at": text, "blank": text.replace("T", " ")}
    # Stores write "T" between date and time; a space there sorts before it.
    changed = "updated_at >= :at OR (updated_at >= :blank AND substr(updated_at, 11, 1) = ' ')"
    for where in ("id > :last", f"id <= :last AND ({changed} OR {mark} IS NOT NULL)"):
        sql = f"SELECT id, {mark} IS NOT NULL FROM memories WHERE {where} ORDER BY id DESC"
        yield from db.execute(sql, values)


def _read_rows(
    db: sqlite3.Connection, names: Sequence[str], keys: Sequence[int], limits: Limits
) -> dict[int, Mapping[str, object]]:
    """Read unmarked rows by id, newest first, within the limits of bytes and time."""
    size = " + ".join(f'coalesce(length(CAST("{name}" AS BLOB)), 0)' for name in names)
    shown = ", ".join(f'"{name}"' for name in names)
    sql = (
        f"SELECT id, {size}, {shown} FROM memories WHERE id IN (SELECT value FROM json_each(?)) "
        f"AND {size} <= {MAX_ROW_BYTES} ORDER BY id DESC"
    )
    rows, total = dict[int, Mapping[str, object]](), 0
    for key, size_bytes, *values in db.execute(sql, (json.dumps(keys),)):
        total += size_bytes
        if total > MAX_LOOK_BYTES:
            break
        rows[int(key)] = with_origin(dict(zip(names, values, strict=True)))
        if time.perf_counter() > limits.until_s:
            break
    return rows


def _ids_left(db: sqlite3.Connection, since: Since) -> frozenset[str] | None:
    """Return all ids as text if rows were deleted (ids only grow, so a count shows it), or None."""
    sql = "SELECT count(*) FROM memories WHERE id <= ?"
    if since.rows is not None and db.execute(sql, (since.last_id,)).fetchone()[0] >= since.rows:
        return None
    # One aggregated text instead of a row per id takes half the time.
    (ids,) = db.execute("SELECT group_concat(id) FROM memories").fetchone()
    return frozenset(str(ids).split(",") if ids is not None else ())


# File sources that are held in memory: a small one is simply read again.

MAX_HELD_FILES = 500  # notes of a folder that are checked: some 5 ms
MAX_HELD_BYTES = 131_072  # of all files: reading and judging them takes some 50 ms


def stamp_of_files(path: Path) -> tuple[tuple[int, int, int], ...]:
    """Return the stamps of a file and its mapping, or of a folder's notes and their folders.

    Empty for a folder of more than `MAX_HELD_FILES` notes.
    """
    if path.is_file():
        beside = path.with_name(f"{path.name}.toml")
        return tuple(stamp for file in (path, beside) if file.exists() for stamp in stamp_of(file))
    notes = list(islice(path.rglob("*.md"), MAX_HELD_FILES + 1))
    if len(notes) > MAX_HELD_FILES:
        return ()
    found = [file.lstat() for file in (*notes, path, *{note.parent for note in notes})]
    return tuple((s.st_size, s.st_mtime_ns, s.st_ino) for s in found)


def look_into_files(path: Path, limits: Limits) -> Found:
    """Return all rows of a small file source; `judge` compares them with the snapshot."""
    from noctuary.sources.open import find_files, open_source

    if sum(file.stat().st_size for file in find_files(path)) > MAX_HELD_BYTES:
        return Found({}, missed=f"it changed, and has more than {MAX_HELD_BYTES:,} bytes")
    with open_source(path) as source:
        rows = [row for row in source.rows() if row.key is not None]
    clean = {row.key: row.fields for row in rows if row.withheld is None and row.problem is None}
    if len(clean) > limits.max_rows:
        return Found({}, missed="it changed, and has more rows than live.max_rows")
    others = tuple(row.key for row in rows if row.key not in clean)
    return Found(clean, others, frozenset(str(row.key) for row in rows))


# Warning codes: only the snapshot was searched; some changes were not read.
UNREACHABLE = "live_unreachable"
PARTIAL = "live_partial"
_NOT_KEPT = ("content", "expanded_keywords")


class LiveRow(NamedTuple):
    """A memory of the store that differs from the snapshot, with its token counts."""

    memory: MemoryRecord  # Accepted by the rules of the export; its position has no meaning
    counts: Mapping[str, int]  # Count of each token as it would be indexed; digests in a replay
    reach: int = 0  # as `noctuary.text.reach`, by its own text: the night alone sees repeats

    @property
    def length(self) -> int:
        """Return the number of tokens, repeats included, without the words of dates."""
        return sum(n for token, n in self.counts.items() if not token.startswith(DATE_MARK))


class LiveState(NamedTuple):
    """The difference between a snapshot and its store."""

    rows: tuple[LiveRow, ...] = ()  # New and changed memories by ascending id
    hidden: tuple[str, ...] = ()  # Ids of snapshot memories changed, deleted or marked since
    faults: tuple[tuple[str, str], ...] = ()  # Warnings as (code, message), without row text
    hashed: bool = False  # Whether `LiveRow.counts` holds `token_digest`s, as in a replay


def token_digest(token: str) -> str:
    """Return the placeholder recorded for a token; a word of a date still shows that it is one."""
    mark = DATE_MARK if token.startswith(DATE_MARK) else ""
    return f"{mark}{hash_text(token)[:16]}"


def record_state(state: LiveState) -> dict[str, Any]:
    """Return a state as JSON values for a replay packet, with token digests and without texts."""
    names = [name for name in MemoryRecord._fields if name not in _NOT_KEPT]
    shown = str if state.hashed else token_digest
    kept = [
        {
            "memory": {name: getattr(row.memory, name) for name in names},
            "counts": {shown(token): count for token, count in row.counts.items()},
            "reach": row.reach,
        }
        for row in state.rows
    ]
    return {"rows": kept, "hidden": list(state.hidden), "faults": list(map(list, state.faults))}


def read_state(record: Mapping[str, Any]) -> LiveState:
    """Parse the output of `record_state`; contents are empty. Raises if it is damaged."""
    unknown = dict.fromkeys(_NOT_KEPT, "")
    rows = tuple(
        LiveRow(
            MemoryRecord(**row["memory"], **unknown),
            {str(token): int(count) for token, count in row["counts"].items()},
            int(row.get("reach", 0)),
        )
        for row in record["rows"]
    )
    faults = tuple((str(code), str(message)) for code, message in record["faults"])
    return LiveState(rows, tuple(record["hidden"]), faults, hashed=True)


class _Snapshot(Protocol):
    """The snapshot's methods that a poll calls."""

    forgotten: Tombstones

    @property
    def manifest(self) -> Manifest: ...
    def content_hashes(self, memory_ids: Iterable[str]) -> dict[str, str]: ...
    def contents(self, memory_ids: Sequence[str]) -> dict[str, str]: ...
    def all_memory_ids(self) -> list[str]: ...


def judge(
    found: Found, snapshot: _Snapshot, injections: Path, until_s: float, prefix: str = ""
) -> LiveState:
    """Split polled rows into rows to add and snapshot memories to hide.

    A row that the export would reject is not searched, but hides the snapshot's memory of its id.
    After `until_s` (`time.perf_counter`) no further row is judged or tokenised; one that is as the
    snapshot has it stays. `prefix` is that of this store's ids in the snapshot.
    """
    asked = [f"{prefix}{key}" for key in (*found.rows, *found.withheld)]
    known = snapshot.content_hashes(asked)
    memories, unread, late_rows = _accept_rows(found, snapshot, injections, prefix, until_s)
    same = {m.memory_id for m in (*memories, *unread) if known.get(m.memory_id) == m.content_hash}
    late = _LATE if late_rows > sum(m.memory_id in same for m in unread) else ""
    hidden = {i for i in asked if i in known and i not in same}
    if found.ids is not None:
        # Turns of transcripts (negative or named ids) were never in the store.
        every = (i for i in snapshot.all_memory_ids() if not i.startswith(("-", "turn-")))
        held = (i.removeprefix(prefix) for i in every if i.startswith(prefix))
        hidden |= {f"{prefix}{i}" for i in held if i not in found.ids}
    rows: list[LiveRow] = []
    # At least one row, the newest, is always read.
    for memory in (m for m in memories if m.memory_id not in same):
        if rows and time.perf_counter() > until_s:
            late = _LATE
            break
        texts = (memory.content, memory.tags, memory.expanded_keywords, memory.category)
        counts = _count_tokens(*texts, memory.created_at_us, memory.is_turn)
        rows.append(LiveRow(memory, counts, reach_of(memory)))
    missed = "; ".join(filter(None, (found.missed, late)))
    faults = ((PARTIAL, missed),) if missed else ()
    return LiveState(tuple(reversed(rows)), tuple(sorted(hidden)), faults)


_LATE = "the time was over before all new and changed rows were read"


def _accept_rows(
    found: Found, snapshot: _Snapshot, injections: Path, prefix: str, until_s: float
) -> tuple[list[MemoryRecord], list[MemoryRecord], int]:
    """Return the rows that an export would accept, newest first, late ones, and how many came late.

    Late ones are not judged: they only tell which memories of the snapshot are unchanged.
    """
    if not found.rows:
        return [], [], 0
    # The rules of the export are imported with the first row.
    from noctuary.sources.echo import EchoGuard
    from noctuary.sources.export import Tally, sift
    from noctuary.sources.injected import hash_exact
    from noctuary.sources.normalize import Rejected, accept
    from noctuary.sources.source import RawRow

    # Use the settings of the night that made the snapshot.
    kept, plain = snapshot.manifest.settings.get("corpus", {}), CorpusSettings()
    settings = CorpusSettings(
        tuple(kept.get("turn_categories", plain.turn_categories)),
        int(kept.get("max_content_bytes", plain.max_content_bytes)),
    )
    contents = snapshot.contents([f"{prefix}{key}" for key in found.rows])
    held = {memory_id: hash_exact(content) for memory_id, content in contents.items()}
    guard = EchoGuard(_known_injections(injections, identify(injections)), held)
    newest_first = sorted(found.rows.items(), reverse=True)
    every = (RawRow(f"id {key}", f"{prefix}{key}", fields) for key, fields in newest_first)
    late: list[RawRow] = []

    def rows() -> Iterator[RawRow]:
        for number, row in enumerate(every):
            if number and time.perf_counter() > until_s:
                late.extend((row, *every))
                return
            yield row

    now_us = time.time_ns() // 1000
    gone = snapshot.forgotten
    judged = sift(rows(), Tally(), now_us=now_us, settings=settings, guard=guard, forgotten=gone)
    memories, unread = list(judged), list[MemoryRecord]()
    for row in late:
        # A text that is as it was needs no scan, but somebody may have marked it since.
        if row.key in held and find_mark(row.fields) is None:
            with suppress(Rejected):
                record = accept(row, position=0, now_us=now_us, settings=settings).record
                if not gone.holds(record):
                    unread.append(record)
    return memories, unread, len(late)


@lru_cache(maxsize=4)
def _known_injections(path: Path, _identity: FileIdentity | None) -> KnownInjections:
    from noctuary.sources.echo import read_injections

    return read_injections(path)


@lru_cache(maxsize=4_096)  # rows, some kilobytes each
def _count_tokens(
    content: str, tags: str, keywords: str, category: str, created_at_us: int, is_turn: bool
) -> Mapping[str, int]:
    from noctuary.text.tokens import index_tokens

    return Counter(index_tokens(content, tags, keywords, category, created_at_us, is_turn))


# One poll per process and state of the store.

# A store written more recently is polled again: within a clock tick, times are equal.
SETTLED_NS = 50_000_000
ASK_AGAIN_S = 2.0  # how long a database's answer is reused; longer delays new rows
KEPT = 32  # snapshots whose last poll is cached: a process serves one store, tests many
# A file last written this long before the night read it cannot hold rows the night missed.
_READ_MARGIN_US = 120_000_000

_SQLITE, _POSTGRES = LIVE_KINDS[:2]

_Key = tuple[str, str, LiveSettings, FileStamp, str]
# State of the store's files, expiry of the poll (`time.monotonic`), its result.
_known: dict[_Key, tuple[Any, float, LiveState | None]] = {}


def look_now(
    paths: StorePaths, snapshot: _Snapshot, live: LiveSettings, source: SourceSettings
) -> LiveState | None:
    """Return the difference between a snapshot and its store, with faults; None if there is none.

    Of several stores, all files are polled, the own store included.
    """
    parts = _find_parts(snapshot.manifest.source) if live.enabled else ()
    found = [_poll(part, paths, snapshot, live, source) for part in parts]
    states = [state for state in found if state is not None]
    if len(states) < 2:
        return states[0] if states else None
    return LiveState(
        tuple(row for state in states for row in state.rows),
        tuple(memory_id for state in states for memory_id in state.hidden),
        tuple(fault for state in states for fault in state.faults),
    )


class _Part(NamedTuple):
    """A store to poll: the snapshot's only one, or one of several."""

    prefix: str  # Of its ids in the snapshot; "" for a single store
    path: Path | None  # None for a database
    location: str
    since: Since
    is_held: bool  # Whether it is read whole instead of queried


def _find_parts(made_of: Mapping[str, Any]) -> Iterable[_Part]:
    listed: Mapping[str, Mapping[str, Any]] = made_of.get("members") or {}
    read = {"read_us": made_of.get("read_us")}
    found = {f"{name}:": {**said, **read} for name, said in listed.items()} or {"": made_of}
    for prefix, said in found.items():
        since, kind, location = _read_since(said), said.get("kind"), str(said.get("location"))
        if since is not None and kind in (_SQLITE, *HELD_KINDS):
            yield _Part(prefix, Path(location), location, since, kind in HELD_KINDS)
        elif since is not None and kind == _POSTGRES and not listed:
            yield _Part(prefix, None, location, since, is_held=False)


def _poll(
    part: _Part, paths: StorePaths, snapshot: _Snapshot, live: LiveSettings, source: SourceSettings
) -> LiveState | None:
    prefix, path, location, since, is_held = part
    key = (str(paths.root), snapshot.manifest.digest, live, snapshot.forgotten.stamp, prefix)
    stamp, is_settled = (), True
    try:
        if path is not None:
            if prefix and since.rows == 0 and not path.exists():
                return None  # the own store, before anything was remembered
            stamp, now_ns = (stamp_of_files if is_held else stamp_of)(path), time.time_ns()
            # Too many notes to stamp are left to the night.
            default = 0 if is_held else now_ns
            written_ns = max((changed_ns for _, changed_ns, _ in stamp), default=default)
            if written_ns // 1000 < since.read_us - _READ_MARGIN_US:
                return None
            is_settled = now_ns - written_ns > SETTLED_NS
        known = _known.get(key)
        if known is not None and known[0] == stamp and time.monotonic() < known[1]:
            return known[2]
        limits = Limits(live.max_rows, time.perf_counter() + live.deadline_ms / 1000)
        if path is None:
            found = look_into_postgres(_database(snapshot, source), source, since, limits)
        elif is_held:
            found = look_into_files(path, limits)
        else:
            found = look_into_sqlite(path, since, limits)
        state = judge(found, snapshot, paths.injections, limits.until_s, prefix)
    except Exception as error:
        # Whatever fails, the snapshot answers. The failure of a database is cached as well, so
        # that the next recall does not wait again.
        state, is_settled = _unreachable(location, error), path is None
    shown = state if state.rows or state.hidden or state.faults else None
    if is_settled:
        until_s = time.monotonic() + ASK_AGAIN_S if path is None else math.inf
        if len(_known) >= KEPT:
            _known.clear()
        _known[key] = (stamp, until_s, shown)
    return shown


def _database(snapshot: _Snapshot, source: SourceSettings) -> DatabaseName:
    # A manifest does not hold the password, so it comes from the settings.
    location = str(snapshot.manifest.source["location"])
    if names_postgres(source.path):
        named = name_source(source.path)
        if isinstance(named, DatabaseName) and named.display == location:
            return named
    raise ConfigError(f"source.path does not name {location}, which the snapshot was made of")


def _read_since(source: Mapping[str, Any]) -> Since | None:
    """Return the store's state recorded in a manifest; None if an older version made it."""
    read_us, last_id, rows = (source.get(name) for name in ("read_us", "last_id", "rows"))
    if not isinstance(read_us, int):
        return None
    last_id = last_id if isinstance(last_id, int) else 0
    return Since(last_id, rows if isinstance(rows, int) else None, read_us)


def _unreachable(location: str, error: Exception) -> LiveState:
    """Turn an error into a fault; SQLite's text may quote a row and libpq's an address."""
    is_ours = isinstance(error, NoctuaryError | TimeoutError)
    what = getattr(error, "strerror", None) or (str(error) if is_ours else type(error).__name__)
    shown = f"{what} {getattr(error, 'sqlite_errorname', '')}".strip()
    said = f"{location} could not be looked into: {shown}"
    return LiveState(faults=((UNREACHABLE, said),))
