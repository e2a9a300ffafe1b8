"""Embedding texts once, their vectors kept by content."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from noctuary.core.errors import EncoderError
from noctuary.core.files import hash_text, write_array_blocks
from noctuary.core.types import SILENT, Progress
from noctuary.embed.fingerprint import EncoderFingerprint
from noctuary.embed.onnx import OnnxEncoder
from noctuary.embed.sentence import Floats, PlacedVectors
from noctuary.work.content import KEY, KEY_BYTES, VALUE, ContentStore, Filled
from noctuary.work.shards import BatchFunction, RecordBatch

TEXT = "content"
"""Column of the texts."""

BATCHES_PER_WRITE = 8
"""Batches per durable write: more loses more work to a kill (8 batches of 8 texts are about a
second), fewer fsyncs more. A hosted encoder's batch is paid for, so each is written at once."""

SHARD_ROWS = 4_096
"""Rows of a shard: more lose more work to a kill (20 s on two cores with the default model), fewer
make fragments that every night's end merges."""

WINDOW_ROWS = 65_536
"""Vectors gathered at once (100 MB at 384 dimensions). Fewer read a fragment more often where a
store's texts lie scattered over all fragments."""

TAKE_ROWS = 4_096
"""Vectors taken from a store at once: each call copies them up to three times."""

Encode = Callable[[Sequence[str]], Iterator[PlacedVectors]]
"""Opens an encoder and yields batches that can be kept one by one; only called for new texts."""


@dataclass(frozen=True, slots=True)
class Embedded:
    """Vectors of texts, and how many distinct ones the encoder saw now or were known."""

    vectors: Floats  # unit rows, shape (n, d), aligned with the texts
    computed: int
    reused: int


def vector_kind(fingerprint: EncoderFingerprint, face: str = "") -> str:
    """Return the kind under which the content store keeps an encoder's document vectors.

    Two implementations of one model round differently, so each has its own: `face` is its tag,
    empty for sentence-transformers.
    """
    return f"vector:{fingerprint.digest}:{face}" if face else f"vector:{fingerprint.digest}"


def text_key(text: str) -> bytes:
    """Return the key of a text's vector."""
    return bytes.fromhex(hash_text(text))


def embed_texts(
    texts: Sequence[str],
    store: ContentStore,
    fingerprint: EncoderFingerprint,
    encode: Encode,
    progress: Progress = SILENT,
    *,
    batches_per_write: int = BATCHES_PER_WRITE,
) -> Embedded:
    """Return a vector for every text, where all fit in memory; see `fill_vectors`.

    EncoderError if the encoder fails, or gives a text no finite vector of its dimension.
    """
    filled = fill_vectors(
        texts, store, fingerprint, encode, progress, batches_per_write=batches_per_write
    )
    vectors = read_vectors(store, [text_key(text) for text in texts], fingerprint.dimension)
    if lacking := len(_unusable(vectors)):
        raise lacking_vectors(lacking, fingerprint)
    return Embedded(vectors, filled.computed, filled.reused)


def fill_vectors(
    texts: Sequence[str],
    store: ContentStore,
    fingerprint: EncoderFingerprint,
    encode: Encode,
    progress: Progress = SILENT,
    *,
    batches_per_write: int = BATCHES_PER_WRITE,
) -> Filled:
    """Bring the vector of every text into the store; no vector is held for longer than its write.

    Equal texts are embedded once, and so many of the encoder's batches may be lost to a kill. The
    store is of the encoder's `vector_kind`; what is written stays where the encoder fails.
    """
    unique = {text_key(text): text for text in texts}
    missing = [
        window[place]
        for window in _windows([unique])
        # One of another size or not finite is made again.
        for place in _unusable(read_vectors(store, window, fingerprint.dimension))
    ]
    if missing:
        pending: dict[bytes, Floats] = {}
        done = 0
        batches = enumerate(encode([unique[key] for key in missing]), start=1)
        for number, (places, vectors) in batches:
            pending |= {missing[at]: row for at, row in zip(places, vectors, strict=True)}
            if number % batches_per_write == 0:
                done += len(pending)
                put_vectors(store, pending)
                progress.update("memory_vectors", done, len(missing))
                pending = {}
        put_vectors(store, pending)
        progress.update("memory_vectors", done + len(pending), len(missing))
    return Filled(computed=len(missing), reused=len(unique) - len(missing))


