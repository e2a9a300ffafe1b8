"""Waiting for the store's lock instead of leaving: for runs that have their turn later.

What belongs here: the waiting. What does not: the lock itself (`lock`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from noctuary.errors import StoreLockedError
from noctuary.work.lock import find_holder, hold_lock

_LOOK_S = 0.5
"""Between two looks: sooner costs CPU for hours, later leaves the store idle between two runs."""


@contextmanager
def wait_for_lock(path: Path, waiting: Callable[[str], object]) -> Generator[None]:
    """Hold the store's lock for the block, as soon as whoever has it lets it go.

    Args:
        path: As in `hold_lock`.
        waiting: Told the holder's process once, before the first wait.

    Raises:
        StoreError: As `hold_lock`.
    """
    told = False
    with ExitStack() as held:
        while True:
            try:
                held.enter_context(hold_lock(path))
                break
            except StoreLockedError:
                if not told:
                    waiting(find_holder(path) or "unknown")
                    told = True
                time.sleep(_LOOK_S)
        yield
