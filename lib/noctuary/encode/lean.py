"""The read side's encoder: a BERT forward pass in numpy over memory-mapped weights.

What belongs here: opening an exported directory and encoding with it. The arithmetic is in
`bert_math`, the format in `lean_format`. Imports numpy and the standard library only: a hook pays
for every import.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from noctuary.encode.base import require_unit_rows
from noctuary.encode.bert_math import LayerWeights, encoder_layer, layer_norm
from noctuary.encode.fingerprint import EncoderFingerprint
from noctuary.encode.lean_format import (
    VOCAB_FILE,
    WEIGHTS_FILE,
    Architecture,
    FileIdentity,
    read_header,
    tensor_table,
)
from noctuary.encode.wordpiece import WordPiece
from noctuary.errors import EncoderError
from noctuary.hashing import hash_file
from noctuary.progress import SILENT, Progress
from noctuary.values import dataclass

_FLOAT32 = np.dtype("<f4")
_MADV_POPULATE_READ = 22  # of Linux 5.14 on; Python has no name for it yet


@dataclass(frozen=True, slots=True)
class LeanEncoder:
    """A memory-mapped BERT encoder with mean pooling; implements `Encoder`.

    Attributes:
        fingerprint: That of the model it was exported from: the vectors agree to float32 rounding.
        architecture: Sizes of the model.
        tokenizer: Text to token ids.
        position: Position plus segment embeddings, shape (max_tokens, hidden).
        embedding_gain: Of the layer normalisation after the embeddings.
        embedding_shift: As above.
        layers: Weights of every transformer layer.
        word: Token embeddings, shape (vocab_size, hidden).
    """

    fingerprint: EncoderFingerprint
    architecture: Architecture
    tokenizer: WordPiece
    position: NDArray[np.float32]
    embedding_gain: NDArray[np.float32]
    embedding_shift: NDArray[np.float32]
    layers: tuple[LayerWeights, ...]
    word: NDArray[np.float32]

    @classmethod
    def open(cls, directory: Path, *, verify: bool = False) -> LeanEncoder:
        """Map the weights of an exported directory; only the layers are read ahead.

        Args:
            directory: What `export_lean` wrote.
            verify: Also hash the weights, about 0.1-0.3 s for 90 MB. Sizes and the vocabulary are
                always checked.

        Raises:
            EncoderError: A file is missing, damaged or of another format.
        """
        header = read_header(directory)
        arch = header.architecture
        tokenizer = _open_vocab(directory / VOCAB_FILE, header.vocab, arch.vocab_size)
        tensors = _map_weights(directory / WEIGHTS_FILE, header.weights, arch, verify=verify)
        return cls(
            fingerprint=header.fingerprint,
            architecture=arch,
            tokenizer=tokenizer,
            position=tensors["position"],
            embedding_gain=tensors["embedding_gain"],
            embedding_shift=tensors["embedding_shift"],
            layers=tuple(
                LayerWeights(*(tensors[f"{layer}.{name}"] for name in LayerWeights._fields))
                for layer in range(arch.layers)
            ),
            word=tensors["word"],
        )

    def encode_query(self, text: str) -> NDArray[np.float32]:
        """See `Encoder`."""
        return self._encode(self.fingerprint.query_prefix + text, 0)

    def encode_documents(
        self, texts: Sequence[str], progress: Progress = SILENT
    ) -> NDArray[np.float32]:
        """See `Encoder`; one text at a time, so neighbours have no influence."""
        vectors = np.empty((len(texts), self.architecture.hidden), dtype=np.float32)
        for position, text in enumerate(texts):
            vectors[position] = self._encode(self.fingerprint.document_prefix + text, position)
            progress.update("encode", position + 1, len(texts))
        return vectors

    def _encode(self, text: str, position: int) -> NDArray[np.float32]:
        arch = self.architecture
        ids = self.tokenizer.encode(text, arch.max_tokens)
        # Damaged weights overflow; that is reported once, by the check, not by numpy's warnings.
        with np.errstate(all="ignore"):
            pooled = self._pooled(ids)
            require_unit_rows(pooled, [position])
        return pooled[0]

    def _pooled(self, ids: Sequence[int]) -> NDArray[np.float32]:
        arch = self.architecture
        x = self.word[ids]
        x += self.position[: len(ids)]
        x = layer_norm(x, self.embedding_gain, self.embedding_shift, arch.norm_epsilon)
        for layer in self.layers:
            x = encoder_layer(x, layer, arch.heads, arch.norm_epsilon)
        pooled = x.mean(axis=0, keepdims=True)
        pooled /= np.sqrt(np.einsum("ij,ij->i", pooled, pooled))[:, None]
        return pooled


def _open_vocab(path: Path, identity: FileIdentity, vocab_size: int) -> WordPiece:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise EncoderError(f"cannot read {path} ({error}). Export the encoder again.") from error
    found = FileIdentity(len(raw), sha256(raw).hexdigest())
    if found != identity:
        raise EncoderError(_damaged(path, found, identity))
    tokenizer = WordPiece.from_text(raw.decode("utf-8"))
    if len(tokenizer.vocab) != vocab_size:
        raise EncoderError(
            f"{path} holds {len(tokenizer.vocab)} tokens; expected {vocab_size}. "
            "Export the encoder again."
        )
    return tokenizer


def _map_weights(
    path: Path, identity: FileIdentity, arch: Architecture, *, verify: bool
) -> dict[str, NDArray[np.float32]]:
    try:
        with path.open("rb") as handle:
            # Length 0 maps the whole file as it is now.
            mapped = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
        digest = hash_file(path) if verify else identity.sha256
    except (OSError, ValueError) as error:
        raise EncoderError(f"cannot map {path} ({error}). Export the encoder again.") from error
    found = FileIdentity(len(mapped), digest)
    if found != identity:
        raise EncoderError(_damaged(path, found, identity))
    table, _ = tensor_table(arch)
    _map_ahead(mapped, table["word"].offset_bytes)
    return {
        name: np.frombuffer(mapped, _FLOAT32, prod(place.shape), place.offset_bytes).reshape(
            place.shape
        )
        for name, place in table.items()
    }


def _map_ahead(mapped: mmap.mmap, size_bytes: int) -> None:
    """Map all that every text needs in one call: thousands of page faults cost the first text 5 ms.

    The word table is left out, of which a text reads a few rows.
    """
    if sys.platform == "linux":
        # An older kernel refuses; then the pages come one by one.
        with suppress(OSError):
            mapped.madvise(_MADV_POPULATE_READ, 0, size_bytes // mmap.PAGESIZE * mmap.PAGESIZE)


def _damaged(path: Path, found: FileIdentity, expected: FileIdentity) -> str:
    return (
        f"{path} has {found.size_bytes} bytes and SHA-256 {found.sha256}; expected "
        f"{expected.size_bytes} and {expected.sha256}. Export the encoder again."
    )
