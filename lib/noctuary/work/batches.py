"""How long the batches of a long scan took, in the shape of RFC 914, phase 14.

What belongs here: adding up and describing. What does not: what a batch is or does. Times go into
notes and metadata, never into what a digest covers.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from noctuary.progress import SILENT, Progress


@dataclass(slots=True)
class BatchTimings:
    """Batches in the order in which they were done.

    Attributes:
        offsets: Rows before each batch.
        rows: Rows of each batch.
        ms: What each took.
    """

    offsets: list[int] = field(default_factory=list[int])
    rows: list[int] = field(default_factory=list[int])
    ms: list[float] = field(default_factory=list[float])

    def add(self, offset: int, rows: int, ms: float) -> None:
        """Append one batch."""
        self.offsets.append(offset)
        self.rows.append(rows)
        self.ms.append(round(ms, 2))

    def report(self) -> dict[str, Any]:
        """Return the RFC's object; without a batch, averages are 0 and the slowest is None."""
        return {
            "total_ms": round(sum(self.ms), 2),
            "batches": len(self.ms),
            "batch_timings_ms": list(self.ms),
            "avg_batch_ms": round(sum(self.ms) / len(self.ms), 2) if self.ms else 0.0,
            "slowest_batch": self._slowest(),
        }

    def summary(self) -> dict[str, Any]:
        """Return the same without the list of times, and with the rows per second."""
        whole = self.report()
        del whole["batch_timings_ms"]
        seconds = sum(self.ms) / 1000
        return {**whole, "rows_per_s": round(sum(self.rows) / seconds) if seconds else None}

    def _slowest(self) -> dict[str, Any] | None:
        if not self.ms:
            return None
        index = max(range(len(self.ms)), key=self.ms.__getitem__)
        return {"index": index, "ms": self.ms[index], "offset": self.offsets[index]}


class TimedProgress:
    """A progress that passes on what it is told and notes when: one batch per report of a task."""

    def __init__(self, task: str, beyond: Progress = SILENT) -> None:
        self.timings = BatchTimings()
        self._task = task
        self._beyond = beyond
        self._done = 0
        self._since_s = time.perf_counter()

    def update(self, task: str, done: int, total: int) -> None:
        """Note the time since the last report of the task, and pass the report on."""
        if task == self._task:
            now_s = time.perf_counter()
            self.timings.add(self._done, done - self._done, (now_s - self._since_s) * 1000)
            self._done, self._since_s = done, now_s
        self._beyond.update(task, done, total)
