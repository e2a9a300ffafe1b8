"""Small JSON files that a hook reads and replaces in well under a millisecond. Never raises.

What belongs here: reading with a bound, replacing without waiting for the disk. What does not:
what stands in them. `noctuary.files` flushes file and directory, which takes up to some 50 ms on a
busy disk; what is kept here may be lost in a power cut, and a torn file reads as a fault.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from noctuary.foreign_json import parse_json


def make_private(directory: Path) -> bool:
    """Make a directory that only this user may enter; tell whether there is one now."""
    try:
        if not directory.is_dir():
            # Once per home: importing it takes longer than a hook may.
            from noctuary.files import make_directory

            make_directory(directory)
    except (OSError, ValueError):
        return False
    return True


def read_json(path: Path, max_bytes: int) -> tuple[Any, str | None]:
    """Return what a file holds and why it could not be read.

    Args:
        path: The file.
        max_bytes: A larger file is a fault.

    Returns:
        The value and None; (None, None) for a missing file; (None, fault) for one that is damaged,
        too large or not readable.
    """
    try:
        # Not blocking: a pipe that somebody put there must not stop a prompt.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            raw = file.read(max_bytes + 1) or b""
        if len(raw) > max_bytes:
            return None, f"{path.name} has more than {max_bytes:,} bytes"
        return parse_json(raw), None
    except FileNotFoundError:
        return None, None
    except (OSError, ValueError) as error:
        return None, f"{path.name} cannot be read: {type(error).__name__}"


def replace_json(path: Path, value: Any) -> bool:
    """Replace a file by a value, readable by this user only; tell whether that worked."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        raw = json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
            file.write(raw)
        temporary.replace(path)
    except (OSError, ValueError, RecursionError):
        with suppress(OSError, ValueError):
            temporary.unlink(missing_ok=True)
        return False
    return True
