"""Ray for one night: its own on this machine, or a cluster that is there.

What belongs here: starting, connecting, ending, how large and how quiet. What does not: what is
run on it (`ray_runner`).
"""

from __future__ import annotations

import importlib
import logging
import os
import shutil
import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from noctuary.cores import usable_cores
from noctuary.errors import ConfigError
from noctuary.settings.scale_sections import RunnerSettings
from noctuary.shards.files import SHARD_ROWS

WORKING_ROW_BYTES = 4_096
"""What a row takes while it is worked on, text and vector and copies; more makes a larger store."""

STORE_FACTOR = 3
"""The object store holds so many times what the workers hold at once: with less, Ray Data waits
for room while workers idle (research/ecosystem.md 3.1)."""

LEAST_STORE_BYTES = 100 << 20
"""Ray demands 75 MiB."""

MEMORY_USAGE_THRESHOLD = "0.98"
"""Share of this machine's memory in use from which Ray kills workers: other programs fill it too,
and its own 0.95 would kill work that has room."""

_CPUS = "CPU"

_QUIET = {
    "RAY_memory_usage_threshold": MEMORY_USAGE_THRESHOLD,
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # What its daemons say would stand in the middle of the night's own lines.
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
    "LANCE_LOG": "error",
}
"""Read once, when Ray is imported; what the environment says itself stays."""


@dataclass(slots=True)
class RayCluster:
    """A connection to Ray, made when it is first needed.

    Attributes:
        address: Of a cluster; empty starts Ray on this machine.
        wanted_workers: At once; 0 means all cores.
        object_store_mb: 0: computed.
    """

    address: str = ""
    wanted_workers: int = 0
    object_store_mb: int = 0
    _directory: Path | None = field(default=None, init=False)
    _is_ours: bool = field(default=False, init=False)

    @classmethod
    def of(cls, settings: RunnerSettings) -> RayCluster:
        """Return the cluster that settings name."""
        return cls(settings.address, settings.workers, settings.object_store_mb)

    def connect(self) -> None:
        """Connect, unless this process is connected already, by whomever.

        Raises:
            ConfigError: Nothing answers at the address.
        """
        hush()
        ray: Any = importlib.import_module("ray")
        if ray.is_initialized():
            return
        if not self.address:
            self._directory = Path(tempfile.mkdtemp(prefix="noctuary-ray-"))
        try:
            with warnings.catch_warnings():
                # Ray forks to start its daemons, which use none of this process's libraries.
                warnings.filterwarnings("ignore", message=".*fork")
                ray.init(**self.init_options())
        except (ConnectionError, TimeoutError, ValueError, RuntimeError) as error:
            self._remove_directory()
            place = self.address or "this machine"
            raise ConfigError(
                f'runner.kind is "ray" and Ray does not answer at {place}: {error}. Start it, '
                'correct runner.address, or set runner.kind to "local"'
            ) from error
        self._is_ours = True

    def init_options(self) -> dict[str, Any]:
        """Return what `ray.init` is told: of a cluster its address, of our own its size."""
        shared = {
            "logging_level": logging.CRITICAL,
            "log_to_driver": False,
            "configure_logging": False,
            "runtime_env": {"env_vars": _worker_environment()},
        }
        if self.address:
            return {"address": self.address, **shared}
        return {
            # Not one that happens to run here.
            "address": "local",
            "num_cpus": self.wanted_workers or usable_cores(),
            "object_store_memory": self.object_store_bytes(),
            "include_dashboard": False,
            **({"_temp_dir": str(self._directory)} if self._directory else {}),
            **shared,
        }

    def object_store_bytes(self) -> int:
        """Return how large the object store of a Ray of our own is."""
        if self.object_store_mb:
            return max(LEAST_STORE_BYTES, self.object_store_mb << 20)
        workers = self.wanted_workers or usable_cores()
        return max(LEAST_STORE_BYTES, STORE_FACTOR * workers * SHARD_ROWS * WORKING_ROW_BYTES)

    def workers(self) -> int:
        """Return how many actors there are at once; connected only."""
        ray: Any = importlib.import_module("ray")
        there = int(ray.cluster_resources().get(_CPUS, 1))
        return max(1, min(self.wanted_workers or there, there))

    def close(self) -> None:
        """Disconnect, and end a Ray that was started here; one that others made stays."""
        if self._is_ours:
            importlib.import_module("ray").shutdown()
            self._is_ours = False
        self._remove_directory()

    def _remove_directory(self) -> None:
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None


def hush() -> None:
    """Keep Ray from counting its users and from writing to the terminal; before its import."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    for name, value in _QUIET.items():
        os.environ.setdefault(name, value)
    data: Any = importlib.import_module("ray.data")
    context = data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    for name in ("ray", "ray.data"):
        # Errors included: whoever waits is told, and a worker that is replaced is none.
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _worker_environment() -> dict[str, str]:
    threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return {**dict.fromkeys(threads, "1"), "RAY_USAGE_STATS_ENABLED": "0"}
