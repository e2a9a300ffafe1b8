"""Times of things asked in turn, and what is said of them. No system is known here."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Ask = Callable[[int], object]
"""Asks question number i."""


def time_ms(ask: Ask, number: int) -> float:
    """Return the wall time of asking one question in ms."""
    started = time.perf_counter_ns()
    ask(number)
    return (time.perf_counter_ns() - started) / 1e6


def take_turns(
    systems: Mapping[str, Ask], asked: Mapping[str, Sequence[int]]
) -> dict[str, dict[int, float]]:
    """Time every system on its questions, all systems on one question before the next.

    The order turns with every question, so that no system always finds the caches that the same
    other one left.

    Args:
        systems: By name.
        asked: By name, the question numbers, ascending; a slow system may skip some.

    Returns:
        By name, ms by question number.
    """
    names = list(systems)
    wanted = {name: set(asked[name]) for name in names}
    times: dict[str, dict[int, float]] = {name: {} for name in names}
    for turn, number in enumerate(sorted(set().union(*wanted.values()))):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            if number in wanted[name]:
                times[name][number] = time_ms(systems[name], number)
    return times


def percentiles(times: Mapping[int, float]) -> dict[str, float]:
    """Return p50, p95 and n of times in ms."""
    p50, p95 = np.percentile(list(times.values()), [50.0, 95.0])
    return {"p50_ms": round(float(p50), 3), "p95_ms": round(float(p95), 3), "n": len(times)}


def ratio_p50(times: Mapping[int, float], base: Mapping[int, float]) -> float:
    """Return the ratio of the medians over the questions that both were asked.

    Raises:
        ValueError: If there is no such question.
    """
    both = sorted(times.keys() & base.keys())
    if not both:
        raise ValueError("expected a question that both systems were asked, found none")
    ours, theirs = ([found[number] for number in both] for found in (times, base))
    return statistics.median(ours) / statistics.median(theirs)


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Return median, least and number of times in ms."""
    return {
        "median_ms": round(statistics.median(values), 1),
        "min_ms": round(min(values), 1),
        "rounds": len(values),
    }
