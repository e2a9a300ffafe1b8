"""One shard of a store of many millions, prepared ahead of the night that will find it done.

What belongs here: which heavy steps can be prepared, and preparing one for one shard. What does
not: the steps themselves (their stages' modules), which memories are a shard
(`noctuary.corpus.partition`), Dagster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

from noctuary.corpus.partition import Partition
from noctuary.files import remove_tree
from noctuary.graph.extraction_task import EXTRACTION_KIND
from noctuary.graph.extraction_task import iter_keyed as keyed_extractions
from noctuary.lexical.tokenizing import TOKENS_KIND, TokenizeMemories
from noctuary.lexical.tokenizing import iter_keyed as keyed_tokens
from noctuary.night.context import MEMORIES, Night
from noctuary.night.corpus import CORPUS
from noctuary.night.extractions import fill_extractions
from noctuary.night.vector_rows import fill_vectors, keyed_batches, vector_kind
from noctuary.night.vectors import tonights_face
from noctuary.shards.filling import Filled, fill
from noctuary.shards.fragment_store import KEY
from noctuary.shards.task import RecordBatch
from noctuary.work.cost import Cost, measure

NOT_IN_SHARDS = "what embeds tonight keeps its vectors elsewhere; the night itself computes them"
"""A hosted model or sentence-transformers: every batch of theirs is kept as soon as it is there."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a run did for one shard and one step.

    Attributes:
        rows: Memories of the shard.
        computed: Distinct texts computed now.
        reused: Distinct texts that were known.
        forgotten: Results dropped first, so that they were computed again.
        corpus: Digest of the export that was read.
        cost: Wall and CPU time, peak memory.
        declined: Why nothing was done; empty if it was.
    """

    rows: int
    computed: int
    reused: int
    forgotten: int
    corpus: str
    cost: Cost
    declined: str = ""


@dataclass(frozen=True, slots=True)
class _Step:
    """A heavy step, for whatever table of memories.

    Attributes:
        kind: Of its fragment store.
        keyed: From a table to what the step reads, with the 32-byte column `key`.
        fill: Computes what the store lacks of it.
    """

    kind: str
    keyed: Callable[[Path], Iterator[RecordBatch]]
    fill: Callable[[Iterable[RecordBatch]], Filled]


def prepare_shard(night: Night, name: str, partition: Partition, *, again: bool) -> Prepared:
    """Compute what a step's fragments lack for the memories of one shard of the last export.

    Args:
        night: Holding the store's lock: a fragment store has one writer.
        name: Of the step, a key of `STEPS`.
        partition: The shard.
        again: Forget first what is known of the shard, so that all of it is computed now.

    Raises:
        StoreError: There is no export yet, or it is damaged.
    """
    corpus = night.result_of(CORPUS).digest
    own = night.shards(f"{name}-{partition.name}") / "memories.parquet"
    with measure() as cost:
        step = STEPS[name](night)
        if step is None:
            return Prepared(0, 0, 0, 0, corpus, cost, NOT_IN_SHARDS)
        try:
            rows = partition.write(night.work(MEMORIES), own)
            forgotten = _forget(night, step, own) if again else 0
            filled = step.fill(step.keyed(own))
        finally:
            remove_tree(own.parent)
    return Prepared(rows, filled.computed, filled.reused, forgotten, corpus, cost)


def _forget(night: Night, step: _Step, table: Path) -> int:
    """Drop the step's results of some memories and return how many there were."""
    keys = chain.from_iterable(batch.column(KEY).to_pylist() for batch in step.keyed(table))
    return night.fragments(step.kind).forget(keys)


def _vector_step(night: Night) -> _Step | None:
    face = tonights_face(night)
    kind = vector_kind(night, face)
    if kind is None:
        return None
    return _Step(kind, keyed_batches, partial(fill_vectors, night, face))


def _token_step(night: Night) -> _Step:
    return _Step(TOKENS_KIND, keyed_tokens, partial(_fill_tokens, night))


def _fill_tokens(night: Night, batches: Iterable[RecordBatch]) -> Filled:
    task = TokenizeMemories()
    store, place = night.fragments(TOKENS_KIND), night.shards(task.name)
    return fill(store, batches, task, night.runner(), place, night.progress)


def _extraction_step(night: Night) -> _Step:
    return _Step(EXTRACTION_KIND, keyed_extractions, partial(fill_extractions, night))


STEPS: Mapping[str, Callable[[Night], _Step | None]] = {
    "shard_vectors": _vector_step,
    "shard_tokens": _token_step,
    "shard_extractions": _extraction_step,
}
"""By asset: what it prepares; None where tonight's settings leave nothing to prepare."""
