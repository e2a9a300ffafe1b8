"""Vectors of nodes and turns, kept while a process lives: a document is read once.

What belongs here: a bounded cache. What does not: encoding. Nothing of it is written to a disk:
turns may hold what must not be stored.
"""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

Key = tuple[str, str]
"""Digest of an encoder and a text."""


class TextVectors:
    """Vectors by encoder and text, the last ones made; safe to share between threads."""

    def __init__(self, limit: int) -> None:
        """Take how many vectors are kept, >= 1."""
        self._limit = limit
        self._lock = threading.Lock()
        self._known: dict[Key, NDArray[np.float32]] = {}

    def __len__(self) -> int:
        """Return how many are kept."""
        return len(self._known)

    def get(self, key: Key) -> NDArray[np.float32] | None:
        """Return the vector of a text, or None where it is not kept."""
        return self._known.get(key)

    def keep(self, key: Key, vector: NDArray[np.float32]) -> None:
        """Keep a vector; the oldest one goes where there are too many."""
        with self._lock:
            self._known.pop(key, None)
            while len(self._known) >= self._limit:
                del self._known[next(iter(self._known))]
            self._known[key] = vector
