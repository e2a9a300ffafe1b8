"""One night at a time per store: an advisory lock that dies with its holder, even after kill -9."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from mnemon.errors import StoreLockedError


@contextmanager
def hold_lock(path: Path) -> Generator[None]:
    """Hold the store's lock for the block.

    Raises:
        StoreLockedError: If another process holds it, naming that process.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(fd, 64).decode("ascii", "replace").strip() or "unknown"
            raise StoreLockedError(
                f"another night (process {holder}) is running on {path.parent}: wait for it, or "
                "stop it"
            ) from None
        os.ftruncate(fd, 0)
        os.write(fd, str(os.getpid()).encode("ascii"))
        yield
    finally:
        os.close(fd)
