"""`noctuary backup` and `restore`: what no night makes again, kept in another directory."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from stat import S_ISREG
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import click

from noctuary.cli import main as cli
from noctuary.core import errors, files, formats
from noctuary.core.foreign_json import parse_json
from noctuary.core.manifest import quick_check, read_manifest, read_pointer, write_pointer
from noctuary.core.settings import CONFIG_FILE_NAME, Settings
from noctuary.core.sqlite import connect_immutable, directory_lock, name_fault, open_foreign
from noctuary.core.store import StorePaths, find_home, find_store, store_for_source
from noctuary.core.tombstones import TOMBSTONES_FILE, read_tombstones
from noctuary.core.types import SILENT, Progress
from noctuary.snapshot.forget import FORGET_LOCK, forget_again
from noctuary.sources.own_store import OWN_FILE
from noctuary.work.lock import hold_lock

# The two commands.


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@cli.option(
    "--keep N",
    "Then remove all but the newest N backups of this home [default: all stay].",
    type=cli.AT_LEAST_1,
)
@cli.option("--store STORE", "Only this store and the home's own files [default: every store].")
@cli.json_option
def backup(directory: Path, keep: int | None, store: str | None) -> None:
    """Back up into DIRECTORY what no night makes again, and the current snapshots.

    Nights, recalls and `noctuary remember` may run meanwhile. What DIRECTORY has already is not
    copied again. A backup that is interrupted leaves the former ones usable.

    \b
    noctuary backup /mnt/disk/noctuary --keep 30
    noctuary restore /mnt/disk/noctuary

    Exit codes: 0 done; 1 failed, or done and something is damaged; 4 another backup writes to
    DIRECTORY.
    """  # noqa: D301 (click wants the control character)
    home = find_home()
    found = back_up(home, _choose(home, store), directory, keep, cli.ScanProgress())
    lines = [
        f"backup {found.backup} in {directory}: {found.files} files, {found.bytes / 2**20:.1f} MiB",
        f"copied now: {found.new_files} files, {found.new_bytes / 2**20:.1f} MiB",
        *(f"removed backup {name}" for name in found.removed),
    ]
    cli.tell(found._asdict(), lines, found.warnings)
    if found.warnings:
        sys.exit(cli.EXIT_FAILED)


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@cli.option("--backup TIME", "Which backup, or the beginning of its name [default: the newest].")
@cli.option("--store STORE", "Only this store of the backup, or the beginning of its name.")
@cli.option(
    "--home HOME", "Where to restore [default: noctuary's home].", type=click.Path(path_type=Path)
)
@cli.flag("--replace", "Move what is in the way aside, within the home.")
@cli.flag("--dry-run", "Check every byte of the backup, and write nothing.")
@cli.json_option
def restore(directory: Path, backup: str | None, store: str | None, home: Path | None,
            replace: bool, dry_run: bool) -> None:  # fmt: skip
    """Put a backup from DIRECTORY back into noctuary's home.

    Every byte is checked before anything is written. If a store or file is there already, nothing
    is restored: see --replace. DIRECTORY/backups lists the backups.

    Recall answers at once. Nights make the rest again.

    Exit codes: 0 done; 1 nothing was restored; 4 a night or another command is at work there.
    """
    target = (home or find_home()).absolute()
    chosen = choose_files(directory, target, backup, store)
    found = restore_files(directory, target, chosen, replace, dry_run, cli.ScanProgress())
    done = "is whole" if dry_run else f"is restored to {target}"
    lines = [f"backup {chosen.name} {done}: {found.files} files, {found.bytes / 2**20:.1f} MiB"]
    if found.replaced:
        lines.append(f"what was there lies in {found.replaced}: remove it when you need it no more")
    cli.tell(found._asdict(), lines, found.warnings)


def _choose(home: Path, store: str | None) -> list[Path]:
    """Return the stores to back up."""
    if store is not None:
        root, _ = find_store(store, home=home)
        if not root.is_dir():
            raise errors.StoreError(f"there is no store at {root}: `noctuary stores` lists them")
        return [root]
    signs = ("CURRENT", "work", "turns.sqlite")
    roots = {path.parent for sign in signs for path in home.glob(f"[!.]*/{sign}")}
    if os.environ.get("NOCTUARY_STORE", "").strip():
        roots.add(find_store(None, home=home)[0])
    return sorted(root for root in roots if root.is_dir())


# What a backup is. DIRECTORY/objects has the contents of files, each named by its SHA-256, and
# DIRECTORY/backups a manifest for each backup, which is written last (docs/backup.md).

FORMAT, FORMAT_VERSION = "noctuary-backup", formats.BACKUP.version
MANIFESTS, OBJECTS = "backups", "objects"
_MOST_MANIFEST_BYTES = 64 * 2**20  # a real one has some 200 for each file

HOME_FILES = (OWN_FILE, "*.toml", "*.jsonl")
"""Of the home itself: memories, settings, labels beside the own store."""
REBUILT = frozenset(
    [
        "work",
        "lance",
        "dagster",
        "candidates",
        "reports",
        "nightly.lock",
        "ledger.json",
        "hashes.json",
        "quiet.json",
    ]
)
"""Of a store, what the next night makes again. Whatever else lies there may be all there is."""
FOLDED = "work/usage/folded.json"  # counts recalls that the access log has forgotten
OF_SQLITE = ("-wal", "-shm", "-journal")  # is in the copy of the database


class Entry(NamedTuple):
    """One file of a backup."""

    bytes: int
    sha256: str  # and the name of its object
    mtime_ns: int


class Backup(NamedTuple):
    """What one backup holds."""

    name: str  # UTC, to the microsecond
    home: str  # what it was made of
    own_store: str  # name of the store that is built from the own store
    files: Mapping[str, Entry]  # by path below a home


def is_kept(name: str) -> bool:
    """Say whether a backup may hold a file, by its path below a home; none leads out of it."""
    top, _, below = name.partition("/")
    if any(odd in f"/{name}/" for odd in ("//", "/.")) or not name.isprintable():
        return False
    if not below:
        return any(fnmatchcase(name, pattern) for pattern in HOME_FILES)
    is_rebuilt = below.partition("/")[0] in REBUILT and below != FOLDED
    return top != "hooks" and not is_rebuilt and not name.endswith(OF_SQLITE)


def list_backups(directory: Path) -> list[str]:
    """Return the names of all complete backups, oldest first."""
    found = (path.stem for path in (directory / MANIFESTS).glob("*.json"))
    return sorted(name for name in found if re.fullmatch(r"\d{8}T\d{12}", name))


def read_backup(directory: Path, name: str) -> Backup:
    """Read a manifest, and refuse one that no backup writes."""
    path, made = directory / MANIFESTS / f"{name}.json", None
    version: Any = None
    try:
        stat = path.lstat()
        is_read = S_ISREG(stat.st_mode) and stat.st_size <= _MOST_MANIFEST_BYTES
        raw: Any = parse_json(path.read_text(encoding="utf-8")) if is_read else None
        version, body = (raw["format"], raw["format_version"]), raw["backup"]
        entries = {str(n): Entry(**entry) for n, entry in body["files"].items()}
        if raw["digest"] == files.hash_json(body) and all(map(_is_sound, entries.values())):
            made = Backup(name, str(body["home"]), str(body["own_store"]), entries)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    if version not in (None, (FORMAT, FORMAT_VERSION)):
        raise errors.StoreError(
            f"{path} is of format {version}, expected {(FORMAT, FORMAT_VERSION)}: use the noctuary "
            "that made it"
        )
    if made is None:
        raise errors.StoreError(f"{path} is damaged or no backup: {_older(directory, name)}")
    if odd := [name for name in made.files if not is_kept(name)]:
        raise errors.StoreError(f"{path} names {odd[0]!r}, which no backup holds: nothing was done")
    return made


def _is_sound(entry: Entry) -> bool:
    is_numbered = type(entry.bytes) is type(entry.mtime_ns) is int and entry.bytes >= 0
    is_named = re.fullmatch(r"[0-9a-f]{64}", entry.sha256) is not None
    return is_numbered and is_named and 0 <= entry.mtime_ns < 2**63


def _older(directory: Path, name: str) -> str:
    older = [other for other in list_backups(directory) if other < name]
    return f"try an older one, --backup {older[-1]}" if older else "there is no older one"


def holds(directory: Path, entry: Entry) -> bool:
    """Say whether an object is there, byte for byte."""
    path = directory / OBJECTS / entry.sha256
    try:
        stat = path.lstat()
        is_alike = S_ISREG(stat.st_mode) and stat.st_size == entry.bytes
        return is_alike and files.hash_file(path) == entry.sha256
    except OSError:
        return False


class ChangedError(Exception):
    """A file is not what it was a moment ago."""


def copy_object(source: Path, target: Path, entry: Entry) -> None:
    """Copy a file durably; one with another digest is not put in place, and a ChangedError."""
    with files.replacement(target) as tmp:
        shutil.copyfile(source, tmp)
        if files.hash_file(tmp) != entry.sha256:
            raise ChangedError(source)


# Making a backup.

_TRIES = 5
_WAIT_S = 30.0  # for others who hold a database


class BackedUp(NamedTuple):
    """The result of a backup; warnings name damaged files."""

    backup: str
    stores: Sequence[str]
    files: int
    bytes: int
    new_files: int  # those that the directory did not have yet
    new_bytes: int
    removed: Sequence[str]  # older backups
    warnings: Sequence[str]


def back_up(
    home: Path, stores: Sequence[Path], directory: Path, keep: int | None = None,
    progress: Progress = SILENT,
) -> BackedUp:  # fmt: skip
    """Back up the own files of a home and stores; with `keep`, remove older backups of the home."""
    directory = directory.absolute()
    for root in (home, *stores):
        if root.resolve() in (directory.resolve(), *directory.resolve().parents):
            raise errors.StoreError(f"{directory} lies in {root}: name another disk")
    if directory.exists() and not (directory / MANIFESTS).is_dir() and any(directory.iterdir()):
        raise errors.StoreError(f"{directory} has something else in it: name a new directory")
    if len({root.name for root in stores}) < len(stores):
        raise errors.StoreError("two stores have one name: back up one by one, with --store")
    if odd := [root for root in stores if not is_kept(f"{root.name}/CURRENT")]:
        raise errors.StoreError(f"no backup holds a store with the name of {odd[0]}: rename it")
    for place in (MANIFESTS, OBJECTS):
        files.make_directory(directory / place)
    busy = "another backup (process {}) writes to {}: wait for it"
    with hold_lock(directory / "backup.lock", lambda holder: busy.format(holder, directory)):
        files.remove_temporary_files(directory)
        for left in directory.glob(".copy-*"):
            files.remove_tree(left)
        return _back_up(home, stores, directory, keep, progress)


def _back_up(
    home: Path, stores: Sequence[Path], directory: Path, keep: int | None, progress: Progress
) -> BackedUp:
    for _ in range(_TRIES):
        with TemporaryDirectory(dir=directory, prefix=".copy-") as scratch:
            copying = _Copying(directory, Path(scratch), progress)
            try:
                found = {n: path for root in stores for n, path in copying.find(root).items()}
                # Memories last: then a snapshot knows none that they lack.
                own = sorted(home.iterdir()) if home.is_dir() else []
                found |= {p.name: p for p in own if p.is_file() and is_kept(p.name)}
                entries = copying.copy(found)
                break
            except (FileNotFoundError, ChangedError):
                continue  # a night removed a snapshot, or somebody saved a file
    else:
        raise errors.StoreError(f"{home} changed all the time, so nothing was backed up: try again")
    if not entries:
        raise errors.StoreError(f"{home} has nothing to back up: `noctuary stores` names the home")
    warnings, removed = copying.warnings, list[str]()
    made = Backup(_next_name(directory), str(home), name_own_store(home), entries)
    _write_manifest(directory, made)
    if keep is not None and warnings:
        warnings.append("no older backup was removed: it may have whole what is damaged now")
    elif keep is not None:
        try:
            removed = _prune(directory, made.home, keep)
        except errors.StoreError as error:
            warnings.append(f"no older backup was removed, because one may need its files: {error}")
    size = sum(entry.bytes for entry in entries.values())
    new = copying.new
    counts = (len(entries), size, len(new), sum(new))
    return BackedUp(made.name, [root.name for root in stores], *counts, removed, warnings)


def name_own_store(home: Path) -> str:
    """Return the name of the store that nights make of the own store of a home."""
    return store_for_source(home, home / OWN_FILE).name


class _Copying:
    """One attempt at a backup, and the faults that it found."""

    def __init__(self, directory: Path, scratch: Path, progress: Progress) -> None:
        self.warnings: list[str] = []
        self.new: list[int] = []  # sizes in bytes of the objects that it wrote
        self._directory, self._scratch, self._progress = directory, scratch, progress
        self._expected: dict[str, str] = {}  # digests of snapshots' files, by their manifests

    def find(self, root: Path) -> dict[str, Path]:
        """Return what to keep of a store, by path below a home, in the order to copy it."""
        paths, found = StorePaths(root), list[tuple[str, Path]]()
        try:
            found += self._find_serving(paths)
        except errors.SnapshotMissingError:
            pass  # no night has published yet
        except errors.SnapshotCorruptError as error:
            self.warnings.append(f"no snapshot of {root.name} is backed up: {error}")
        # Before the log that it sums up: it must not know of recalls that the log lacks.
        others = [root / FOLDED]
        for top in sorted(root.iterdir()):
            is_serving = top in (paths.current, paths.snapshots, paths.encoders)
            if not is_serving and is_kept(f"{root.name}/{top.name}"):
                others += (top, *sorted(top.rglob("*")))
        found += [(path.relative_to(root).as_posix(), path) for path in others if path.is_file()]
        return {f"{root.name}/{n}": path for n, path in found if is_kept(f"{root.name}/{n}")}

    def _find_serving(self, paths: StorePaths) -> Iterator[tuple[str, Path]]:
        """Yield pointer, snapshot and encoder; of the pointer as it is now, and not later."""
        pointer, name = read_pointer(paths), paths.root.name
        snapshot = paths.snapshots / pointer.snapshot_id
        try:
            made = read_manifest(snapshot)
            quick_check(snapshot, made)
        except errors.SnapshotCorruptError:
            if read_pointer(paths) != pointer:
                raise ChangedError from None
            raise
        copy = StorePaths(self._scratch / name)
        write_pointer(copy, pointer)
        time_ns = paths.current.stat().st_mtime_ns
        os.utime(copy.current, ns=(time_ns, time_ns))
        yield copy.current.name, copy.current
        lean, export = (paths.encoders / f"{made.encoder_digest}{end}" for end in ("", ".onnx"))
        for place in (snapshot, lean if lean.is_dir() else export):
            for path in sorted(place.rglob("*")):
                yield path.relative_to(paths.root).as_posix(), path
        prefix = f"{name}/{snapshot.relative_to(paths.root).as_posix()}"
        self._expected |= {f"{prefix}/{n}": entry.sha256 for n, entry in made.files.items()}

    def copy(self, found: Mapping[str, Path]) -> dict[str, Entry]:
        """Put every file among the objects."""
        entries: dict[str, Entry] = {}
        for done, (name, path) in enumerate(found.items(), start=1):
            entries[name] = self._copy_file(name, path)
            self._progress.update("backup", done, len(found))
        for name in [n for n, sha256 in self._expected.items() if entries[n].sha256 != sha256]:
            store = name.partition("/")[0]
            self.warnings.append(f"no snapshot of {store} is backed up: {name} is damaged")
            gone = (f"{store}/CURRENT", f"{store}/snapshots/")
            entries = {n: entry for n, entry in entries.items() if not n.startswith(gone)}
        return entries

    def _copy_file(self, name: str, path: Path) -> Entry:
        time_ns, source = path.stat().st_mtime_ns, path
        # Snapshots are never written to, and their bytes must keep the manifest's hashes.
        if "/snapshots/" not in name and _is_sqlite(path):
            source = self._scratch / "copy.sqlite"
            if (fault := copy_database(path, source)) is not None:
                self.warnings.append(f"{name} is damaged ({fault}) and backed up as it is")
        entry = Entry(source.stat().st_size, files.hash_file(source), time_ns)
        if not holds(self._directory, entry):
            copy_object(source, self._directory / OBJECTS / entry.sha256, entry)
            self.new.append(entry.bytes)
        return entry


def _is_sqlite(path: Path) -> bool:
    # By its name as well: the first bytes may be what is damaged.
    with path.open("rb") as handle:
        return path.suffix == ".sqlite" or handle.read(16) == b"SQLite format 3\0"


def copy_database(path: Path, target: Path) -> str | None:
    """Copy a database as it is at one moment, while others write; return what is wrong with it."""
    target.unlink(missing_ok=True)
    files.create_private(target)
    try:
        old, new = open_foreign(path, _WAIT_S)[0], sqlite3.connect(target, isolation_level=None)
        with closing(old), closing(new):
            new.execute("PRAGMA journal_mode=OFF")
            new.execute("PRAGMA synchronous=OFF")
            old.backup(new)
        with closing(connect_immutable(target)) as copy:
            is_sound = copy.execute("PRAGMA quick_check(1)").fetchone() == ("ok",)
    except sqlite3.Error as error:
        kind, fault = name_fault(error)
        if not path.exists():
            raise ChangedError from None
        if kind != "damaged":
            told = f"{path} cannot be read ({fault}): see who holds it, and its permissions"
            raise errors.StoreError(told) from None
        shutil.copyfile(path, target)
        return fault
    return None if is_sound else "SQLITE_CORRUPT"


def _next_name(directory: Path) -> str:
    """Return the time now; where the clock was set back, one later than every backup."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
    later = [f"{name[:9]}{int(name[9:]) + 1:012d}" for name in list_backups(directory)[-1:]]
    return max([now, *later])


