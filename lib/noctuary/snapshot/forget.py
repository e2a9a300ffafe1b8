"""Forgetting: a plan, hiding at once, taking out of stores and snapshots, and the proof.

It stands in this room because it needs the sources below it and the snapshots of it: the last one
that holds a forgotten memory goes only when everything else was searched for its text.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from noctuary.core import formats
from noctuary.core.errors import NoctuaryError, SourceError, StoreError, StoreLockedError
from noctuary.core.files import (
    hash_json,
    hash_text,
    make_directory,
    read_array,
    remove_tree,
    write_json,
)
from noctuary.core.foreign_json import parse_json
from noctuary.core.manifest import read_manifest
from noctuary.core.settings import Settings
from noctuary.core.sqlite import connect_immutable, delete_rows, open_foreign
from noctuary.core.store import (
    ROWS_FILE,
    VECTORS_FILE,
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
    Tombstones,
    bury,
    read_tombstones,
    write_tombstones,
)
from noctuary.core.types import UNDATED_US, MemoryRecord, from_micros, to_micros
from noctuary.curate import apply as curation
from noctuary.curate.stores import open_writable
from noctuary.snapshot.publish import (
    drop_older_snapshots,
    forget_questions,
    list_snapshots,
    remove_snapshots,
    serving_id,
)
from noctuary.snapshot.scan import (
    Finder,
    Scanned,
    cut_needles,
    list_limits,
    scan_files,
    tell_limits,
)
from noctuary.sources import own_store
from noctuary.sources.export import Tally, read_report, sift
from noctuary.sources.ingest import forget_turns, open_with_turns
from noctuary.sources.source import is_several, open_source
from noctuary.usage.access_log import ACCESS_LOG
from noctuary.work.lock import hold_lock

OWN, SOURCE, TURNS = "own store", "source", "kept turns"
"""Where a memory lives besides snapshots and what is made of them."""


class PlannedMemory(NamedTuple):
    """A memory that would be forgotten."""

    record: MemoryRecord  # as the store has it now, else as the newest snapshot has it
    places: tuple[str, ...]  # OWN, SOURCE or TURNS, then names of snapshots

    def to_json(self) -> dict[str, Any]:
        """Return what a person decides by."""
        names = ("memory_id", "content", "category", "wing", "user")
        moment = from_micros(self.record.created_at_us)
        told = {name: getattr(self.record, name) for name in names}
        when = None if moment is None else moment.isoformat()
        return {**told, "created_at": when, "places": list(self.places)}


class Plan(NamedTuple):
    """What would be forgotten, and where it lives; nothing is changed by it."""

    store: Path
    source: str | None  # what a night on this store reads, as `noctuary nightly` takes it
    memories: tuple[PlannedMemory, ...]  # by id
    unknown: tuple[str, ...] = ()  # ids that were asked for, of no memory
    summaries: int = 0  # of the serving snapshot that quote one of them: made again without it
    notes: tuple[str, ...] = ()  # what could not be looked into, as sentences
    earlier: tuple[MemoryRecord, ...] = ()  # what snapshots hold of them besides: older texts

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
    """Return what a selection would forget; all that is given must hold.

    Args:
        store: A store, its name or its source; None means the only one.
        ids: Of the memories, as recall names them. Without any selection, what an earlier
            forgetting left unfinished.
        wing: Only memories of this wing.
        user: Only memories of this user.
        before: Only those created before this moment; undated ones are none of them.
        after: Only those created at or after it.
        pattern: A regular expression that the text must contain.
        source: Only memories of this source: what the store is made of, or its name among several.
        may_forget: What whoever asks may forget; None for the owner, who may forget everything.

    Raises:
        StoreError: There is no such store, several could be meant, or nothing is selected by.
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
        asked = stones.ids  # what is unfinished
    made_of = _find_source(paths, settings)
    # Ids of several sources begin with their names.
    prefix = "" if source is None or _is_whole(paths, source, made_of) else f"{source}:"
    rows, notes = _read_source(paths, made_of, settings)
    seen = {r.memory_id for r in rows if may_forget is None or may_forget(r)}
    asked, unclear = _full_ids(asked, seen, is_own=str(made_of) == _own_path())
    notes += unclear
    chosen = _chooser(asked, wing, user, before, after, pattern, prefix)
    in_source = {r.memory_id: r for r in rows}
    found = {r.memory_id: r for r in rows if chosen(r)}
    snapshots: dict[str, list[str]] = {}
    earlier: dict[tuple[str, str], MemoryRecord] = {}
    for name in reversed(list_snapshots(paths)):
        for record in _snapshot_rows(paths.snapshots / name):
            key = record.memory_id
            if key in found or chosen(record):
                found.setdefault(key, in_source.get(key, record))
                snapshots.setdefault(key, []).append(name)
                earlier[key, record.content_hash] = record
    # Copies are told apart by nothing that lasts: they go with it.
    gone = bury(NOTHING_FORGOTTEN, found.values(), "", _own_rule(made_of))
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
    """Return what snapshots hold of some memories, without what has another id by now."""
    # Ids of Markdown move: what stands elsewhere in the source is another memory.
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
            near = [number] if (number := one.removeprefix(own_store.OWN_PREFIX)) in ids else []
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
    own = home / own_store.OWN_FILE
    if store is None and not list_stores(home) and own.is_file():
        return StorePaths(store_for_source(home, own))  # before its first night
    directory, guessed = find_store(store, home=home)
    if guessed:
        raise StoreError(
            "several stores exist, and forgetting guesses none: name one with --store "
            "(`noctuary stores` lists them)"
        )
    return StorePaths(directory)


