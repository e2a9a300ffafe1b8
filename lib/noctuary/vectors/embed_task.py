"""Embedding texts as a task over record batches, and reading the vectors that it left.

What belongs here: the task, its rows, vectors by key out of a fragment store. What does not: texts
whose vectors the memo keeps (`embed`), who runs the task (noctuary.shards), which texts a night
has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from noctuary.encode.onnx_encoder import OnnxEncoder
from noctuary.files import write_array_blocks
from noctuary.shards.fragment_store import KEY, VALUE, FragmentStore
from noctuary.shards.keys import KEY_BYTES
from noctuary.shards.task import BatchFunction, RecordBatch
from noctuary.vectors.embed import text_key

TEXT = "content"
"""Column of the texts."""

SHARD_ROWS = 4_096
"""Rows of a shard: more lose more work to a kill (20 s on two cores with the default model), fewer
make fragments that every night's end merges."""

WINDOW_ROWS = 65_536
"""Vectors gathered at once (100 MB at 384 dimensions). Fewer read a fragment more often where a
store's texts lie scattered over all fragments."""

TAKE_ROWS = 4_096
"""Vectors taken from a store at once: each call copies them up to three times."""

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class EmbedTexts:
    """Gives the unit vector of every text with an ONNX export; see `BatchTask`.

    Attributes:
        export: What `export_onnx` wrote; every worker must be able to read it.
    """

    export: Path

    @property
    def name(self) -> str:
        """See `BatchTask`."""
        return "memory_vectors"

    @property
    def row_ms(self) -> float:
        """Return 0: the threads of one process use every core, and further models only memory.

        Two threads take 1.17 ms a text where one takes 2.15 (one layer, 47 tokens).
        """
        return 0.0

    def open(self, threads: int) -> BatchFunction:
        """Return the function from `key` and `content` to `key` and `value`; see `BatchTask`.

        Raises:
            EncoderError: The export is absent, damaged or declined.
        """
        return partial(_embed, OnnxEncoder.open(self.export, threads))


def keyed_texts(batch: RecordBatch) -> RecordBatch:
    """Return `key` and `content` of a batch that has `content`; as many rows, in their order."""
    import pyarrow as pa

    texts = batch.column(TEXT)
    keys = [bytes.fromhex(text_key(text)) for text in texts.to_pylist()]
    return pa.record_batch([pa.array(keys, pa.binary(KEY_BYTES)), texts], names=[KEY, TEXT])


def write_vectors(
    path: Path,
    store: FragmentStore,
    keys: Iterable[Sequence[bytes]],
    rows: int,
    dimension: int,
) -> list[bytes]:
    """Write the vectors of keys to a `.npy` file, window by window; return the keys without one.

    A row whose key is not held, or whose value is not a finite vector of this dimension, is NaN in
    the file and its key is in the result.

    Args:
        path: The file; of shape (rows, dimension), float32.
        store: Of a task `EmbedTexts`.
        keys: In the order of the rows, in batches of any length.
        rows: How many keys there are.
        dimension: Of the vectors.

    Raises:
        ValueError: There are more or fewer keys.
    """
    unusable: list[bytes] = []

    def blocks() -> Iterator[Floats]:
        for window in _windows(keys):
            vectors = read_vectors(store, window, dimension)
            bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
            unusable.extend(window[place] for place in bad)
            yield vectors

    write_array_blocks(path, (rows, dimension), "<f4", blocks())
    return unusable


def read_vectors(store: FragmentStore, keys: Sequence[bytes], dimension: int) -> Floats:
    """Return the vectors of keys, shape (len(keys), dimension); NaN where none can be read."""
    vectors = np.full((len(keys), dimension), np.nan, dtype=np.float32)
    handles = store.find(keys)
    # In the order of the store, so that a fragment is read once and not by every piece.
    order = np.argsort(handles, kind="stable")
    order = order[handles[order] >= 0]
    for start in range(0, len(order), TAKE_ROWS):
        chosen = order[start : start + TAKE_ROWS]
        vectors[chosen] = _take(store, handles[chosen], dimension)
    return vectors


def _take(store: FragmentStore, handles: NDArray[np.int64], dimension: int) -> Floats | float:
    import pyarrow as pa

    try:
        values = store.take(handles)
    except pa.ArrowException:
        # Fragments of different types: one of them is not of this task.
        return np.nan
    if values.type != pa.list_(pa.float32(), dimension) or values.null_count:
        return np.nan
    return values.flatten().to_numpy(zero_copy_only=False).reshape(len(handles), dimension)


def _windows(batches: Iterable[Sequence[bytes]]) -> Iterator[list[bytes]]:
    window: list[bytes] = []
    for batch in batches:
        window.extend(batch)
        while len(window) >= WINDOW_ROWS:
            yield window[:WINDOW_ROWS]
            del window[:WINDOW_ROWS]
    if window:
        yield window


def _embed(encoder: OnnxEncoder, batch: RecordBatch) -> RecordBatch:
    import pyarrow as pa

    vectors = encoder.encode_documents(batch.column(TEXT).to_pylist())
    values = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    return pa.record_batch([batch.column(KEY), values], names=[KEY, VALUE])