def _write_manifest(directory: Path, made: Backup) -> None:
    entries = {name: entry._asdict() for name, entry in sorted(made.files.items())}
    body = {"home": made.home, "own_store": made.own_store, "files": entries}
    told = {"format": FORMAT, "format_version": FORMAT_VERSION, "digest": files.hash_json(body)}
    text = json.dumps({**told, "backup": body}, indent=1)
    files.write_text(directory / MANIFESTS / f"{made.name}.json", text + "\n")


def _prune(directory: Path, home: str, keep: int) -> list[str]:
    """Remove older backups of a home, then the objects that none needs; return which."""
    held = {name: read_backup(directory, name) for name in list_backups(directory)}
    gone = [name for name, one in held.items() if one.home == home][:-keep]
    for name in gone:
        (directory / MANIFESTS / f"{name}.json").unlink()
    files.fsync_dir(directory / MANIFESTS)
    needed = {e.sha256 for n, one in held.items() if n not in gone for e in one.files.values()}
    for path in (directory / OBJECTS).iterdir():
        if path.name not in needed:
            path.unlink()
    return gone


# Restoring one.


class Restored(NamedTuple):
    """What was restored, or would be."""

    backup: str
    home: str
    stores: Sequence[str]
    files: int
    bytes: int
    replaced: str | None = None  # where what was in the way lies now
    warnings: Sequence[str] = ()


