"""A cross-encoder over the head of recall's list: the optional second stage of the reference.

The model is the one that recall would load (`noctuary.recall.inputs`), without recall's time
limit: what is measured here is what it knows.

Source: hybrid-recall-design A.6 (over the fused top 20 to 30).
"""

from __future__ import annotations

from bench.arms.base import ArmRetriever, Hits
from bench.arms.corpus_views import CorpusViews
from noctuary.core.errors import EncoderError
from noctuary.evaluate.labels import Query
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.rerank import open_reranker
from noctuary.recall.result import RecallWarning

RERANKED = 30
"""Memories that are read together with the query; each costs a forward pass."""

PATIENCE_MS = 600_000.0
"""Loading included; only so that a hanging model ends the run instead of stopping it."""


class RerankRetriever(ArmRetriever):
    """Orders the first `RERANKED` memories of a profile by a cross-encoder, keeps the rest."""

    def __init__(
        self, name: str, views: CorpusViews, profile: RetrievalProfile, model_path: str
    ) -> None:
        super().__init__(name)
        self._views = views
        self._profile = profile
        self._model = open_reranker(model_path)
        # Loaded now, so that no query's time holds it and a wrong path ends the run at once.
        self._ask("", [""])

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
        scores = self._ask(query.text, [memory.content for memory in head])
        order = sorted(range(len(head)), key=lambda place: (-scores[place], place))
        ranked = [(str(head[place].id), scores[place]) for place in order]
        last = ranked[-1][1]
        ranked += [(str(memory.id), last - place) for place, memory in enumerate(tail, start=1)]
        return ranked[:k]

    def _ask(self, query: str, texts: list[str]) -> list[float]:
        answer = self._model.score(query, texts, PATIENCE_MS)
        if isinstance(answer, RecallWarning):
            # An arm that quietly measured the fused order would be worse than none.
            raise EncoderError(answer.message)
        return answer.tolist()
