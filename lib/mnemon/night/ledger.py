"""What every file of a store was when the last night ended, so that the next one sees damage.

What belongs here: recording, comparing, taking away what is not what a night left. What does not:
making it again. The stages do that, because the stamps of those that wrote a file go with it.

Every byte is read: bit rot changes neither a size nor a time. The ledger lies in two places, each
copy under its own checksum, so that damage to one of them condemns nothing.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mnemon.files import remove_tree, write_text
from mnemon.hashing import hash_json
from mnemon.snapshot.layout import StorePaths
from mnemon.work.settled import hash_settled

LEDGER = "ledger.json"

_CLOSED = "closed"
"""The last night ended: whatever is otherwise now is damage."""
_OPEN = "open"
"""A night runs or was killed: what has another time since may be its work."""
_UNSURE = "unsure"
"""As open, of a night that did not begin with a closed ledger."""
_DOUBTED = "doubted"
"""Such a night failed, perhaps on damage that nothing tells: what nobody vouches for goes."""

_GUARDED = "work/fragments/"
"""Fragments carry checksums of their own and are dear: no doubt takes them away."""

_SUMS = "work/usage/folded.json"
"""Counts retrievals that the access log has forgotten: counted anew from the rest, and kept."""

_NAMED = 5
"""Damaged files in one line; a lost disk has hundreds."""

Entry = list[Any]
"""Size, modification time in ns, SHA-256."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A file that is not what the last night left: its name below the store, and what it is now."""

    name: str
    what: str

    def __str__(self) -> str:
        """Return both, for a sentence."""
        return f"{self.name} ({self.what})"


@dataclass(frozen=True, slots=True)
class _Ledger:
    state: str
    files: Mapping[str, Entry]


def find_faults(paths: StorePaths) -> list[Fault]:
    """Return every file that the next night will make again; reads all of them, some 1.5 GB/s."""
    ledger = _read(paths)
    return [*_find(paths, ledger), *_find_dagster(paths, ledger)]


def describe_healing(faults: Sequence[Fault], stages: Sequence[str] = ()) -> str:
    """Return one line about what damage is made good, "" for none."""
    if not faults:
        return ""
    named = ", ".join(map(str, faults[:_NAMED]))
    more = f" and {len(faults) - _NAMED:,} more" if len(faults) > _NAMED else ""
    again = f"; runs again: {', '.join(stages)}" if stages else ""
    return f"made again, because damaged or missing: {named}{more}{again}"


def begin_night(paths: StorePaths) -> tuple[list[Fault], list[str]]:
    """Take away what is not what the last night left; the caller holds the store's lock.

    Returns:
        What was taken away, and the stages that run again for it.
    """
    ledger = _read(paths)
    faults = _find(paths, ledger)
    stages = _forget_stages(paths, {fault.name for fault in faults})
    for fault in faults:
        if fault.name == _SUMS and (paths.root / _SUMS).exists():
            (paths.root / _SUMS).replace(paths.root / f"{_SUMS}.damaged")
        remove_tree(_whole(paths, fault.name))
    known = ledger.files if ledger else {}
    begun = _OPEN if ledger and ledger.state == _CLOSED else _UNSURE
    gone = {fault.name for fault in faults}
    _write(paths, _Ledger(begun, {n: e for n, e in known.items() if n not in gone}))
    return faults, stages


def open_ledger(paths: StorePaths) -> None:
    """Let files change before the next night: a run of shards writes some of them."""
    ledger = _read(paths)
    if ledger and ledger.state == _CLOSED:
        _write(paths, replace(ledger, state=_OPEN))


def end_night(paths: StorePaths, *, finished: bool) -> None:
    """Record what a night leaves, which ended in order.

    Args:
        paths: The store, whose lock the caller holds.
        finished: Whether it came to its end; one that failed vouches for nothing that it found.
    """
    ledger = _read(paths)
    if ledger and ledger.state == _UNSURE and not finished:
        _write(paths, replace(ledger, state=_DOUBTED))
    else:
        _write(paths, _Ledger(_CLOSED, _entries(paths, _files(paths))))


def heal_dagster(paths: StorePaths) -> list[Fault]:
    """Set aside damaged files of Dagster's own, which makes new ones; return what was found."""
    faults = _find_dagster(paths, _read(paths))
    for fault in faults:
        path = paths.root / fault.name
        if path.exists():
            path.replace(path.with_name(f"{path.name}.damaged"))
        for ending in ("-wal", "-shm"):
            remove_tree(path.with_name(path.name + ending))
    return faults


def record_dagster(paths: StorePaths) -> None:
    """Record Dagster's files again: it writes them after a night has ended."""
    if ledger := _read(paths):
        others = {n: e for n, e in ledger.files.items() if not _is_dagsters(paths, n)}
        own = _entries(paths, _below(paths.dagster_home))
        _write(paths, replace(ledger, files={**others, **own}))


def _find(paths: StorePaths, ledger: _Ledger | None) -> list[Fault]:
    faults = [
        Fault(_name(paths, path), "damaged or missing; there is another copy")
        for path in _copies(paths)
        if ledger is not None and _parse(path) is None
    ]
    if ledger is None:
        if not any(path.exists() for path in _copies(paths)):
            return []
        ledger = _Ledger(_DOUBTED, {})
    for name, entry in ledger.files.items():
        if not _is_dagsters(paths, name) and (what := _compare(paths, name, entry, ledger.state)):
            faults.append(Fault(name, what))
    if ledger.state == _DOUBTED:
        unknown = {_name(paths, path) for path in _below(paths.work, paths.lance)}
        faults += [
            Fault(name, "nothing vouches for it since a night failed")
            for name in sorted(unknown - set(ledger.files))
            if not _guards_itself(paths, name)
        ]
    return faults