def choose_files(directory: Path, home: Path, name: str | None, store: str | None) -> Backup:
    """Return a backup, the newest by default, or one store of it, as it fits into a home."""
    known = list_backups(directory)
    if not known:
        told = f"there is no backup in {directory}: name what `noctuary backup` wrote to"
        raise errors.StoreError(told)
    made = read_backup(directory, _pick(known, name, "backups") if name else known[-1])
    stores = sorted({n.partition("/")[0] for n in made.files if "/" in n})
    if store is not None:
        stores = [_pick(stores, store, "stores")]
    # The store of the own store is named after its path, and a new home has another.
    own = name_own_store(home)
    moved = {made.own_store: own} if own not in stores else {}
    chosen: dict[str, Entry] = {}
    for path, entry in made.files.items():
        top, slash, below = path.partition("/")
        if top in stores or (store is None and not slash):
            chosen[f"{moved.get(top, top)}{slash}{below}" if slash else top] = entry
    return made._replace(files=chosen)


def _pick(known: Sequence[str], begin: str, what: str) -> str:
    found = [begin] if begin in known else [one for one in known if one.startswith(begin)]
    if len(found) != 1:
        there = ", ".join(known[-9:]) or "none"
        raise errors.StoreError(f"{len(found)} {what} begin with {begin!r}; there are {there}")
    return found[0]


