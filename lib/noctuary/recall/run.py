"""The state of one recall while it runs: its clock, its timings, what went wrong. No ranking."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import field

from noctuary.hooks import fire, has_hooks
from noctuary.recall.result import RecallWarning
from noctuary.values import dataclass


@dataclass
class Run:
    """What is known so far about one recall.

    Attributes:
        started_s: `time.perf_counter` at its start.
        deadline_ms: Wall time after which optional steps are skipped; None for no limit.
        warnings: Degradations so far.
        phase_timing_ms: Wall time of every step so far.
    """

    started_s: float
    deadline_ms: float | None
    warnings: list[RecallWarning] = field(default_factory=list[RecallWarning])
    phase_timing_ms: dict[str, float] = field(default_factory=dict[str, float])

    @contextmanager
    def step(self, name: str) -> Generator[None]:
        """Time one step; a step that runs twice is summed."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            spent = (time.perf_counter() - begin) * 1000
            self.phase_timing_ms[name] = round(self.phase_timing_ms.get(name, 0.0) + spent, 3)

    def finish(self) -> None:
        """Note the time of the whole recall."""
        self.phase_timing_ms["total"] = round((time.perf_counter() - self.started_s) * 1000, 3)

    def left_ms(self) -> float:
        """Return the time left until the deadline; infinite without one, below 0 after it."""
        if self.deadline_ms is None:
            return math.inf
        return self.deadline_ms - (time.perf_counter() - self.started_s) * 1000

    def late(self) -> bool:
        """Say whether the deadline has passed."""
        return self.left_ms() < 0

    def warn(self, code: str, message: str) -> None:
        """Record a degradation, once."""
        self.extend([RecallWarning(code, message)])

    def extend(self, warnings: Iterable[RecallWarning]) -> None:
        """Record degradations; the same one twice is one."""
        self.warnings.extend(w for w in warnings if w not in self.warnings)

    def fire(self, name: str, context: dict[str, object]) -> None:
        """Call the hooks of a name; one that raises is a warning."""
        if has_hooks(name):
            for fault in fire(name, context):
                self.warn("hook_failed", fault)
