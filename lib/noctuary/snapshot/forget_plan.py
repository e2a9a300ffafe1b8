"""Plan a forgetting: the selected memories, and where each one is stored. Read-only."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from noctuary.core.errors import NoctuaryError, SourceError, StoreError
from noctuary.core.manifest import read_manifest
from noctuary.core.settings import Settings
from noctuary.core.sqlite import connect_immutable
from noctuary.core.store import (
    OWN_FILE,
    OWN_PREFIX,
    ROWS_FILE,
    SourceName,
    StorePaths,
    find_home,
    find_store,
    list_stores,
    name_source,
    names_postgres,
    store_for_source,
)
from noctuary.core.tombstones import (
    NOTHING_FORGOTTEN,
    OURS,
    bury,
    read_tombstones,
)
from noctuary.core.types import UNDATED_US, MemoryRecord, from_micros, to_micros
from noctuary.snapshot.publish import (
    list_snapshots,
    serving_id,
)
from noctuary.sources.export import Tally, read_report, sift
from noctuary.sources.source import RawRow
from noctuary.sources.sqlite import SqliteSource

OWN, SOURCE, TURNS = "own store", "source", "kept turns"
"""Where a memory is stored, apart from snapshots and files derived from it."""


class PlannedMemory(NamedTuple):
    """A memory that would be forgotten."""

    record: MemoryRecord  # as the store has it now, else as the newest snapshot has it
    places: tuple[str, ...]  # OWN, SOURCE or TURNS, then names of snapshots

    def to_json(self) -> dict[str, Any]:
        """Return the fields by which a person decides."""
        names = ("memory_id", "content", "category", "wing", "user")
        moment = from_micros(self.record.created_at_us)
        told = {name: getattr(self.record, name) for name in names}
        when = None if moment is None else moment.isoformat()
        return {**told, "created_at": when, "places": list(self.places)}


class Plan(NamedTuple):
    """Memories that would be forgotten, and where they are stored; nothing is changed."""

    store: Path
    source: str | None  # the source of a night on this store, as `noctuary nightly` takes it
    memories: tuple[PlannedMemory, ...]  # by id
    unknown: tuple[str, ...] = ()  # requested ids without a memory
    summaries: int = 0  # of the serving snapshot that quote one of them: made again without it
    notes: tuple[str, ...] = ()  # sources that could not be read, as sentences
    earlier: tuple[MemoryRecord, ...] = ()  # older texts of them in snapshots

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values, with the texts as they are now."""
        told = {"store": str(self.store), "unknown": list(self.unknown), "notes": list(self.notes)}
        memories = [memory.to_json() for memory in self.memories]
        shown = {**self._asdict(), **told, "memories": memories}
        del shown["earlier"]
        return shown


Chooser = Callable[[MemoryRecord], bool]


