"""What a piece of work cost.

Wall time, CPU time of all threads and of worker processes that ended, peak resident memory of this
process meanwhile.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_RSS_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024


@dataclass
class Cost:
    """Filled when the measured block ends.

    Attributes:
        peak_rss_bytes: Highest resident size inside the block on Linux; elsewhere since the process
            started.
    """

    wall_ms: float = 0.0
    cpu_ms: float = 0.0
    peak_rss_bytes: int = 0

    def to_json(self) -> dict[str, float]:
        """Return plain values."""
        return {
            "wall_ms": round(self.wall_ms, 1),
            "cpu_ms": round(self.cpu_ms, 1),
            "peak_rss_bytes": self.peak_rss_bytes,
        }


@contextmanager
def measure() -> Generator[Cost]:
    """Measure the block."""
    cost = Cost()
    _reset_peak()
    wall, cpu = time.perf_counter(), _cpu_seconds()
    try:
        yield cost
    finally:
        cost.wall_ms = (time.perf_counter() - wall) * 1000
        cost.cpu_ms = (_cpu_seconds() - cpu) * 1000
        cost.peak_rss_bytes = _peak_rss_bytes()


def _cpu_seconds() -> float:
    workers = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + workers.ru_utime + workers.ru_stime


def _reset_peak() -> None:
    """Ask Linux to forget the process's high-water mark; silently nothing elsewhere."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return


def _peak_rss_bytes() -> int:
    try:
        for line in (
            Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
        ):
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT_BYTES
