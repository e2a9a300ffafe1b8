"""The own store: a SQLite file of memories in noctuary's home, written by `remember`."""

from __future__ import annotations

import json
import math
import re
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, date, datetime
from pathlib import Path
from random import uniform
from typing import Any, NamedTuple

from noctuary.core.errors import (
    MemoryRefusedError,
    NoctuaryError,
    StoreError,
    StoreLockedError,
)
from noctuary.core.files import create_private, fsync_dir, hash_text, make_directory
from noctuary.core.formats import OWN_STORE, UPDATE
from noctuary.core.locks import at_fork
from noctuary.core.settings import CorpusSettings, Settings
from noctuary.core.sqlite import directory_lock, name_fault, open_foreign, transaction
from noctuary.core.store import (
    OWN_APPLICATION_ID,
    OWN_FILE,
    OWN_PREFIX,
    StorePaths,
    find_home,
    store_for_source,
)
from noctuary.core.types import MemoryRecord, Origin
from noctuary.sources.normalize import DEFAULT_IMPORTANCE, Rejected, accept
from noctuary.sources.source import SUPERSEDES, RawRow
from noctuary.text.secrets import find_fields_sensitivity
from noctuary.text.tokens import is_stop_word, normalize, tokenize

_MAX_DIGITS = 20  # of an id
WAIT_S = 30.0  # for other writers, as long as clients of claude-memory wait


class Similar(NamedTuple):
    """A memory of the own store with nearly the text of a new one."""

    id: int | str  # as recall shows it
    similarity: float  # share of their words that both have, in (0, 1]; 1 for equal texts
    content: str


class Remembered(NamedTuple):
    """A memory that was committed to disk, and where."""

    id: int | str  # as recall shows it: 17, or "own:17" if a night reads several stores
    path: Path  # file of the own store
    similar: tuple[Similar, ...]  # nearly equal memories, nearest first
    source: Path  # source of such a night: the own store, or the file that lists it
    store: Path  # store that a night writes and recall reads
    # Whether recall finds it at once; False before the first night
    is_live: bool
    supersedes: int | str | None
    warnings: tuple[str, ...] = ()  # failures after the commit, as sentences

    def to_json(self) -> dict[str, Any]:
        """Return the memory's fields as JSON values."""
        similar = [one._asdict() for one in self.similar]
        shown = {"path": str(self.path), "source": str(self.source), "store": str(self.store)}
        shown = {**shown, "similar": similar}
        return {**self._asdict(), **shown, "warnings": list(self.warnings)}


def remember(
    text: str,
    *,
    wing: str | None = None,
    room: str | None = None,
    user: str | None = None,
    tags: Sequence[str] | str = (),
    importance: float | None = None,
    supersedes: int | str | None = None,
    wait_s: float = WAIT_S,
    origin: str = Origin.USER,
    valid_until: date | datetime | None = None,
) -> Remembered:
    """Store a memory in the own store; it is on disk when this returns.

    Args:
        text: The text to remember.
        wing: The project or area it belongs to.
        room: The topic inside the wing.
        user: Its owner; other named users never see it.
        tags: Words to find it by, as a list or comma-separated.
        importance: From 0 to 1; None is 0.5, or that of what it replaces.
        supersedes: Id of the memory of the own store that it replaces from the next night on: 17 or
            "own:17". The new one inherits its wing, room, tags and importance, as far as they are
            not given.
        wait_s: How long to wait for other writers, in seconds.
        origin: Who wrote it: "user", "assistant", "import", "file" or "tool".
        valid_until: The last day on which it holds, or the moment when it ends; afterwards only a
            recall with an earlier `as_of` finds it. Without a zone, UTC.

    Returns:
        Its id, nearly equal memories, and whether recall finds it at once.

    Raises:
        MemoryRefusedError: The text looks like a secret or is not a memory, or there is no such
            memory to replace; nothing was stored. It is a ValueError.
        StoreLockedError: Others kept writing until the timeout; nothing was stored.
        StoreError: The file cannot be written or is of a newer version; nothing was stored, unless
            the disk accepted the memory without confirming it.
    """
    home = find_home()
    settings = Settings.load(home=home)
    stated = DEFAULT_IMPORTANCE if importance is None else importance
    fields = _fields(text, wing, room, user, tags, stated)
    until = None if valid_until is None else valid_until.isoformat()
    record = _accept({**fields, "origin": Origin(origin), "valid_until": until}, settings.corpus)
    path = home / OWN_FILE
    replaced = _read_key(supersedes)
    is_stated = importance is not None
    key = _run_write(path, wait_s, lambda db: _insert(db, record, until, replaced, is_stated))
    similar, warnings = _find_similar(path, record, key, replaced)
    source = find_night_source(home, settings)
    store = store_for_source(home, source)
    is_live = settings.live.enabled and StorePaths(store).current.is_file()

    def shown(number: int) -> int | str:
        return number if source == path else f"{OWN_PREFIX}{number}"

    near = tuple(Similar(shown(number), share, said) for number, share, said in similar)
    older = None if replaced is None else shown(replaced)
    return Remembered(shown(key), path, near, source, store, is_live, older, warnings)


