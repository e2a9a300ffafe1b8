"""The memory of a process and all its children, sampled while they run; Linux only."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

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
    found = [_read(pid) for pid in _descendants(root)]
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


def _read(pid: int) -> tuple[int, int] | None:
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
