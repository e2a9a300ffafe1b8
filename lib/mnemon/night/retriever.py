"""One snapshot and one profile as a retriever: what the night's evaluation asks.

What belongs here: the adapter between labelled queries and recall. No metric, no stage.
"""

from __future__ import annotations

from dataclasses import dataclass

from mnemon.evaluate.labels.queries import Query
from mnemon.night.questions import USER_KEY
from mnemon.recall.engine import Recaller
from mnemon.recall.profile import RetrievalProfile
from mnemon.recall.scope import Scope


@dataclass(frozen=True, slots=True)
class ProfileRetriever:
    """Asks a snapshot with one profile.

    Everything that the query's user may see is searched, whatever wing the query names, as far as
    it existed at the query's moment: finding the right wing is part of the work.

    Attributes:
        name: What reports call it.
        recaller: The pinned snapshot.
        profile: How it ranks.
    """

    name: str
    recaller: Recaller
    profile: RetrievalProfile

    def retrieve_hits(self, query: Query, k: int) -> list[tuple[str, float]]:
        """Return ids with their final scores, best first."""
        scope = Scope(as_of=query.as_of, user=query.extras.get(USER_KEY))
        found = self.recaller.recall(query.text, k, profile=self.profile, scope=scope)
        return [(str(memory.id), memory.final_score) for memory in found.memories]

    def retrieve(self, query: str, k: int) -> list[str]:
        """Return ids, best first."""
        found = self.recaller.recall(query, k, profile=self.profile)
        return [str(memory.id) for memory in found.memories]
