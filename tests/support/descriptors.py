"""Which files this process holds open, and mapped."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest


def open_files() -> list[str]:
    """Ask for one file's name among them, never for their number: others close when collected."""
    found: list[str] = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            found.append(str(link.readlink()))
    return found


def mapped_kb(path: Path) -> int:
    """What this process has mapped in of a file."""
    if not Path("/proc/self/smaps").exists():
        pytest.skip("no /proc: what is mapped cannot be told")
    entries = Path("/proc/self/smaps").read_text().split("\n")
    place = next(i for i, line in enumerate(entries) if line.endswith(str(path)))
    (rss,) = (line for line in entries[place : place + 6] if line.startswith("Rss:"))
    return int(rss.split()[1])
