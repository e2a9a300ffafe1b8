"""How a cost grows with a store, and what nights of larger stores would take; nothing is run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float | None:
    """Return b of value = a * size^b by least squares on logarithms; 1 is in proportion.

    Args:
        sizes: At least two that are positive and distinct, or the result is None.
        values: As many; those that are not positive are left out with their size.
    """
    points = [
        (math.log(size), math.log(value))
        for size, value in zip(sizes, values, strict=True)
        if size > 0 and value > 0
    ]
    if len({x for x, _ in points}) < 2:
        return None
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    above = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return above / sum((x - mean_x) ** 2 for x, _ in points)


def extrapolate(size: int, value: float, slope: float, wanted: int) -> float:
    """Return the value at another size, from one measured value and the exponent.

    Args:
        size: The measured one, positive.
        value: What was measured there.
        slope: As `exponent` returns it.
        wanted: The other size, positive.
    """
    return value * (wanted / size) ** slope


# Nights of tens of millions of memories and more, planned from the largest ones measured.

PLANNED = (10_000_000, 100_000_000, 1_000_000_000)

MACHINE_CORES = 16
"""Cores of a planned machine; those that were measured are shared and slow, so that hours err on
the long side."""

MACHINES: Mapping[int, int] = {10_000_000: 1, 100_000_000: 4, 1_000_000_000: 32}
"""Machines of a plan: as many as bring the work that divides under a night of eight hours."""

CORES_IN_USE = 0.8
"""Share of the cores that work meanwhile: shards end at different times."""

CORE_HOUR_USD = 0.05
"""A core of a general-purpose machine on demand, list prices of 2026, rounded up."""

GPU_ROWS_PER_S = 900.0
GPU_HOUR_USD = 0.80
"""One L4 with a MiniLM-class model (research/ecosystem.md 3.3): $.24 per million rows."""

DIVIDED = frozenset({"memory_vectors", "summaries"})
"""Stages whose work is rows: shards on any number of machines."""


LEAST_SECONDS = 1.0
"""A stage that takes less at the largest measured size does not grow into anything."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One stage at one size.

    Attributes:
        name: Of the stage.
        core_hours: Work of all cores.
        hours: Wall time with the machines of the plan.
        bytes_on_disk: What it leaves.
        usd: Of the core hours.
        divides: Whether more machines help.
    """

    name: str
    core_hours: float
    hours: float
    bytes_on_disk: float
    usd: float
    divides: bool


def plan_stages(document: Mapping[str, Any], size: int) -> list[Planned]:
    """Return every stage that matters at a planned size, longest first.

    Args:
        document: scale.json.
        size: One of PLANNED.
    """
    largest = document["nights"][-1]
    found: list[Planned] = []
    for stage in largest["first"]["stages"]:
        if stage["wall_s"] < LEAST_SECONDS:
            continue
        found.append(_plan(stage, document, size))
    return sorted(found, key=lambda planned: -planned.hours)


def gpu_hours(size: int) -> float:
    """Return hours of one GPU to embed so many memories."""
    return size / GPU_ROWS_PER_S / 3600


def totals(stages: Sequence[Planned]) -> Planned:
    """Return the sums of a plan; stages run one after the other."""
    return Planned(
        "whole night",
        sum(s.core_hours for s in stages),
        sum(s.hours for s in stages),
        sum(s.bytes_on_disk for s in stages),
        sum(s.usd for s in stages),
        divides=False,
    )


def _plan(stage: Mapping[str, Any], document: Mapping[str, Any], size: int) -> Planned:
    name = stage["name"]
    cpu_s = _grown(stage, "cpu_s", document, size)
    wall_s = _grown(stage, "wall_s", document, size)
    if name == "memory_vectors":
        # The night ran a cut model; what the bundled one takes was measured by itself.
        bundled = document["bundled_model"]
        cpu_s = bundled["cpu_s"] * size / bundled["memories"]
    divides = name in DIVIDED
    if divides:
        wall_s = cpu_s / (MACHINES[size] * MACHINE_CORES * CORES_IN_USE)
    core_hours = cpu_s / 3600
    held = _grown(stage, "bytes_on_disk", document, size)
    return Planned(name, core_hours, wall_s / 3600, held, core_hours * CORE_HOUR_USD, divides)


def _grown(stage: Mapping[str, Any], field: str, document: Mapping[str, Any], size: int) -> float:
    """Return a cost at another size, by the growth between the two largest nights.

    At least in proportion: what grew slower there was a fixed cost that still counted.
    """
    value = float(stage[field])
    if value <= 0:
        return 0.0
    largest = document["nights"][-2:]
    sizes = [night["memories"] for night in largest]
    values = [_field(night, stage["name"], field) for night in largest]
    slope = max(exponent(sizes, values) or 1.0, 1.0)
    return extrapolate(sizes[-1], value, slope, size)


def _field(night: Mapping[str, Any], name: str, field: str) -> float:
    stages = night["first"]["stages"]
    return next((float(stage[field]) for stage in stages if stage["name"] == name), 0.0)