def _read_key(shown: int | str | None) -> int | None:
    """Parse the id of an own-store memory as recall shows it, or raise MemoryRefusedError."""
    if shown is None or isinstance(shown, int):
        return shown
    number = shown.strip().removeprefix(OWN_PREFIX)
    if not (number.isascii() and number.isdecimal() and len(number) < _MAX_DIGITS):
        raise MemoryRefusedError(
            f"{shown!r} is not an id of the own store, and only its memories can be replaced: "
            f"expected a number such as 17 or {OWN_PREFIX}17, as printed by `noctuary remember`; "
            "nothing was kept"
        )
    return int(number)


def find_night_source(home: Path, settings: Settings) -> Path:
    """Return the path that a night reads to include the own store."""
    return settings.file if settings.sources and settings.file else home / OWN_FILE


# A text is accepted if the next night would export it, by the same rules.

# Tags that set a scope: scopes have parameters of their own
_SCOPE_TAG = re.compile(r"(?i)\s*(?:wing|project|room|user|session)\s*:")


def _fields(
    text: str, wing: str | None, room: str | None, user: str | None,
    tags: Sequence[str] | str, importance: float,
) -> dict[str, object]:  # fmt: skip
    parts = [tag.strip() for tag in (tags if isinstance(tags, str) else ",".join(tags)).split(",")]
    if scoped := next(filter(_SCOPE_TAG.match, parts), None):
        name = scoped.partition(":")[0].strip().lower()
        raise MemoryRefusedError(
            f"a tag begins with '{name}:', which sets the scope of a memory: pass wing, room or "
            "user instead; nothing was kept"
        )
    if not math.isfinite(importance) or not 0 <= importance <= 1:
        raise MemoryRefusedError(
            f"importance must be a number from 0 to 1, found {importance}; nothing was kept"
        )
    now = datetime.now(UTC).isoformat()
    return {
        "content": text, "category": "facts", "tags": ",".join(filter(None, parts)),
        "importance": float(importance), "wing": wing, "room": room, "user": user,
        "created_at": now, "updated_at": now,
    }  # fmt: skip