def _compare(paths: StorePaths, name: str, entry: Entry, state: str) -> str:
    """Return what is wrong with a file that the ledger knows, "" for nothing."""
    size, changed_ns, digest = entry
    path = paths.root / name
    try:
        found = path.stat()
        if state in {_OPEN, _UNSURE} and found.st_mtime_ns != changed_ns:
            return ""
        if found.st_size != size:
            return f"{found.st_size} bytes, {size} were left"
        if hash_settled(path) != digest:
            return "other bytes than were left"
    except FileNotFoundError:
        return "" if state in {_OPEN, _UNSURE} else "missing"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return ""


def _guards_itself(paths: StorePaths, name: str) -> bool:
    return name.startswith(_GUARDED) or (
        paths.root / name == paths.memo and not _sqlite_fault(paths.memo)
    )


def _forget_stages(paths: StorePaths, gone: set[str]) -> list[str]:
    """Remove the stamps of the stages that wrote one of these files; return their names."""
    left: dict[str, set[str]] = {}
    for path in sorted((paths.work / "stamps").glob("*.json")):
        with suppress(OSError, ValueError, KeyError, TypeError):
            names = json.loads(path.read_text(encoding="utf-8"))["left"]
            left[path.stem] = {_name(paths, paths.work / name) for name in names}
    stamps = f"{paths.work.name}/stamps/"
    again = {Path(name).stem for name in gone if name.startswith(stamps)}
    for name in gone:
        again |= _makers(name, left)
    for stage in again:
        (paths.work / "stamps" / f"{stage}.json").unlink(missing_ok=True)
    return sorted(again)


def _makers(name: str, left: Mapping[str, set[str]]) -> set[str]:
    """Return the stages that wrote a file, or else those that write where it lies or above."""
    makers = {stage for stage, names in left.items() if name in names}
    place = Path(name).parent
    while not makers and len(place.parts) > 1:
        near = f"{place.as_posix()}/"
        makers = {s for s, names in left.items() if any(n.startswith(near) for n in names)}
        place = place.parent
    return makers


def _whole(paths: StorePaths, name: str) -> Path:
    """Return what goes with a damaged file: a table, an encoder and a rotation go whole."""
    top, _, below = name.partition("/")
    return paths.root / name if top == paths.work.name else paths.root / top / below.split("/")[0]


def _find_dagster(paths: StorePaths, ledger: _Ledger | None) -> list[Fault]:
    """Return what is damaged of Dagster's own.

    Its UI and daemon write between nights: where a file has another time than the ledger knows,
    only the database itself can tell.
    """
    known = {n: e for n, e in (ledger.files if ledger else {}).items() if _is_dagsters(paths, n)}
    found = {_name(paths, path): path for path in _below(paths.dagster_home)}
    faults: list[Fault] = []
    for name in sorted({*known, *found}):
        entry, path = known.get(name), paths.root / name
        if name not in found:
            what = "" if _is_removed_run(paths, name, known) else "missing"
        elif entry is not None and path.stat().st_mtime_ns == entry[1]:
            what = _compare(paths, name, entry, _OPEN)
        else:
            what = _sqlite_fault(path) if path.suffix == ".db" else ""
        if what:
            faults.append(Fault(name, what))
    return faults


def _is_removed_run(paths: StorePaths, name: str, known: Mapping[str, Entry]) -> bool:
    """Tell whether somebody may have removed a run in the UI, whose file goes with it."""
    runs = paths.dagster_home / "history" / "runs.db"
    entry = known.get(_name(paths, runs))
    is_run = (paths.root / name).parent.name == "runs"
    return is_run and runs.exists() and (entry is None or runs.stat().st_mtime_ns != entry[1])


def _sqlite_fault(path: Path) -> str:
    """Return what is wrong with a database, "" also where it is only locked."""
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
            (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
            if not db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0]:
                return "an empty database"
    except sqlite3.DatabaseError as error:
        damage = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
        return str(error) if error.sqlite_errorcode & 0xFF in damage else ""
    return "" if found == "ok" else str(found)


def _files(paths: StorePaths) -> Iterator[Path]:
    return _below(paths.work, paths.lance, paths.encoders, paths.rotations, paths.dagster_home)


def _below(*directories: Path) -> Iterator[Path]:
    """Yield the files that a night leaves: no ledger, nothing of a write that was cut off."""
    for directory in directories:
        for path in directory.rglob("*"):
            passing = path.name.endswith((".tmp", "-wal", "-shm", ".damaged"))
            if not passing and path.name != LEDGER and path.is_file():
                yield path


def _entries(paths: StorePaths, files: Iterable[Path]) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    for path in files:
        state = path.stat()
        found[_name(paths, path)] = [state.st_size, state.st_mtime_ns, hash_settled(path)]
    return found


def _is_dagsters(paths: StorePaths, name: str) -> bool:
    return name.startswith(f"{paths.dagster_home.name}/")


def _name(paths: StorePaths, path: Path) -> str:
    return path.relative_to(paths.root).as_posix()


def _copies(paths: StorePaths) -> tuple[Path, Path]:
    return paths.root / LEDGER, paths.work / LEDGER


def _read(paths: StorePaths) -> _Ledger | None:
    return next((ledger for path in _copies(paths) if (ledger := _parse(path))), None)


def _parse(path: Path) -> _Ledger | None:
    """Return a copy whose checksum holds, else None."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        body = told["ledger"]
        if told["checksum"] == hash_json(body):
            return _Ledger(**body)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def _write(paths: StorePaths, ledger: _Ledger) -> None:
    body = {"state": ledger.state, "files": dict(ledger.files)}
    text = json.dumps({"checksum": hash_json(body), "ledger": body}) + "\n"
    for path in _copies(paths):
        write_text(path, text)