def _find_source(paths: StorePaths, settings: Settings) -> SourceName | None:
    """Return what a night on a store reads; None where nothing says so, or not how to reach it."""
    own = find_home() / own_store.OWN_FILE
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


def _read_source(
    paths: StorePaths, source: SourceName | None, settings: Settings
) -> tuple[list[MemoryRecord], list[str]]:
    """Return every memory that an export would take, forgotten or not, and what went wrong."""
    if source is None or (isinstance(source, Path) and not source.exists()):
        return [], ["its source cannot be found: only what snapshots hold was looked at"]
    try:
        with open_with_turns(source, paths.turns, settings, paths.work / "corpus") as opened:
            now_us = to_micros(datetime.now(UTC))
            return [*sift(opened.rows(), Tally(), now_us=now_us, settings=settings.corpus)], []
    except NoctuaryError as error:
        return [], [f"its source was not looked into: {error}"]


_COLUMNS = ", ".join(MemoryRecord._fields)


def _snapshot_rows(directory: Path) -> Iterator[MemoryRecord]:
    """Yield every memory of a snapshot; sqlite3.Error where it is damaged."""
    with closing(connect_immutable(directory / ROWS_FILE)) as db:
        for row in db.execute(f"SELECT {_COLUMNS} FROM memories"):
            record = MemoryRecord(*row)
            yield record._replace(is_turn=bool(record.is_turn))


def _place(
    record: MemoryRecord, source: SourceName | None, in_source: Mapping[str, MemoryRecord]
) -> tuple[str, ...]:
    if record.memory_id not in in_source:
        return ()
    if record.memory_id.startswith(("-", "turn-")):
        return (TURNS,)
    return (OWN,) if _own_rule(source)(record) else (SOURCE,)


def _own_rule(source: SourceName | str | None) -> Chooser:
    """Return what says of a memory whether only noctuary writes it: own store and kept turns."""
    is_whole = str(source) == _own_path()
    return lambda record: is_whole or record.memory_id.startswith(OURS)


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


# Carrying a plan out. Each step may be repeated, and what a kill leaves undone the next does:
#
#     hide      the tombstone, on disk before anything else: no reader shows them any more
#     remove    from the own store, the kept turns, and the source where its owner allows
#     night     a snapshot without them; the export takes no row that has a tombstone
#     prove     every other file is searched for their texts, which older snapshots still hold
#     purge     those snapshots go
#     seal      the receipt; the tombstone keeps digests alone

