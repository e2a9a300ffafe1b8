"""The runner that needs nothing: processes of this machine, or none where the work is small.

What belongs here: the pool and what happens when a worker dies. What does not: what is run.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import wait as wait_for
from pathlib import Path

from mnemon.errors import ShardError
from mnemon.progress import SILENT, Progress
from mnemon.shards.cores import usable_cores
from mnemon.shards.files import write_fragment
from mnemon.shards.task import BatchFunction, BatchTask, Fragment, Shard

PROCESSES_PAY_MS = 8_000.0
"""Work from which other processes are started: each takes about a second to import and to load a
model, so that less is done sooner here."""

ATTEMPTS = 3
"""How often a shard is begun before its worker's death is taken for its fault."""

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class LocalRunner:
    """Runs tasks in processes of this machine.

    Attributes:
        workers: Processes at once; 0 means the cores that this process may use, 1 this process.
        processes_pay_ms: Work from which processes are started.
    """

    workers: int = 0
    processes_pay_ms: float = PROCESSES_PAY_MS

    @property
    def name(self) -> str:
        """See `Runner`."""
        return "local"

    def run(
        self,
        task: BatchTask,
        shards: Sequence[Shard],
        directory: Path,
        progress: Progress = SILENT,
    ) -> list[Fragment]:
        """See `Runner`."""
        directory.mkdir(parents=True, exist_ok=True)
        cores = self.workers or usable_cores()
        work_ms = sum(shard.rows for shard in shards) * task.row_ms
        if cores > 1 and len(shards) > 1 and work_ms >= self.processes_pay_ms:
            return _run_in_processes(task, shards, directory, progress, min(cores, len(shards)))
        return _run_here(task, shards, directory, progress, cores)


def _run_here(
    task: BatchTask, shards: Sequence[Shard], directory: Path, progress: Progress, cores: int
) -> list[Fragment]:
    function: BatchFunction | None = None
    made: list[Fragment] = []
    total, done = sum(shard.rows for shard in shards), 0
    for shard in shards:
        function = function or task.open(cores)
        made.append(write_fragment(function, shard, directory))
        done += shard.rows
        progress.update(task.name, done, total)
    return made


def _run_in_processes(
    task: BatchTask, shards: Sequence[Shard], directory: Path, progress: Progress, workers: int
) -> list[Fragment]:
    made: dict[str, Fragment] = {}
    begun = dict.fromkeys((shard.key for shard in shards), 0)
    total = sum(shard.rows for shard in shards)
    while waiting := [shard for shard in shards if shard.key not in made]:
        try:
            with _pool(task, workers) as pool:
                _drain(pool, waiting, directory, begun, made, task.name, total, progress)
        except BrokenProcessPool as error:
            # Whoever was running when the pool broke may have killed it; the others are innocent.
            worst = max(waiting, key=lambda shard: begun[shard.key])
            if begun[worst.key] >= ATTEMPTS:
                raise ShardError(
                    f"{task.name}: the process that worked on {worst.path.name} ({worst.rows} "
                    f"rows) died {ATTEMPTS} times: most often there was not enough memory. What "
                    "the others made is kept; lower runner.workers and run again."
                ) from error
    return [made[shard.key] for shard in shards]


def _drain(
    pool: ProcessPoolExecutor,
    waiting: Sequence[Shard],
    directory: Path,
    begun: dict[str, int],
    made: dict[str, Fragment],
    name: str,
    total: int,
    progress: Progress,
) -> None:
    """Hand out shards, a few ahead of the workers, and take in what they made."""
    todo = list(reversed(waiting))
    running: dict[Future[Fragment], Shard] = {}
    done = sum(fragment.rows for fragment in made.values())
    while todo or running:
        while todo and len(running) < _ahead(pool):
            shard = todo.pop()
            begun[shard.key] += 1
            running[pool.submit(_work, shard, directory)] = shard
        finished, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in finished:
            shard = running.pop(future)
            made[shard.key] = future.result()
            done += shard.rows
            progress.update(name, done, total)


def _ahead(pool: ProcessPoolExecutor) -> int:
    return int(pool._max_workers) + 1  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType]


@contextmanager
def _pool(task: BatchTask, workers: int) -> Generator[ProcessPoolExecutor]:
    """Yield a pool of fresh processes, one thread each, which end with this one."""
    # Spawned, not forked: this process has threads of libraries that do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with _one_thread_each():
        pool = ProcessPoolExecutor(workers, context, initializer=_start, initargs=(task,))
        try:
            yield pool
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _one_thread_each() -> Generator[None]:
    """Let children start with one thread per library; this process's libraries are loaded."""
    before = {name: os.environ.get(name) for name in _THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(_THREAD_VARIABLES, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


class _Worker:
    """What a worker process keeps between shards."""

    function: BatchFunction | None = None
    task: BatchTask | None = None


def _start(task: BatchTask) -> None:
    # Ctrl-C is the parent's to answer; a parent that was killed must not leave workers behind.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _Worker.task = task


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait_for([parent.sentinel])
        os._exit(1)


def _work(shard: Shard, directory: Path) -> Fragment:
    if _Worker.function is None:
        assert _Worker.task is not None
        _Worker.function = _Worker.task.open(1)
    return write_fragment(_Worker.function, shard, directory)
