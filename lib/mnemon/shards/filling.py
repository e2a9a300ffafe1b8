"""Bring a fragment store in step with what tonight needs: only what is missing is computed.

What belongs here: list what is missing, run it, commit it, in waves. What does not: who runs it,
what is computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mnemon.files import remove_tree
from mnemon.progress import SILENT, Progress
from mnemon.shards.files import SHARD_ROWS, list_shards
from mnemon.shards.fragment_store import KEY, FragmentStore
from mnemon.shards.task import BatchTask, RecordBatch, Runner

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
        progress: Told of rows done.
        shard_rows: Most rows of a shard.
    """
    counts = {"computed": 0, "reused": 0}
    remove_tree(shards_dir)
    shards = list_shards(
        _missing(store, batches, counts), shards_dir, f"{task.name}:{store.kind}", shard_rows
    )
    try:
        while wave := list(islice(shards, WAVE_SHARDS)):
            store.commit(runner.run(task, wave, store.directory, progress))
            for shard in wave:
                shard.path.unlink(missing_ok=True)
    finally:
        remove_tree(shards_dir)
    return Filled(**counts)


def _missing(
    store: FragmentStore, batches: Iterable[RecordBatch], counts: dict[str, int]
) -> Iterator[RecordBatch]:
    """Yield the rows whose key is new, each key once; one 8-byte prefix a key is remembered."""
    seen: set[bytes] = set()
    for batch in batches:
        keys: list[bytes] = batch.column(KEY).to_pylist()
        held = store.find(keys) >= 0
        chosen: list[int] = []
        for row, key in enumerate(keys):
            if key in seen:
                continue
            seen.add(key)
            counts["reused" if held[row] else "computed"] += 1
            if not held[row]:
                chosen.append(row)
        if chosen:
            yield batch.take(np.array(chosen))