def plan_forget(
    store: str | Path | None = None,
    *,
    ids: Iterable[int | str] | None = None,
    wing: str | None = None,
    user: str | None = None,
    before: datetime | None = None,
    after: datetime | None = None,
    pattern: str | None = None,
    source: str | None = None,
    may_forget: Chooser | None = None,
) -> Plan:
    """Return what a selection would forget; all conditions must hold.

    Args:
        store: A store, its name or its source; None means the only one.
        ids: Of the memories, as recall names them. Without any selection, what an earlier
            forgetting left unfinished.
        wing: Only memories of this wing.
        user: Only memories of this user.
        before: Only those created before this moment, which excludes undated ones.
        after: Only those created at or after it.
        pattern: A regular expression that the text must contain.
        source: Only memories of this source: the store's, or its name among several.
        may_forget: Whether the caller may forget a memory; None for the owner, who may forget all.

    Raises:
        StoreError: There is no such store, several match, or there is no condition.
    """
    asked = None if ids is None else frozenset(str(one).strip() for one in ids)
    named = source if store is None and source and Path(source).exists() else store
    paths, settings = _find_paths(named), Settings.load(home=find_home())
    stones = read_tombstones(paths.root)
    if asked is None and not (wing or user or before or after or pattern or source):
        if not stones.is_pending:
            raise StoreError(
                "nothing says what to forget: give ids, a question, a wing, a user, a date or a "
                "pattern; nothing was changed"
            )
        asked = stones.ids  # unfinished ones
    made_of = find_source(paths, settings)
    # Ids of several sources begin with their names.
    prefix = "" if source is None or _is_whole(paths, source, made_of) else f"{source}:"
    wanted = None if asked is None else _near_ids(paths, asked)
    rows, notes = _read_source(paths, made_of, settings, wanted)
    seen = {r.memory_id for r in rows if may_forget is None or may_forget(r)}
    asked, unclear = _full_ids(asked, seen, is_own=str(made_of) == own_path())
    notes += unclear
    chosen = _chooser(asked, wing, user, before, after, pattern, prefix)
    in_source = {r.memory_id: r for r in rows}
    found = {r.memory_id: r for r in rows if chosen(r)}
    snapshots: dict[str, list[str]] = {}
    earlier: dict[tuple[str, str], MemoryRecord] = {}
    known = None if wanted is None else {*wanted, *(asked or ()), *found}
    for name in reversed(list_snapshots(paths)):
        for record in snapshot_rows(paths.snapshots / name, known):
            key = record.memory_id
            if key in found or chosen(record):
                found.setdefault(key, in_source.get(key, record))
                snapshots.setdefault(key, []).append(name)
                earlier[key, record.content_hash] = record
    # Copies have no lasting difference: they are forgotten too.
    gone = bury(NOTHING_FORGOTTEN, found.values(), "", own_rule(made_of))
    found.update({r.memory_id: r for r in rows if gone.holds(r)})
    found.update({r.memory_id: r for r in _told_again(found.values(), rows)})
    kept = sorted((r for r in found.values() if may_forget is None or may_forget(r)), key=_by_id)
    memories = tuple(
        PlannedMemory(r, (*_place(r, made_of, in_source), *snapshots.get(r.memory_id, ())))
        for r in kept
    )
    unknown = sorted((asked or frozenset[str]()) - {r.memory_id for r in kept})
    spec = None if made_of is None else getattr(made_of, "spec", str(made_of))
    return Plan(
        paths.root, spec, memories, tuple(unknown), _count_summaries(paths, kept), tuple(notes),
        _older_texts(kept, rows, earlier.values()),
    )  # fmt: skip


_REMEMBER_CALL = re.compile(r"\[[^\s\]:]*remember[^\s\]:]*: (.*)\]$", re.MULTILINE)


def _told_again(
    found: Iterable[MemoryRecord], rows: Iterable[MemoryRecord]
) -> Iterator[MemoryRecord]:
    """Yield the turns in which an agent had one of some memories remembered.

    Transcripts keep such calls where noctuary's server has another name.
    """
    texts = {" ".join(r.content.split()) for r in found}
    for row in rows:
        calls = _REMEMBER_CALL.findall(row.content) if row.is_turn else ()
        if any(text in call for call in calls for text in texts):
            yield row


def _older_texts(
    kept: Iterable[MemoryRecord], rows: Iterable[MemoryRecord], earlier: Iterable[MemoryRecord]
) -> tuple[MemoryRecord, ...]:
    """Return the snapshot texts of some memories, without those that have another id by now."""
    # Ids of Markdown move: a text found elsewhere in the source is another memory.
    planned = {r.memory_id for r in kept}
    others = {r.content for r in rows if r.memory_id not in planned}
    return tuple(r for r in earlier if r.memory_id in planned and r.content not in others)


