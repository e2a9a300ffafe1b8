"""Where a store's server is found: one private directory per user, file names from the store.

What belongs here: names and the question whose they are. No connection.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

_SOCKET_PATH_BYTES = 100
"""sun_path holds 108 bytes on Linux, 104 on macOS, the closing NUL included."""
_NAME_CHARS = 16
"""Of the hash of the store's path: 64 bits among the stores of one user."""
_LOOSE_BITS = 0o077


class Place(NamedTuple):
    """The files of one store's server, all in one directory of the user's own.

    Attributes:
        directory: Mode 0700, owned by the user.
        name: The files' common stem, a hash of the store's real path.
    """

    directory: Path
    name: str

    @property
    def socket(self) -> Path:
        """Where the server listens; there only while it runs, or after it was killed."""
        return self.directory / f"{self.name}.sock"

    @property
    def lock(self) -> Path:
        """Held (flock) by the running server; the file itself stays."""
        return self.directory / f"{self.name}.lock"

    @property
    def fallback(self) -> Path:
        """The last reason worth knowing why a client recalled without the server."""
        return self.directory / f"{self.name}.fallback"


def find_place(store: str | Path, environ: Mapping[str, str] | None = None) -> Place:
    """Return the place of a store's server, whether or not it is there.

    Args:
        store: The store directory; two spellings of one directory have one place.
        environ: The environment; None means the process's own.
    """
    env = os.environ if environ is None else environ
    name = sha256(os.fsencode(Path(store).resolve())).hexdigest()[:_NAME_CHARS]
    runtime = env.get("XDG_RUNTIME_DIR", "").strip()
    # A relative one is to be ignored (XDG base directory specification).
    if runtime.startswith("/"):
        place = Place(Path(runtime) / "noctuary", name)
        if len(os.fsencode(place.socket)) <= _SOCKET_PATH_BYTES:
            return place
    temporary = env.get("TMPDIR", "").strip() or "/tmp"
    place = Place(Path(temporary) / f"noctuary-{os.geteuid()}", name)
    if len(os.fsencode(place.socket)) <= _SOCKET_PATH_BYTES:
        return place
    return Place(Path("/tmp") / f"noctuary-{os.geteuid()}", name)


def directory_fault(directory: Path) -> str | None:
    """Return why a directory must not be trusted with a socket, or None.

    Raises:
        FileNotFoundError: If there is nothing at the path.
        OSError: If it cannot be looked at.
    """
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode):
        return f"{directory} is no directory: remove it"
    if found.st_uid != os.geteuid():
        return (
            f"{directory} belongs to user {found.st_uid}, not to {os.geteuid()}: remove it, or set "
            "XDG_RUNTIME_DIR to a directory of your own"
        )
    if found.st_mode & _LOOSE_BITS:
        mode = stat.S_IMODE(found.st_mode)
        return f"{directory} is open to others (mode {mode:04o}, expected 0700): chmod 700 it"
    return None
