"""`noctuary merge`: what another home remembers and forgot, taken into this one."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from pathlib import Path
from stat import S_ISREG
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import click

from noctuary.cli import backup as backups
from noctuary.cli import main as cli
from noctuary.core import errors, files, formats
from noctuary.core.manifest import read_manifest, read_pointer
from noctuary.core.settings import CONFIG_FILE_NAME, Settings
from noctuary.core.sqlite import open_foreign
from noctuary.core.store import OWN_PREFIX, StorePaths, find_home, store_for_source
from noctuary.core.tombstones import (
    NOTHING_FORGOTTEN,
    TOMBSTONES_FILE,
    Tombstones,
    read_tombstones,
    row_digests,
)
from noctuary.core.types import SILENT, MemoryRecord, Progress
from noctuary.snapshot.forget import FORGET_LOCK, apply_forget, forget_again
from noctuary.snapshot.forget_plan import OWN, Plan, PlannedMemory, find_source
from noctuary.sources import other_home
from noctuary.sources.other_home import Merging, OwnRows, read_own_rows
from noctuary.sources.own_store import OWN_FILE, WAIT_S, change_rows, find_night_source
from noctuary.text.marks import visible_line
from noctuary.work.lock import hold_lock

_SHOWN_CHARS = 120


@click.command()
@click.argument("other", type=click.Path(path_type=Path))
@cli.option("--backup TIME", "Which backup, or the beginning of its name [default: the newest].")
@cli.flag("--dry-run", "Say what would change, and change nothing.")
@cli.json_option
def merge(other: Path, backup: str | None, dry_run: bool) -> None:
    """Take the memories of another home into this one: two machines, one memory.

    OTHER is a directory that `noctuary backup` wrote to, or a home itself (its memories.sqlite).
    Merge on each machine, as often as you like: in any order all homes remember the same, and a
    second time changes nothing.

    \b
    noctuary backup /mnt/shared/laptop --keep 3     on the laptop
    noctuary merge /mnt/shared/laptop --dry-run     on the desktop: what would change
    noctuary merge /mnt/shared/laptop
    noctuary nightly                                graph and summaries know it too

    What either home forgot is forgotten in both. A memory that both have edited stays as edited
    last, and both texts are listed. Rows that look like secrets are not taken. Interrupted, run it
    again.

    Exit codes: 0 merged, or nothing to do; 1 failed, and nothing was changed that the next try does
    not complete; 4 another merge, a night or a forgetting is at work here.
    """  # noqa: D301 (click wants the control character)
    done = merge_home(find_home(), other, backup, dry_run=dry_run, progress=cli.ScanProgress())
    cli.tell(done.to_json(), _lines(done), done.warnings)


def _lines(done: Merged) -> Iterator[str]:
    rows, would = done.rows, "would be " if done.dry_run else ""
    counts = (
        (len(rows.new), "new"),
        (len(rows.changed), f"{would}changed as they were edited there"),
        (len(rows.gone), f"{would}forgotten as they were there"),
        (rows.stayed_out, "left out: forgotten or kept back here"),
        (done.refused, "left out: secrets, or no memories"),
    )
    for conflict in rows.conflicts:
        kept, lost = conflict.here, conflict.there
        if conflict.kept == "there":
            kept, lost = lost, kept
        yield f"[{conflict.id}] was edited in both; the later text stays: {_short(kept)}"
        yield f"    the other one was: {_short(lost)}"
    told = [f"{count:,} {what}" for count, what in counts if count]
    yield f"{done.name}: {'; '.join(told) or 'nothing that is not here already'}"


def _short(text: str) -> str:
    plain = visible_line(" ".join(text.split()))
    return plain if len(plain) <= _SHOWN_CHARS else f"{plain[: _SHOWN_CHARS - 1]}…"


class Merged(NamedTuple):
    """What a merge did, or would do."""

    name: str  # of the other home, as a person knows it
    home: str  # its own name
    dry_run: bool
    rows: Merging
    refused: int  # its rows that no export takes
    warnings: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        rows = self.rows._asdict()
        del rows["same"]
        conflicts = [conflict._asdict() for conflict in self.rows.conflicts]
        ids = {str(here): there for here, there in self.rows.changed.items()}
        told = {**self._asdict(), **rows, "changed": ids, "conflicts": conflicts}
        del told["rows"]
        return {**told, "warnings": list(self.warnings)}


def merge_home(
    home: Path, other: Path, backup: str | None = None, *, dry_run: bool = False,
    progress: Progress = SILENT,
) -> Merged:  # fmt: skip
    """Merge a backup or a home into this one; safe to repeat after a kill.

    Every step is a function of both sides, and one transaction or one renamed file: what is done
    is found done.
    """
    if other.resolve() == home.resolve():
        raise errors.StoreError(f"{other} is this home itself: name a backup or another home")
    files.make_directory(home)
    busy = "another merge (process {}) is at work here: wait for it"
    lock = nullcontext() if dry_run else hold_lock(home / "merge.lock", busy.format)
    with lock:
        with _staged(home, other, backup, progress) as staged:
            plan = _plan(home, staged)
            if dry_run:
                return plan.told(dry_run=True)
            _hide(home, staged)
            plan = _write_rows(home, plan)
        warnings = list(_forget(home, plan))
        return plan.told()._replace(warnings=(*staged.notes, *warnings))


# What is merged, copied into this home for the time of the merge: the other one may be changed
# meanwhile, and whoever made it may have meant no good. Nothing else of it is read.

_OF_STORE = ("turns.sqlite", "archive.sqlite", TOMBSTONES_FILE)
_MOST_BYTES = 4 * 2**30  # of one file
_MOST_TOLD_BYTES = 64 * 2**20  # of one that is read at once


class _Staged(NamedTuple):
    """Copies of the files that count, and which store of this home each store stands for."""

    name: str
    root: Path
    stores: Mapping[str, Path]  # names there to directories here
    notes: Sequence[str]


@contextmanager
def _staged(home: Path, other: Path, backup: str | None, progress: Progress) -> Generator[_Staged]:
    with TemporaryDirectory(dir=home, prefix=".merging-") as scratch:
        root = Path(scratch)
        if backups.list_backups(other):
            made = backups.choose_files(other, home, backup, None)
            name, origin = f"backup {made.name} of {made.home}", Path(made.home)
            found: Mapping[str, Any] = {n: e for n, e in made.files.items() if _is_wanted(n)}
            copy = _copy_of_backup(other)
        elif (other / OWN_FILE).is_file():
            if backup is not None:
                raise errors.StoreError(f"{other} is a home and has no backups: leave out --backup")
            name, origin = f"home {other}", _find_origin(other)
            found = dict(_wanted_in(other))
            copy = _copy_of_home
        else:
            raise errors.StoreError(
                f"{other} has neither a backup nor a {OWN_FILE}: name what `noctuary backup` wrote "
                "to, or another home"
            )
        for done, (path, what) in enumerate(sorted(found.items()), start=1):
            copy(what, root / path)
            _require_ours(root / path, path)
            progress.update("read", done, len(found))
        yield _Staged(name, root, *_match_stores(home, origin, found))


def _is_wanted(name: str) -> bool:
    top, _, below = name.partition("/")
    return backups.is_kept(name) and (below in _OF_STORE if below else top == OWN_FILE)


def _wanted_in(directory: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files of a home that count, by their path below it; no link is followed."""
    for path in (directory / OWN_FILE, *(p for n in _OF_STORE for p in directory.glob(f"*/{n}"))):
        name = path.relative_to(directory).as_posix()
        if _is_wanted(name) and path.parent.resolve() == directory.resolve() / Path(name).parent:
            yield name, path


