"""The ledger: size, time and hash of every file of a store when the last night ended."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from noctuary.core.files import hash_json, remove_tree, write_text
from noctuary.core.sqlite import WAIT_S, open_foreign
from noctuary.core.store import StorePaths
from noctuary.work.stage import hash_settled, load_hashes, save_hashes

LEDGER = "ledger.json"

# States. Any difference from a closed ledger is damage.
_CLOSED = "closed"  # the last night ended
_OPEN = "open"  # a night runs or was killed: files with another mtime may be its work
_UNSURE = "unsure"  # as open, of a night that found files in no ended night's ledger
_DOUBTED = "doubted"  # such a night failed, perhaps on damage: files in no ledger go

_MAY_HAVE_CHANGED = frozenset({_OPEN, _UNSURE})

_GUARDED = "work/content/"  # has its own checksums and is expensive: never removed on doubt
_SUMS = "work/usage/folded.json"  # counts of deleted rows of the access log: kept when damaged
_NAMED = 5  # damaged files in one line; a lost disk has hundreds
Entry = list[Any]  # size, modification time in ns, SHA-256


@dataclass(frozen=True, slots=True)
class Fault:
    """A file that differs from its entry of the last night: its name below the store, and how."""

    name: str
    what: str

    def __str__(self) -> str:
        return f"{self.name} ({self.what})"


@dataclass(frozen=True, slots=True)
class _Ledger:
    state: str
    files: Mapping[str, Entry]


def find_faults(paths: StorePaths) -> list[Fault]:
    """Return every file that the next night will make again; reads all of them, some 1.5 GB/s."""
    ledger, damaged_copies = _read(paths)
    return [*damaged_copies, *_find(paths, ledger), *_find_dagster(paths, ledger)]


def name_faults(faults: Sequence[Fault]) -> str:
    """Return the first few faults for a sentence, and how many more there are."""
    more = f" and {len(faults) - _NAMED:,} more" if len(faults) > _NAMED else ""
    return ", ".join(map(str, faults[:_NAMED])) + more


def describe_healing(faults: Sequence[Fault], stages: Sequence[str]) -> str:
    """Return one line about the damage that is repaired, "" for none."""
    if not faults:
        return ""
    again = f"; stages that run again: {', '.join(stages)}" if stages else ""
    it = "it" if len(faults) == 1 else "them"
    return f"damaged or missing, so this night rebuilds {it}: {name_faults(faults)}{again}"


def begin_night(paths: StorePaths) -> tuple[list[Fault], list[str]]:
    """Remove damaged files and stamps; the caller holds the store's lock."""
    load_hashes(paths.hashes)
    ledger, damaged_copies = _read(paths)
    faults = [*damaged_copies, *_find(paths, ledger)]
    gone = {fault.name for fault in faults}
    stages = _forget_stages(paths, gone)
    if _SUMS in gone and (paths.root / _SUMS).exists():
        (paths.root / _SUMS).replace(paths.root / f"{_SUMS}.damaged")
    for name in gone:
        remove_tree(_whole(paths, name))
    found = any(True for _ in _below(paths.work, paths.lance))
    begun = _UNSURE if found and ledger.state in _MAY_HAVE_CHANGED else _OPEN
    _write(paths, _Ledger(begun, {n: e for n, e in ledger.files.items() if n not in gone}))
    return faults, stages


def is_closed(paths: StorePaths) -> bool:
    """Return whether the last night ended in an orderly way."""
    return _read(paths)[0].state == _CLOSED


def vouches_for(paths: StorePaths, directory: Path) -> bool:
    """Return whether the last night ended and recorded exactly the files below a directory."""
    ledger, _ = _read(paths)
    known = {name for name in ledger.files if name.startswith(f"{_name(paths, directory)}/")}
    found = {_name(paths, path) for path in _below(directory)}
    return ledger.state == _CLOSED and known == found


