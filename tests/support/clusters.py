"""Hand-made clusters and an encoder with a closed form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.compact import summaries as tables
from noctuary.compact.clusters import Cluster, ClusterText
from noctuary.compact.summaries import Summary

WORDS = ("lyon", "rent", "cat", "flat", "train", "move")

CONTENTS = (
    "Ann: lyon and the flat",
    "Bob: the rent in lyon",
    "Ann: train",
    "Bob: lyon flat move",
    "Ann: cat",
    "Bob: cat",
    "Ann: rent",
)


class Bag:
    """A bag-of-words encoder, which keeps what it was asked to encode."""

    def __init__(self) -> None:
        self.encoded: list[str] = []

    def __call__(self, texts: list[str]) -> NDArray[np.float32]:
        self.encoded.extend(texts)
        return bag(texts)


def bag(texts: Sequence[str]) -> NDArray[np.float32]:
    """Count WORDS in each text, shape (n, 6)."""
    return np.array([[t.lower().count(word) for word in WORDS] for t in texts], dtype=np.float32)


def cluster_text(name: str, *positions: int, **fields: Any) -> ClusterText:
    """Return a cluster of some of CONTENTS with their vectors."""
    contents = [CONTENTS[i] for i in positions]
    values: dict[str, Any] = {
        "session_id": "s", "user": None, "wing": None, "strategy": "chronological", "ordinal": 0,
        **fields,
    }  # fmt: skip
    cluster = Cluster(
        cluster_id=name,
        member_positions=positions,
        member_ids=tuple(f"m{i}" for i in positions),
        first_us=positions[0],
        last_us=positions[-1],
        trivial=len(positions) == 1,
        **values,
    )
    return ClusterText(cluster, contents, bag(contents))


def write_summaries(path: Path, summaries: Iterable[Summary]) -> None:
    """Replace a table of summaries."""
    with tables.write_summaries(path) as add:
        for summary in summaries:
            add(summary)
