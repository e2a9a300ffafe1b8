"""The runner that needs nothing: processes of this machine, or none where the work is small.

What belongs here: handing out shards and what happens when a worker dies. What does not: what is
run, a worker itself (`worker_process`), the tables (`local_tables`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from noctuary.cores import usable_cores
from noctuary.errors import NoctuaryError, ShardError
from noctuary.files import remove_temporary_files
from noctuary.progress import SILENT, Progress
from noctuary.shards.local_tables import build_index, compact_table
from noctuary.shards.task import BatchTask, Fragment, IndexSpec, Shard, TablePlace
from noctuary.shards.worker_process import WorkerProcess
from noctuary.shards.working import ShardWorker

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