def end_night(paths: StorePaths, *, finished: bool) -> None:
    """Record all files at the orderly end of a night."""
    ledger, _ = _read(paths)
    if ledger.state == _UNSURE and not finished:
        _write(paths, replace(ledger, state=_DOUBTED))
    else:
        directories = (paths.work, paths.lance, paths.encoders, paths.rotations, paths.dagster_home)
        _write(paths, _Ledger(_CLOSED, _entries(paths, _below(*directories))))
        save_hashes(paths.hashes, paths.root)


def heal_dagster(paths: StorePaths) -> list[Fault]:
    """Set aside damaged files of Dagster's own, which makes new ones; the caller holds the lock."""
    load_hashes(paths.hashes)
    faults = _find_dagster(paths, _read(paths)[0])
    for fault in faults:
        path = paths.root / fault.name
        if path.exists():
            path.replace(path.with_name(f"{path.name}.damaged"))
        for ending in ("-wal", "-shm"):
            remove_tree(path.with_name(path.name + ending))
    return faults


def record_dagster(paths: StorePaths) -> None:
    """Record Dagster's files again: it writes them after a night has ended."""
    ledger, _ = _read(paths)
    others = {n: e for n, e in ledger.files.items() if not _is_dagsters(paths, n)}
    own = _entries(paths, _below(paths.dagster_home))
    _write(paths, replace(ledger, files={**others, **own}))


def _find(paths: StorePaths, ledger: _Ledger) -> list[Fault]:
    faults: list[Fault] = []
    is_doubted = ledger.state == _DOUBTED
    for name, entry in ledger.files.items():
        state = _OPEN if is_doubted and name.startswith(_GUARDED) else ledger.state
        if not _is_dagsters(paths, name) and (what := _compare(paths, name, entry, state)):
            faults.append(Fault(name, what))
    if is_doubted:
        found = {_name(paths, path) for path in _below(paths.work, paths.lance)}
        unknown = (n for n in sorted(found - ledger.files.keys()) if not n.startswith(_GUARDED))
        faults += [Fault(n, "it is in no ledger since a night failed") for n in unknown]
    return faults


def _compare(paths: StorePaths, name: str, entry: Entry, state: str) -> str:
    """Return the fault of a file in the ledger, or ""."""
    size, changed_ns, digest = entry
    path = paths.root / name
    may_change = state in _MAY_HAVE_CHANGED
    try:
        found = path.stat()
        if may_change and found.st_mtime_ns != changed_ns:
            return ""
        if found.st_size == size and hash_settled(path) == digest:
            return ""
        if may_change and path.stat().st_mtime_ns != changed_ns:
            return ""  # written while it was read
    except FileNotFoundError:
        return "" if may_change else "missing"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if found.st_size != size:
        return f"{found.st_size} bytes, {size} were left"
    return "other bytes than were left"


def _forget_stages(paths: StorePaths, gone: set[str]) -> list[str]:
    """Remove the stamps of the stages that wrote one of these files; return their names."""
    stamps = paths.work / "stamps"
    left: dict[str, set[str]] = {}
    for path in sorted(stamps.glob("*.json")):
        with suppress(OSError, ValueError, KeyError, TypeError):
            names = json.loads(path.read_text(encoding="utf-8"))["left"]
            left[path.stem] = {_name(paths, paths.work / name) for name in names}
    again = {Path(name).stem for name in gone if name.startswith(f"{_name(paths, stamps)}/")}
    for name in gone:
        makers = {stage for stage, names in left.items() if name in names}
        place = Path(name).parent
        # Or else those that write where it lies or above.
        while not makers and len(place.parts) > 1:
            near = f"{place.as_posix()}/"
            makers = {s for s, names in left.items() if any(n.startswith(near) for n in names)}
            place = place.parent
        again |= makers
    for stage in again:
        (stamps / f"{stage}.json").unlink(missing_ok=True)
    return sorted(again)


def _whole(paths: StorePaths, name: str) -> Path:
    """Return the unit a damaged file belongs to: a table, encoder or rotation goes whole."""
    top, _, below = name.partition("/")
    return paths.root / name if top == paths.work.name else paths.root / top / below.split("/")[0]


