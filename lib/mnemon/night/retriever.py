"""One snapshot and one profile as a retriever: what the night's evaluation asks.

What belongs here: the adapter between labelled queries and recall, and its answers kept for the
night after a stopped one. No metric, no stage.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mnemon.evaluate.labels.queries import Query
from mnemon.evaluate.run import Run, RunPlan, run_retriever
from mnemon.hashing import hash_json
from mnemon.night.questions import USER_KEY
from mnemon.progress import Progress
from mnemon.recall.engine import Recaller
from mnemon.recall.profile import RetrievalProfile
from mnemon.recall.scope import Scope
from mnemon.work.memo import Memo

KEPT_PER_WRITE = 64
"""Answers that a kill costs at most; a durable write each would cost more than most answers."""


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


class KeptAnswers:
    """What retrievers answered, written down as it comes: a night that is stopped asks none again.

    Ids and scores under a hash of what was asked; never a text. Publishing prunes it.

    Attributes:
        reused: Answers of an earlier night, so far.
    """

    def __init__(self, memo: Memo, kind: str) -> None:
        """Open what is kept.

        Args:
            memo: Where; what of this kind is not listed as alive there is pruned.
            kind: Which stage in which version asks.
        """
        self._memo = memo
        self._kind = kind
        self.reused = 0

    def ask(
        self,
        retriever: ProfileRetriever,
        queries: Sequence[Query],
        plan: RunPlan,
        progress: Progress,
    ) -> Run:
        """Ask every query that nobody has asked this snapshot with this profile."""
        digest, profile = retriever.recaller.reader.manifest.digest, retriever.profile.to_json()
        asker = hash_json([digest, profile, plan.depth])
        keys = {
            q.query_id: hash_json([asker, q.text, str(q.as_of), q.extras.get(USER_KEY)])
            for q in queries
        }
        known = self._memo.get_many(self._kind, keys.values())
        self.reused += len(known)
        asking = _Keeping(retriever, keys, known, self._write)
        try:
            return run_retriever(asking, queries, plan, progress=progress)
        finally:
            self._write(asking.fresh)

    def _write(self, fresh: dict[str, bytes]) -> None:
        self._memo.put_many(self._kind, fresh)
        fresh.clear()


class _Keeping:
    """A retriever that looks its answers up first."""

    def __init__(
        self,
        retriever: ProfileRetriever,
        keys: Mapping[str, str],
        known: Mapping[str, bytes],
        write: Callable[[dict[str, bytes]], None],
    ) -> None:
        self.name = retriever.name
        self.fresh: dict[str, bytes] = {}
        self._retriever = retriever
        self._keys = keys
        self._known = known
        self._write = write

    def retrieve_hits(self, query: Query, k: int) -> list[tuple[str, float]]:
        """Return ids, best first; those of a known answer all have its best score."""
        key = self._keys[query.query_id]
        if (known := self._known.get(key)) is not None:
            best, *ids = json.loads(known)
            return [(memory_id, best) for memory_id in ids]
        hits = self._retriever.retrieve_hits(query, k)
        best = hits[0][1] if hits else None
        self.fresh[key] = json.dumps([best, *(memory_id for memory_id, _ in hits)]).encode()
        if len(self.fresh) >= KEPT_PER_WRITE:
            self._write(self.fresh)
        return hits

    def retrieve(self, query: str, k: int) -> list[str]:
        """Return ids, best first."""
        return self._retriever.retrieve(query, k)
