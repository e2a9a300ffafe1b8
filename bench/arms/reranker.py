"""A cross-encoder over the head of recall's list: the optional second stage of the reference.

What belongs here: asking it and splicing its order in. torch is imported when an arm is made.

Source: hybrid-recall-design A.6 (over the fused top 20 to 30).
"""

from __future__ import annotations

from typing import Any

from bench.arms.base import ArmRetriever, Hits
from bench.arms.corpus_views import CorpusViews
from mnemon.evaluate.labels.queries import Query
from mnemon.recall.profile import Profile

RERANKED = 30
"""Memories that are read together with the query; each costs a forward pass."""


class RerankRetriever(ArmRetriever):
    """Orders the first `RERANKED` memories of a profile by a cross-encoder, keeps the rest."""

    def __init__(self, name: str, views: CorpusViews, profile: Profile, model_path: str) -> None:
        super().__init__(name)
        self._views = views
        self._profile = profile
        self._model = _load(model_path)

    def retrieve_hits(self, query: Query, k: int) -> Hits:
        """Return the reranked head, then what recall had behind it.

        The tail has no score of the cross-encoder's; it is given lower ones that keep its order.
        """
        if k <= 0:
            return []
        found = self._views.recaller.recall(
            query.text,
            max(k, RERANKED),
            profile=self._profile,
            scope=self._views.scope_of(query),
        )
        self.warnings.update(warning.code for warning in found.warnings)
        head, tail = found.memories[:RERANKED], found.memories[RERANKED:]
        if not head:
            return []
        pairs = [(query.text, memory.content) for memory in head]
        scores = [float(s) for s in self._model.predict(pairs, show_progress_bar=False)]
        order = sorted(range(len(head)), key=lambda place: (-scores[place], place))
        ranked = [(str(head[place].id), scores[place]) for place in order]
        last = ranked[-1][1]
        ranked += [(str(memory.id), last - place) for place, memory in enumerate(tail, start=1)]
        return ranked[:k]


def _load(model_path: str) -> Any:
    from sentence_transformers import CrossEncoder

    return CrossEncoder(model_path, local_files_only=True)
