"""Taking a store's place: the private directory, the lock, the listening socket."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from noctuary.errors import StoreError, StoreLockedError
from noctuary.serve.place import Place, directory_fault

_BACKLOG = 64
"""Clients that may wait for a thread; more would only wait for longer than they have time."""


@contextmanager
def claim_place(place: Place, store: Path) -> Generator[socket.socket]:
    """Hold a store's place for the block: its lock and a listening socket of mode 0600.

    The lock dies with its holder, so a socket that is found while holding it is a dead server's.

    Args:
        place: The place of the store's server.
        store: The store, for messages.

    Raises:
        StoreLockedError: If another server holds the place, naming its process.
        StoreError: If the directory is not the user's own or the socket cannot be made.
    """
    _make_private(place.directory)
    with _locked(place, store):
        listener = _listen(place)
        try:
            with listener:
                yield listener
        finally:
            place.socket.unlink(missing_ok=True)


def _make_private(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if directory.lstat().st_uid == os.geteuid() and not directory.is_symlink():
            directory.chmod(0o700)
        fault = directory_fault(directory)
    except OSError as error:
        raise StoreError(
            f"no socket directory can be made at {directory} ({error.strerror}): set "
            "XDG_RUNTIME_DIR to a directory of your own"
        ) from error
    if fault is not None:
        raise StoreError(fault)


@contextmanager
def _locked(place: Place, store: Path) -> Generator[None]:
    fd = os.open(place.lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(fd, 64).decode("ascii", "replace").strip() or "unknown"
            raise StoreLockedError(
                f"another server (process {holder}) already answers for {store}: use it, or stop it"
            ) from None
        os.ftruncate(fd, 0)
        os.write(fd, str(os.getpid()).encode("ascii"))
        yield
    finally:
        os.close(fd)


def _listen(place: Place) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        place.socket.unlink(missing_ok=True)
        listener.bind(str(place.socket))
        # The directory lets nobody else in meanwhile.
        place.socket.chmod(0o600)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise StoreError(f"cannot listen on {place.socket}: {error}") from error
    return listener
