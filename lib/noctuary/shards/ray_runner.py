"""The runner beyond one machine: Ray Data over the same shards, actors that keep their model.

What belongs here: handing shards to a pool of actors and what their deaths become. What does not:
starting and ending Ray (`ray_cluster`), tables (`ray_tables`), the work itself (`working`).

Only names of shards and fragments travel through Ray; rows are read and written as files, so that
every machine of a cluster must see the store's work directory under the same path.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pickle
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from noctuary.errors import ConfigError, NoctuaryError, ShardError
from noctuary.files import remove_temporary_files
from noctuary.progress import SILENT, Progress
from noctuary.settings.scale_sections import RunnerSettings
from noctuary.shards.local_runner import ATTEMPTS
from noctuary.shards.ray_cluster import RayCluster
from noctuary.shards.ray_tables import build_index, compact_table
from noctuary.shards.task import BatchTask, Fragment, IndexSpec, Shard, TablePlace
from noctuary.shards.worker import portable
from noctuary.shards.working import ShardWorker

_FRAGMENT, _ERROR = "fragment", "error"


def open_ray_runner(settings: RunnerSettings) -> RayRunner:
    """Return the runner; Ray is started, or a cluster asked, at its first work.

    Raises:
        ConfigError: The extra is not installed.
    """
    missing = [name for name in ("ray", "lance_ray") if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f'runner.kind is "ray" and {" and ".join(missing)} is not installed: '
            "pip install 'noctuary[ray]', or set runner.kind to \"local\""
        )
    return RayRunner(RayCluster.of(settings))


@dataclass(frozen=True, slots=True)
class RayRunner:
    """Runs tasks in actors of a Ray cluster.

    Attributes:
        cluster: Where they are.
    """

    cluster: RayCluster

    @property
    def name(self) -> str:
        """See `Runner`."""
        return "ray"

    def run(
        self,
        task: BatchTask,
        shards: Sequence[Shard],
        directory: Path,
        progress: Progress = SILENT,
    ) -> list[Fragment]:
        """See `Runner`."""
        directory.mkdir(parents=True, exist_ok=True)
        self.cluster.connect()
        made: dict[str, Fragment] = {}
        total, done = sum(shard.rows for shard in shards), 0
        rows_of = {shard.key: shard.rows for shard in shards}
        try:
            for row in _rows(task, shards, directory, min(self.cluster.workers(), len(shards))):
                if row[_ERROR] is not None:
                    raise pickle.loads(row[_ERROR])
                fragment: Fragment = pickle.loads(row[_FRAGMENT])
                made[fragment.key] = fragment
                done += rows_of[fragment.key]
                progress.update(task.name, done, total)
        finally:
            remove_temporary_files(directory, below=False)
        return [made[shard.key] for shard in shards]

    def build_index(self, table: TablePlace, spec: IndexSpec) -> None:
        """See `Runner`."""
        self.cluster.connect()
        build_index(table, spec, self.cluster.workers())

    def compact(self, table: TablePlace, keep_versions: timedelta) -> None:
        """See `Runner`."""
        self.cluster.connect()
        compact_table(table, keep_versions, self.cluster.workers())

    def close(self) -> None:
        """See `Runner`."""
        self.cluster.close()


def _rows(task: BatchTask, shards: Sequence[Shard], directory: Path, workers: int) -> Any:
    """Yield what became of every shard, as it comes.

    Raises:
        ShardError: A shard's actors died too often, or Ray itself failed.
    """
    data: Any = importlib.import_module("ray.data")
    ray: Any = importlib.import_module("ray")
    items = [{"shard": pickle.dumps(shard)} for shard in shards]
    # One block a shard: what Ray hands out, and runs again where an actor dies, is one shard.
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
            ray_remote_args_fn=_retries,
        )
    try:
        yield from work.iter_rows()
    except ray.exceptions.RayError as error:
        raise ShardError(
            f"{task.name}: Ray gave up after {ATTEMPTS} attempts: {_first_line(error)}: most often "
            "there was not enough memory. What the other shards became is kept; lower "
            "runner.workers and run again."
        ) from error


def _retries() -> dict[str, int]:
    """Return how often Ray hands out a shard again whose actor died; actors it always restarts."""
    return {"max_task_retries": ATTEMPTS - 1, "max_restarts": -1}


class ShardActor:
    """Works on shards in a process of Ray; opened once, so that a model is loaded once."""

    def __init__(self, opening: bytes) -> None:
        """Take a pickled task and directory; what fails in it is told with the first shard."""
        os.umask(0o077)  # this process is the night's, on whatever machine
        self._opening = opening
        self._worker: ShardWorker | None = None

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        """Return the pickled fragments of pickled shards, or the pickled error that one raised."""
        told = [self._work(shard) for shard in batch["shard"]]
        return {_FRAGMENT: [made for made, _ in told], _ERROR: [error for _, error in told]}

    def _work(self, shard: bytes) -> tuple[bytes | None, bytes | None]:
        try:
            self._worker = self._worker or ShardWorker(*pickle.loads(self._opening))
            return pickle.dumps(self._worker.work(pickle.loads(shard))), None
        except NoctuaryError as error:
            return None, pickle.dumps(portable(error))


def _first_line(error: Exception) -> str:
    return str(error).strip().rpartition("\n")[2]
