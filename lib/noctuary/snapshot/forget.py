"""Forgetting: hide at once, delete from stores and snapshots, and prove it with a receipt.

It is in this room because it needs the sources below it and the snapshots: the last snapshot that
holds a forgotten memory goes only when everything else was searched for its text.
"""

from __future__ import annotations

import json
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
from noctuary.core.settings import Settings
from noctuary.core.sqlite import delete_rows, open_foreign
from noctuary.core.store import (
    OWN_PREFIX,
    ROWS_FILE,
    VECTORS_FILE,
    StorePaths,
    find_home,
)
from noctuary.core.tombstones import (
    Tombstones,
    bury,
    read_tombstones,
    write_tombstones,
)
from noctuary.core.types import MemoryRecord, to_micros
from noctuary.snapshot.forget_plan import (
    OWN,
    SOURCE,
    TURNS,
    Chooser,
    Plan,
    find_source,
    own_path,
    own_rule,
    snapshot_rows,
)
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
from noctuary.sources.ingest import forget_turns
from noctuary.sources.open import is_several, open_source
from noctuary.usage.access_log import ACCESS_LOG
from noctuary.work.lock import hold_lock

# Carrying out a plan. Each step may be repeated; steps left undone by a kill are done next time:
#
#     hide      the tombstone, on disk before anything else: readers no longer show the memories
#     remove    from the own store, the kept turns, and the source where its owner allows
#     night     a snapshot without them; the export takes no row that has a tombstone
#     prove     every other file is searched for their texts, which older snapshots still hold
#     purge     those snapshots go
#     seal      the receipt; the tombstone keeps digests alone

FORGET_LOCK = "forget.lock"  # held while a plan is carried out: nights leave the proof to it
RECEIPTS = "receipts"
_REPLACED = "home/.replaced-"  # name in a receipt for files that a restore moved aside
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
    """Forget the memories of a plan; safe to repeat after a kill.

    Args:
        plan: The result of `plan_forget`.
        from_source: Whether the owner of a foreign store allows its rows to be deleted there.
        night: Runs a night on the plan's store and source, and returns the reason for not
            publishing, or None. Without it, rows in snapshots are hidden, and the next night
            completes the forgetting.

    Returns:
        Whether the memories are gone, with the receipt, or only hidden so far.

    Raises:
        StoreError: The plan is empty, or a file cannot be written; it reports the progress.
        StoreLockedError: Another process is forgetting.
    """
    paths, records = StorePaths(plan.store), [memory.record for memory in plan.memories]
    if not records and not read_tombstones(paths.root).is_pending:
        raise StoreError("no memory is in the plan: nothing was changed")
    make_directory(paths.root)
    with hold_lock(paths.root / FORGET_LOCK, _busy):
        stones = read_tombstones(paths.root)
        if records:
            stones = hide(paths, [*records, *plan.earlier], own_rule(plan.source))
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
    """Delete the rows where allowed; return how many, and warnings about the others."""
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
        from noctuary.curate.apply import forget_rows  # only where a foreign store is written to
        from noctuary.curate.stores import open_writable

        try:
            corpus = Settings.load(home=find_home()).corpus
            with closing(open_writable(str(plan.source), corpus)) as opened:
                warnings += opened.notes
                now = datetime.now(UTC)
                removed[SOURCE] = forget_rows(opened, stones, foreign, now=now)
        except (SourceError, OSError) as error:
            warnings.append(f"{kept}{error} Until then {rest}")
    return removed, warnings


def _remove_ours(paths: StorePaths, stones: Tombstones) -> dict[str, int]:
    """Delete unfinished rows from the own store and the kept turns, if still there."""
    removed = {TURNS: forget_turns(paths.turns, stones.ids)}
    if _reads_own(paths, stones):
        numbers = [int(record.memory_id) for record in _own_rows(stones)]
        # Even without rows: a kill may have come before the file's log was emptied.
        removed[OWN] = own_store.forget_rows(Path(own_path()), numbers)
    return {place: rows for place, rows in removed.items() if rows}


def _reads_own(paths: StorePaths, stones: Tombstones) -> bool:
    source = find_source(paths, Settings.load(home=find_home()))
    return str(source) == own_path() or any(one.startswith(OWN_PREFIX) for one in stones.ids)


def _own_rows(stones: Tombstones, own: Path | None = None) -> list[MemoryRecord]:
    """Return the forgotten rows that the own store, or a copy of it, still has."""
    own, settings = own or Path(own_path()), Settings.load(home=find_home())
    if not own.is_file():
        return []
    now_us = to_micros(datetime.now(UTC))
    with open_source(own, settings.source) as opened:
        rows = sift(opened.rows(), Tally(), now_us=now_us, settings=settings.corpus)
        return [record for record in rows if stones.holds(record)]


def forget_again(root: Path, former: Tombstones, own: Path, *, is_of_own: bool) -> int:
    """Apply later forgettings to an older state of a store; return how many rows it brings back.

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
    prefix = "" if is_of_own else OWN_PREFIX
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
    """Finish a killed or waiting forgetting, unless it is running; for nights."""
    if not read_tombstones(paths.root).is_pending:
        return None
    with ExitStack() as held:
        try:
            # Until the end: tombstones added meanwhile would be lost.
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
            # Reports and questions may quote a memory: people ask in the words of their memories.
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
            rows = [r for r in snapshot_rows(paths.snapshots / name) if holds(r)]
        except sqlite3.Error:
            found[name] = []  # unknown
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
        stay = snapshot_rows(paths.snapshots / serving)
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
    """Scan every file of the home outside stores, and files moved aside by a restore."""
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
    """Scan another store's serving snapshot and its SQLite files."""
    other = StorePaths(store)
    served = other.snapshots / str(serving_id(other)) / ROWS_FILE
    for path in (served, other.turns, other.archive, other.queries, other.replays):
        yield from scan_files(path, finder, lambda path: not path.exists(), lambda _: False)


def _tell_rest(paths: StorePaths, receipt: Mapping[str, Any]) -> Iterator[str]:
    """Describe the remaining traces outside this store, and how to remove them."""
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
        for r in snapshot_rows(paths.snapshots / serving):
            fields = (r.content, r.tags, r.expanded_keywords, r.category, r.wing, r.room, r.user)
            yield "\n".join(str(field) for field in (*fields, r.session_id, r.memory_id) if field)
    own = "SELECT content || char(10) || tags || char(10) || coalesce(wing, '') FROM memories"
    turns = "SELECT label || char(10) || text FROM parts UNION ALL SELECT session || ' ' || wing"
    for path, sql in ((Path(own_path()), own), (paths.turns, f"{turns} FROM turns")):
        if path.is_file():
            with closing(open_foreign(path, own_store.WAIT_S)[0]) as db:
                yield from (str(text) for (text,) in db.execute(sql))


def _count_kept_out(paths: StorePaths) -> int:
    with suppress(NoctuaryError):
        return int(read_report(paths.work / "corpus").sensitive.get("forgotten", 0))
    return 0


def purge(paths: StorePaths, stones: Tombstones, holding: list[str]) -> None:
    """Remove the snapshots that held the memories, and the records of their use."""
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
    """Return the result of an unfinished search; empty if there is none."""
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
