"""How far a file was read, and whether what was read of it is still there.

What belongs here: the state of one file and the decision where to go on. What does not: keeping
the state (`turns_file`). Standard library only.

A file is known by its bytes, not by its inode: a digest of its beginning and of what lies right
before the offset. Appended to: both hold. Truncated, replaced, rotated away or rewritten: one does
not, and it is read from its beginning; turns that are kept already are recognised by their ids.
"""

from __future__ import annotations

import hashlib
import os
from typing import NamedTuple

_HEAD_BYTES = 4_096
_TAIL_BYTES = 1_024
"""Bytes before the offset that must be unchanged. More notices more edits in the middle of a file,
which agents do not make."""


class FileState(NamedTuple):
    """What is known of a file from the last time it was read.

    Attributes:
        device: Of the file.
        inode: Of the file.
        size: In bytes, then.
        mtime_ns: Then.
        offset: Up to where its lines were read.
        digest: Of its bytes before the offset (`digest_before`).
        context: What its lines told so far, as JSON (`FileContext`).
    """

    device: int
    inode: int
    size: int
    mtime_ns: int
    offset: int
    digest: str
    context: str


def digest_before(fd: int, offset: int) -> str:
    """Return a digest of a file's first bytes and of those right before an offset."""
    digest = hashlib.sha256(str(offset).encode())
    digest.update(os.pread(fd, min(_HEAD_BYTES, offset), 0))
    start = max(0, offset - _TAIL_BYTES)
    digest.update(os.pread(fd, offset - start, start))
    return digest.hexdigest()[:32]


def is_unchanged(state: FileState, found: os.stat_result) -> bool:
    """Say whether a file looks exactly as it did, without opening it."""
    return (state.device, state.inode, state.size, state.mtime_ns) == (
        found.st_dev,
        found.st_ino,
        found.st_size,
        found.st_mtime_ns,
    )


def may_continue(state: FileState, fd: int) -> bool:
    """Say whether a file still begins with what was read of it; a shorter one does not."""
    return digest_before(fd, state.offset) == state.digest
