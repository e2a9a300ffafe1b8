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
from noctuary.compact.archive_apply import take_plans
from noctuary.core import errors, files, formats
from noctuary.core.manifest import read_manifest, read_pointer
from noctuary.core.settings import CONFIG_FILE_NAME, Settings
from noctuary.core.sqlite import open_foreign
from noctuary.core.store import MANIFEST_FILE, OWN_PREFIX, StorePaths, find_home, store_for_source
from noctuary.core.tombstones import (
    NOTHING_FORGOTTEN,
    TOMBSTONES_FILE,
    Tombstones,
    read_tombstones,
    row_digests,
)
from noctuary.core.types import SILENT, MemoryRecord, Progress, content_hash
from noctuary.evaluate.labels import ADVERSARIAL_FILE, QUERIES_FILE, join_labels
from noctuary.snapshot.forget import FORGET_LOCK, Forgetting, apply_forget, forget_again
from noctuary.snapshot.forget_plan import OWN, Plan, PlannedMemory, find_source
from noctuary.sources import other_home
from noctuary.sources.other_home import (
    Merging,
    OwnRows,
    TurnsMerged,
    merge_turns,
    read_own_rows,
)
from noctuary.sources.own_store import OWN_FILE, WAIT_S, change_rows, find_night_source
from noctuary.text.marks import visible_line
from noctuary.work.lock import hold_lock

_SHOWN, _SHOWN_CHARS = 20, 120  # texts of each kind in a plan


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
    rows = done.rows
    yield from done.shown
    counts = (
        (len(rows.new), "new"),
        (len(rows.changed), "edited there"),
        (len(rows.gone), "forgotten there, so here"),
        (rows.stayed_out, "left out: forgotten or kept back here"),
        (done.refused, "left out: secrets, or no memories"),
        (done.turns.new, "new turns"),
        (done.turns.gone, "turns forgotten there, so here"),
        (done.turns.refused, "turns left out: secrets, or forgotten"),
        (done.archived, "archived there, so here"),
        (done.labels, "labelled queries new or changed"),
    )
    for conflict in rows.conflicts:
        kept, lost = conflict.here, conflict.there
        if conflict.kept == "there":
            kept, lost = lost, kept
        yield f"[{conflict.id}] was edited in both; the later text stays: {_short(kept)}"
        yield f"    the other one was: {_short(lost)}"
    told = [f"{count:,} {what}" for count, what in counts if count]
    yield f"{done.name}: {'; '.join(told) or 'nothing that is not here already'}"
    yield from done.forgetting
    if done.dry_run:
        yield "Nothing was changed: leave out --dry-run to merge."
    elif not (rows.is_idle and done.turns == TurnsMerged()):
        yield cli.as_called("`noctuary nightly` lets the graph and summaries know it too")


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
    turns: TurnsMerged = TurnsMerged()
    archived: int = 0  # entries of the archive
    labels: int = 0  # labelled queries that are new or have new answers
    warnings: Sequence[str] = ()
    forgetting: Sequence[str] = ()  # how far what was forgotten there is gone here
    shown: Sequence[str] = ()  # the first texts that a plan would add, change and forget

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        rows = self.rows._asdict()
        del rows["same"]
        conflicts = [conflict._asdict() for conflict in self.rows.conflicts]
        ids = {str(here): there for here, there in self.rows.changed.items()}
        rows["new"] = {
            str(there): None if self.dry_run else self.rows.same.get(there)
            for there in self.rows.new
        }
        told = {**self._asdict(), **rows, "changed": ids, "conflicts": conflicts}
        told["turns"] = self.turns._asdict()
        del told["rows"]
        del told["shown"]
        return {**told, "warnings": list(self.warnings), "forgetting": list(self.forgetting)}


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
        for left in home.glob(f"{_SCRATCH}*") if not dry_run else ():
            files.remove_tree(left)  # of one that was killed
        with _staged(home, other, backup, progress) as staged:
            plan = _plan(home, staged)
            if dry_run:  # new rows have no numbers yet
                plan = plan._replace(rows=plan.rows.as_if_written())
            else:
                _hide(home, staged)
                plan = _write_rows(home, plan)
            told = Merged(staged.name, plan.there.home, dry_run, plan.rows, plan.there.refused)
            told = _merge_stores(home, plan, told)
            labels, faults = _merge_labels(home, plan, dry_run=dry_run)
        done = [] if dry_run else list(_forget(home, plan))
        faults += tuple(warning for one in done for warning in one.warnings)
        return told._replace(
            labels=labels,
            warnings=(*staged.notes, *faults),
            forgetting=[one.message for one in done],
            shown=_show(plan) if dry_run else (),
        )