FORGET_LOCK = "forget.lock"  # held while a plan is carried out: nights leave the proof to it
RECEIPTS = "receipts"
_REPLACED = "home/.replaced-"  # how a receipt names what a restore moved aside
_DRAFT = "unfinished.json"


class Forgetting(NamedTuple):
    """How far a plan was carried out."""

    is_gone: bool  # whether it is purged and proven; else hidden from every recall, and pending
    message: str  # one sentence for a person
    receipt: Path | None = None  # where it is gone
    removed: Mapping[str, int] = {}  # rows that were deleted, by OWN, SOURCE and TURNS
    left: tuple[str, ...] = ()  # files that still hold something of it, where that was looked for
    warnings: tuple[str, ...] = ()  # as sentences

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values; no text of a memory is in it."""
        receipt = None if self.receipt is None else str(self.receipt)
        lists = {"left": list(self.left), "warnings": list(self.warnings)}
        return {**self._asdict(), **lists, "receipt": receipt, "removed": dict(self.removed)}


def apply_forget(
    plan: Plan, *, from_source: bool = False, night: Callable[[], str | None] | None = None
) -> Forgetting:
    """Forget what a plan names; safe to repeat after a kill.

    Args:
        plan: What `plan_forget` returned.
        from_source: Whether the owner of a foreign store allows its rows to be deleted there.
        night: Runs a night on the plan's store and source, and returns what kept it from
            publishing or None. Without it what snapshots hold is hidden, and the next night
            completes it.

    Returns:
        Whether it is gone, with the receipt, or only hidden yet.

    Raises:
        StoreError: Nothing is in the plan, or a file cannot be written; it says how far it got.
        StoreLockedError: Another process forgets at this moment.
    """
    paths, records = StorePaths(plan.store), [memory.record for memory in plan.memories]
    if not records and not read_tombstones(paths.root).is_pending:
        raise StoreError("no memory is in the plan: nothing was changed")
    make_directory(paths.root)
    with hold_lock(paths.root / FORGET_LOCK, _busy):
        stones = read_tombstones(paths.root)
        if records:
            stones = hide(paths, [*records, *plan.earlier], _own_rule(plan.source))
        removed, warnings = remove(plan, stones, from_source=from_source)
        fault = night() if night is not None and _is_built(paths) else None
        try:
            with hold_lock(paths.lock):
                done = finish_forget(paths, records)
        except StoreLockedError as error:
            done, fault = None, str(error)
    return _describe(paths, len(records), done, removed, (*warnings, *([fault] if fault else ())))


def _busy(holder: str) -> str:
    return f"process {holder} is forgetting memories of this store: try again when it has finished"


def _is_built(paths: StorePaths) -> bool:
    return paths.work.is_dir() or paths.snapshots.is_dir()


def _describe(
    paths: StorePaths, count: int, done: Path | None, removed: Mapping[str, int],
    warnings: tuple[str, ...],
) -> Forgetting:  # fmt: skip
    what = "1 memory" if count == 1 else f"{count:,} memories"
    if done is not None:
        receipt = read_receipts(paths)[-1][1]
        rest = tuple(_tell_rest(paths, receipt))
        where = "in this store" if receipt.get("yours") or receipt.get("elsewhere") else ""
        said = " ".join(f"{what} forgotten: no byte is left {where}".split())
        said += f"; the receipt is {done}"
        return Forgetting(True, said, done, removed, (), (*warnings, *rest))
    left = tuple(str(one[0]) for one in read_draft(paths).get("left", ()))
    said = f"{what} hidden from every recall, and not purged yet: "
    said += f"{', '.join(left)} still hold something of it" if left else "the next night does it"
    if aside := sorted({name.split("/")[1] for name in left if name.startswith(_REPLACED)}):
        folders = " ".join(str(find_home() / name) for name in aside)
        said += (
            f". A restore moved the former state aside: remove {folders}, then "
            "`noctuary forget --apply`"
        )
    return Forgetting(False, said, None, removed, left, warnings)


def hide(paths: StorePaths, records: Iterable[MemoryRecord], is_own: Chooser) -> Tombstones:
    """Put the tombstones in place; every reader looks for them."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    write_tombstones(paths.root, bury(read_tombstones(paths.root), records, now, is_own))
    return read_tombstones(paths.root)