def lacking_vectors(count: int, fingerprint: EncoderFingerprint) -> EncoderError:
    """Return the error that some texts got no usable vector."""
    return EncoderError(
        f"{count} texts got no finite vector of {fingerprint.dimension} numbers from "
        f"{fingerprint.model}; choose another model, or reinstall this one"
    )


def put_vectors(store: ContentStore, vectors: Mapping[bytes, Floats]) -> None:
    """Keep vectors of one dimension by key, durably."""
    import pyarrow as pa

    if vectors:
        rows = np.stack(list(vectors.values())).astype(np.float32)
        values = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])
        store.put(list(vectors), values)


def read_vectors(store: ContentStore, keys: Sequence[bytes], dimension: int) -> Floats:
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


def _take(store: ContentStore, handles: np.ndarray, dimension: int) -> Floats | float:
    import pyarrow as pa

    try:
        values = store.take(handles)
    except pa.ArrowException:
        # Fragments of different types: one of them is not of this task.
        return np.nan
    if values.type != pa.list_(pa.float32(), dimension) or values.null_count:
        return np.nan
    return values.flatten().to_numpy(zero_copy_only=False).reshape(len(handles), dimension)


def write_vectors(
    path: Path,
    store: ContentStore,
    keys: Iterable[Sequence[bytes]],
    rows: int,
    dimension: int,
) -> list[bytes]:
    """Write the vectors of keys to a `.npy` file, (rows, dimension); return the keys without one.

    Window by window, keys in batches of any length. A row whose key is not held, or whose value is
    not a finite vector of this dimension, is NaN in the file. ValueError for more or fewer keys.
    """
    unusable: list[bytes] = []

    def blocks() -> Iterator[Floats]:
        for window in _windows(keys):
            vectors = read_vectors(store, window, dimension)
            unusable.extend(window[place] for place in _unusable(vectors))
            yield vectors

    write_array_blocks(path, (rows, dimension), "<f4", blocks())
    return unusable


def _unusable(vectors: Floats) -> list[int]:
    return np.flatnonzero(~np.isfinite(vectors).all(axis=1)).tolist()


def _windows(batches: Iterable[Iterable[bytes]]) -> Iterator[list[bytes]]:
    window: list[bytes] = []
    for batch in batches:
        window.extend(batch)
        while len(window) >= WINDOW_ROWS:
            yield window[:WINDOW_ROWS]
            del window[:WINDOW_ROWS]
    if window:
        yield window


# Embedding as a task over record batches.


def keyed_texts(batch: RecordBatch) -> RecordBatch:
    """Return `key` and `content` of a batch that has `content`; as many rows, in their order."""
    import pyarrow as pa

    texts = batch.column(TEXT)
    keys = list(map(text_key, texts.to_pylist()))
    return pa.record_batch([pa.array(keys, pa.binary(KEY_BYTES)), texts], names=[KEY, TEXT])


@dataclass(frozen=True, slots=True)
class EmbedTexts:
    """Gives the unit vector of every text with an ONNX export; see `BatchTask`."""

    export: Path  # every worker must be able to read it

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
        """Return the function from `key` and `content` to `key` and `value`; see `BatchTask`."""
        encoder = OnnxEncoder.open(self.export, threads)

        def embed(batch: RecordBatch) -> RecordBatch:
            import pyarrow as pa

            vectors = encoder.encode_documents(batch.column(TEXT).to_pylist())
            values = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
            return pa.record_batch([batch.column(KEY), values], names=[KEY, VALUE])

        return embed