def restore_files(
    directory: Path, home: Path, chosen: Backup, may_replace: bool = False, dry_run: bool = False,
    progress: Progress = SILENT,
) -> Restored:  # fmt: skip
    """Check every byte, then write; each store and each file of the home appears whole."""
    tops = sorted({name.partition("/")[0] for name in chosen.files})
    there = [top for top in tops if _has_something(home / top)]
    if there and not (may_replace or dry_run):
        raise errors.StoreError(
            f"{home} has {', '.join(there)} already, so nothing was restored. Pass --replace to "
            "move that aside, or --home to restore elsewhere"
        )
    damaged: list[str] = []
    for done, (name, entry) in enumerate(chosen.files.items(), start=1):
        damaged += [] if holds(directory, entry) else [name]
        progress.update("check", done, len(chosen.files))
    if damaged:
        raise errors.StoreError(
            f"backup {chosen.name} has {len(damaged)} files missing or damaged, so nothing was "
            f"restored: {', '.join(damaged[:5])}; {_older(directory, chosen.name)}"
        )
    size = sum(entry.bytes for entry in chosen.files.values())
    stores = [top for top in tops if top not in chosen.files]
    found = Restored(chosen.name, str(home), stores, len(chosen.files), size)
    if dry_run:
        return found
    files.make_directory(home)
    try:
        with directory_lock(home):
            aside, told = _write(directory, home, chosen, there, progress)
    except BlockingIOError:
        raise errors.StoreLockedError(f"another command writes to {home}: try again") from None
    warnings = (*told, *(_look_at_settings(home) if CONFIG_FILE_NAME in tops else ()))
    return found._replace(replaced=str(aside) if there else None, warnings=warnings)


