"""A limit of memory that the kernel holds: a control group, page cache included."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

_ROOTS = ((Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
          (Path("/sys/fs/cgroup"), "memory.max", "memory.peak"))  # fmt: skip


class Group:
    """A control group; what enters it and its children share the limit."""

    def __init__(self, directory: Path, peak_file: str) -> None:
        self._directory = directory
        self._peak_file = peak_file

    def enter(self) -> None:
        """Put the calling process into the group: for `preexec_fn`."""
        (self._directory / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")

    def remove(self) -> None:
        """Remove the group once nothing runs in it; one that is still in use stays."""
        with suppress(OSError):
            self._directory.rmdir()

    def peak_bytes(self) -> int | None:
        """Return the most that the group held, page cache included; None where it is not told."""
        try:
            return int((self._directory / self._peak_file).read_text(encoding="ascii"))
        except (OSError, ValueError):
            return None


@contextmanager
def limited_memory(limit_bytes: int | None) -> Generator[Group | None]:
    """Yield a group with a limit; None where none is asked for or none can be made.

    The kernel kills what cannot stay below the limit.
    """
    group = None if limit_bytes is None else _make(limit_bytes)
    try:
        yield group
    finally:
        if group is not None:
            group.remove()


def entrance(group: Group | None) -> Callable[[], None] | None:
    """Return what a child calls before it becomes its program."""
    return None if group is None else group.enter


def _make(limit_bytes: int) -> Group | None:
    for root, limit_file, peak_file in _ROOTS:
        directory = root / f"noctuary-bench-{os.getpid()}"
        try:
            directory.mkdir(exist_ok=True)
            (directory / limit_file).write_text(str(limit_bytes), encoding="ascii")
        except OSError:
            with suppress(OSError):
                directory.rmdir()
            continue
        return Group(directory, peak_file)
    return None
