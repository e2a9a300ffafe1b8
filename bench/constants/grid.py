"""Which constants are varied, and over which sets."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from noctuary.graph import sessions as conversation
from noctuary.graph import walk
from noctuary.graph import walk as named

Setting = Mapping[str, Any]
"""Value by constant; `seed_count` and `eta` are arguments of the walk."""

SAMPLED = 60
"""Settings drawn from a grid that has more; all of them would take hours."""


@dataclass(frozen=True, slots=True)
class Family:
    """Constants that are chosen together.

    Attributes:
        name: Short.
        sets: Sets that speak to them; each counts the same.
        choices: Values by constant.
    """

    name: str
    sets: tuple[str, ...]
    choices: Mapping[str, tuple[Any, ...]]

    def settings(self) -> list[dict[str, Any]]:
        """Return what is tried, the shipped setting first."""
        shipped = {name: shipped_value(name) for name in self.choices}
        grid = [
            dict(zip(self.choices, values, strict=True))
            for values in itertools.product(*self.choices.values())
        ]
        drawn = grid if len(grid) <= SAMPLED else random.Random(0).sample(grid, SAMPLED)
        return [shipped, *(setting for setting in drawn if setting != shipped)]


FAMILIES = (
    Family(
        "subjects",
        ("2wikimultihopqa", "hotpotqa", "musique_train", "scifact", "cisi"),
        {
            "NAMED_WEIGHT": (0.5, 0.7, 0.9, 1.2),
            "eta": (0.8, 1.0, 1.2),
            "DAMPING_POWER": (0.25, 0.35),
            "seed_count": (5, 10),
        },
    ),
    Family(
        "turns",
        ("locomo",),
        {
            "NEARBY": ((0.8, 0.6, 0.4), (0.9, 0.8, 0.6, 0.4), (1.0, 1.0, 0.8, 0.6), (0.6, 0.4)),
            "CONTEXT_WEIGHT": (0.5, 0.8, 1.1, 1.4),
            "SESSION_WEIGHT": (0.1, 0.2, 0.3, 0.4),
            "SPEAKER_WEIGHT": (0.3, 0.5, 0.7, 0.9),
        },
    ),
    Family("facts", ("locomo_obs", "realmem"), {"FACT_COVERAGE_WEIGHT": (0.0, 0.1, 0.2, 0.3, 0.4)}),
)

_ARGUMENTS: dict[str, Any] = walk.walk.__kwdefaults__ or {}
_MODULES: tuple[ModuleType, ...] = (conversation, named, walk)


def shipped_value(name: str) -> Any:
    """Return the value that a constant has in the code."""
    if name in _ARGUMENTS:
        return _ARGUMENTS[name]
    return getattr(_home(name), name)


def apply_setting(setting: Setting) -> None:
    """Give constants other values, in this process only."""
    for name, value in setting.items():
        if name in _ARGUMENTS:
            _ARGUMENTS[name] = value
        else:
            setattr(_home(name), name, value)


def _home(name: str) -> ModuleType:
    return next(module for module in _MODULES if hasattr(module, name))
