"""Heavy steps as pure functions over record batches, and the processes that run them."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from noctuary.core.errors import NoctuaryError, ShardError
from noctuary.core.files import remove_temporary_files
from noctuary.core.types import SILENT, Progress, usable_cores
from noctuary.work.shards import (
    VECTOR,
    BatchFunction,
    BatchTask,
    IndexSpec,
    Shard,
    count_rows,
    fragment_path,
    read_batches,
    write_table,
)


@dataclass(slots=True)
class ShardWorker:
    """Works on shards of one task, one after the other."""

    task: BatchTask
    directory: Path
    threads: int = 1
    _function: BatchFunction | None = None

    def work(self, shard: Shard) -> Shard:
        """Put the fragment of a shard in place and return it; one that is there is taken."""
        try:
            function = self._function = self._function or self.task.open(self.threads)
            path = fragment_path(self.directory, shard.key)
            held = count_rows(path)
            if held is None:
                held = write_table(path, [function(batch) for batch in read_batches(shard.path)])
            return Shard(shard.key, path, held)
        except NoctuaryError:
            raise
        except Exception as error:
            raise ShardError(
                f"{self.task.name}: {shard.rows} rows ({shard.path.name}) failed: "
                f"{type(error).__name__}: {error}. The other shards' results are kept; remove "
                "the cause and run again."
            ) from error


def work_elsewhere(opening: bytes, shard: Shard) -> Shard:
    """Work on a shard inside a worker process."""
    try:
        return _open_worker(opening).work(shard)
    except NoctuaryError as error:
        if _can_travel(error):
            raise
        raise ShardError(str(error)) from error
    except Exception as error:
        raise ShardError(
            f"a worker could not open its task: {type(error).__name__}: {error}. A task must be "
            "importable by name."
        ) from error


@lru_cache(maxsize=1)
def _open_worker(opening: bytes) -> ShardWorker:
    return ShardWorker(*pickle.loads(opening))


def _can_travel(error: NoctuaryError) -> bool:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return False
    return True


def gather(
    task: BatchTask, shards: Sequence[Shard], fragments: Generator[Shard], progress: Progress
) -> list[Shard]:
    """Return fragments in the order of their shards, reporting progress on each."""
    rows = {shard.key: shard.rows for shard in shards}
    total, done = sum(rows.values()), 0
    made: dict[str, Shard] = {}
    with closing(fragments):
        for fragment in fragments:
            made[fragment.key] = fragment
            done += rows[fragment.key]
            progress.update(task.name, done, total)
    return [made[shard.key] for shard in shards]


PROCESSES_PAY_MS = 8_000.0  # of work: each process takes a second to import and to load a model
ATTEMPTS = 3  # how often a shard is begun before its worker's death is taken for its fault

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""The environment in which libraries use one thread; they read it when they are imported."""


@dataclass(frozen=True, slots=True)
class LocalRunner:
    """Runs tasks in processes of this machine."""

    workers: int = 0  # processes at once; 0 means the usable cores, 1 this process
    processes_pay_ms: float = PROCESSES_PAY_MS

    def run(
        self, task: BatchTask, shards: Sequence[Shard], directory: Path, progress: Progress = SILENT
    ) -> list[Shard]:
        """See `Runner`."""
        directory.mkdir(parents=True, exist_ok=True)
        cores = self.workers or usable_cores()
        work_ms = sum(shard.rows for shard in shards) * task.row_ms
        if cores > 1 and len(shards) > 1 and work_ms >= self.processes_pay_ms:
            fragments = _work_in_processes(task, shards, directory, cores)
        else:
            worker = ShardWorker(task, directory, cores)
            fragments = (worker.work(shard) for shard in shards)
        return gather(task, shards, fragments, progress)

    def build_index(self, table: Any, spec: IndexSpec) -> None:
        """See `Runner`."""
        from lancedb.index import IvfRq, IvfSq

        if spec.kind == "IVF_RQ":
            config = IvfRq("cosine", num_partitions=spec.partitions, num_bits=spec.bits)
        else:
            config = IvfSq("cosine", num_partitions=spec.partitions)
        table.create_index(VECTOR, config=config, replace=True)

    def compact(self, table: Any, keep_versions: timedelta) -> None:
        """See `Runner`."""
        table.optimize(cleanup_older_than=keep_versions)

    def close(self) -> None:
        """See `Runner`: processes end with the run that started them."""


def _work_in_processes(
    task: BatchTask, shards: Sequence[Shard], directory: Path, workers: int
) -> Generator[Shard]:
    # Every worker is a pool of its own, so that a death costs and counts for its own shard alone.
    opening, waiting, deaths = pickle.dumps((task, directory)), deque(shards), Counter[str]()
    idle: list[ProcessPoolExecutor] = []
    busy: dict[Future[Shard], tuple[ProcessPoolExecutor, Shard]] = {}
    with _crew(directory) as start_worker:
        while waiting or busy:
            while waiting and len(busy) < workers:
                with _child_environment():
                    worker = idle.pop() if idle else start_worker()
                    # One that died while idle is left alone, and another one is tried.
                    with suppress(BrokenProcessPool):
                        future = worker.submit(work_elsewhere, opening, waiting[0])
                        busy[future] = worker, waiting.popleft()
            for future in wait(busy, return_when=FIRST_COMPLETED).done:
                worker, shard = busy.pop(future)
                if not isinstance(future.exception(), BrokenProcessPool):
                    idle.append(worker)
                    yield future.result()
                    continue
                deaths[shard.key] += 1
                waiting.appendleft(shard)
                if deaths[shard.key] == ATTEMPTS:
                    raise ShardError(
                        f"{task.name}: the process that worked on {shard.path.name} ({shard.rows} "
                        f"rows) died {ATTEMPTS} times: most often there was not enough memory. "
                        "The other shards' results are kept; lower runner.workers and run again."
                    )


@contextmanager
def _crew(directory: Path) -> Generator[Callable[[], ProcessPoolExecutor]]:
    """Give a function that returns a new worker; all end at once with the block or this process."""
    context = get_context("spawn")
    leash, held = context.Pipe(duplex=False)
    crew: list[ProcessPoolExecutor] = []

    def start_worker() -> ProcessPoolExecutor:
        crew.append(ProcessPoolExecutor(1, context, _become_worker, (leash,)))
        return crew[-1]

    try:
        yield start_worker
    finally:
        held.close()
        for worker in crew:
            worker.shutdown()
        leash.close()
        remove_temporary_files(directory, below=False)


def _become_worker(leash: Connection[Any, Any]) -> None:
    # Ctrl-C reaches the whole terminal; the night that started this process answers it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The night owns standard output; prints of libraries go to standard error.
    os.dup2(2, 1)
    threading.Thread(target=_end_with, args=(leash,), daemon=True).start()


def _end_with(leash: Connection[Any, Any]) -> None:
    """End the process, in the middle of a shard as well, when the leash's other end is gone."""
    leash.poll(None)
    os._exit(0)


@contextmanager
def _child_environment() -> Generator[None]:
    """Let processes that start meanwhile use one thread, and import nothing from where they are."""
    wanted = {**ONE_THREAD, "PYTHONSAFEPATH": "1"}
    before = {name: os.environ[name] for name in wanted if name in os.environ}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name in wanted:
            del os.environ[name]
        os.environ.update(before)
