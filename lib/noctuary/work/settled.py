"""The digest of a file that this process has hashed already and nobody has touched since.

What belongs here: when a remembered digest may stand for a file. What does not: hashing
(`noctuary.hashing`). Every later stage asks again for the digests of what earlier ones wrote; at a
million memories that is gigabytes, several times a night.
"""

from __future__ import annotations

import time
from functools import lru_cache
from pathlib import Path

from noctuary.hashing import hash_file

SETTLED_NS = 2_000_000_000
"""Age from which a file's time tells two contents apart: file systems count in ticks, of up to two
seconds, so that two writes within one look alike. Longer hashes more files again."""

_REMEMBERED = 4096
"""Digests held; a night asks for all files of a store, a hundred and some per table and run."""


def hash_settled(path: Path) -> str:
    """Return the SHA-256 of a file, as `hash_file`; remembered while the file stays the same one.

    What counts as the same: inode, size and both times, none of them younger than SETTLED_NS. A
    file of the future (a clock that was set back) is hashed every time.
    """
    found = path.stat()
    age_ns = time.time_ns() - max(found.st_mtime_ns, found.st_ctime_ns)
    if age_ns < SETTLED_NS:
        return hash_file(path)
    return _remembered(path, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


@lru_cache(maxsize=_REMEMBERED)
def _remembered(path: Path, *_same_file: int) -> str:
    return hash_file(path)
