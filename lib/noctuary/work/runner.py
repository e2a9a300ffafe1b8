"""Heavy steps as pure functions over record batches, and the processes that run them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing import Pipe
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from noctuary.core.errors import NoctuaryError, ShardError
from noctuary.core.files import remove_temporary_files
from noctuary.core.types import SILENT, Progress, usable_cores
from noctuary.work.fragments import (
    BatchFunction,
    BatchTask,
    Fragment,
    IndexSpec,
    Shard,
    TablePlace,
    count_rows,
    fragment_path,
    read_batches,
    write_table,
)

# Working on shards: what a worker does, whoever started it.


@dataclass(slots=True)
class ShardWorker:
    """Works on shards of one task, one after the other.

    Attributes:
        task: Opened at the first shard.
        directory: Where fragments go.
        threads: That the task may use.
    """

    task: BatchTask
    directory: Path
    threads: int = 1
    _function: BatchFunction | None = None

    def work(self, shard: Shard) -> Fragment:
        """Put the fragment of a shard in place and return it; one that is there is taken.

        Raises:
            ShardError: The task failed, in the words of its own error.
            NoctuaryError: That the task raised.
        """
        try:
            self._function = self._function or self.task.open(self.threads)
            return write_fragment(self._function, shard, self.directory)
        except NoctuaryError:
            raise
        except Exception as error:
            raise ShardError(
                f"{self.task.name}: {shard.rows} rows ({shard.path.name}) failed: "
                f"{type(error).__name__}: {error}. What the other shards became is kept; remove "
                "the cause and run again."
            ) from error


def write_fragment(function: BatchFunction, shard: Shard, directory: Path) -> Fragment:
    """Work on a shard and put its fragment in place; one that is there and whole is taken."""
    path = fragment_path(directory, shard.key)
    held = count_rows(path)
    if held is None:
        made = [function(batch) for batch in read_batches(shard.path)]
        held = write_table(path, made)
    return Fragment(shard.key, path, held)


# A process of this machine that works on shards, seen from the night that starts it.


Answer = Fragment | NoctuaryError | None
"""What became of a shard; None: the process died."""

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_STDERR_FD = 2


class WorkerProcess:
    """One process with one thread per library, which ends with this one.

    A fresh interpreter, neither forked (libraries' threads do not survive it) nor spawned by
    multiprocessing (which would import the caller's main module, and Dagster with it).
    """

    def __init__(self, task: BatchTask, directory: Path) -> None:
        """Start it; what it imports and loads costs it about a second."""
        self._connection, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "noctuary.work.worker", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=_STDERR_FD,
                env=_environment(),
            )
        self._opening: tuple[BatchTask, Path] | None = (task, directory)

    def give(self, shard: Shard) -> None:
        """Hand over a shard; it must be idle."""
        try:
            if self._opening is not None:
                self._connection.send(self._opening)
                self._opening = None
            self._connection.send(shard)
        except OSError:
            pass  # It died while it was idle; `take` says so.

    def take(self) -> Answer:
        """Wait for what became of the shard and return it."""
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            return None

    def end(self) -> None:
        """Kill it: what it has put in place is whole, the rest is not missed."""
        self._process.kill()
        self._process.wait()
        self._connection.close()

    @staticmethod
    def wait_for(workers: Iterable[WorkerProcess]) -> list[WorkerProcess]:
        """Wait until any of them has answered or died, and return those."""
        by_connection = {worker._connection: worker for worker in workers}
        return [by_connection[ready] for ready in wait(list(by_connection))]  # pyright: ignore[reportArgumentType]


def _environment() -> dict[str, str]:
    """Return this process's environment: one thread per library, the same modules."""
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    return {**os.environ, **dict.fromkeys(_THREAD_VARIABLES, "1"), "PYTHONPATH": path}


# Tending LanceDB tables in this process, on all its cores.


def build_index(table: TablePlace, spec: IndexSpec) -> None:
    """See `Runner.build_index`."""
    open_table(table).create_index(spec.column, config=_config(spec), replace=True)


def compact_table(table: TablePlace, keep_versions: timedelta) -> None:
    """See `Runner.compact`."""
    open_table(table).optimize(cleanup_older_than=keep_versions)


def open_table(table: TablePlace) -> Any:
    """Return a LanceDB handle of a table at its latest version."""
    import lancedb

    return lancedb.connect(table.uri).open_table(table.name)


def _config(spec: IndexSpec) -> Any:
    from lancedb.index import HnswSq, IvfRq, IvfSq

    if spec.kind == "IVF_HNSW_SQ":
        return HnswSq(
            "cosine",
            num_partitions=spec.partitions,
            m=spec.edges,
            ef_construction=spec.build_width,
        )
    if spec.kind == "IVF_RQ":
        return IvfRq("cosine", num_partitions=spec.partitions, num_bits=spec.bits)
    return IvfSq("cosine", num_partitions=spec.partitions)


# The runner that needs nothing: processes of this machine, or none where the work is small.


PROCESSES_PAY_MS = 8_000.0
"""Work from which other processes are started: each takes about a second to import and to load a
model, so that less is done sooner here."""

ATTEMPTS = 3
"""How often a shard is begun before its worker's death is taken for its fault."""


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

    def build_index(self, table: TablePlace, spec: IndexSpec) -> None:
        """See `Runner`."""
        build_index(table, spec)

    def compact(self, table: TablePlace, keep_versions: timedelta) -> None:
        """See `Runner`."""
        compact_table(table, keep_versions)

    def close(self) -> None:
        """See `Runner`: processes end with the run that started them."""


def _run_here(
    task: BatchTask, shards: Sequence[Shard], directory: Path, progress: Progress, cores: int
) -> list[Fragment]:
    worker = ShardWorker(task, directory, cores)
    made: list[Fragment] = []
    total, done = sum(shard.rows for shard in shards), 0
    for shard in shards:
        made.append(worker.work(shard))
        done += shard.rows
        progress.update(task.name, done, total)
    return made


def _run_in_processes(
    task: BatchTask, shards: Sequence[Shard], directory: Path, progress: Progress, workers: int
) -> list[Fragment]:
    crew = _Crew(task, directory, workers)
    waiting, made = deque(shards), dict[str, Fragment]()
    total, done = sum(shard.rows for shard in shards), 0
    try:
        while len(made) < len(shards):
            crew.hand_out(waiting)
            for shard, answer in crew.take_in():
                if isinstance(answer, NoctuaryError):
                    raise answer
                if answer is None:
                    waiting.appendleft(shard)
                    continue
                made[shard.key] = answer
                done += shard.rows
                progress.update(task.name, done, total)
    finally:
        crew.end()
    return [made[shard.key] for shard in shards]


class _Crew:
    """Some workers, and who works on what."""

    def __init__(self, task: BatchTask, directory: Path, workers: int) -> None:
        self._task, self._directory, self._workers = task, directory, workers
        self._idle: list[WorkerProcess] = []
        self._busy: dict[WorkerProcess, Shard] = {}
        self._deaths: Counter[str] = Counter()

    def hand_out(self, waiting: deque[Shard]) -> None:
        """Give every worker a shard, as far as they go; workers are started when first needed."""
        while waiting and len(self._busy) < self._workers:
            worker = self._idle.pop() if self._idle else WorkerProcess(self._task, self._directory)
            self._busy[worker] = waiting.popleft()
            worker.give(self._busy[worker])

    def take_in(self) -> list[tuple[Shard, Fragment | NoctuaryError | None]]:
        """Wait for answers; None stands for a worker that died, which is replaced when needed.

        Raises:
            ShardError: A shard's workers died too often.
        """
        answers: list[tuple[Shard, Fragment | NoctuaryError | None]] = []
        for worker in WorkerProcess.wait_for(self._busy):
            shard, answer = self._busy.pop(worker), worker.take()
            if answer is None:
                worker.end()
                self._count_death(shard)
            else:
                self._idle.append(worker)
            answers.append((shard, answer))
        return answers

    def end(self) -> None:
        """End every worker, whatever it is doing, and remove what it had not finished."""
        for worker in [*self._idle, *self._busy]:
            worker.end()
        remove_temporary_files(self._directory, below=False)

    def _count_death(self, shard: Shard) -> None:
        self._deaths[shard.key] += 1
        if self._deaths[shard.key] >= ATTEMPTS:
            raise ShardError(
                f"{self._task.name}: the process that worked on {shard.path.name} ({shard.rows} "
                f"rows) died {ATTEMPTS} times: most often there was not enough memory. What the "
                "other shards became is kept; lower runner.workers and run again."
            )