def _accept(fields: dict[str, object], settings: CorpusSettings) -> MemoryRecord:
    row = RawRow("the text", 0, fields)
    try:
        record = accept(row, position=0, now_us=time.time_ns() // 1000, settings=settings).record
    except Rejected as rejected:
        raise MemoryRefusedError(
            f"this is not a memory ({rejected.reason}: {rejected.detail}): expected visible text "
            f"of at most {settings.max_content_bytes:,} bytes of UTF-8, without NUL or lone "
            "surrogates; nothing was kept. Shorten it, or remember it in parts"
        ) from None
    if (found := find_fields_sensitivity(fields)) is not None:
        raise MemoryRefusedError(
            f"this reads like a secret ({found}): nothing was kept. Keep it in a password manager, "
            "and remember where it is"
        )
    return record


# The file: a claude-memory store (its table `memories`, its full-text table) with scope columns
# and the links of claude-memory's migration 006. `user_version` counts these steps; each is
# applied once and never changed afterwards.

MIGRATIONS = (
    """
    CREATE TABLE memories (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        content TEXT NOT NULL,
        category TEXT DEFAULT 'facts',
        tags TEXT DEFAULT '',
        expanded_keywords TEXT DEFAULT '',
        importance REAL DEFAULT 0.5,
        is_sensitive INTEGER DEFAULT 0,
        created_at TEXT NOT NULL,
        updated_at TEXT NOT NULL,
        wing TEXT,
        room TEXT,
        user TEXT,
        text_key INTEGER
    );
    CREATE INDEX memories_by_text_key ON memories (text_key);
    CREATE VIRTUAL TABLE memories_fts USING fts5(
        content, category, tags, expanded_keywords, content='memories', content_rowid='id'
    );
    CREATE TRIGGER memories_ai AFTER INSERT ON memories BEGIN
        INSERT INTO memories_fts(rowid, content, category, tags, expanded_keywords)
        VALUES (new.id, new.content, new.category, new.tags, new.expanded_keywords);
    END;
    CREATE TRIGGER memories_ad AFTER DELETE ON memories BEGIN
        INSERT INTO memories_fts(memories_fts, rowid, content, category, tags, expanded_keywords)
        VALUES ('delete', old.id, old.content, old.category, old.tags, old.expanded_keywords);
    END;
    CREATE TRIGGER memories_au AFTER UPDATE ON memories BEGIN
        INSERT INTO memories_fts(memories_fts, rowid, content, category, tags, expanded_keywords)
        VALUES ('delete', old.id, old.content, old.category, old.tags, old.expanded_keywords);
        INSERT INTO memories_fts(rowid, content, category, tags, expanded_keywords)
        VALUES (new.id, new.content, new.category, new.tags, new.expanded_keywords);
    END;
    """,
    """
    CREATE TABLE memory_links (
        id INTEGER PRIMARY KEY,
        user_id TEXT NOT NULL,
        src_id INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
        dst_id INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
        link_type TEXT NOT NULL
            CHECK (link_type IN ('part-of', 'supersedes', 'see-also', 'resolved-by')),
        created_at TEXT NOT NULL,
        UNIQUE (user_id, src_id, dst_id, link_type)
    );
    CREATE INDEX memory_links_by_target ON memory_links (dst_id);
    """,
    # Who wrote the memories so far is not known: a person, or an agent.
    """
    ALTER TABLE memories ADD COLUMN origin TEXT NOT NULL DEFAULT 'assistant';
    ALTER TABLE memories ADD COLUMN valid_until TEXT;
    ALTER TABLE memories ADD COLUMN confirmed_at TEXT;
    -- For merges (`sources.other_home`): the name of this home, where rows of others came from, and
    -- which rows are gone, by their number where they were made and their date.
    CREATE TABLE home (name TEXT NOT NULL);
    INSERT INTO home VALUES (lower(hex(randomblob(8))));
    CREATE TABLE came_from (id INTEGER PRIMARY KEY, home TEXT NOT NULL, number INTEGER NOT NULL);
    CREATE TABLE gone (
        number INTEGER NOT NULL, created_at TEXT NOT NULL, PRIMARY KEY (number, created_at)
    ) WITHOUT ROWID;
    CREATE TRIGGER memories_gone AFTER DELETE ON memories BEGIN
        INSERT OR IGNORE INTO gone VALUES (
            coalesce((SELECT number FROM came_from WHERE id = old.id), old.id), old.created_at
        );
        DELETE FROM came_from WHERE id = old.id;
    END;
    """,
)


def _open(path: Path) -> sqlite3.Connection:
    """Open the file for writing; create it or migrate it to this version if needed."""
    if not path.exists():
        create_private(path)
        fsync_dir(path.parent)
    # No waiting inside SQLite: `_run_write` pauses instead, without holding the lock.
    uri = f"{path.absolute().as_uri()}?mode=rw"
    db = sqlite3.connect(uri, uri=True, timeout=0, isolation_level=None)
    try:
        db.execute("PRAGMA synchronous=FULL")  # a commit is on disk, also after a power cut
        db.execute("PRAGMA secure_delete=ON")
        db.execute("PRAGMA foreign_keys=ON")
        db.execute("PRAGMA temp_store=2")  # memory: no row text in a temporary file
        _migrate(db, path)
    except BaseException:
        db.close()
        raise
    return db


def _migrate(db: sqlite3.Connection, path: Path) -> None:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (owner,) = db.execute("PRAGMA application_id").fetchone()
    if owner != OWN_APPLICATION_ID and db.execute("SELECT 1 FROM sqlite_master").fetchone():
        raise StoreError(
            f"{path} is a SQLite file that noctuary did not make; nothing was kept. Move it away, "
            "or name it in `noctuary nightly` where it is a memory store"
        )
    if version > OWN_STORE.version:
        raise StoreError(
            f"{path} has format {version}, and this noctuary knows up to {OWN_STORE.version}; "
            f"nothing was kept: {UPDATE}"
        )
    if owner != OWN_APPLICATION_ID:
        db.execute("PRAGMA journal_mode=WAL")  # a night that reads keeps no writer waiting
    for step, statements in enumerate(MIGRATIONS[version:], start=version + 1):
        db.executescript(
            f"BEGIN IMMEDIATE; {statements} PRAGMA application_id={OWN_APPLICATION_ID}; "
            f"PRAGMA user_version={step}; COMMIT"
        )


# Writers are serialised by a lock on the home, which the system releases when a process dies.
# The lock also avoids a bug of SQLite up to 3.51.2, which may lose a checkpoint of one connection
# during a commit of another (sqlite.org/wal.html). A writer also commits what other threads have
# queued, as most of the time is spent waiting for the disk.

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.05
_Write = Callable[[sqlite3.Connection], int]


class _Job:
    """A queued write and its outcome: the id of the memory, or the error."""

    def __init__(self, path: Path, write: _Write) -> None:
        self.path, self.write = path, write
        self.outcome: int | NoctuaryError | None = None


_jobs: list[_Job] = []
# Load modules for hashing and stemming now: a fork during an import would block the child for good.
hash_text()
tokenize("loaded загружено")
_lock = threading.Lock()  # of the jobs; held while a connection is open, so no fork copies one
at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=lambda: _reset())


