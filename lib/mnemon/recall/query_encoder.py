"""Turning a query into a vector without torch.

The store's lean encoder, opened once per process.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mnemon.encode.fingerprint import EncoderFingerprint, require_same
from mnemon.encode.lean import LeanEncoder
from mnemon.errors import EncoderError
from mnemon.snapshot.layout import StorePaths
from mnemon.snapshot.manifest import Manifest

_OPEN_ENCODERS = 2  # one, and its successor while a new model is being rolled out
_CACHED_QUERIES = 2048  # prompts repeat across scopes and evaluation arms; 1.5 KB each
_lock = threading.Lock()


def encode_query(paths: StorePaths, manifest: Manifest, query: str) -> NDArray[np.float32]:
    """Return the unit vector of a query.

    Made by exactly the model that made the snapshot's vectors.

    Raises:
        EncoderError: If the snapshot names no encoder, its files are missing or damaged, or the
            model differs.
    """
    if manifest.encoder is None or manifest.encoder_digest is None:
        raise EncoderError("the snapshot was built without vectors that this machine can query")
    directory = paths.encoders / manifest.encoder_digest
    with _lock:
        return _encode(directory, EncoderFingerprint.from_json(manifest.encoder), query)


def forget_queries() -> None:
    """Drop every cached query vector, so that a benchmark times prompts as if never asked."""
    _encode.cache_clear()


@lru_cache(maxsize=_CACHED_QUERIES)
def _encode(directory: Path, expected: EncoderFingerprint, query: str) -> NDArray[np.float32]:
    vector = _open(directory, expected).encode_query(query)
    vector.flags.writeable = False
    return vector


@lru_cache(maxsize=_OPEN_ENCODERS)
def _open(directory: Path, expected: EncoderFingerprint) -> LeanEncoder:
    encoder = LeanEncoder.open(directory)
    require_same(expected, encoder.fingerprint)
    return encoder
