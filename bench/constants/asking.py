"""Scores of a set's queries under one setting after another, through recall itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.constants.folds import Scores
from bench.constants.grid import Setting, apply_setting
from noctuary.evaluate.labels import Query
from noctuary.evaluate.metrics import ndcg_at_k, recall_at_k
from noctuary.recall.engine import Recaller
from noctuary.recall.inputs import Inputs
from noctuary.recall.profile import RetrievalProfile

K = 10


class RememberedVectors:
    """A world that encodes every query once."""

    def __init__(self, world: Inputs) -> None:
        self._world = world
        self._vectors: dict[str, NDArray[np.float32]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    def query_vector(self, text: str, within_ms: float = math.inf) -> NDArray[np.float32]:
        """Return the vector of a query."""
        if text not in self._vectors:
            self._vectors[text] = self._world.query_vector(text)
        return self._vectors[text]


def score_settings(
    store: Path,
    queries: Sequence[Query],
    settings: Sequence[Setting],
    told: Callable[[int], None],
) -> Scores:
    """Return the mean of R@5, R@10 and nDCG@10 of every query under every setting.

    The constants of this process are the last setting's afterwards.

    Args:
        store: A store with the set's snapshot.
        queries: The set's, every one over the whole corpus.
        settings: What is tried.
        told: Called with the number of settings done.
    """
    recaller = Recaller.open(store)
    world: Any = RememberedVectors(recaller.inputs_now())
    scores = np.zeros((len(settings), len(queries)))
    for row, setting in enumerate(settings):
        apply_setting(setting)
        for column, query in enumerate(queries):
            found = recaller.recall(query.text, K, profile=RetrievalProfile(), inputs=world)
            scores[row, column] = _score([str(m.id) for m in found.memories], query)
        told(row + 1)
    return scores


def _score(ranking: Sequence[str], query: Query) -> float:
    relevant = query.relevant_ids
    return (
        recall_at_k(ranking, relevant, 5)
        + recall_at_k(ranking, relevant, K)
        + ndcg_at_k(ranking, relevant, K)
    ) / 3.0
