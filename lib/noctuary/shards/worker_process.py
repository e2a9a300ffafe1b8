"""A process of this machine that works on shards, seen from the night that starts it.

What belongs here: starting it, handing it a shard, its answer, its end. What does not: how many
there are and what becomes of a death (`local_runner`), what it does (`worker`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from multiprocessing import Pipe
from multiprocessing.connection import wait
from pathlib import Path

from noctuary.errors import NoctuaryError
from noctuary.shards.task import BatchTask, Fragment, Shard

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
                [sys.executable, "-P", "-m", "noctuary.shards.worker", str(theirs.fileno())],
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