def _full_ids(
    asked: frozenset[str] | None, ids: set[str], *, is_own: bool
) -> tuple[frozenset[str] | None, list[str]]:
    """Return ids as recall shows them, own:17 for 17 and the reverse, and which are unclear."""
    found, unclear = set[str](), list[str]()
    for one in asked or ():
        near = [i for i in ids if i.partition(":")[2] == one]
        if is_own:
            near = [number] if (number := one.removeprefix(OWN_PREFIX)) in ids else []
        found.add(near[0] if len(near) == 1 and one not in ids else one)
        if len(near) > 1 and one not in ids:
            unclear.append(f"{one} may be {' or '.join(sorted(near))}: say which")
    return None if asked is None else frozenset(found), unclear


def _chooser(
    ids: frozenset[str] | None, wing: str | None, user: str | None, before: datetime | None,
    after: datetime | None, pattern: str | None, prefix: str,
) -> Chooser:  # fmt: skip
    try:
        text = re.compile(pattern) if pattern else None
    except re.error as error:
        raise StoreError(f"{pattern!r} is no regular expression: {error}") from None
    first_us = None if after is None else to_micros(_aware(after))
    end_us = None if before is None else to_micros(_aware(before))

    def is_in_time(at_us: int) -> bool:
        if first_us is None and end_us is None:
            return True
        is_late = first_us is None or at_us >= first_us
        return at_us != UNDATED_US and is_late and (end_us is None or at_us < end_us)

    return lambda r: (
        (ids is None or r.memory_id in ids)
        and r.memory_id.startswith(prefix)
        and (wing is None or r.wing == wing)
        and (user is None or r.user == user)
        and is_in_time(r.created_at_us)
        and (text is None or text.search(r.content) is not None)
    )


def _is_whole(paths: StorePaths, source: str, made_of: SourceName | None) -> bool:
    return (
        str(made_of) == source or store_for_source(find_home(), name_source(source)) == paths.root
    )


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _by_id(record: MemoryRecord) -> tuple[int, str]:
    return len(record.memory_id), record.memory_id


def _find_paths(store: str | Path | None) -> StorePaths:
    home = find_home()
    own = home / OWN_FILE
    if store is None and not list_stores(home) and own.is_file():
        return StorePaths(store_for_source(home, own))  # before its first night
    directory, guessed = find_store(store, home=home)
    if guessed:
        raise StoreError(
            "several stores exist, and forgetting guesses none: name one with --store "
            "(`noctuary stores` lists them)"
        )
    return StorePaths(directory)


def find_source(paths: StorePaths, settings: Settings) -> SourceName | None:
    """Return the source of a night on a store; None if it is unknown or unreachable."""
    own = find_home() / OWN_FILE
    if store_for_source(find_home(), own) == paths.root:
        return own
    location, serving = "", serving_id(paths)
    with suppress(NoctuaryError):
        if serving is not None:
            location = str(read_manifest(paths.snapshots / serving).source["location"])
    with suppress(NoctuaryError):  # also where another noctuary made the snapshot
        location = location or read_report(paths.work / "corpus").identity.location
    if not names_postgres(location):
        return Path(location) if location else None
    named = name_source(settings.source.path) if names_postgres(settings.source.path) else None
    return named if named is not None and str(named) == location else None  # with its password


_MOST_NEAR = 1_000  # ids that are read one by one: more are read with everything else


def _near_ids(paths: StorePaths, asked: Collection[str]) -> set[str] | None:
    """Return the ids to read for some ids: theirs, and of the same date; None for too many."""
    found = set(asked)
    found.update(one.removeprefix(OWN_PREFIX) for one in asked)
    if serving := serving_id(paths):
        sql = (
            "WITH named AS (SELECT * FROM memories JOIN json_each(?) ON value IN (memory_id, "
            "substr(memory_id, instr(memory_id, ':') + 1))) SELECT memory_id FROM memories "
            "WHERE created_at_us IN (SELECT created_at_us FROM named) LIMIT ?"
        )
        values = (json.dumps(sorted(found)), _MOST_NEAR)
        with closing(connect_immutable(paths.snapshots / serving / ROWS_FILE)) as db:
            found.update(memory_id for (memory_id,) in db.execute(sql, values))
    return found if len(found) < _MOST_NEAR else None


