"""The own store: a SQLite file of memories below noctuary's home; `remember` writes it."""

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
from datetime import UTC, datetime
from pathlib import Path
from random import uniform
from typing import Any, NamedTuple

from noctuary.core.errors import (
    MemoryRefusedError,
    StoreError,
    StoreLockedError,
)
from noctuary.core.files import create_private, fsync_dir, hash_text, make_directory
from noctuary.core.formats import OWN_STORE, UPDATE
from noctuary.core.locks import at_fork
from noctuary.core.settings import CorpusSettings, Settings
from noctuary.core.sqlite import directory_lock, name_fault, open_foreign, transaction
from noctuary.core.store import OWN_FILE, OWN_PREFIX, StorePaths, find_home, store_for_source
from noctuary.core.types import MemoryRecord
from noctuary.sources.normalize import DEFAULT_IMPORTANCE, Rejected, accept
from noctuary.sources.source import SUPERSEDES, RawRow
from noctuary.text.secrets import find_fields_sensitivity
from noctuary.text.tokens import is_stop_word, normalize, tokenize

_MAX_DIGITS = 20  # of an id
WAIT_S = 30.0  # for other writers, as clients of claude-memory wait


class Similar(NamedTuple):
    """A memory of the own store that is nearly equal to a new one."""

    id: int | str  # as recall shows it
    similarity: float  # share of all their words that both have, in (0, 1]; 1 for equal texts
    content: str


class Remembered(NamedTuple):
    """A memory that is on disk."""

    id: int | str  # as recall shows it: 17, or "own:17" where a night reads several stores
    path: Path  # of the own store
    similar: tuple[Similar, ...]  # nearly equal memories, nearest first
    source: Path  # source of such a night: the own store, or the file that lists it
    store: Path  # store that a night writes and recall reads
    # Whether recall finds it at once; never before the first night
    is_live: bool
    supersedes: int | str | None
    warnings: tuple[str, ...] = ()  # other failures, as sentences

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
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
    importance: float = DEFAULT_IMPORTANCE,
    supersedes: int | str | None = None,
    wait_s: float = WAIT_S,
) -> Remembered:
    """Keep a memory in the own store; it is on disk when this returns.

    Args:
        text: What to remember.
        wing: The project or area it belongs to.
        room: The topic inside the wing.
        user: Whose memory it is; other named users never see it.
        tags: Words to find it by, as a list or comma-separated.
        importance: From 0 to 1.
        supersedes: Id of the memory of the own store that it replaces, as of the next night: 17 or
            "own:17". The new one takes its wing and room where none are given.
        wait_s: How long to wait for other writers, in seconds.

    Returns:
        Its id, memories that say nearly the same, and whether recall finds it at once.

    Raises:
        MemoryRefusedError: The text reads like a secret or is none, or there is no such memory to
            replace; nothing was kept. It is a ValueError.
        StoreLockedError: Others wrote all the time; nothing was kept.
        StoreError: The file cannot be written or is of a newer version; nothing was kept, unless
            the disk took the memory and did not confirm it.
    """
    home = find_home()
    settings = Settings.load(home=home)
    record = _judge(_fields(text, wing, room, user, tags, importance), settings.corpus)
    path = home / OWN_FILE
    replaced = _read_key(supersedes)
    key = _write(path, wait_s, lambda db: _insert(db, record, replaced))
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
    """Parse an id of the own store, as recall shows it."""
    if shown is None or isinstance(shown, int):
        return shown
    number = shown.strip().removeprefix(OWN_PREFIX)
    if not (number.isascii() and number.isdecimal() and len(number) < _MAX_DIGITS):
        raise MemoryRefusedError(
            f"{shown!r} is no id of the own store, whose memories alone can be replaced: expected "
            f"a number such as 17 or {OWN_PREFIX}17, as `noctuary remember` gave it; nothing was "
            "kept"
        )
    return int(number)


