"""The vectors of all memories: where tonight's face keeps them, and writing them row by row.

What belongs here: the two ways to keep a vector (fragments, memo) behind one function, neither of
which holds all texts' records or all vectors. What does not: which face embeds (`embedding`), the
stage (`vectors`), texts that are no memories.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from noctuary.corpus.columns import count_rows, iter_batches
from noctuary.encode.onnx_format import onnx_directory
from noctuary.errors import EncoderError
from noctuary.files import write_array_blocks
from noctuary.night.context import MEMORIES, VECTORS, Night
from noctuary.night.embedding import HOSTED, LIBRARY, Face
from noctuary.shards.filling import Filled, fill
from noctuary.shards.fragment_store import KEY
from noctuary.shards.task import RecordBatch
from noctuary.vectors.embed import fill_memo, iter_known, memo_kind
from noctuary.vectors.embed_task import SHARD_ROWS, TEXT, EmbedTexts, keyed_texts, write_vectors
from noctuary.work.memo import Memo

SHARDS_OF_A_NIGHT = 30
"""Shards that a night's memories are cut into, as long as these are not too large or small: a kill
loses one. They are one wave, so that the model is opened once."""

LEAST_SHARD_ROWS = 32
"""A third of a second with the default model on two cores; fewer spend it on files."""


def vector_kind(night: Night, face: Face) -> str | None:
    """Return the kind of the fragments that hold a face's vectors of memories.

    None for a face whose vectors the memo keeps: a hosted model's batches are paid for and kept one
    by one, and sentence-transformers takes all texts at once.
    """
    if not face.tag or face.tag in HOSTED:
        return None
    return memo_kind(night.fingerprint(), face.tag)


def keyed_batches(memories: Path) -> Iterator[RecordBatch]:
    """Yield `key` and `content` of every memory of a table, in its order.

    Raises:
        StoreError: The table is missing or damaged.
    """
    return map(keyed_texts, iter_batches(memories, [TEXT]))


def fill_vectors(night: Night, face: Face, batches: Iterable[RecordBatch], total: int) -> Filled:
    """Embed the texts whose vector the face's fragments lack; each distinct text once.

    Args:
        night: The night.
        face: One with a `vector_kind`.
        batches: With `key` and `content`, see `keyed_batches`.
        total: Rows in all batches, for the progress and the shards.

    Raises:
        ValueError: The face keeps no fragments.
        EncoderError: The encoder fails; what it gave before is kept.
    """
    kind = vector_kind(night, face)
    if kind is None:
        raise ValueError(f"{face.tag or LIBRARY} keeps its vectors in the memo")
    task = EmbedTexts(onnx_directory(night.paths.encoders, night.fingerprint()))
    return fill(
        night.fragments(kind),
        batches,
        task,
        night.runner(),
        night.shards(task.name),
        night.progress,
        total=total,
        shard_rows=_shard_rows(total),
    )


def _shard_rows(total: int) -> int:
    """Return how many texts are embedded between two durable writes."""
    return min(max(-(-total // SHARDS_OF_A_NIGHT), LEAST_SHARD_ROWS), SHARD_ROWS)


def sample_texts(path: Path, count: int) -> list[str]:
    """Return at most so many contents of the memories' table, evenly spread, the first one first.

    Args:
        path: The table.
        count: At least 1.

    Raises:
        StoreError: There is no such table, or it is damaged.
    """
    step = max(count_rows(path) // count, 1)
    wanted = range(0, step * count, step)
    texts: list[str] = []
    first = 0
    for batch in iter_batches(path, [TEXT]):
        column = batch.column(TEXT)
        places = range(-first % step, batch.num_rows, step)
        texts += [column[place].as_py() for place in places if first + place in wanted]
        first += batch.num_rows
    return texts


def write_memory_vectors(night: Night, face: Face) -> Filled:
    """Write the vector of every memory, by position; only unknown texts are embedded.

    Returns:
        Distinct texts embedded now, and those whose vector was known.

    Raises:
        EncoderError: The encoder fails; what it gave before is kept.
        StoreError: The memories' table is missing or damaged.
    """
    kind = vector_kind(night, face)
    return _through_memo(night, face) if kind is None else _through_fragments(night, face, kind)


def _through_fragments(night: Night, face: Face, kind: str) -> Filled:
    path, memories = night.work(VECTORS), night.work(MEMORIES)
    rows, dimension = count_rows(memories), night.fingerprint().dimension
    filled = fill_vectors(night, face, keyed_batches(memories), rows)
    store = night.fragments(kind)
    unusable = write_vectors(path, store, _iter_keys(memories), rows, dimension)
    if not unusable:
        return filled
    # Damage that no checksum saw, or a fragment of an older version: those texts are embedded once
    # more.
    store.forget(unusable)
    again = fill_vectors(night, face, keyed_batches(memories), rows)
    store = night.fragments(kind)
    if unusable := write_vectors(path, store, _iter_keys(memories), rows, dimension):
        path.unlink()
        raise EncoderError(
            f"{len(set(unusable))} memories got no finite vector of {dimension} numbers, twice. "
            f"Delete {night.paths.encoders} and run the night again: the model is exported anew."
        )
    computed = filled.computed + again.computed
    return Filled(computed, again.computed + again.reused - computed)


def _through_memo(night: Night, face: Face) -> Filled:
    batches = iter_batches(night.work(MEMORIES), [TEXT])
    texts: list[str] = [text for batch in batches for text in batch.column(TEXT).to_pylist()]
    fingerprint = night.fingerprint()
    with Memo.open(night.paths.memo) as memo:
        filled = fill_memo(
            texts,
            memo,
            fingerprint,
            lambda: face.opened(night, texts),
            night.progress,
            face=face.tag,
            batches_per_write=face.batches_per_write,
        )
        blocks = iter_known(texts, memo, fingerprint, face.tag)
        shape = (len(texts), fingerprint.dimension)
        write_array_blocks(night.work(VECTORS), shape, "<f4", blocks)
    return Filled(filled.computed, filled.reused)


def _iter_keys(memories: Path) -> Iterator[Sequence[bytes]]:
    return (batch.column(KEY).to_pylist() for batch in keyed_batches(memories))