def _has_something(path: Path) -> bool:
    return any(path.iterdir()) if path.is_dir() else path.is_symlink() or path.exists()


def _write(
    directory: Path, home: Path, chosen: Backup, there: Sequence[str], progress: Progress
) -> tuple[Path, list[str]]:
    """Write all into one place, then put it where it belongs.

    Returns where the former one is kept, and messages about forgotten memories.
    """
    staged, aside = home / ".restoring", home / f".replaced-{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
    files.remove_tree(staged)
    try:
        for done, (name, entry) in enumerate(chosen.files.items(), start=1):
            target = staged / name
            copy_object(directory / OBJECTS / entry.sha256, target, entry)
            os.utime(target, ns=(entry.mtime_ns, entry.mtime_ns))
            target.chmod(0o400 if "/snapshots/" in name else 0o600)
            progress.update("restore", done, len(chosen.files))
        for path in (staged, *(p for p in staged.rglob("*") if p.is_dir())):
            files.fsync_dir(path)
        with ExitStack() as nights:
            for top in there:
                if (home / top).is_dir():
                    nights.enter_context(hold_lock(StorePaths(home / top).lock))
            told = list(_keep_forgotten(home, staged, nights))
            for top in sorted({name.partition("/")[0] for name in chosen.files}):
                _move_aside(home / top, aside)
                (staged / top).rename(home / top)
        files.fsync_dir(home)
    except ChangedError:
        told = f"{directory} changed meanwhile, so nothing was restored: try again"
        raise errors.StoreError(told) from None
    finally:
        files.remove_tree(staged)
    return aside, told