def _reset() -> None:
    _jobs.clear()  # they belong to the parent's threads
    _lock.release()


def _run_write(path: Path, wait_s: float, write: _Write) -> int:
    """Run a write in a transaction when it is its turn; return its result once it is on disk."""
    deadline, pause_s = time.monotonic() + wait_s, _FIRST_PAUSE_S
    job = _Job(path, write)
    with _lock:
        _jobs.append(job)
    try:
        while True:
            with _lock:
                if job.outcome is None:
                    _write_queued(path)
            if isinstance(job.outcome, NoctuaryError):
                raise job.outcome
            if job.outcome is not None:
                return job.outcome
            if time.monotonic() >= deadline:
                raise StoreLockedError(
                    f"others were writing to {path} for {wait_s:g} s; nothing was kept. Try again"
                )
            time.sleep(uniform(pause_s / 2, pause_s))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
    finally:
        with _lock:
            if job in _jobs:
                _jobs.remove(job)


def _write_queued(path: Path) -> None:
    """Commit all queued writes of a file in one transaction; do nothing if it is locked."""
    jobs = [job for job in _jobs if job.path == path]
    try:
        make_directory(path.parent)
        with directory_lock(path.parent), closing(_open(path)) as db, transaction(db):
            outcomes = [_attempt(job, db) for job in jobs]
    except (sqlite3.Error, OSError, StoreError) as error:
        if _is_busy(error):
            return
        outcomes = [StoreError(_describe(path, error)) for _ in jobs]
    for job, outcome in zip(jobs, outcomes, strict=True):
        job.outcome = outcome
        _jobs.remove(job)


def _attempt(job: _Job, db: sqlite3.Connection) -> int | MemoryRefusedError:
    try:
        return job.write(db)
    except MemoryRefusedError as error:  # raised before anything was written
        return error


def _is_busy(error: Exception) -> bool:
    is_locked = isinstance(error, sqlite3.Error) and name_fault(error)[0] == "locked"
    return is_locked or isinstance(error, BlockingIOError)


def _describe(path: Path, error: sqlite3.Error | OSError | StoreError) -> str:
    """Return an error message that does not quote a row, as SQLite's own text may."""
    if isinstance(error, StoreError):
        return str(error)
    if isinstance(error, OSError):
        return f"{path} cannot be written ({error.strerror}); nothing was kept"
    fault, name = name_fault(error)
    if name == "SQLITE_IOERR_FSYNC":  # the row may be in the log, where a later reader finds it
        return (
            f"{path} cannot be written ({name}): the disk did not confirm it, so it may be kept or "
            "not. Check the disk, then look whether it is there before you try again"
        )
    todo = "Check the permissions of the file and of its folder"
    if fault == "damaged":
        todo = "Make room on its disk; if there is room, restore the file from a backup"
    return f"{path} cannot be written ({name}); nothing was kept. {todo}"


