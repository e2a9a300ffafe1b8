"""Reading `<store>/profiles.toml`: tables by name, whatever state the file is in.

What belongs here: the file. What does not: what the tables mean (`layers`).
"""

from __future__ import annotations

import stat
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, cast

from noctuary.recall.result import RecallWarning

MAX_FILE_BYTES = 1 << 20
"""Some thousand profiles. A larger file is not read: every fresh process would parse it."""
_FILES_KEPT = 16

Tables = Mapping[str, Mapping[str, Any]]


class StoredProfiles(NamedTuple):
    """What a store says about profiles.

    Attributes:
        tables: Tables by name, unchecked.
        warnings: One "bad_profile" per thing that could not be read.
    """

    tables: Tables
    warnings: tuple[RecallWarning, ...]


NOTHING_STORED = StoredProfiles({}, ())


def read_store_profiles(path: Path) -> StoredProfiles:
    """Return the profiles of a store; a file that is missing holds none.

    The file is parsed again only after its time, size or inode has changed. Never raises.

    Args:
        path: `StorePaths.profiles`.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        return NOTHING_STORED
    except (OSError, ValueError) as error:
        return _unreadable(path, error)
    if not stat.S_ISREG(found.st_mode):
        return _unreadable(path, "it is no regular file")
    if found.st_size > MAX_FILE_BYTES:
        return _unreadable(path, f"it has {found.st_size:,} bytes, more than {MAX_FILE_BYTES:,}")
    try:
        return _read(path, (found.st_mtime_ns, found.st_size, found.st_ino))
    except OSError as error:  # not kept: permissions change without a new stamp
        return _unreadable(path, error)


@lru_cache(maxsize=_FILES_KEPT)
def _read(path: Path, stamp: tuple[int, int, int]) -> StoredProfiles:
    del stamp  # part of the key only
    try:
        import tomllib  # most stores have no such file

        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        return _unreadable(path, error)
    tables = {name: table for name, table in raw.items() if isinstance(table, dict)}
    warnings = [
        _warning(f"{name} in {path} must be a table, found {type(value).__name__}; left out")
        for name, value in raw.items()
        if name not in tables
    ]
    return StoredProfiles(cast(Tables, tables), tuple(warnings))


def _unreadable(path: Path, reason: object) -> StoredProfiles:
    return StoredProfiles({}, (_warning(f"cannot read {path}, left out: {reason}"),))


def _warning(message: str) -> RecallWarning:
    return RecallWarning("bad_profile", message)
