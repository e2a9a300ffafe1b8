"""The FTS5 baselines as arms: plain OR search, the seed's default order, the seed by importance.

The searches themselves are `fts_seed`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from bench.arms.base import ArmRetriever, Hits
from bench.arms.corpus_views import CorpusViews, seed_rows
from bench.arms.fts_seed import RELEVANCE_BLEND, Blend, FtsSeed, SeedMode
from noctuary.evaluate.labels import Query

_WORD = re.compile(r"\w+")


class KeywordRetriever(ArmRetriever):
    """Asks an FTS5 index.

    Within a wing it ranks the whole corpus and keeps the wing's rows, as FTS5 users filter:
    collection statistics stay those of the whole corpus, and so does the cost. The seed's AND
    search is widened to OR only if the whole corpus has no memory with every word.
    """

    def __init__(
        self, name: str, views: CorpusViews, mode: SeedMode, blend: Blend = RELEVANCE_BLEND
    ) -> None:
        super().__init__(name)
        self._views = views
        self._mode: SeedMode = mode
        self._blend = blend
        self._own_index: FtsSeed | None = None

    @property
    def index_size_bytes(self) -> int:
        """Bytes of the full-text index."""
        return self._index.index_bytes(self._mode)

    def build_index(self, corpus: Sequence[Mapping[str, Any]]) -> None:
        """Index the set's rows afresh, so that building can be timed; else arms share one index."""
        self._own_index = FtsSeed.build(seed_rows([dict(row) for row in corpus]))

    def retrieve_hits(self, query: Query, k: int) -> Hits:
        """Return up to k rows that match, within the query's wing if so scoped."""
        ids = self._views.row_ids
        return [(ids[row], score) for row, score in self.rank_rows(query, k)]

    def rank_rows(self, query: Query, k: int) -> list[tuple[int, float]]:
        """Return up to k (row, score), best first."""
        wing = self._views.wing_of(query)
        if wing is None:
            return self._index.search(query.text, k, self._mode, self._blend)
        wings = self._views.row_wings
        ranked = self._index.search(query.text, len(wings), self._mode, self._blend)
        return [(row, score) for row, score in ranked if wings[row] == wing][: max(k, 0)]

    @property
    def _index(self) -> FtsSeed:
        return self._own_index or self._views.fts


def distinct_words(text: str) -> str:
    """Return each word of a query once, as the plain baseline of the sets asks it.

    FTS5 adds a term's bm25 once per mention in the query: on long conversational queries the
    repeats would put the baseline below the figures that the sets state (realmem recall@10 .099
    instead of .127).
    """
    return " ".join(dict.fromkeys(_WORD.findall(text.lower())))
