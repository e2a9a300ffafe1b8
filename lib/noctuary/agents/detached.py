"""Starting a process that a hook leaves behind.

What belongs here: how it is started. What does not: what it does (`capturing`, `warming`).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence


def start_detached(module: str, arguments: Sequence[str]) -> bool:
    """Run a module of noctuary in a session of its own; tell whether it was started.

    It has no terminal and none of the hook's pipes, so that the agent does not wait for it. A file
    `json.py` in the agent's folder must not be imported (`-P`); it stays the working directory, as
    a store may be named relative to it.
    """
    command = [sys.executable, "-P", "-m", module, *arguments]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            close_fds=True,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return False
    process.returncode = 0  # else its `__del__` complains that nobody waits for it: that is meant
    return True
