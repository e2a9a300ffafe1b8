"""Starting the store's warm server from a hook, where `hook.start_server` says so.

What belongs here: when it is started. What does not: the server (`noctuary.serve`), which stops by
itself when nobody asks.
"""

from __future__ import annotations

import time
from pathlib import Path

from noctuary.agents.detached import start_detached

RETRY_S = 60.0
"""Least time between two starts: a server that cannot run must not be tried with every prompt, and
one that is starting must not be started again. Shorter has a server back sooner."""

STAMP = "server_started"


def start_server(directory: Path, store: str | None) -> bool:
    """Start `noctuary serve` in the background, unless that was tried a moment ago.

    Args:
        directory: `HookPlaces.directory`; exists.
        store: As the hook was told; None means the configured or only one.

    Returns:
        Whether one was started. A second server of a store ends by itself (exit code 4).
    """
    stamp = directory / STAMP
    try:
        if abs(time.time() - stamp.stat().st_mtime) < RETRY_S:
            return False
    except OSError:
        pass
    try:
        stamp.touch(mode=0o600)
    except OSError:
        return False  # without it every prompt would start one
    return start_detached("noctuary.cli.main", ["serve", *(["--store", store] if store else [])])
