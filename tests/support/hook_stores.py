"""States that a hook may find a store and its own files in. Each returns how a case runs in it."""

from __future__ import annotations

import fcntl
import json
import shutil
import sqlite3
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

State = Callable[[Path, Path, ExitStack], dict[str, Any]]
"""A published store to copy and a home to make; fields of `Case` besides agent and bytes."""


def _published(template: Path, home: Path, stack: ExitStack) -> dict[str, Any]:
    shutil.copytree(template, home / "house")
    return {"environ": {"NOCTUARY_HOME": str(home)}}


def _no_store(template: Path, home: Path, stack: ExitStack) -> dict[str, Any]:
    return {"environ": {"NOCTUARY_HOME": str(home)}}


def _no_home(template: Path, home: Path, stack: ExitStack) -> dict[str, Any]:
    return {"environ": {"NOCTUARY_HOME": str(home / "gone" / "far")}, "store": "nowhere"}


def _bad_home(template: Path, home: Path, stack: ExitStack) -> dict[str, Any]:
    return {"environ": {"NOCTUARY_HOME": "~nobody-of-that-name/x"}}


def _bad_settings(template: Path, home: Path, stack: ExitStack) -> dict[str, Any]:
    case = _published(template, home, stack)
    (home / "noctuary.toml").write_text("[hook]\nuser = 3\n[[[")
    return case


def _locked(template: Path, home: Path, stack: ExitStack) -> dict[str, Any]:
    """Every file that a hook writes is held by somebody who never lets go."""
    case = _published(template, home, stack)
    hooks = home / "hooks"
    hooks.mkdir()
    for name in ("counters.lock", "journal.jsonl"):
        handle = stack.enter_context((hooks / name).open("w"))
        fcntl.flock(handle, fcntl.LOCK_EX)
    for name in ("injected.sqlite", "usage.sqlite", "access.sqlite", "turns.sqlite"):
        log = sqlite3.connect(home / "house" / name, isolation_level=None)
        stack.callback(log.close)
        if name in ("injected.sqlite", "turns.sqlite"):
            log.execute("CREATE TABLE IF NOT EXISTS held (x)")
        log.execute("BEGIN EXCLUSIVE")
    return case


def _corrupt(template: Path, home: Path, stack: ExitStack) -> dict[str, Any]:
    case = _published(template, home, stack)
    for path in sorted((home / "house" / "snapshots").rglob("*")):
        if path.is_file() and path.name != "manifest.json":
            path.write_bytes(b"\x00garbage" * 40)
    hooks = home / "hooks"
    hooks.mkdir()
    for name in ("counters.json", "journal.jsonl"):
        (hooks / name).write_bytes(b"\xff{" * 100)
    (home / "house" / "injected.sqlite").write_bytes(b"no database" * 200)
    return case


def _torn(template: Path, home: Path, stack: ExitStack) -> dict[str, Any]:
    case = _published(template, home, stack)
    for path in sorted((home / "house" / "snapshots").rglob("*")):
        if path.is_file():
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return case


def _other_format(template: Path, home: Path, stack: ExitStack) -> dict[str, Any]:
    case = _published(template, home, stack)
    for path in (home / "house" / "snapshots").rglob("manifest.json"):
        manifest = json.loads(path.read_text())
        (version,) = [name for name in manifest if "format" in name]
        path.write_text(json.dumps({**manifest, version: 9_999}))
    return case


def _full_disk(template: Path, home: Path, stack: ExitStack) -> dict[str, Any]:
    """Nothing more can be written: not one byte into any file."""
    return {**_published(template, home, stack), "max_file_bytes": 0}


def _nearly_full_disk(template: Path, home: Path, stack: ExitStack) -> dict[str, Any]:
    """Some bytes can: enough for half a line."""
    return {**_published(template, home, stack), "max_file_bytes": 50}


def _no_directory(template: Path, home: Path, stack: ExitStack) -> dict[str, Any]:
    """A file is where the hooks' directory should be."""
    case = _published(template, home, stack)
    (home / "hooks").write_text("in the way")
    return case


def _no_stdout(template: Path, home: Path, stack: ExitStack) -> dict[str, Any]:
    return {**_published(template, home, stack), "closed": (1,)}


def _no_stdin(template: Path, home: Path, stack: ExitStack) -> dict[str, Any]:
    return {**_published(template, home, stack), "closed": (0,)}


STATES: dict[str, State] = {
    "published": _published,
    "no store": _no_store,
    "no home": _no_home,
    "bad home": _bad_home,
    "bad settings": _bad_settings,
    "locked": _locked,
    "corrupt": _corrupt,
    "torn": _torn,
    "other format": _other_format,
    "full disk": _full_disk,
    "nearly full disk": _nearly_full_disk,
    "no directory": _no_directory,
    "no stdout": _no_stdout,
    "no stdin": _no_stdin,
}


@contextmanager
def hook_state(name: str, template: Path, home: Path) -> Generator[dict[str, Any]]:
    """Make a state and yield the fields of its cases; what holds locks is let go at the end."""
    home.mkdir(parents=True)
    with ExitStack() as stack:
        yield STATES[name](template, home, stack)
