"""The sections about how much a night uses: who runs heavy steps, and how a large store is cut.

What belongs here: declarations. What does not: the other sections, ranges (rules.py), reading
(tree.py).
"""

from __future__ import annotations

from noctuary.values import dataclass

RUNNERS = ("local", "ray")

FEWEST_SHARDS = 2
"""From which on shards are shown: one shard is the night itself."""


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


@dataclass(frozen=True, slots=True)
class ShardSettings:
    """How a store of many millions is cut in Dagster.

    Attributes:
        count: Partitions, each about a million memories; 0 or 1: none, and nothing of them shows.
    """

    count: int = 0

    @property
    def shown(self) -> bool:
        """Return whether there are partitions."""
        return self.count >= FEWEST_SHARDS
