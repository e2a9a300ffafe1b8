"""The runner beyond one machine: Ray Data over the same shards."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import pickle
import shutil
import socket
import tempfile
import warnings
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from noctuary.core.errors import ConfigError, NoctuaryError, ShardError
from noctuary.core.files import remove_temporary_files
from noctuary.core.settings import RunnerSettings
from noctuary.core.types import SILENT, Progress, usable_cores
from noctuary.work.runner import ATTEMPTS, ONE_THREAD, gather, work_elsewhere
from noctuary.work.shards import SHARD_ROWS, VECTOR, BatchTask, IndexSpec, Shard

WORKING_ROW_BYTES = 4_096  # of a row at work, text and vector and copies; more makes a larger store
STORE_FACTOR = 3  # times what workers hold at once: with less Ray Data waits while workers idle
LEAST_STORE_BYTES = 100 << 20  # Ray demands 75 MiB
MEMORY_USAGE_THRESHOLD = "0.98"  # of this machine, other programs too; Ray's own is .95
KNOCK_S = 10.0  # longest wait for a cluster's port; one that is up answers in milliseconds

_CPUS = "CPU"

_QUIET = {
    "RAY_memory_usage_threshold": MEMORY_USAGE_THRESHOLD,
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",
    "LANCE_LOG": "error",
}
"""Ray reads these at import; existing values win."""


@dataclass(slots=True)
class RayCluster:
    """A connection to Ray, made when it is first needed."""

    settings: RunnerSettings
    _directory: Path | None = field(default=None, init=False)
    _is_ours: bool = field(default=False, init=False)

    def connect(self) -> None:
        """Connect, unless this process is connected already, by whomever."""
        hush()
        ray: Any = importlib.import_module("ray")
        if ray.is_initialized():
            return
        if not self.settings.address:
            self._directory = Path(tempfile.mkdtemp(prefix="noctuary-ray-"))
        try:
            self._knock()
            with warnings.catch_warnings():
                # Ray forks to start its daemons, which use none of this process's libraries.
                warnings.filterwarnings("ignore", message=".*fork")
                ray.init(**self.init_options())
        except (OSError, ValueError, RuntimeError) as error:
            self._remove_directory()
            place = self.settings.address or "this machine"
            raise ConfigError(
                f'runner.kind is "ray" and Ray does not answer at {place}: {error}. Start it, '
                'correct runner.address, or set runner.kind to "local"'
            ) from error
        self._is_ours = True

    def _knock(self) -> None:
        """Try the cluster's port: Ray itself retries for minutes before it fails."""
        host, separator, port = self.settings.address.removeprefix("ray://").rpartition(":")
        if separator:
            socket.create_connection((host, int(port)), KNOCK_S).close()

    def init_options(self) -> dict[str, Any]:
        """Return the options of `ray.init`: a cluster's address, or the size of our own."""
        shared = {
            "logging_level": logging.CRITICAL,
            "log_to_driver": False,
            "configure_logging": False,
            "runtime_env": {"env_vars": {**ONE_THREAD, "RAY_USAGE_STATS_ENABLED": "0"}},
        }
        if self.settings.address:
            return {"address": self.settings.address, **shared}
        return {
            # Not one that happens to run here.
            "address": "local",
            "num_cpus": self.settings.workers or usable_cores(),
            "object_store_memory": self.object_store_bytes(),
            "include_dashboard": False,
            **({"_temp_dir": str(self._directory)} if self._directory else {}),
            **shared,
        }

    def object_store_bytes(self) -> int:
        """Return how large the object store of a Ray of our own is."""
        if self.settings.object_store_mb:
            return max(LEAST_STORE_BYTES, self.settings.object_store_mb << 20)
        workers = self.settings.workers or usable_cores()
        return max(LEAST_STORE_BYTES, STORE_FACTOR * workers * SHARD_ROWS * WORKING_ROW_BYTES)

    def workers(self) -> int:
        """Return how many actors there are at once; connected only."""
        ray: Any = importlib.import_module("ray")
        there = int(ray.cluster_resources().get(_CPUS, 1))
        return max(1, min(self.settings.workers or there, there))

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
        # Errors included: failures are raised to the caller, and a replaced worker is none.
        logging.getLogger(name).setLevel(logging.CRITICAL)


_FRAGMENT, _ERROR = "fragment", "error"


