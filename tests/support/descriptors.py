"""Which files this process holds open."""

from __future__ import annotations

import contextlib
from pathlib import Path


def open_files() -> list[str]:
    """Ask for one file's name among them, never for their number: others close when collected."""
    found: list[str] = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            found.append(str(link.readlink()))
    return found
