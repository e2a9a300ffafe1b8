"""How progress looks: what works now and bars on a terminal, a line every tenth otherwise."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from noctuary.core.types import Progress
from noctuary.text.marks import show_hidden

_LOGGED_SHARES = 10  # lines per task at most: enough to see it move, few enough to read
_QUIET_S = 2.0  # tasks that finish sooner are not worth a line


class BarProgress:
    """Live lines on standard error; one per task, removed when it is done."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress

        self._rich: Any = RichProgress(
            TextColumn("{task.description:<20}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(file=sys.__stderr__),
            transient=True,
        )
        self._tasks: dict[str, Any] = {}

    def update(self, task: str, done: int, total: int) -> None:
        """Move the task's bar; the display stops when no task is open."""
        if done >= total:
            if task in self._tasks:
                self._rich.remove_task(self._tasks.pop(task))
                if not self._tasks:
                    self._rich.stop()
            return
        if task not in self._tasks:
            if not self._tasks:
                self._rich.start()
                show_hidden()  # what is printed meanwhile goes through the bar's own streams
            self._tasks[task] = self._rich.add_task(task, total=None)
        if total > 1:
            self._rich.update(self._tasks[task], completed=done, total=total)


class LineProgress:
    """Log lines, at most ten per task, none for tasks of one step or under two seconds."""

    def __init__(self, log: Callable[[str], Any]) -> None:
        self._log = log
        self._started: dict[str, float] = {}
        self._shown: dict[str, int] = {}

    def update(self, task: str, done: int, total: int) -> None:
        """Log the task's share when it has passed another tenth."""
        if total <= 1:
            return
        started = self._started.setdefault(task, time.monotonic())
        share = done * _LOGGED_SHARES // max(total, 1)
        if time.monotonic() - started < _QUIET_S or share <= self._shown.get(task, 0):
            return
        self._shown[task] = share
        self._log(f"{task}: {done:,} of {total:,}")


def choose_progress(log: Callable[[str], Any] | None) -> Progress:
    """Return a bar on a terminal, else lines to `log` (standard error without one)."""
    if sys.stderr.isatty():
        return BarProgress()
    return LineProgress(log or _print_line)


def _print_line(text: str) -> None:
    with suppress(BrokenPipeError):  # `2>&1 | head`: nobody reads, and the night goes on
        sys.stderr.write(f"  {text}\n")
        sys.stderr.flush()
