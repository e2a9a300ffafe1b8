"""Turning a query into a vector without torch: the store's encoder, opened once per process.

The lean encoder answers; a process that keeps asking may change to ONNX Runtime
(`mnemon.encode.warm`).
"""

from __future__ import annotations

import threading
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mnemon.encode.fingerprint import EncoderFingerprint, require_same
from mnemon.encode.lean import LeanEncoder
from mnemon.encode.warm import WarmEncoder
from mnemon.errors import EncoderError
from mnemon.snapshot.layout import StorePaths
from mnemon.snapshot.manifest import Manifest

_OPEN_ENCODERS = 2  # one, and its successor while a new model is being rolled out
_CACHED_QUERIES = 2048  # prompts repeat across scopes and evaluation arms; 1.5 KB each
_ONNX_SUFFIX = ".onnx"  # as mnemon.encode.onnx_format.onnx_directory names it; not worth its import
_lock = threading.Lock()


def encode_query(
    paths: StorePaths, manifest: Manifest, query: str, *, may_warm: bool = False
) -> NDArray[np.float32]:
    """Return the unit vector of a query.

    Made by exactly the model that made the snapshot's vectors.

    Args:
        paths: The store.
        manifest: Of the snapshot.
        query: Any text.
        may_warm: Whether ONNX Runtime may encode once several queries were asked. The two agree to
            float32 rounding (1e-6), and when the change happens depends on time: what must be
            reproducible to the last digit (a night's evaluation) leaves it off.

    Raises:
        EncoderError: If the snapshot names no encoder, its files are missing or damaged, or the
            model differs.
    """
    return _encode(*_place(paths, manifest), query, may_warm)


def warm_up(paths: StorePaths, manifest: Manifest) -> str:
    """Load ONNX Runtime now, for a process that will keep asking; return why it is not used.

    Raises:
        EncoderError: As for `encode_query`.
    """
    encoder = _open(*_place(paths, manifest))
    encoder.load()
    return encoder.reason


def lean_reason(paths: StorePaths, manifest: Manifest) -> str:
    """Return why this process encodes with the lean encoder; empty if ONNX Runtime does it.

    Raises:
        EncoderError: As for `encode_query`.
    """
    return _open(*_place(paths, manifest)).reason


def lean_encoder(paths: StorePaths, manifest: Manifest) -> LeanEncoder:
    """Return the lean encoder itself, for texts other than queries and for its vocabulary.

    Raises:
        EncoderError: As for `encode_query`.
    """
    return _open(*_place(paths, manifest)).lean


def forget_queries() -> None:
    """Drop every cached query vector, so that a benchmark times prompts as if never asked."""
    _encode.cache_clear()


def _place(paths: StorePaths, manifest: Manifest) -> tuple[Path, EncoderFingerprint]:
    if manifest.encoder is None or manifest.encoder_digest is None:
        raise EncoderError("the snapshot was built without vectors that this machine can query")
    directory = paths.encoders / manifest.encoder_digest
    return directory, EncoderFingerprint.from_json(manifest.encoder)


@lru_cache(maxsize=_CACHED_QUERIES)
def _encode(
    directory: Path, expected: EncoderFingerprint, query: str, may_warm: bool
) -> NDArray[np.float32]:
    encoder = _open(directory, expected)
    vector = (encoder if may_warm else encoder.lean).encode_query(query)
    vector.flags.writeable = False
    return vector


def _open(directory: Path, expected: EncoderFingerprint) -> WarmEncoder:
    # Two threads that open at once would count their queries in two encoders.
    with _lock:
        return _opened(directory, expected)


@lru_cache(maxsize=_OPEN_ENCODERS)
def _opened(directory: Path, expected: EncoderFingerprint) -> WarmEncoder:
    lean = LeanEncoder.open(directory)
    require_same(expected, lean.fingerprint)
    return WarmEncoder(lean, directory.with_name(f"{lean.fingerprint.digest}{_ONNX_SUFFIX}"))
