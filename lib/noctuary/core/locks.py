"""Locks between processes, and hooks of a fork, on POSIX or Windows.

Hooks load it: standard library only, and little of that.
"""

from __future__ import annotations

import os

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

TYPE_CHECKING = False  # as in `noctuary`: without `typing`
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Windows locks bytes, and keeps others from reading them: one that no file of ours has.
_BYTE = 0x7FFF_FFF0
_LK_UNLCK, _LK_NBLCK = 0, 2  # of msvcrt
_LOCK_FILE = ".lock"  # in a directory, where the system opens no directory


def take_lock(fd: int, *, shared: bool = False) -> None:
    """Lock an open file until it is closed; BlockingIOError while another process has it."""
    if fcntl is not None:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        return
    try:
        _lock_byte(fd, _LK_NBLCK)
    except OSError as error:
        raise BlockingIOError(error.errno, "another process has the lock") from None


def let_go(fd: int) -> None:
    """Give a lock back, whoever else holds a copy of the open file."""
    if fcntl is not None:
        fcntl.flock(fd, fcntl.LOCK_UN)
    else:
        _lock_byte(fd, _LK_UNLCK)


def _lock_byte(fd: int, mode: int) -> None:
    import msvcrt

    at = os.lseek(fd, 0, os.SEEK_CUR)
    os.lseek(fd, _BYTE, os.SEEK_SET)
    try:
        vars(msvcrt)["locking"](fd, mode, 1)
    finally:
        os.lseek(fd, at, os.SEEK_SET)


def open_directory(directory: Path) -> int:
    """Open the lock file of a directory, or the directory itself."""
    if fcntl is not None:
        return os.open(directory, os.O_RDONLY)
    return os.open(directory / _LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)


def at_fork(
    *,
    after_in_child: Callable[[], object],
    before: Callable[[], object] = lambda: None,
    after_in_parent: Callable[[], object] = lambda: None,
) -> None:
    """Have functions called at every fork, where the system has any."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=before, after_in_parent=after_in_parent, after_in_child=after_in_child
        )


def read_at(fd: int, size: int, offset: int) -> bytes:
    """Read bytes of an open file from a place on; elsewhere than on POSIX for one thread only."""
    if hasattr(os, "pread"):
        return os.pread(fd, size, offset)
    os.lseek(fd, offset, os.SEEK_SET)
    return os.read(fd, size)
