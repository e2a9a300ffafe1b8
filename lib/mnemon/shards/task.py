"""The seam between heavy steps and whoever runs them: nouns and protocols only.

What belongs here: what a step must be (`BatchTask`), what it is given (`Shard`), what it leaves
(`Fragment`) and who runs it (`Runner`). What does not: any step, any runner.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from mnemon.progress import SILENT, Progress

RecordBatch = Any
"""A pyarrow.RecordBatch; pyarrow ships no usable types and is imported where it is used."""

BatchFunction = Callable[[RecordBatch], RecordBatch]
"""Pure: equal batches give equal results, wherever, whenever and after whatever it is called."""


class BatchTask(Protocol):
    """A heavy step, cut so that a row's result depends on nothing but that row's batch.

    Instances travel to other processes and machines: frozen dataclasses of paths, numbers and
    texts, importable by name, picklable, without open files or models.
    """

    @property
    def name(self) -> str:
        """What it is called in progress and errors, in a file name's characters."""
        ...

    @property
    def row_ms(self) -> float:
        """About how long one row takes on one core; decides whether other processes pay."""
        ...

    def open(self, threads: int) -> BatchFunction:
        """Return the function; called once per process, so that models are loaded once.

        Args:
            threads: Threads that it may use at once, at least 1.
        """
        ...


@dataclass(frozen=True, slots=True)
class Shard:
    """Rows that one call works on: an Arrow IPC file.

    Attributes:
        key: 32 hex digits, of the task and of the rows: names the fragment that it becomes.
        path: Where the rows lie; every worker must be able to read it.
        rows: How many.
    """

    key: str
    path: Path
    rows: int


@dataclass(frozen=True, slots=True)
class Fragment:
    """What a shard became: an Arrow IPC file, whole or absent.

    Attributes:
        key: Of its shard.
        path: Where it lies, `<key>.arrow`.
        rows: How many rows it holds; not always those of the shard.
    """

    key: str
    path: Path
    rows: int


class Runner(Protocol):
    """Whoever runs a task over shards. No other code knows which one does."""

    @property
    def name(self) -> str:
        """Return "local" or "ray"."""
        ...

    def run(
        self,
        task: BatchTask,
        shards: Sequence[Shard],
        directory: Path,
        progress: Progress = SILENT,
    ) -> list[Fragment]:
        """Write the fragment of every shard and return them, in the order of the shards.

        A fragment that is there already is taken as it is, so that a killed run goes on where it
        was. A worker that dies is replaced and its shard run again: nothing is written twice,
        because a fragment is named by its shard's key and put in place whole.

        Args:
            task: What to do.
            shards: With distinct keys.
            directory: Where fragments are written; made where absent.
            progress: Told of rows done, under the task's name.

        Raises:
            ShardError: A shard failed, or its worker died, again and again; what the others made
                stays.
        """
        ...