def _show(plan: _Plan) -> list[str]:
    here, there = plan.here.memories, plan.there.memories
    groups = (
        ("+", [there[number] for number in plan.rows.new]),
        ("~", [there[number] for number in plan.rows.changed.values()]),
        ("-", [here[number] for number in plan.rows.gone]),
    )
    lines = list[str]()
    for sign, found in groups:
        lines += [f"{sign} {_short(record.content)}" for record in found[:_SHOWN]]
        lines += [f"{sign} ... and {len(found) - _SHOWN:,} more"] if len(found) > _SHOWN else []
    return lines


# What is merged, copied into this home for the time of the merge: the other one may be changed
# meanwhile, and whoever made it may have meant no good. Nothing else of it is read.

_SCRATCH = ".merging-"
_OF_HOME = (OWN_FILE, QUERIES_FILE, ADVERSARIAL_FILE)
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
    with TemporaryDirectory(dir=home, prefix=_SCRATCH) as scratch:
        root = Path(scratch)
        if backups.list_backups(other):
            made = backups.choose_files(other, home, backup, None)
            name, origin = f"backup {made.name} of {made.home}", Path(made.home)
            found: dict[str, Any] = {n: e for n, e in made.files.items() if _is_wanted(n)}
            copy = _copy_of_backup(other)
        elif found := dict(_wanted_in(other)):
            if backup is not None:
                raise errors.StoreError(f"{other} is a home and has no backups: leave out --backup")
            name, origin = f"home {other}", _find_origin(other)
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
    return backups.is_kept(name) and (below in _OF_STORE if below else top in _OF_HOME)


