"""Which texts are encoded together, and their vectors put back in order; no model code.

A text's vector must not depend on its neighbours, or a memoised vector differs from a recomputed
one. Padding and the shape of the matrix product both change the last bits, so a batch holds texts
of one token count only, and a small batch is filled up with repeats until the product takes the
ordinary path.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from noctuary.progress import Progress

BATCH_SIZE = 8
"""Texts of a batch. On a CPU 8-16 is the fastest: larger ones fall out of the cache."""

MIN_BATCH_ROWS = 2
"""A batch of one text takes the matrix-vector path, which rounds differently."""

MIN_BATCH_TOKENS = 64
"""Tokens of a batch, repeats included. Below about 16 the threads of a matrix product get single
rows, which round differently (seen with 2 threads); 64 leaves a margin and costs a few
milliseconds."""


def plan_batches(lengths: Sequence[int], batch_size: int = BATCH_SIZE) -> list[list[int]]:
    """Group texts by exact token count, longest first, position order inside a count.

    Args:
        lengths: Token count of every text.
        batch_size: Most texts of a batch, at least 1.

    Returns:
        Positions of `lengths`, each exactly once.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}; expected at least 1")
    groups: dict[int, list[int]] = {}
    for position, length in enumerate(lengths):
        groups.setdefault(length, []).append(position)
    return [
        members[start : start + batch_size]
        for _, members in sorted(groups.items(), reverse=True)
        for start in range(0, len(members), batch_size)
    ]


def fill_batch(texts: Sequence[str], token_count: int) -> list[str]:
    """Repeat the texts, in order, until the batch is large enough for reproducible rounding.

    Args:
        texts: At least one text.
        token_count: Tokens of each of them.

    Returns:
        The texts followed by repeats; only the first len(texts) results are of use.
    """
    wanted = -(-MIN_BATCH_TOKENS // max(1, token_count))
    rows = max(len(texts), MIN_BATCH_ROWS, wanted)
    return [texts[row % len(texts)] for row in range(rows)]


def gather_batches(
    batches: Iterable[tuple[Sequence[int], NDArray[np.float32]]],
    shape: tuple[int, int],
    progress: Progress,
) -> NDArray[np.float32]:
    """Put the vectors of batches where their texts stand.

    Args:
        batches: Positions and their vectors; together each position once.
        shape: Texts and dimension.
        progress: Told of every batch.

    Returns:
        Shape `shape`.
    """
    vectors = np.empty(shape, dtype=np.float32)
    done = 0
    for positions, batch in batches:
        vectors[positions] = batch
        done += len(positions)
        progress.update("encode", done, len(vectors))
    return vectors
