"""How it runs: definitions, jobs, schedules, resources, what `noctuary nightly` and `ui` do.

No asset bodies, no computing. `NightlyStore` is what a Dagster project of others gets.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noctuary_pipelines.component import NightlyStore

__all__ = ["NightlyStore"]

_HERE = Path(__file__).resolve().parent
TOP = _HERE if (_HERE / "workspace.yaml").is_file() else _HERE.parents[1]
"""Contains `data/` and `workspace.yaml`: the top of a checkout; in a wheel, this package."""


def __getattr__(name: str) -> Any:
    # Lazily: `noctuary nightly` says where it writes before it loads Dagster.
    if name in __all__:
        from noctuary_pipelines import component

        return getattr(component, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    # `dg` looks for components among what a module lists.
    return [*globals(), *__all__]