_STORED = ("content", "category", "tags", "importance", "user", "origin", "wing", "room")
_INHERITED = ("wing", "room", "tags", "importance")  # by what replaces a memory


def _insert(
    db: sqlite3.Connection,
    record: MemoryRecord,
    valid_until: str | None,
    supersedes: int | None,
    has_importance: bool,
) -> int:
    """Insert a memory and its supersedes link; return its id."""
    now = datetime.now(UTC).isoformat()
    values: dict[str, Any] = {n: getattr(record, n) for n in _STORED}
    if supersedes is not None:
        old = zip(_INHERITED, _find_replaced(db, record, supersedes), strict=True)
        stated = {n for n in _INHERITED if (has_importance if n == "importance" else values[n])}
        values |= {name: value for name, value in old if name not in stated}
    values |= {
        "created_at": now, "updated_at": now, "text_key": text_key(record.content),
        "valid_until": valid_until,
    }  # fmt: skip
    # RETURNING: the triggers insert into the full-text table after this row.
    names, marks = ", ".join(values), ", ".join("?" * len(values))
    sql = f"INSERT INTO memories ({names}) VALUES ({marks}) RETURNING id"
    ((key,),) = db.execute(sql, tuple(values.values())).fetchall()
    if supersedes is not None:
        db.execute(
            "INSERT INTO memory_links (user_id, src_id, dst_id, link_type, created_at) "
            "VALUES (?, ?, ?, ?, ?)",
            (record.user or "", key, supersedes, SUPERSEDES, now),
        )
    return int(key)


def _find_replaced(db: sqlite3.Connection, record: MemoryRecord, key: int) -> tuple[Any, ...]:
    """Return what a replacement inherits; refuse to replace one of another user or wing."""
    # Such a memory is reported as missing.
    where = "id = ? AND user IS ? AND (? IS NULL OR wing = ?)"
    sql = f"SELECT {', '.join(_INHERITED)} FROM memories WHERE {where}"
    values = (key, record.user, record.wing, record.wing)
    found = db.execute(sql, values).fetchone() if abs(key) < 2**63 else None
    if found is None:
        raise MemoryRefusedError(
            f"the own store has no memory {key} of this user and wing, so it cannot be replaced; "
            "nothing was kept. Use an id printed by `noctuary remember`, and leave out the wing: "
            "the new memory inherits it"
        )
    return found


# Forgetting: delete rows, their words in the full-text index, and their pages in the log.


def forget_rows(path: Path, ids: Sequence[int], *, wait_s: float = WAIT_S) -> int:
    """Delete memories without leaving a byte of them in the file; return how many existed.

    Safe to repeat after a kill. StoreLockedError if others keep writing or reading until the
    timeout, StoreError if the file cannot be written.
    """
    return change_rows(path, lambda db: _delete(db, ids), wait_s) if path.is_file() else 0


def change_rows(path: Path, change: Callable[[sqlite3.Connection], int], wait_s: float) -> int:
    """Change the file in one transaction and return the change's number; raises as `forget_rows`.

    The log is emptied: it leaves no byte of an older text.
    """
    changed = _run_write(path, wait_s, change)
    deadline = time.monotonic() + wait_s
    while not _empty_log(path):
        if time.monotonic() >= deadline:
            raise StoreLockedError(
                f"the rows are changed, but others were reading {path} for {wait_s:g} s, so its "
                "write-ahead log still holds the former ones. Try again"
            )
        time.sleep(_LONGEST_PAUSE_S)
    return changed


def _delete(db: sqlite3.Connection, ids: Sequence[int]) -> int:
    sql = "DELETE FROM memories WHERE id IN (SELECT value FROM json_each(?))"
    deleted = db.execute(sql, (json.dumps(list(ids)),)).rowcount
    if deleted:
        # Deleting only marks words in a full-text index; a rebuild removes them.
        db.execute("INSERT INTO memories_fts (memories_fts) VALUES ('rebuild')")
    return deleted


