"""What each step of the suite took, summed over interrupted invocations."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from noctuary.core.files import write_text


class Ledger:
    """Seconds per set and step, kept in a file so that a resumed suite still knows its whole cost.

    A step that found everything done keeps the time of the invocation that did it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._started = time.perf_counter()
        self.sets: dict[str, dict[str, float]] = {}
        self.wall_seconds: list[float] = []
        if path.is_file():
            document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            self.sets = document["sets"]
            self.wall_seconds = document["wall_seconds"]

    def record(self, name: str, step: str, seconds: float) -> None:
        """Set what a step of a set took; written at once."""
        self.sets.setdefault(name, {})[step] = round(seconds, 2)
        self._write()

    def has(self, name: str, step: str) -> bool:
        """Whether a time is known."""
        return step in self.sets.get(name, {})

    def forget(self, name: str) -> None:
        """Drop a set that is measured afresh."""
        self.sets.pop(name, None)
        self._write()

    def begin(self, *, afresh: bool) -> None:
        """Open a new invocation; afresh drops the earlier ones."""
        if afresh:
            self.wall_seconds = []
        self._started = time.perf_counter()
        self.wall_seconds.append(0.0)

    def elapsed(self) -> float:
        """Return the seconds since the invocation began."""
        return time.perf_counter() - self._started

    def total(self) -> float:
        """Return the sum over sets and steps; steps of two sets overlap, so the wall is less."""
        return round(sum(sum(steps.values()) for steps in self.sets.values()), 2)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "sets": dict(sorted(self.sets.items())),
            "sum_seconds": self.total(),
            "wall_seconds": self.wall_seconds,
            "wall_total_seconds": round(sum(self.wall_seconds), 2),
        }

    def close(self) -> None:
        """Write the wall time of the invocation."""
        self._write()

    def _write(self) -> None:
        if self.wall_seconds:
            self.wall_seconds[-1] = round(self.elapsed(), 2)
        document = {"sets": self.sets, "wall_seconds": self.wall_seconds}
        write_text(self._path, json.dumps(document, indent=1))