def _find_dagster(paths: StorePaths, ledger: _Ledger) -> list[Fault]:
    """Return the damaged files of Dagster."""
    # Its UI and daemon write between nights: if the mtime of a file differs from the ledger's,
    # only the database itself can be checked.
    known = {n: e for n, e in ledger.files.items() if _is_dagsters(paths, n)}
    found = {_name(paths, path) for path in _below(paths.dagster_home)}
    told: dict[str, str] = {}
    for name in sorted(known.keys() | found):
        entry, path = known.get(name), paths.root / name
        # Dagster removes files while this looks at them.
        with suppress(FileNotFoundError):
            if name not in found:
                told[name] = "" if _is_removed_run(paths, name, known) else "missing"
            elif entry is not None and path.stat().st_mtime_ns == entry[1]:
                told[name] = _compare(paths, name, entry, _OPEN)
            elif path.suffix == ".db":
                told[name] = _sqlite_fault(path)
    return [Fault(name, what) for name, what in told.items() if what]


def _is_removed_run(paths: StorePaths, name: str, known: Mapping[str, Entry]) -> bool:
    """Return whether a run may have been removed in the UI, with its file."""
    runs = paths.dagster_home / "history" / "runs.db"
    entry = known.get(_name(paths, runs))
    is_run = (paths.root / name).parent.name == "runs"
    return is_run and runs.exists() and (entry is None or runs.stat().st_mtime_ns != entry[1])


def _sqlite_fault(path: Path) -> str:
    """Return the fault of a database, "" also if it is only locked."""
    try:
        with closing(open_foreign(path, WAIT_S)[0]) as db:
            (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
            if not db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
                return "an empty database"
    except sqlite3.DatabaseError as error:
        damage = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
        return str(error) if error.sqlite_errorcode & 0xFF in damage else ""
    return "" if found == "ok" else str(found)


def _below(*directories: Path) -> Iterator[Path]:
    """Yield the files that a night leaves, without the ledger and temporary files."""
    for directory in directories:
        for path in directory.rglob("*"):
            passing = path.name.endswith((".tmp", "-wal", "-shm", ".damaged"))
            if not passing and path.name != LEDGER and path.is_file():
                yield path


def _entries(paths: StorePaths, files: Iterable[Path]) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    for path in files:
        with suppress(FileNotFoundError):  # Dagster's UI removes its own meanwhile
            state = path.stat()
            found[_name(paths, path)] = [state.st_size, state.st_mtime_ns, hash_settled(path)]
    return found


def _is_dagsters(paths: StorePaths, name: str) -> bool:
    return name.startswith(f"{paths.dagster_home.name}/")


def _name(paths: StorePaths, path: Path) -> str:
    return path.relative_to(paths.root).as_posix()


def _copies(paths: StorePaths) -> tuple[Path, Path]:
    return paths.root / LEDGER, paths.work / LEDGER


def _read(paths: StorePaths) -> tuple[_Ledger, list[Fault]]:
    """Return the ledger and the copies of it that are damaged."""
    # Without any a store is as a killed night leaves it; where all are damaged, nothing is trusted.
    copies = {path: _parse(path) for path in _copies(paths)}
    ledger = next(filter(None, copies.values()), None)
    if ledger is None:
        return _Ledger(_DOUBTED if any(path.exists() for path in copies) else _OPEN, {}), []
    what = "damaged or missing; there is another copy"
    return ledger, [Fault(_name(paths, path), what) for path, told in copies.items() if not told]


def _parse(path: Path) -> _Ledger | None:
    """Return a copy whose checksum holds, else None."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        told = json.loads(path.read_text(encoding="utf-8"))
        if told["checksum"] == hash_json(told["ledger"]):
            return _Ledger(**told["ledger"])
    return None


def _write(paths: StorePaths, ledger: _Ledger) -> None:
    body = {"state": ledger.state, "files": dict(ledger.files)}
    text = json.dumps({"checksum": hash_json(body), "ledger": body}) + "\n"
    for path in _copies(paths):
        write_text(path, text)
