"""Files that are never changed, only replaced: opening one as SQLite, noticing a replacement.

What belongs here: what every reader of such a file needs. What does not: what is in it. Standard
library only.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

FileIdentity = tuple[int, int, int, int]
"""Device, inode, time of change in nanoseconds, size: another file has another one."""


def connect_immutable(path: Path, *, check_same_thread: bool = True) -> sqlite3.Connection:
    """Open a SQLite file that nobody changes: no lock is taken and no file is left beside it.

    Args:
        path: The file.
        check_same_thread: As of sqlite3.connect; off for a connection that a lock guards.

    Raises:
        sqlite3.Error: If it is not there; a damaged one fails when it is read.
    """
    uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    return sqlite3.connect(uri, uri=True, check_same_thread=check_same_thread)


def identify(path: Path) -> FileIdentity | None:
    """Return which file lies at a path, or None where there is none or it cannot be looked at."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_size
