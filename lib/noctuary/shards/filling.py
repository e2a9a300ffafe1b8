"""Bring a fragment store in step with what tonight needs: only what is missing is computed.

What belongs here: list what is missing, run it, commit it, in waves. What does not: who runs it,
what is computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from noctuary.files import remove_tree
from noctuary.progress import SILENT, Progress
from noctuary.shards.files import SHARD_ROWS, count_rows, fragment_path, list_shards
from noctuary.shards.fragment_store import KEY, FragmentStore
from noctuary.shards.task import BatchTask, RecordBatch, Runner, Shard

WAVE_SHARDS = 32
"""Shards listed at once: their rows lie on disk twice meanwhile, and a wave waits for its last
shard."""


class Filled(NamedTuple):
    """What a filling did: distinct keys computed now, and those that were known."""

    computed: int
    reused: int


def fill(
    store: FragmentStore,
    batches: Iterable[RecordBatch],
    task: BatchTask,
    runner: Runner,
    shards_dir: Path,
    progress: Progress = SILENT,
    *,
    total: int = 0,
    shard_rows: int = SHARD_ROWS,
) -> Filled:
    """Compute the value of every key that the store does not hold; each distinct key once.

    Every wave is durable when it ends, so that a killed night goes on with the wave it was in.

    Args:
        store: Of the task's kind.
        batches: Rows with the 32-byte column `key` and whatever the task reads.
        task: Gives a batch of `key` and `value` for a batch of rows.
        runner: Who runs it.
        shards_dir: For the shards' files, removed at the end.
        progress: Told of rows done, those that were known among them.
        total: Rows in all batches; 0 where it is not known, which tells every wave's own.
        shard_rows: Most rows of a shard.

    Raises:
        ShardError: The task failed, or its workers died again and again; what was committed stays.
        NoctuaryError: That the task raised.
    """
    counts = _Counts()
    remove_tree(shards_dir)
    missing = _missing(store, batches, counts)
    shards = list_shards(missing, shards_dir, f"{task.name}:{store.kind}", shard_rows)
    try:
        while wave := list(islice(shards, WAVE_SHARDS)):
            behind = counts.rows - sum(shard.rows for shard in wave)
            counts.take_over(_taken(store, wave))
            told = _FromStart(progress, behind, total) if total else progress
            store.commit(runner.run(task, wave, store.directory, told))
            for shard in wave:
                shard.path.unlink(missing_ok=True)
    finally:
        remove_tree(shards_dir)
    return Filled(counts.computed, counts.reused)


@dataclass(slots=True)
class _Counts:
    """Distinct keys computed and reused, and rows read so far."""

    computed: int = 0
    reused: int = 0
    rows: int = 0

    def take_over(self, rows: int) -> None:
        """Count rows that a killed night computed, and nobody committed, as known."""
        self.computed -= rows
        self.reused += rows


@dataclass(frozen=True, slots=True)
class _FromStart:
    """A progress over all waves, made of that of one.

    Attributes:
        progress: Who is told.
        behind: Rows done before this wave, up to those that were listed with it.
        total: Rows in all.
    """

    progress: Progress
    behind: int
    total: int

    def update(self, task: str, done: int, total: int) -> None:
        """Pass on what a wave reports."""
        self.progress.update(task, min(self.behind + done, self.total), self.total)


def _taken(store: FragmentStore, wave: Sequence[Shard]) -> int:
    """Return the rows of shards whose fragment a killed night left, whole."""
    paths = [(fragment_path(store.directory, shard.key), shard.rows) for shard in wave]
    return sum(rows for path, rows in paths if path.exists() and count_rows(path) is not None)


def _missing(
    store: FragmentStore, batches: Iterable[RecordBatch], counts: _Counts
) -> Iterator[RecordBatch]:
    """Yield the rows whose key is new, each key once; every key is remembered (110 bytes each)."""
    seen: set[bytes] = set()
    for batch in batches:
        keys: list[bytes] = batch.column(KEY).to_pylist()
        held = store.find(keys) >= 0
        chosen: list[int] = []
        for row, key in enumerate(keys):
            if key in seen:
                continue
            seen.add(key)
            if held[row]:
                counts.reused += 1
            else:
                counts.computed += 1
                chosen.append(row)
        counts.rows += batch.num_rows
        if chosen:
            yield batch.take(np.array(chosen))