def _copy_of_backup(directory: Path) -> Any:
    def copy(entry: backups.Entry, target: Path) -> None:
        if entry.bytes > _MOST_BYTES or not backups.holds(directory, entry):
            raise errors.StoreError(
                f"{target.name} in {directory} is missing, damaged or too large: nothing was merged"
            )
        backups.copy_object(directory / backups.OBJECTS / entry.sha256, target, entry)

    return copy


def _copy_of_home(path: Path, target: Path) -> None:
    beside = (path, *(path.with_name(f"{path.name}{end}") for end in backups.OF_SQLITE))
    stats = [one.lstat() for one in beside if one.is_symlink() or one.exists()]
    if not all(S_ISREG(stat.st_mode) and stat.st_size <= _MOST_BYTES for stat in stats):
        raise errors.StoreError(f"{path} is too large, or no plain file: nothing was merged")
    files.make_directory(target.parent)
    if path.suffix != ".sqlite":
        shutil.copyfile(path, target)
    elif (fault := backups.copy_database(path, target)) is not None:
        raise errors.StoreError(f"{path} is damaged ({fault}): nothing was merged")


_VERSIONS = {
    OWN_FILE: formats.OWN_STORE.version,
    "turns.sqlite": formats.TURNS.version,
    "archive.sqlite": formats.ARCHIVE.version,
}