def _wanted_in(directory: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files of a home that count, by their path below it; no link is followed."""
    own = [path for name in _OF_HOME if (path := directory / name).exists()]
    for path in (*own, *(p for name in _OF_STORE for p in directory.glob(f"*/{name}"))):
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
        _require_told(path)
        return
    try:
        with closing(open_foreign(path, WAIT_S)[0]) as db:
            fault = _find_fault(db, _VERSIONS[path.name])
    except sqlite3.Error as error:
        fault = f"it cannot be read: {type(error).__name__}"
    if fault is not None:
        raise errors.StoreError(f"{name} of the other home was refused: {fault}")


def _require_told(path: Path) -> None:
    """Refuse what cannot be read at once."""
    stat = path.lstat()
    if not S_ISREG(stat.st_mode) or stat.st_size > _MOST_TOLD_BYTES:
        raise errors.StoreError(f"{path.name} is too large, or no plain file: nothing was merged")


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
            _require_told(current)
            snapshot = paths.snapshots / read_pointer(paths).snapshot_id
            _require_told(snapshot / MANIFEST_FILE)
            made = read_manifest(snapshot)
        except (errors.NoctuaryError, OSError):
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

    def find(self, number: int) -> MemoryRecord | None:
        """Return the memory here for a number there; None unless both have the same version."""
        one = self.there.memories.get(number)
        mine = self.here.memories.get(self.rows.same.get(number, 0))
        return (
            mine if one and mine and other_home.version(one) == other_home.version(mine) else None
        )


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
        if not plan.digests:
            return False
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
    ids = dict[int, int]()
    if plan.there == other_home.NO_ROWS:
        return plan

    def change(db: sqlite3.Connection) -> int:
        # Others wait: the plan is made again only where somebody wrote since.
        if not plan.here.home or other_home.stamp_rows(db) != plan.here.stamp:
            done.append(_replan(plan, read_own_rows(path, corpus)))
        ids.update(other_home.write_rows(db, done[-1].here, plan.there, done[-1].rows))
        return len(ids)

    change_rows(path, change, WAIT_S)
    here, rows = done[-1].here, done[-1].rows
    now = {
        ids[number]: plan.there.memories[number]._replace(memory_id=str(ids[number]))
        for number in (*rows.new, *rows.changed.values())
    }
    memories = {**here.memories, **now}
    return done[-1]._replace(here=here._replace(memories=memories), rows=rows._replace(same=ids))


def _forget(home: Path, plan: _Plan) -> Iterator[Forgetting]:
    """Forget the rows that the other home forgot or deleted; yield how far that went."""
    gone = (plan.here.memories.get(number) for number in plan.rows.gone)
    records = [record for record in gone if record is not None]
    settings, own = Settings.load(home=home), backups.name_own_store(home)
    for place in _stores_of_own(home) if records else ():
        prefix = "" if place.name == own else OWN_PREFIX
        shown = [r._replace(memory_id=f"{prefix}{r.memory_id}") for r in records]
        source = find_source(StorePaths(place), settings)
        memories = tuple(PlannedMemory(record, (OWN,)) for record in shown)
        done = apply_forget(Plan(place, None if source is None else str(source), memories))
        yield done._replace(message=f"{place.name}: {done.message}")


# Turns, archive and labels. Their ids of the own store are those of this home afterwards.


def _merge_stores(home: Path, plan: _Plan, told: Merged) -> Merged:
    corpus, own = Settings.load(home=home).corpus, backups.name_own_store(home)
    for name, root in plan.staged.stores.items():
        place, paths = plan.staged.root / name, StorePaths(root)
        stones = [read_tombstones(one) for one in (place, root)]
        rows = frozenset(digest for one in stones for digest in one.rows)
        turns = merge_turns(
            paths.turns, place / "turns.sqlite", told.home, corpus, Tombstones(rows=rows),
            dry_run=told.dry_run,
        )  # fmt: skip
        counterpart = _counterparts(plan, "" if root.name == own else OWN_PREFIX)
        archived = take_plans(paths, place / "archive.sqlite", counterpart, dry_run=told.dry_run)
        sums = TurnsMerged(*map(sum, zip(told.turns, turns, strict=True)))
        told = told._replace(turns=sums, archived=told.archived + archived)
    return told


def _own_number(memory_id: str) -> int | None:
    """Return the number that an id of the own store has; None for other ids."""
    number = memory_id.removeprefix(OWN_PREFIX)
    return int(number) if number.isascii() and number.isdecimal() else None


def _counterparts(plan: _Plan, prefix: str) -> Any:
    """Return a function from id and content hash there to those here, None where none holds."""

    def find(memory_id: str, known: str) -> tuple[str, str] | None:
        number = _own_number(memory_id)
        if number is None:
            return memory_id, known  # ids of turns and of other sources are the same everywhere
        one, mine = plan.there.memories.get(number), plan.find(number)
        if one is None or mine is None or content_hash(one._replace(memory_id=memory_id)) != known:
            return None
        made = mine._replace(memory_id=f"{prefix}{mine.memory_id}")
        return made.memory_id, content_hash(made)

    return find


def _merge_labels(home: Path, plan: _Plan, *, dry_run: bool) -> tuple[int, tuple[str, ...]]:
    """Add the labelled queries of the other home; return how many, and why there are none."""
    prefix = "" if _night_store(home).name == backups.name_own_store(home) else OWN_PREFIX

    def translate(memory_id: str) -> str | None:
        number = _own_number(memory_id)
        if number is None:
            return memory_id
        mine = plan.rows.same.get(number)
        return None if mine is None else f"{prefix}{mine}"

    try:
        count, texts = join_labels(home, plan.staged.root, translate)
    except errors.NoctuaryError as error:
        return 0, (f"labelled queries were not merged: {error}",)
    for path, text in texts.items() if not dry_run else ():
        files.write_text(path, text)
    return count, ()
