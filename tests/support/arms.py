"""A small labelled set over a real store, as the arms of the benchmarks meet it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.arms import ArmRetriever, SearchScope, SetContext
from bench.datasets import Dataset
from noctuary.core.store import StorePaths
from noctuary.core.types import MemoryRecord
from noctuary.evaluate.labels import Query
from noctuary.recall.engine import Recaller
from tests.support.lean import SYNONYMS, write_encoder
from tests.support.store import memory, new_store, renumber

WINGS = ("home", "work", "club")
WORDS = ("ladder", "lantern", "meadow", "quarry", "saddle", "violin", "walnut", "zipper")
"""Words that the tiny encoder does not know: only keyword search can tell them apart."""


def records(count: int = 60, seed: int = 7) -> list[MemoryRecord]:
    """Return generated memories: three words each, importance between 0 and 1, three wings."""
    random = np.random.default_rng(seed)
    known = [word for words in SYNONYMS[1:] for word in words]
    made: list[MemoryRecord] = []
    for number in range(count):
        words = [str(w) for w in (*random.choice(known, 2), *random.choice(WORDS, 2))]
        made.append(
            memory(
                f"The {words[0]} and the {words[2]} {words[3]}: {words[1]} number {number}.",
                wing=WINGS[number % len(WINGS)],
                tags=str(random.choice(WORDS)),
                importance=round(float(random.random()), 3),
            )
        )
    return renumber(made)


def as_rows(memories: Sequence[MemoryRecord]) -> list[dict[str, Any]]:
    """Return memories as the rows of a labelled set's corpus."""
    return [
        {
            "id": int(m.memory_id),
            "content": m.content,
            "category": m.category,
            "tags": m.tags,
            "expanded_keywords": m.expanded_keywords,
            "importance": m.importance,
            "wing": m.wing,
        }
        for m in memories
    ]


def build_context(
    root: Path, memories: Sequence[MemoryRecord], scope: SearchScope = "all"
) -> SetContext:
    """Publish the memories in a store below `root` and return what arms are made from."""
    paths = StorePaths(root / "store")
    paths.encoders.mkdir(parents=True)
    store = new_store(paths.root, encoder=write_encoder(paths.encoders))
    store.publish(memories)
    recaller = Recaller.open(store.root)
    return SetContext(Dataset("tiny", root), as_rows(memories), recaller, scope)


def ask(text: str, wing: str | None = None, query_id: str = "q") -> Query:
    """Return a query; the arms look at its text and wing only."""
    return Query(query_id, text, "a", ("101",), wing=wing)


def ids(retriever: ArmRetriever, query: Query, k: int) -> list[str]:
    """Return the ids that an arm finds, best first."""
    return [found for found, _ in retriever.retrieve_hits(query, k)]