def _require_ours(path: Path, name: str) -> None:
    """Refuse a file that noctuary never makes: too much at once, or tables that compute."""
    if path.name not in _VERSIONS:
        if path.stat().st_size > _MOST_TOLD_BYTES:
            raise errors.StoreError(f"{name} is too large: nothing was merged")
        return
    try:
        with closing(open_foreign(path, WAIT_S)[0]) as db:
            fault = _find_fault(db, _VERSIONS[path.name])
    except sqlite3.Error as error:
        fault = f"it cannot be read: {type(error).__name__}"
    if fault is not None:
        raise errors.StoreError(f"{name} of the other home was refused: {fault}")


def _find_fault(db: sqlite3.Connection, version: int) -> str | None:
    if db.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
        return "it is damaged"
    (found,) = db.execute("PRAGMA user_version").fetchone()
    if found > version:
        return f"it has format {found}, expected {version}; {formats.UPDATE}"
    sql = "SELECT name, type, sql FROM sqlite_master WHERE type IN ('table', 'view')"
    for name, kind, made in db.execute(sql).fetchall():
        if str(name).startswith("memories_fts"):
            continue  # is never read
        columns = db.execute("SELECT hidden FROM pragma_table_xinfo(?)", (name,))
        if not str(made).upper().startswith("CREATE TABLE") or any(h for (h,) in columns):
            return f"it has a {kind} that noctuary never makes"
    return None


def _find_origin(directory: Path) -> Path:
    """Return where a home lay when its stores got their names, as far as it says so."""
    for current in sorted(directory.glob("*/CURRENT")):
        paths = StorePaths(current.parent)
        try:
            made = read_manifest(paths.snapshots / read_pointer(paths).snapshot_id)
        except errors.NoctuaryError:
            continue
        location = Path(str(made.source.get("location")))
        if location.name in (OWN_FILE, CONFIG_FILE_NAME):
            return location.parent
    return directory.absolute()


def _match_stores(
    home: Path, origin: Path, found: Mapping[str, Any]
) -> tuple[dict[str, Path], list[str]]:
    """Return which store here stands for each store there, and notes about those without one."""
    nights = {backups.name_own_store(home), backups.name_own_store(origin)}
    nights.add(store_for_source(origin, origin / CONFIG_FILE_NAME).name)
    stores, notes = dict[str, Path](), list[str]()
    for name in sorted({path.partition("/")[0] for path in found if "/" in path}):
        if name in nights:
            stores[name] = _night_store(home)
        elif (home / name).is_dir():
            stores[name] = home / name
        else:
            notes.append(f"{name} was left out: this home has no store of that source")
    return stores, notes