def remove(
    plan: Plan, stones: Tombstones, *, from_source: bool
) -> tuple[dict[str, int], list[str]]:
    """Delete the rows where that may be; return how many, and what was not possible."""
    paths, removed, warnings = StorePaths(plan.store), dict[str, int](), list[str]()
    foreign = [m.record.memory_id for m in plan.memories if SOURCE in m.places]
    removed.update(_remove_ours(paths, stones))
    if foreign:
        kept = f"{len(foreign)} rows stay in {plan.source}: "
        rest = "the tombstones keep them out of every night"
        if plan.source is not None and is_several(Path(plan.source)):
            names = ", ".join(sorted({one.partition(":")[0] for one in foreign}))
            warnings.append(
                f"{kept}{rest}. Of several sources noctuary deletes in its own store alone: delete "
                f"them yourself in {names}"
            )
            return removed, warnings
        if not from_source:
            warnings.append(f"{kept}{rest}; --from-source deletes them there too")
            return removed, warnings
        try:
            corpus = Settings.load(home=find_home()).corpus
            with closing(open_writable(str(plan.source), corpus)) as opened:
                warnings += opened.notes
                now = datetime.now(UTC)
                removed[SOURCE] = curation.forget_rows(opened, stones, foreign, now=now)
        except (SourceError, OSError) as error:
            warnings.append(f"{kept}{error} Until then {rest}")
    return removed, warnings


def _remove_ours(paths: StorePaths, stones: Tombstones) -> dict[str, int]:
    """Delete what is unfinished from the own store and the kept turns, where it still is."""
    removed = {TURNS: forget_turns(paths.turns, stones.ids)}
    if _reads_own(paths, stones):
        numbers = [int(record.memory_id) for record in _own_rows(stones)]
        # Without any as well: a kill may have come before the file's log was emptied.
        removed[OWN] = own_store.forget_rows(Path(_own_path()), numbers)
    return {place: rows for place, rows in removed.items() if rows}


def _reads_own(paths: StorePaths, stones: Tombstones) -> bool:
    source = _find_source(paths, Settings.load(home=find_home()))
    return str(source) == _own_path() or any(
        one.startswith(own_store.OWN_PREFIX) for one in stones.ids
    )


def _own_rows(stones: Tombstones, own: Path | None = None) -> list[MemoryRecord]:
    """Return the forgotten rows that the own store, or a copy of it, still has."""
    own, settings = own or Path(_own_path()), Settings.load(home=find_home())
    if not own.is_file():
        return []
    now_us = to_micros(datetime.now(UTC))
    with open_source(own, settings.source) as opened:
        rows = sift(opened.rows(), Tally(), now_us=now_us, settings=settings.corpus)
        return [record for record in rows if stones.holds(record)]


def _own_path() -> str:
    return str(find_home() / own_store.OWN_FILE)


