"""The memory of a process tree: a limit that the kernel holds, and its peaks. Linux only."""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

# The limit: a control group, page cache included.

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


# Peaks, sampled while the processes run.

SAMPLE_SECONDS = 0.5
"""Between two looks; shorter sees shorter peaks and costs the measured process some CPU."""

_FIELDS = {"Pss:": "pss", "Pss_Anon:": "anonymous"}


@dataclass
class Peaks:
    """Highest sums of a process tree, bytes.

    Attributes:
        pss: Resident, pages shared by several processes counted once.
        anonymous: Of it what is no mapped file: what cannot be dropped under pressure.
        processes: Most processes at once.
    """

    pss: int = 0
    anonymous: int = 0
    processes: int = 0

    def take(self, pss: int, anonymous: int, processes: int) -> None:
        """Raise the peaks to a sample."""
        self.pss = max(self.pss, pss)
        self.anonymous = max(self.anonymous, anonymous)
        self.processes = max(self.processes, processes)

    def to_json(self) -> dict[str, int]:
        """Return plain values."""
        return {
            "peak_pss_bytes": self.pss,
            "peak_anonymous_bytes": self.anonymous,
            "processes": self.processes,
        }


@dataclass
class TreeWatch:
    """Samples a process tree in a thread until stopped.

    Attributes:
        root: Process id.
        label: Says under what name a sample counts, beside "whole".
        peaks: By label.
    """

    root: int
    label: Callable[[], str]
    peaks: dict[str, Peaks] = field(default_factory=lambda: defaultdict(Peaks))
    _stop: threading.Event = field(default_factory=threading.Event)

    def start(self) -> TreeWatch:
        """Begin; returns itself."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """End after the sample that is being taken."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            pss, anonymous, count = sample_tree(self.root)
            for name in ("whole", self.label()):
                self.peaks[name].take(pss, anonymous, count)
            time.sleep(SAMPLE_SECONDS)


def sample_tree(root: int) -> tuple[int, int, int]:
    """Return proportional and anonymous bytes and the number of living processes of a tree."""
    found = [_read_memory(pid) for pid in _descendants(root)]
    living = [one for one in found if one is not None]
    return sum(p for p, _ in living), sum(a for _, a in living), len(living)


def _descendants(root: int) -> list[int]:
    children: defaultdict[int, list[int]] = defaultdict(list)
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name may hold blanks and brackets; what follows the last bracket is regular.
            after = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        children[int(after[1])].append(int(path.parent.name))
    found, todo = [root], [root]
    while todo:
        more = children[todo.pop()]
        found += more
        todo += more
    return found


def _read_memory(pid: int) -> tuple[int, int] | None:
    sums = {"pss": 0, "anonymous": 0}
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    for line in lines:
        name = _FIELDS.get(line.partition(" ")[0])
        if name is not None:
            sums[name] += int(line.split()[1]) * 1024
    return sums["pss"], sums["anonymous"]
