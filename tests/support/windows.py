"""Run a module of noctuary as on Windows, as far as Linux lets itself be taken for it.

`python windows.py MODULE ARGUMENT...`. What Windows lacks is gone before noctuary is imported:
`fcntl`, `resource`, `pwd`, fork, numeric users, `pread`, unix sockets, flags of `open`; directories
cannot be opened, pipes not be waited for, and signal 0 would end a process. The standard library
and the packages are imported before that: theirs is another build there. What this cannot show:
paths with drives, text mode, files that cannot be replaced while they are open, access lists.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import runpy
import select
import socket
import sys
import types
from importlib import import_module
from pathlib import Path
from typing import Any

GONE = (
    "fork", "forkpty", "register_at_fork", "geteuid", "getuid", "getegid", "getgid", "getgroups",
    "pread", "pwrite", "preadv", "posix_fadvise", "sched_getaffinity", "statvfs", "mkfifo",
    "fchown", "chown", "setsid", "wait4", "uname", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC",
    "O_DIRECTORY", "O_SYNC",
)  # fmt: skip
LOADED_BEFORE = (
    "click.testing", "concurrent.futures.process", "ctypes", "logging.handlers", "numpy",
    "numpy.lib.format", "shutil", "signal", "snowballstemmer", "sqlite3", "subprocess",
    "tempfile", "zoneinfo",
)  # fmt: skip
LOADED_BEFORE_MCP = (
    "anyio._backends._asyncio", "mcp.server.stdio", "mcp.server.streamable_http_manager", "uvicorn",
    "uvicorn.lifespan.on", "uvicorn.protocols.http.auto",
)  # fmt: skip


def become_windows() -> None:
    """Take from this process what Windows does not have."""
    for name in (*LOADED_BEFORE, *(LOADED_BEFORE_MCP if "mcp" in sys.argv else ())):
        import_module(name)
    for name in ("fcntl", "resource", "pwd", "grp", "termios"):
        sys.modules[name] = None  # pyright: ignore[reportArgumentType]
    for name in GONE:
        os.__dict__.pop(name, None)
    family, pair = socket.__dict__.pop("AF_UNIX"), socket.socketpair
    socket.__dict__["socketpair"] = lambda: pair(family)  # made of TCP there; for event loops
    socket.__dict__.pop("SO_PEERCRED", None)
    sys.modules["msvcrt"] = msvcrt = types.ModuleType("msvcrt")
    msvcrt.__dict__["locking"] = _locking
    real_open, real_kill = os.open, os.kill

    def open_file(path: Any, *given: Any, **options: Any) -> int:
        if Path(path).is_dir():
            raise PermissionError(13, "Permission denied", str(path))
        return real_open(path, *given, **options)

    def kill(pid: int, number: int) -> None:
        assert number != 0, "on Windows this interrupts the process"
        real_kill(pid, number)

    def wait(*_: Any) -> Any:
        raise OSError(10038, "an operation was attempted on something that is not a socket")

    os.open, os.kill = open_file, kill
    assert asyncio, "its selectors keep the real one"
    select.select = wait  # pyright: ignore[reportAttributeAccessIssue]
    sys.platform = "win32"


def _locking(fd: int, mode: int, size: int) -> None:
    """Lock bytes from the file's position on, as `msvcrt.locking` does; 2 is LK_NBLCK."""
    assert mode in (0, 2)
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB if mode else fcntl.LOCK_UN, size, 0, 1)
    except OSError:
        raise PermissionError(13, "Permission denied") from None


if __name__ == "__main__":
    become_windows()
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