def find_night_source(home: Path, settings: Settings) -> Path:
    """Return the source of a night that includes the own store."""
    return settings.file if settings.sources and settings.file else home / OWN_FILE


# A text is kept if the next night would export it, by the same rules.

# Tags that set a scope, which has parameters of its own
_SCOPE_TAG = re.compile(r"(?i)\s*(?:wing|project|room|user|session)\s*:")


def _fields(
    text: str, wing: str | None, room: str | None, user: str | None,
    tags: Sequence[str] | str, importance: float,
) -> dict[str, object]:  # fmt: skip
    parts = [tag.strip() for tag in (tags if isinstance(tags, str) else ",".join(tags)).split(",")]
    if scoped := next(filter(_SCOPE_TAG.match, parts), None):
        name = scoped.partition(":")[0].strip().lower()
        raise MemoryRefusedError(
            f"a tag begins with '{name}:', which says where a memory belongs: give wing, room or "
            "user in its place; nothing was kept"
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


def _judge(fields: dict[str, object], settings: CorpusSettings) -> MemoryRecord:
    row = RawRow("the text", 0, fields)
    try:
        record = accept(row, position=0, now_us=time.time_ns() // 1000, settings=settings).record
    except Rejected as rejected:
        raise MemoryRefusedError(
            f"this is no memory ({rejected.reason}: {rejected.detail}): expected text that can be "
            f"seen, at most {settings.max_content_bytes:,} bytes of UTF-8, without NUL or half a "
            "character; nothing was kept. Shorten it, or remember it in parts"
        ) from None
    if (found := find_fields_sensitivity(fields)) is not None:
        raise MemoryRefusedError(
            f"this reads like a secret ({found}): nothing was kept. Keep it in a password manager, "
            "and remember where it is"
        )
    return record


# The file: a claude-memory store (its table `memories`, its full-text table) with the columns of a
# scope and the links of claude-memory's migration 006. `user_version` counts these steps; each is
# applied once and never changed afterwards.

_APPLICATION_ID = (
    0x6E6F6374  # "noct": marks the file as noctuary's, not another claude-memory store
)

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
)


def _open(path: Path) -> sqlite3.Connection:
    """Open the file for writing, made and brought to this version where it is not."""
    if not path.exists():
        create_private(path)
        fsync_dir(path.parent)
    # No waiting inside SQLite: the pauses are those of `_write`, without the lock.
    uri = f"{path.absolute().as_uri()}?mode=rw"
    db = sqlite3.connect(uri, uri=True, timeout=0, isolation_level=None)
    try:
        db.execute("PRAGMA synchronous=FULL")  # a commit is on disk, also after a power cut
        db.execute("PRAGMA secure_delete=ON")
        db.execute("PRAGMA foreign_keys=ON")
        db.execute("PRAGMA temp_store=2")  # memory: no text of a row in a temporary file
        _migrate(db, path)
    except BaseException:
        db.close()
        raise
    return db


def _migrate(db: sqlite3.Connection, path: Path) -> None:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (owner,) = db.execute("PRAGMA application_id").fetchone()
    if owner != _APPLICATION_ID and db.execute("SELECT 1 FROM sqlite_master").fetchone():
        raise StoreError(
            f"{path} is a SQLite file that noctuary did not make; nothing was kept. Move it away, "
            "or name it in `noctuary nightly` where it is a memory store"
        )
    if version > OWN_STORE.version:
        raise StoreError(
            f"{path} has format {version}, and this noctuary knows up to {OWN_STORE.version}; "
            f"nothing was kept: {UPDATE}"
        )
    if owner != _APPLICATION_ID:
        db.execute("PRAGMA journal_mode=WAL")  # a night that reads keeps no writer waiting
    for step, statements in enumerate(MIGRATIONS[version:], start=version + 1):
        db.executescript(
            f"BEGIN IMMEDIATE; {statements} PRAGMA application_id={_APPLICATION_ID}; "
            f"PRAGMA user_version={step}; COMMIT"
        )


# Writing: one at a time, by a lock on the home that the system takes back from whoever is killed.
# It also keeps apart what SQLite up to 3.51.2 may lose: a checkpoint of one connection during a
# commit of another (sqlite.org/wal.html).

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.05
_lock = threading.Lock()  # held while a connection is open: no fork may copy one
at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def _write(path: Path, wait_s: float, write: Callable[[sqlite3.Connection], int]) -> int:
    """Run a write in a transaction when no other process writes; durable on return."""
    deadline, pause_s = time.monotonic() + wait_s, _FIRST_PAUSE_S
    while True:
        try:
            make_directory(path.parent)
            with (
                _lock,
                directory_lock(path.parent),
                closing(_open(path)) as db,
                transaction(db),
            ):
                return write(db)
        except (sqlite3.Error, OSError) as error:
            if not _is_busy(error):
                raise StoreError(_describe(path, error)) from None
        if time.monotonic() >= deadline:
            raise StoreLockedError(
                f"others were writing to {path} for {wait_s:g} s; nothing was kept. Try again"
            )
        time.sleep(uniform(pause_s / 2, pause_s))
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _is_busy(error: Exception) -> bool:
    is_locked = isinstance(error, sqlite3.Error) and name_fault(error)[0] == "locked"
    return is_locked or isinstance(error, BlockingIOError)


def _describe(path: Path, error: sqlite3.Error | OSError) -> str:
    """Return what went wrong, without SQLite's own text, which may quote the row."""
    if isinstance(error, OSError):
        return f"{path} cannot be written ({error.strerror}); nothing was kept"
    fault, name = name_fault(error)
    if name == "SQLITE_IOERR_FSYNC":  # the row may be in the log, and a later reader may find it
        return (
            f"{path} cannot be written ({name}): the disk did not confirm it, so it may be kept or "
            "not. Check the disk, then look whether it is there before you try again"
        )
    todo = "Check the permissions of the file and of its folder"
    if fault == "damaged":
        todo = "Make room on its disk; if there is room, restore the file from a backup"
    return f"{path} cannot be written ({name}); nothing was kept. {todo}"


def _insert(db: sqlite3.Connection, record: MemoryRecord, supersedes: int | None) -> int:
    """Insert a memory and its supersedes link; return its id."""
    wing, room = record.wing, record.room
    if supersedes is not None:
        old_wing, old_room = _find_replaced(db, record, supersedes)
        wing, room = wing or old_wing, room or old_room
    values = {
        **{n: getattr(record, n) for n in ("content", "category", "tags", "importance", "user")},
        "created_at": (now := datetime.now(UTC).isoformat()), "updated_at": now,
        "wing": wing, "room": room, "text_key": _text_key(record.content),
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


def _find_replaced(
    db: sqlite3.Connection, record: MemoryRecord, key: int
) -> tuple[str | None, str | None]:
    """Return wing and room of the memory to replace; refuse one that a night would not accept."""
    # A memory of another user or wing is reported as missing.
    sql = (
        "SELECT wing, room FROM memories WHERE id = ?1 AND user IS ?2 AND (?3 IS NULL OR wing = ?3)"
    )
    values = (key, record.user, record.wing)
    found = db.execute(sql, values).fetchone() if abs(key) < 2**63 else None
    if found is None:
        raise MemoryRefusedError(
            f"the own store has no memory {key} of this user and wing, so it cannot be replaced; "
            "nothing was kept. Take an id that `noctuary remember` gave, and leave the wing out: "
            "the new memory takes it over"
        )
    return found


# Forgetting: rows, their words in the full-text table, and pages in the log.


def forget_rows(path: Path, ids: Sequence[int], *, wait_s: float = WAIT_S) -> int:
    """Delete memories so that no byte of them is left in the file; return how many there were.

    Call it again after a kill. StoreLockedError if others write or read all the time, StoreError
    if the file cannot be written.
    """
    if not path.is_file():
        return 0
    deleted = _write(path, wait_s, lambda db: _delete(db, ids))
    deadline = time.monotonic() + wait_s
    while not _empty_log(path):
        if time.monotonic() >= deadline:
            raise StoreLockedError(
                f"the rows are deleted, but others were reading {path} for {wait_s:g} s, so its "
                "write-ahead log still holds them. Try again"
            )
        time.sleep(_LONGEST_PAUSE_S)
    return deleted


def _delete(db: sqlite3.Connection, ids: Sequence[int]) -> int:
    sql = "DELETE FROM memories WHERE id IN (SELECT value FROM json_each(?))"
    deleted = db.execute(sql, (json.dumps(list(ids)),)).rowcount
    if deleted:
        # A deletion only adds to a full-text index: the words stay in it until they are merged.
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

SIMILAR_AT_LEAST = 0.6  # of all words that two texts have, those that both have
_SIMILAR_AT_MOST = 3
_WORDS_ASKED, _ROWS_A_WORD, _CANDIDATES = 12, 200, 20
_LOOK_S = 0.1  # longest look; a memory is on disk before it


def _text_key(text: str) -> int:
    """Return a key that ignores case, spaces and final punctuation.

    A number: the export scans every text of a row, and a digest may read like a token.
    """
    return int(hash_text(_plain(text))[:15], 16)


def _plain(text: str) -> str:
    return " ".join(normalize(text).casefold().split()).rstrip(" .!?。")


def _find_similar(
    path: Path, record: MemoryRecord, key: int, supersedes: int | None
) -> tuple[tuple[tuple[int, float, str], ...], tuple[str, ...]]:
    """Return the nearest memories in the same scope, and warnings."""
    until_s, rows, faults = time.perf_counter() + _LOOK_S, dict[int, str](), ()
    try:
        with _lock, closing(open_foreign(path, _LOOK_S)[0]) as db:
            db.set_progress_handler(lambda: int(time.perf_counter() > until_s), 2_000)
            rows.update(_candidates(db, record, key))
    except (sqlite3.Error, OSError):
        faults = ("similar memories were not all looked for: the time was over",)
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
    # Other texts of the same words are not equal.
    return min(round(len(words & others) / both, 3), 0.999) if both else 0.0


def _candidates(
    db: sqlite3.Connection, record: MemoryRecord, key: int
) -> Iterator[tuple[int, str]]:
    may_see = "m.id < ?1 AND (m.user IS NULL OR m.user IS ?2) AND (?3 IS NULL OR m.wing IS ?3)"
    values = (key, record.user, record.wing)
    same = f"SELECT m.id, m.content FROM memories m WHERE m.text_key = ?4 AND {may_see} LIMIT ?5"
    yield from db.execute(same, (*values, _text_key(record.content), _SIMILAR_AT_MOST + 1))
    words = {w for w in re.findall(r"\w+", record.content.lower()) if not is_stop_word(w)}
    # The longest words are the rarest, as a rule. Of a common one the newest rows will do: ranking
    # all of 100,000 takes a second.
    asked = sorted(words, key=lambda word: (-len(word), word))[:_WORDS_ASKED]
    held = (
        "SELECT m.id FROM memories_fts f JOIN memories m ON m.id = f.rowid "
        f"WHERE memories_fts MATCH ?4 AND {may_see} ORDER BY f.rowid DESC LIMIT ?5"
    )
    hits = Counter[int]()
    for word in asked:
        found = db.execute(held, (*values, f'content : "{word}"', _ROWS_A_WORD))
        hits.update(row_id for (row_id,) in found)
    near = [row_id for row_id, _ in hits.most_common(_CANDIDATES)]
    texts = "SELECT id, content FROM memories WHERE id IN (SELECT value FROM json_each(?))"
    yield from db.execute(texts, (json.dumps(near),))
