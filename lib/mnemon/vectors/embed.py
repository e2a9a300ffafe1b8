"""Embedding texts once.

Memoised by content hash and encoder fingerprint, durable batch by batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from mnemon.encode.fingerprint import EncoderFingerprint
from mnemon.hashing import hash_text
from mnemon.progress import SILENT, Progress
from mnemon.work.memo import Memo

BATCHES_PER_WRITE = 8
"""Batches per durable write: more loses more work to a kill (8 batches of 8 texts are about a
second), fewer fsyncs more. A hosted encoder's batch is paid for, so each is written at once."""


class DocumentEncoder(Protocol):
    """What embedding needs of an encoder: batches that can be kept one by one."""

    def iter_document_batches(
        self, texts: Sequence[str]
    ) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
        """Yield places in `texts` and their vectors, shape (len(places), dimension)."""
        ...


@dataclass(frozen=True, slots=True)
class Embedded:
    """Vectors and how they came about.

    Attributes:
        vectors: Unit rows, float32, shape (n, d), aligned with the texts.
        computed: Distinct texts that the encoder saw now.
        reused: Distinct texts whose vector was known.
    """

    vectors: NDArray[np.float32]
    computed: int
    reused: int


def memo_kind(fingerprint: EncoderFingerprint, face: str = "") -> str:
    """Return the memo kind of an encoder's document vectors.

    Two implementations of one model round differently, so each has its own kind.

    Args:
        fingerprint: Of the model.
        face: The implementation's tag; empty for sentence-transformers.
    """
    return f"vector:{fingerprint.digest}:{face}" if face else f"vector:{fingerprint.digest}"


def text_key(text: str) -> str:
    """Return the memo key of a text."""
    return hash_text(text)


def embed_texts(
    texts: Sequence[str],
    memo: Memo,
    fingerprint: EncoderFingerprint,
    open_encoder: Callable[[], DocumentEncoder],
    progress: Progress = SILENT,
    *,
    face: str = "",
    batches_per_write: int = BATCHES_PER_WRITE,
) -> Embedded:
    """Return a vector for every text; only texts that the memo does not know reach the encoder.

    Args:
        texts: What to embed; equal texts are embedded once.
        memo: Where vectors are kept between nights.
        fingerprint: Of the encoder that `open_encoder` returns.
        open_encoder: Called only if something must be embedded.
        progress: Told after every durable write.
        face: Tag of the implementation that `open_encoder` returns; empty for
            sentence-transformers.
        batches_per_write: How many of the encoder's batches a kill may lose, at least 1.

    Raises:
        EncoderError: If the encoder fails or returns something that is not finite; what was written
            before is kept.
    """
    keys = [text_key(t) for t in texts]
    unique = dict(zip(keys, texts, strict=True))
    kind = memo_kind(fingerprint, face)
    known = _read_known(memo, kind, fingerprint.dimension, list(unique))
    missing = [key for key in unique if key not in known]
    if missing:
        encoder = open_encoder()
        pending: dict[str, bytes] = {}
        done = 0
        batches = encoder.iter_document_batches([unique[k] for k in missing])
        for number, (places, vectors) in enumerate(batches, start=1):
            for place, vector in zip(places, vectors, strict=True):
                known[missing[place]] = vector
                pending[missing[place]] = vector.astype("<f4").tobytes()
            if number % batches_per_write == 0:
                done += _flush(memo, kind, pending)
                progress.update("memory_vectors", done, len(missing))
        done += _flush(memo, kind, pending)
        progress.update("memory_vectors", done, len(missing))
    matrix = np.empty((len(keys), fingerprint.dimension), dtype=np.float32)
    for row, key in enumerate(keys):
        matrix[row] = known[key]
    return Embedded(matrix, computed=len(missing), reused=len(unique) - len(missing))


def _flush(memo: Memo, kind: str, pending: dict[str, bytes]) -> int:
    count = len(pending)
    memo.put_many(kind, pending)
    pending.clear()
    return count


def _read_known(
    memo: Memo, kind: str, dimension: int, keys: Sequence[str]
) -> dict[str, NDArray[np.float32]]:
    """Return the usable vectors of the memo.

    One of another size, or not finite, is computed again.
    """
    known: dict[str, NDArray[np.float32]] = {}
    for key, value in memo.get_many(kind, keys).items():
        if len(value) != 4 * dimension:
            continue
        vector = np.frombuffer(value, dtype="<f4").astype(np.float32)
        if np.isfinite(vector).all():
            known[key] = vector
    return known