def forget_again(root: Path, former: Tombstones, own: Path, *, is_of_own: bool) -> int:
    """Let an older state of a store forget what was forgotten since; return how many it brings.

    `former` are the tombstones of the state that it replaces, `own` is the own store that comes
    with it. Nothing else may write to the store. The next night purges them.
    """
    kept = read_tombstones(root)
    stones = kept._replace(
        rows=kept.rows | former.rows,
        texts=kept.texts | former.texts,
        ids=kept.ids | former.ids,
        since=kept.since or former.since,
        is_scanned=False,
    )
    held = find_holding(StorePaths(root), stones)
    prefix = "" if is_of_own else own_store.OWN_PREFIX
    back = [r._replace(memory_id=f"{prefix}{r.memory_id}") for r in _own_rows(stones, own)]
    back += [record for found in held.values() for record in found]
    if back:
        # Known already: only their ids are to be hidden again.
        now = datetime.now(UTC).isoformat(timespec="seconds")
        ids = stones.ids | {record.memory_id for record in back}
        stones = stones._replace(ids=ids, since=stones.since or now)
    if stones != kept:
        write_tombstones(root, stones)
    return len({record.memory_id for record in back} - kept.ids)


# The end of it: in the process that forgets, or in the next night, which finds it unfinished.


def finish_left(paths: StorePaths) -> Path | None:
    """Finish what a killed or waiting forgetting left, unless it is at work; for nights."""
    if not read_tombstones(paths.root).is_pending:
        return None
    with ExitStack() as held:
        try:
            # Until the end: what is forgotten meanwhile would be lost from the tombstones.
            held.enter_context(hold_lock(paths.root / FORGET_LOCK))
        except StoreLockedError:
            return None
        return finish_forget(paths)


def finish_forget(paths: StorePaths, known: Sequence[MemoryRecord] = ()) -> Path | None:
    """Prove, purge and seal; return the receipt, or None while something of it is left.

    The caller holds the store's lock. `known` are the memories as far as the caller has them;
    older snapshots know them too.
    """
    stones = read_tombstones(paths.root)
    if not stones.is_pending:
        return None
    held = find_holding(paths, stones)
    if serving_id(paths) in held:
        return None
    # Without a draft and a receipt somebody took them away.
    if not stones.is_scanned or not (read_draft(paths) or read_receipts(paths)):
        if _reads_own(paths, stones):
            known = [*known, *_own_rows(stones)]  # where a kill came early
        _remove_ours(paths, stones)
        if held:
            # A page or a question may quote a memory: people ask in the words of what they want.
            remove_tree(paths.reports)
            forget_questions(paths)
        draft = prove(paths, stones, held, known)
        write_json(paths.root / RECEIPTS / _DRAFT, draft)
        if draft["left"]:
            return None
        stones = stones._replace(is_scanned=True)
        write_tombstones(paths.root, stones)
    purge(paths, stones, list(held))
    sealed = seal(paths)
    finished = stones._replace(ids=frozenset(), since="", is_scanned=False)
    write_tombstones(paths.root, finished)
    return sealed


def find_holding(paths: StorePaths, stones: Tombstones) -> dict[str, list[MemoryRecord]]:
    """Return the forgotten memories of every snapshot that holds one, or that cannot be read."""
    found: dict[str, list[MemoryRecord]] = {}
    known: dict[tuple[str, str], bool] = {}  # snapshots hold mostly the same

    def holds(record: MemoryRecord) -> bool:
        key = record.memory_id, record.content_hash
        if key not in known:
            known[key] = stones.holds(record)
        return known[key]

    for name in list_snapshots(paths):
        try:
            rows = [r for r in _snapshot_rows(paths.snapshots / name) if holds(r)]
        except sqlite3.Error:
            found[name] = []  # nobody knows
            continue
        if rows:
            found[name] = rows
    return found