def _night_store(home: Path) -> Path:
    """Return the store of nights that read the own store."""
    return store_for_source(home, find_night_source(home, Settings.load(home=home)))


def _stores_of_own(home: Path) -> list[Path]:
    """Return the stores that may show rows of the own store; the first is the one of nights now."""
    night, own = _night_store(home), home / backups.name_own_store(home)
    return [night, *([own] if own != night and own.is_dir() else ())]


# The own store: a plan, tombstones first, then one transaction; what goes is forgotten as by
# `noctuary forget`, once the copies are gone: its search for what is left would find them.


class _Plan(NamedTuple):
    staged: _Staged
    here: OwnRows
    there: OwnRows
    digests: frozenset[str]  # of the tombstones of both homes
    rows: Merging

    def told(self, *, dry_run: bool = False) -> Merged:
        """Return it as it is reported."""
        name, home = self.staged.name, self.there.home
        return Merged(name, home, dry_run, self.rows, self.there.refused, self.staged.notes)


def _plan(home: Path, staged: _Staged) -> _Plan:
    corpus = Settings.load(home=home).corpus
    here, there = (
        read_own_rows(home / OWN_FILE, corpus),
        read_own_rows(staged.root / OWN_FILE, corpus),
    )
    stones = [read_tombstones(staged.root / name) for name in staged.stores]
    stones += [read_tombstones(root) for root in _stores_of_own(home)]
    digests = frozenset(digest for one in stones for digest in one.rows)
    return _replan(_Plan(staged, here, there, digests, other_home.NO_PLAN), here)


def _replan(plan: _Plan, here: OwnRows) -> _Plan:
    def is_forgotten(record: MemoryRecord, first: int) -> bool:
        ids = (record.memory_id, f"{OWN_PREFIX}{record.memory_id}", str(first))
        found = (d for one in ids for d in row_digests(record._replace(memory_id=one)))
        return not plan.digests.isdisjoint(found)

    return plan._replace(here=here, rows=other_home.plan_rows(here, plan.there, is_forgotten))


def _hide(home: Path, staged: _Staged) -> None:
    """Take over the tombstones: what they name shows nowhere from now on."""
    own = backups.name_own_store(home)
    for name, root in staged.stores.items():
        there = read_tombstones(staged.root / name)
        stones = Tombstones(rows=there.rows, texts=there.texts)
        if stones == NOTHING_FORGOTTEN:
            continue
        for place in _stores_of_own(home) if root == _night_store(home) else [root]:
            with ExitStack() as held:
                held.enter_context(hold_lock(StorePaths(place).lock))
                held.enter_context(hold_lock(place / FORGET_LOCK))
                forget_again(place, stones, home / OWN_FILE, is_of_own=place.name == own)


def _write_rows(home: Path, plan: _Plan) -> _Plan:
    path, corpus, done = home / OWN_FILE, Settings.load(home=home).corpus, [plan]
    if plan.there == other_home.NO_ROWS:
        return plan

    def change(db: sqlite3.Connection) -> int:
        done.append(_replan(plan, read_own_rows(path, corpus)))
        return other_home.write_rows(db, done[-1].here, plan.there, done[-1].rows)

    change_rows(path, change, WAIT_S)
    return done[-1]


def _forget(home: Path, plan: _Plan) -> Iterator[str]:
    """Forget the rows that the other home forgot or deleted; yield how far that went."""
    records = [plan.here.memories[number] for number in plan.rows.gone]
    settings, own = Settings.load(home=home), backups.name_own_store(home)
    for place in _stores_of_own(home) if records else ():
        prefix = "" if place.name == own else OWN_PREFIX
        shown = [r._replace(memory_id=f"{prefix}{r.memory_id}") for r in records]
        source = find_source(StorePaths(place), settings)
        memories = tuple(PlannedMemory(record, (OWN,)) for record in shown)
        done = apply_forget(Plan(place, None if source is None else str(source), memories))
        yield from (done.message, *done.warnings)