def _empty_log(path: Path) -> bool:
    """Truncate the write-ahead log; False if others use it."""
    try:
        with _lock, directory_lock(path.parent), closing(_open(path)) as db:
            (is_busy, *_) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            return not is_busy
    except (sqlite3.Error, OSError) as error:
        if _is_busy(error):
            return False
        raise StoreError(_describe(path, error)) from None


# Nearly equal memories are reported, never refused.

SIMILAR_AT_LEAST = 0.6  # shared words as a fraction of all words of two texts
_SIMILAR_AT_MOST = 3
_WORDS_ASKED, _ROWS_A_WORD, _CANDIDATES = 12, 200, 20
_LOOK_S = 0.1  # time limit of the search; the memory is on disk before it starts


def text_key(text: str) -> int:
    """Return an equality key of a text that ignores case, spaces and final punctuation.

    It is a number because the export scans every text of a row, and a digest may look like a token.
    """
    return int(hash_text(_plain(text))[:15], 16)


def _plain(text: str) -> str:
    return " ".join(normalize(text).casefold().split()).rstrip(" .!?。")


def _find_similar(
    path: Path, record: MemoryRecord, key: int, supersedes: int | None
) -> tuple[tuple[tuple[int, float, str], ...], tuple[str, ...]]:
    """Return (id, similarity, text) of the nearest memories in the same scope, and warnings."""
    until_s, rows, faults = time.perf_counter() + _LOOK_S, dict[int, str](), ()
    try:
        with _lock, closing(open_foreign(path, _LOOK_S)[0]) as db:
            db.set_progress_handler(lambda: int(time.perf_counter() > until_s), 2_000)
            rows.update(_candidates(db, record, key))
    except (sqlite3.Error, OSError):
        faults = ("the search for similar memories ran out of time",)
    rows.pop(supersedes or key, None)
    plain, words = _plain(record.content), frozenset(tokenize(record.content))
    found = [(k, _similarity(plain, words, text), text) for k, text in rows.items()]
    near = sorted((one for one in found if one[1] >= SIMILAR_AT_LEAST), key=_nearest)
    return tuple(near[:_SIMILAR_AT_MOST]), faults


def _nearest(one: tuple[int, float, str]) -> tuple[float, int]:
    return -one[1], -one[0]


def _similarity(plain: str, words: frozenset[str], text: str) -> float:
    if plain == _plain(text):
        return 1.0
    others = frozenset(tokenize(text))
    both = len(words | others)
    # Different texts with the same words are not equal.
    return min(round(len(words & others) / both, 3), 0.999) if both else 0.0


def _candidates(
    db: sqlite3.Connection, record: MemoryRecord, key: int
) -> Iterator[tuple[int, str]]:
    may_see = "m.id < ? AND (m.user IS NULL OR m.user IS ?) AND (? IS NULL OR m.wing IS ?)"
    values = (key, record.user, record.wing, record.wing)
    same = f"SELECT m.id, m.content FROM memories m WHERE m.text_key = ? AND {may_see} LIMIT ?"
    yield from db.execute(same, (text_key(record.content), *values, _SIMILAR_AT_MOST + 1))
    words = {w for w in re.findall(r"\w+", record.content.lower()) if not is_stop_word(w)}
    # The longest words are usually the rarest. Of a common one the newest rows suffice: ranking
    # all of 100,000 takes a second.
    asked = sorted(words, key=lambda word: (-len(word), word))[:_WORDS_ASKED]
    held = (
        "SELECT m.id FROM memories_fts f JOIN memories m ON m.id = f.rowid "
        f"WHERE memories_fts MATCH ? AND {may_see} ORDER BY f.rowid DESC LIMIT ?"
    )
    hits = Counter[int]()
    for word in asked:
        found = db.execute(held, (f'content : "{word}"', *values, _ROWS_A_WORD))
        hits.update(row_id for (row_id,) in found)
    near = [row_id for row_id, _ in hits.most_common(_CANDIDATES)]
    texts = "SELECT id, content FROM memories WHERE id IN (SELECT value FROM json_each(?))"
    yield from db.execute(texts, (json.dumps(near),))