def prove(
    paths: StorePaths,
    stones: Tombstones,
    held: Mapping[str, Sequence[MemoryRecord]],
    known: Sequence[MemoryRecord],
) -> dict[str, Any]:
    """Search everything but the snapshots that are about to go; return the draft of a receipt."""
    records = {(r.memory_id, r.content_hash): r for r in known}
    records |= {(r.memory_id, r.content_hash): r for rows in held.values() for r in rows}
    vectors = {one for name, rows in held.items() for one in _stretches(paths, name, rows)}
    if serving := serving_id(paths):  # two memories of one text have one vector
        stay = _snapshot_rows(paths.snapshots / serving)
        vectors.difference_update(_stretches(paths, serving, stay))
    places = [str(paths.root), *(str(path) for path in paths.root.rglob("*"))]
    needles = cut_needles(records.values(), _survivors(paths), vectors, places)
    finder, going = Finder(needles), {paths.snapshots / name for name in held}
    no_words = {paths.dagster_home, paths.encoders}

    def is_below(path: Path, directories: set[Path]) -> bool:
        return not directories.isdisjoint((path, *path.parents))

    def has_words(path: Path) -> bool:
        return not is_below(path, no_words)

    found = [*scan_files(paths.root, finder, lambda path: is_below(path, going), has_words)]
    found += _scan_home(paths, finder)
    elsewhere = [
        store.name for store in _other_stores(paths)
        if any(one.hits for one in _scan_other(store, finder))
    ]  # fmt: skip
    mine = ("merges.toml", *(f"home/{name}" for name in _OWNERS))
    texts = {memory_id for memory_id, _ in records}
    return {
        "format": formats.RECEIPT.version,
        "store": paths.root.name,
        "begun": stones.since,
        "memories": len(stones.ids),
        "ids": sorted(
            one if one.lstrip("-").isdecimal() else hash_text(one)[:16] for one in stones.ids
        ),
        "still_in_source": _count_kept_out(paths),
        "searched_for": {
            "texts": len(texts & stones.ids),
            "texts_unknown": len(stones.ids - texts),
            "texts_too_short": needles.short,
            "pieces": len(needles.pieces),
            "rare_words": len(needles.words),
            "vectors": len(needles.vectors),
            "shared_with_what_stays": needles.shared,
        },
        "bytes": sum(one.size_bytes for one in found),
        "files": [one.to_json() for one in found],
        **list_limits(found),
        "left": [[one.name, one.hits] for one in found if one.hits and one.name not in mine],
        "yours": [one.name for one in found if one.hits and one.name in mine],
        "elsewhere": elsewhere,
    }


# Files of the home that the owner writes: named where they hold it, and left to them.
_OWNERS = ("noctuary.toml", "queries.jsonl", "adversarial.jsonl", "qrels.jsonl")


def _scan_home(paths: StorePaths, finder: Finder) -> Iterator[Scanned]:
    """Look into every file of the home that is in no store, also into what a restore replaced."""
    home = find_home()
    stores = {paths.root, *_other_stores(paths)}
    for path in sorted(home.iterdir()) if home.is_dir() else ():
        if path in stores:
            continue
        # A former state of a store holds other memories too, and their rare words.
        for one in scan_files(path, finder, lambda _: False, lambda p: p.parent == home):
            below = "" if path.is_file() else f"{path.name}/"
            yield one._replace(name=f"home/{below}{one.name}")


def _other_stores(paths: StorePaths) -> list[Path]:
    """Return the other stores of the home, those without a snapshot as well."""
    begun = {path.parent for name in ("CURRENT", "work") for path in find_home().glob(f"*/{name}")}
    return sorted(path for path in begun - {paths.root} if not path.name.startswith("."))


def _scan_other(store: Path, finder: Finder) -> Iterator[Scanned]:
    """Look into what another store serves, and into what it keeps besides."""
    other = StorePaths(store)
    served = other.snapshots / str(serving_id(other)) / ROWS_FILE
    for path in (served, other.turns, other.archive, other.queries, other.replays):
        yield from scan_files(path, finder, lambda path: not path.exists(), lambda _: False)


def _tell_rest(paths: StorePaths, receipt: Mapping[str, Any]) -> Iterator[str]:
    """Say what still holds it that is not this store's, and what to do."""
    if names := ", ".join(map(str, receipt.get("yours", ()))):
        yield f"{names} still holds something of it: the file is yours, so edit it"
    for name in receipt.get("elsewhere", ()):
        yield (
            f"the store {name} still holds it: `noctuary forget --store {find_home() / str(name)} "
            "--query ...` finds it there"
        )
    yield from tell_limits(receipt)


