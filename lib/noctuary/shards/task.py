"""The seam between heavy steps and whoever runs them: nouns and protocols only.

What belongs here: what a step must be (`BatchTask`), what it is given (`Shard`), what it leaves
(`Fragment`), which table it tends (`TablePlace`, `IndexSpec`) and who runs it (`Runner`). What
does not: any step, any runner.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, Protocol

from noctuary.progress import SILENT, Progress

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


@dataclass(frozen=True, slots=True)
class TablePlace:
    """A LanceDB table that exists.

    Attributes:
        uri: Of its database: a directory's path, or `s3://bucket/prefix`.
        name: Of the table.
    """

    uri: str
    name: str


IndexKind = Literal["IVF_HNSW_SQ", "IVF_RQ", "IVF_SQ"]


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """An approximate index of a column of vectors, by cosine.

    Attributes:
        kind: Its name in Lance.
        partitions: Cells of the coarse quantizer, at least 1.
        edges: Of a node of the graph, at least 1; IVF_HNSW_SQ only.
        build_width: Of the search for them, at least `edges`; IVF_HNSW_SQ only.
        bits: Of a dimension's code, 1 to 8; IVF_RQ only.
        column: That is indexed.
    """

    kind: IndexKind
    partitions: int
    edges: int = 20
    build_width: int = 300
    bits: int = 1
    column: str = "vector"


class Runner(Protocol):
    """Whoever runs a task over shards, and tends tables. No other code knows which one does."""

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

    def build_index(self, table: TablePlace, spec: IndexSpec) -> None:
        """Index a column, in place of any index that it has; all rows are covered.

        A handle of the table that was opened before must be brought to the latest version.

        Raises:
            OSError, RuntimeError, ValueError: As LanceDB says it.
        """
        ...

    def compact(self, table: TablePlace, keep_versions: timedelta) -> None:
        """Merge small files, let the index cover every row, remove versions older than that.

        A handle of the table that was opened before must be brought to the latest version.

        Raises:
            OSError, RuntimeError, ValueError: As LanceDB says it.
        """
        ...

    def close(self) -> None:
        """End what the runner started; it may be closed twice, and used again after."""
        ...
