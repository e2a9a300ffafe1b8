"""The section about how much a night uses: who runs heavy steps.

What belongs here: declarations. What does not: the other sections, ranges (rules.py), reading
(tree.py).
"""

from __future__ import annotations

from noctuary.values import dataclass

RUNNERS = ("local", "ray")


@dataclass(frozen=True, slots=True)
class RunnerSettings:
    """Who runs the heavy steps of a night.

    Attributes:
        kind: "local" (processes of this machine) or "ray" (needs the extra `ray`).
        workers: Workers at once; 0 means the cores of this machine, or the cluster's.
        memory_mb: What the databases inside a night may hold before they spill to disk.
        address: Of a Ray cluster; empty starts one on this machine for the night.
        object_store_mb: Of a Ray that the night starts itself; 0 means three times what its
            workers hold at once.
    """

    kind: str = "local"
    workers: int = 0
    memory_mb: int = 2_048
    address: str = ""
    object_store_mb: int = 0