def _stretches(paths: StorePaths, name: str, rows: Iterable[MemoryRecord]) -> Iterator[bytes]:
    """Yield a stretch of each memory's vector: it can be turned back into its text."""
    path = paths.snapshots / name / VECTORS_FILE
    with suppress(OSError, ValueError, IndexError):
        vectors = read_array(path)
        yield from (vectors[row.position][8:28].tobytes() for row in rows)


def _survivors(paths: StorePaths) -> Iterator[str]:
    """Yield every text that stays: of the serving snapshot, the own store, and the kept turns."""
    serving = serving_id(paths)
    if serving is not None:
        for r in _snapshot_rows(paths.snapshots / serving):
            fields = (r.content, r.tags, r.expanded_keywords, r.category, r.wing, r.room, r.user)
            yield "\n".join(str(field) for field in (*fields, r.session_id, r.memory_id) if field)
    own = "SELECT content || char(10) || tags || char(10) || coalesce(wing, '') FROM memories"
    turns = "SELECT label || char(10) || text FROM parts UNION ALL SELECT session || ' ' || wing"
    for path, sql in ((Path(_own_path()), own), (paths.turns, f"{turns} FROM turns")):
        if path.is_file():
            with closing(open_foreign(path, own_store.WAIT_S)[0]) as db:
                yield from (str(text) for (text,) in db.execute(sql))


def _count_kept_out(paths: StorePaths) -> int:
    with suppress(NoctuaryError):
        return int(read_report(paths.work / "corpus").sensitive.get("forgotten", 0))
    return 0


def purge(paths: StorePaths, stones: Tombstones, holding: list[str]) -> None:
    """Remove the snapshots that held them, and what was recorded of their use."""
    remove_snapshots(paths, holding)
    if paths.purge_pending.exists():
        drop_older_snapshots(paths)
        paths.purge_pending.unlink()
    ids, where = json.dumps(sorted(stones.ids)), "memory_id IN (SELECT value FROM json_each(?))"
    delete_rows(paths.access_log, ACCESS_LOG, "retrievals", "position", where, (ids,))


def seal(paths: StorePaths) -> Path:
    """Make the receipt of the draft: numbered, chained to the one before, signed by its digest."""
    before = read_receipts(paths)
    draft = read_draft(paths)
    if not draft:  # a kill came after the last sealing
        return before[-1][0]
    draft.pop("left", None)
    previous = before[-1][1].get("digest") if before else None
    now = datetime.now(UTC)
    told = {**draft, "finished": now.isoformat(timespec="seconds"), "previous": previous}
    path = paths.root / RECEIPTS / f"{len(before) + 1:06d}-{now:%Y%m%dT%H%M%S}.json"
    write_json(path, {**told, "digest": hash_json(told)})
    (paths.root / RECEIPTS / _DRAFT).unlink()
    return path


def read_draft(paths: StorePaths) -> dict[str, Any]:
    """Return what an unfinished search found; empty where there was none."""
    with suppress(OSError, ValueError, TypeError):
        return dict(parse_json((paths.root / RECEIPTS / _DRAFT).read_text(encoding="utf-8")))
    return {}


def read_receipts(paths: StorePaths) -> list[tuple[Path, dict[str, Any]]]:
    """Return every receipt, the oldest first; an unreadable one is empty."""
    found: list[tuple[Path, dict[str, Any]]] = []
    for path in sorted((paths.root / RECEIPTS).glob("[0-9]*.json")):
        told: dict[str, Any] = {}
        with suppress(OSError, ValueError, TypeError):
            told = dict(parse_json(path.read_text(encoding="utf-8")))
        found.append((path, told))
    return found


def find_forged(paths: StorePaths) -> str | None:
    """Return the first receipt that is not as it was written, or not after the one before it."""
    previous = None
    for path, told in read_receipts(paths):
        digest = told.pop("digest", None)
        if digest != hash_json(told) or told.get("previous") != previous:
            return path.name
        previous = digest
    return None