def _keep_forgotten(home: Path, staged: Path, locks: ExitStack) -> Iterator[str]:
    """Forget again what was forgotten since the backup; yield messages for the user."""
    is_own_staged = (staged / OWN_FILE).is_file()
    own = (staged if is_own_staged else home) / OWN_FILE
    for place in sorted(path.parent for path in home.glob(f"[!.]*/{TOMBSTONES_FILE}")):
        root = staged / place.name
        if not root.is_dir():
            if not is_own_staged:
                continue  # neither the store nor what it is made of is replaced
            root = place
            locks.enter_context(hold_lock(StorePaths(place).lock))
        locks.enter_context(hold_lock(place / FORGET_LOCK))
        try:
            former, is_of_own = read_tombstones(place), place.name == name_own_store(home)
            count = forget_again(root, former, own, is_of_own=is_of_own)
        except errors.NoctuaryError as error:
            yield f"what {place.name} forgot since the backup may be back: {error}"
            continue
        if count:
            yield (
                f"memories of {place.name} that were forgotten since the backup: {count:,} stay "
                "hidden, and the next night or `noctuary forget --apply` purges them"
            )


def _move_aside(place: Path, aside: Path) -> None:
    """Move the old file aside, with SQLite's -wal and -shm, which do not belong to the new one."""
    for path in (place, *(place.with_name(place.name + ending) for ending in OF_SQLITE)):
        if _has_something(path):
            files.make_directory(aside)
            path.rename(aside / path.name)


def _look_at_settings(home: Path) -> Iterator[str]:
    """Yield commands and addresses in restored settings: a stranger may have changed the backup."""
    try:
        notify = Settings.load(home / CONFIG_FILE_NAME, environ={}).notify
    except errors.ConfigError as error:
        yield str(error)
    else:
        for key, value in notify._asdict().items():
            if value:
                yield f"the restored {CONFIG_FILE_NAME} sets notify.{key} to {value!r}: check it"