def _read_source(
    paths: StorePaths, source: SourceName | None, settings: Settings, wanted: set[str] | None
) -> tuple[list[MemoryRecord], list[str]]:
    """Return memories that an export would take, forgotten or not, and notes on errors.

    Of a claude-memory file only the `wanted` ones are read; other kinds have no index.
    """
    if source is None or (isinstance(source, Path) and not source.exists()):
        return [], ["its source cannot be found: only what snapshots hold was looked at"]
    try:
        rows = (
            _rows_of(source, wanted, paths.turns) if wanted and isinstance(source, Path) else None
        )
        if rows is None:
            from noctuary.sources.turns import open_with_turns

            with open_with_turns(source, paths.turns, settings, paths.work / "corpus") as opened:
                return _sifted(opened.rows(), settings), []
        return _sifted(rows, settings), []
    except NoctuaryError as error:
        return [], [f"its source was not looked into: {error}"]


def _sifted(rows: Iterable[RawRow], settings: Settings) -> list[MemoryRecord]:
    now_us = to_micros(datetime.now(UTC))
    return list(sift(iter(rows), Tally(), now_us=now_us, settings=settings.corpus))


def _rows_of(source: Path, wanted: set[str], turns: Path) -> list[RawRow] | None:
    """Return some rows of a claude-memory file and of its turns; None for another kind.

    Turns in which an agent had something remembered are among them.
    """
    if not source.is_file():
        return None
    try:
        with SqliteSource(source) as opened:
            rows = [row for key in sorted(wanted) for row in opened.rows_of(key)]
    except SourceError:
        return None
    if turns.is_file():
        from noctuary.sources.turns import TranscriptSource

        with TranscriptSource(turns, id_kind="int", include_sidechains=True) as kept:
            for row in kept.rows():
                is_call = _REMEMBER_CALL.search(str(row.fields.get("content")))
                if is_call or str(row.key) in wanted:
                    rows.append(row)
    return rows


_COLUMNS = ", ".join(MemoryRecord._fields)


def snapshot_rows(directory: Path, ids: Collection[str] | None = None) -> Iterator[MemoryRecord]:
    """Yield the memories of a snapshot, all or some; sqlite3.Error where it is damaged."""
    where = "" if ids is None else " WHERE memory_id IN (SELECT value FROM json_each(?))"
    values = () if ids is None else (json.dumps(list(ids)),)
    with closing(connect_immutable(directory / ROWS_FILE)) as db:
        for row in db.execute(f"SELECT {_COLUMNS} FROM memories{where}", values):
            record = MemoryRecord(*row)
            yield record._replace(is_turn=bool(record.is_turn))


def _place(
    record: MemoryRecord, source: SourceName | None, in_source: Mapping[str, MemoryRecord]
) -> tuple[str, ...]:
    if record.memory_id not in in_source:
        return ()
    if record.memory_id.startswith(("-", "turn-")):
        return (TURNS,)
    return (OWN,) if own_rule(source)(record) else (SOURCE,)


def own_rule(source: SourceName | str | None) -> Chooser:
    """Return a predicate for memories that only noctuary writes: own store and kept turns."""
    is_whole = str(source) == own_path()
    return lambda record: is_whole or record.memory_id.startswith(OURS)


def own_path() -> str:
    """Return the path of the own store."""
    return str(find_home() / OWN_FILE)


def _count_summaries(paths: StorePaths, records: Sequence[MemoryRecord]) -> int:
    serving = serving_id(paths)
    if serving is None:
        return 0
    sql = (
        "SELECT count(DISTINCT s.summary_id) FROM summary_sources s JOIN memories m ON "
        "m.position = s.position WHERE m.memory_id IN (SELECT value FROM json_each(?))"
    )
    try:
        with closing(connect_immutable(paths.snapshots / serving / ROWS_FILE)) as db:
            ids = json.dumps([record.memory_id for record in records])
            return int(db.execute(sql, (ids,)).fetchone()[0])
    except sqlite3.Error:
        return 0
