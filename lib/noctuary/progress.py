"""Progress of long work, as a protocol: the library reports, the caller decides how it looks."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Told how far a named piece of work has come."""

    def update(self, task: str, done: int, total: int) -> None:
        """Report that `done` of `total` units of `task` are finished; may be called often."""
        ...


class SilentProgress:
    """A progress that shows nothing; the default of every library function."""

    def update(self, task: str, done: int, total: int) -> None:
        """Ignore the report."""


SILENT = SilentProgress()