def open_ray_runner(settings: RunnerSettings) -> RayRunner:
    """Return the runner; Ray is started, or a cluster asked, at its first work."""
    missing = [name for name in ("ray", "lance_ray") if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f'runner.kind is "ray" and {" and ".join(missing)} is not installed: '
            "pip install 'noctuary[ray]', or set runner.kind to \"local\""
        )
    return RayRunner(RayCluster(settings))


@dataclass(frozen=True, slots=True)
class RayRunner:
    """Runs tasks in actors of a Ray cluster, which keep their model."""

    # Only names of shards and fragments travel through Ray; rows are read and written as files, so
    # that every machine of a cluster must see the store's work directory under the same path.
    cluster: RayCluster

    def run(
        self, task: BatchTask, shards: Sequence[Shard], directory: Path, progress: Progress = SILENT
    ) -> list[Shard]:
        """See `Runner`."""
        directory.mkdir(parents=True, exist_ok=True)
        self.cluster.connect()
        workers = min(self.cluster.workers(), len(shards))
        try:
            return gather(task, shards, _fragments(task, shards, directory, workers), progress)
        finally:
            remove_temporary_files(directory, below=False)

    def build_index(self, table: Any, spec: IndexSpec) -> None:
        """See `Runner`."""
        self.cluster.connect()
        lance_ray: Any = importlib.import_module("lance_ray")
        lance_ray.create_index(
            table.uri,
            column=VECTOR,
            index_type=spec.kind,
            name=f"{VECTOR}_idx",
            replace=True,
            num_workers=self.cluster.workers(),
            metric="cosine",
            num_partitions=spec.partitions,
            **({"num_bits": spec.bits} if spec.kind == "IVF_RQ" else {}),
        )
        table.checkout_latest()

    def compact(self, table: Any, keep_versions: timedelta) -> None:
        """See `Runner`."""
        self.cluster.connect()
        lance_ray: Any = importlib.import_module("lance_ray")
        lance: Any = importlib.import_module("lance")
        lance_ray.compact_files(table.uri, num_workers=self.cluster.workers())
        dataset = lance.dataset(table.uri)
        dataset.optimize.optimize_indices()
        dataset.cleanup_old_versions(older_than=keep_versions)
        table.checkout_latest()

    def close(self) -> None:
        """See `Runner`."""
        self.cluster.close()


def _fragments(
    task: BatchTask, shards: Sequence[Shard], directory: Path, workers: int
) -> Generator[Shard]:
    data: Any = importlib.import_module("ray.data")
    ray: Any = importlib.import_module("ray")
    items = [{"shard": pickle.dumps(shard)} for shard in shards]
    # One block per shard: Ray schedules one shard, and runs it again if an actor dies.
    source = data.from_items(items, override_num_blocks=len(items))
    with warnings.catch_warnings():
        # Ray 2.60 has no other way to bound retries, and warns that 2.64 will; the extra pins it.
        warnings.filterwarnings("ignore", message="`ray_remote_args")
        work = source.map_batches(
            ShardActor,
            fn_constructor_args=(pickle.dumps((task, directory)),),
            batch_size=1,
            batch_format="numpy",
            compute=data.ActorPoolStrategy(size=workers, max_tasks_in_flight_per_actor=1),
            num_cpus=1,
            # A shard whose actor died is handed out again; actors are restarted always.
            ray_remote_args_fn=lambda: {"max_task_retries": ATTEMPTS - 1, "max_restarts": -1},
        )
    try:
        for row in work.iter_rows():
            if row[_ERROR] is not None:
                raise pickle.loads(row[_ERROR])
            yield pickle.loads(row[_FRAGMENT])
    except ray.exceptions.RayError as error:
        said = str(error).strip().rpartition("\n")[2]
        raise ShardError(
            f"{task.name}: Ray gave up after {ATTEMPTS} attempts: {said}: most often there was not "
            "enough memory. The other shards' results are kept; lower runner.workers and run "
            "again."
        ) from error


class ShardActor:
    """Works on shards in a process of Ray."""

    def __init__(self, opening: bytes) -> None:
        """Take a pickled task and directory; its errors are reported with the first shard."""
        os.umask(0o077)  # this process is the night's, on whatever machine
        self._opening = opening

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        """Return the pickled fragments of pickled shards, or the pickled error that one raised."""
        told = [self._work(shard) for shard in batch["shard"]]
        return {_FRAGMENT: [made for made, _ in told], _ERROR: [error for _, error in told]}

    def _work(self, shard: bytes) -> tuple[bytes | None, bytes | None]:
        try:
            return pickle.dumps(work_elsewhere(self._opening, pickle.loads(shard))), None
        except NoctuaryError as error:
            return None, pickle.dumps(error)
