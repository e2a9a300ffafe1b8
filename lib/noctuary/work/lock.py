"""One night at a time per store."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from noctuary.core.errors import StoreError, StoreLockedError
from noctuary.core.files import make_directory
from noctuary.core.locks import at_fork, read_at, take_lock

# A night waits for the lock longer than `find_holder` has it, shorter than a person notices.
_TRIES, _WAIT_S = 5, 0.005

_UNSUPPORTED = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL})
_HELD_FDS: set[int] = set()
_BUSY = "another night (process {}) is running on {}: wait for it, or stop it"


@contextmanager
def hold_lock(path: Path, said: Callable[[str], str] | None = None) -> Generator[None]:
    """Hold a lock for the block; `said` makes the error message from the holder's process id."""
    # The number in the file is for messages: the kernel's lock ends with the process. A child
    # forked inside the block closes its copy, so that it cannot keep the lock longer than this one.
    fd = _take(path, said or (lambda holder: _BUSY.format(holder, path.parent)))
    _HELD_FDS.add(fd)
    try:
        os.ftruncate(fd, 0)
        os.write(fd, str(os.getpid()).encode("ascii"))
        yield
    finally:
        # Not in a forked process: there the descriptor is closed, and its number may be another's.
        if fd in _HELD_FDS:
            _HELD_FDS.discard(fd)
            os.close(fd)


def find_holder(path: Path) -> str | None:
    """Return the process id of a lock's holder, "unknown", or None if it is free."""
    # Never raises: if it cannot be read it counts as free, and the night itself reports why.
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        # Shared: two that ask at one moment do not see each other.
        take_lock(fd, shared=True)
    except BlockingIOError:
        return _read_holder(fd)
    except OSError:
        return None
    finally:
        os.close(fd)
    return None


def _take(path: Path, said: Callable[[str], str]) -> int:
    for tries_left in reversed(range(_TRIES)):
        fd = _open(path)
        try:
            take_lock(fd)
            if _is_at(fd, path):
                return fd
            # The file was removed meanwhile: a lock on an unlinked file excludes no other process.
            os.close(fd)
        except BlockingIOError:
            holder = _read_holder(fd)
            os.close(fd)
            if not tries_left:
                raise StoreLockedError(said(holder)) from None
            time.sleep(_WAIT_S)
        except OSError as error:
            os.close(fd)
            fault = f"the lock {path} cannot be taken ({error.strerror})"
            if error.errno in _UNSUPPORTED:
                fault = (
                    f"the file system of {path.parent} has no working flock ({error.strerror}): "
                    "keep the store on a local disk"
                )
            raise StoreError(fault) from None
    raise StoreError(f"{path} keeps being removed: find out what removes it")


def _open(path: Path) -> int:
    try:
        make_directory(path.parent)
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StoreError(
            f"the lock {path} cannot be opened ({error.strerror}): a night needs a store that it "
            "can write"
        ) from None


def _is_at(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except OSError:
        return False


def _read_holder(fd: int) -> str:
    return read_at(fd, 64, 0).decode("ascii", "replace").strip() or "unknown"


def _let_go_in_child() -> None:
    for fd in _HELD_FDS:
        os.close(fd)
    _HELD_FDS.clear()


at_fork(after_in_child=_let_go_in_child)
