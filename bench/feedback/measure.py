"""How large a corpus is beyond what is its own, and how much of it is said twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.core.types import MemoryRecord
from noctuary.sources.corpus import read_records
from noctuary.sources.export import read_report
from noctuary.sources.injected import hash_words, words_of

NEAR_COSINE = 0.95
"""From this cosine on two memories say the same; lower counts memories about one thing as well."""

_ROWS_AT_ONCE = 512


def measure_corpus(
    work: Path, own_ids: Collection[str], own_chars: int, *, with_vectors: bool
) -> dict[str, Any]:
    """Return the numbers of one night.

    Args:
        work: The store's work directory.
        own_ids: Ids of the rows that hold anything of their own.
        own_chars: Characters of what is their own.
        with_vectors: Whether there are vectors to find near duplicates with.
    """
    records = read_records(work / "corpus")
    report = read_report(work / "corpus")
    memories = [r for r in records if not r.is_turn]
    numbers: dict[str, Any] = {
        "rows": len(records),
        "rows_not_own": sum(r.memory_id not in own_ids for r in records),
        "own_rows_lost": len(set(own_ids) - {r.memory_id for r in records}),
        "chars_not_own": sum(len(r.content) for r in records) - own_chars,
        "set_aside": {k: n for k, n in report.quarantined.items() if k.startswith("injected")},
        "cut": {k: n for k, n in report.warnings.items() if k.startswith("injected")},
        "exact_duplicates": _share(_repeated(memories), memories),
    }
    if with_vectors:
        vectors = np.load(work / "vectors" / "memories.npy", mmap_mode="r")
        chosen = vectors[[r.position for r in memories]].astype(np.float32)
        numbers["near_duplicates"] = _share(count_near(chosen, NEAR_COSINE), memories)
    return numbers


def count_near(vectors: NDArray[np.float32], cosine: float) -> int:
    """Return how many rows lie within a cosine of an earlier row.

    Args:
        vectors: Unit vectors, shape (n, d).
        cosine: In [-1, 1].
    """
    near = 0
    for start in range(0, len(vectors), _ROWS_AT_ONCE):
        some = vectors[start : start + _ROWS_AT_ONCE]
        cosines = np.tril(some @ vectors[: start + len(some)].T, k=start - 1)
        near += int((cosines >= cosine).any(axis=1).sum())
    return near


def _repeated(records: Sequence[MemoryRecord]) -> int:
    wordings = Counter(hash_words(words_of(r.content)) for r in records)
    return sum(count - 1 for count in wordings.values())


def _share(count: int, of: Sequence[object]) -> float:
    return round(count / max(len(of), 1), 4)
