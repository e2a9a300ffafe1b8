"""Vectors of live rows: encoded once per process, as many as there is time for.

What belongs here: the cache and the clock. What does not: the encoder (`query_encoder`), which rows
are wanted first (`overlay`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from noctuary.errors import EncoderError
from noctuary.recall.query_encoder import text_encoder
from noctuary.snapshot.layout import StorePaths
from noctuary.snapshot.manifest import Manifest
from noctuary.types import MemoryRecord

KEPT = 4_096
"""Vectors that a process keeps: twice the rows of the default bound, some six megabytes."""

_kept: dict[tuple[str, str], NDArray[np.float32]] = {}
_lock = threading.Lock()


def encode_rows(
    paths: StorePaths, manifest: Manifest, rows: Sequence[MemoryRecord], within_s: float
) -> dict[str, NDArray[np.float32]]:
    """Return unit vectors by content hash: all that are known, and new ones while there is time.

    Args:
        paths: The store.
        manifest: Of the snapshot, whose encoder it is.
        rows: The most wanted first.
        within_s: Seconds. No row is begun that would, going by the last one, end later.

    Returns:
        Those of some rows; of none where this machine has no such encoder.
    """
    until_s = time.perf_counter() + within_s
    model = manifest.encoder_digest
    if model is None:
        return {}
    found: dict[str, NDArray[np.float32]] = {}
    last_s, stopped = 0.0, False
    for row in rows:
        key = (model, row.content)
        vector = _kept.get(key)
        if vector is None and not stopped:
            began_s = time.perf_counter()
            stopped = began_s + last_s > until_s
            if not stopped:
                try:
                    vector = text_encoder(paths, manifest).encode_documents([row.content])[0]
                except (EncoderError, OSError, ValueError):
                    stopped = True
                    continue
                _keep(key, vector)
                last_s = time.perf_counter() - began_s
        if vector is not None:
            found[row.content_hash] = vector
    return found


def _keep(key: tuple[str, str], vector: NDArray[np.float32]) -> None:
    with _lock:
        if len(_kept) >= KEPT:
            _kept.clear()
        _kept[key] = vector
