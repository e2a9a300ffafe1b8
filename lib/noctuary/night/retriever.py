"""One snapshot and one profile as a retriever: what the night's evaluation asks.

What belongs here: the adapter between labelled queries and recall, and its answers kept for the
night after a stopped one. No metric, no stage.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from noctuary.evaluate.labels.queries import Query
from noctuary.evaluate.run import Run, RunPlan, run_retriever
from noctuary.hashing import hash_json
from noctuary.night.questions import USER_KEY
from noctuary.progress import Progress
from noctuary.recall.engine import Recaller
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.scope import Scope
from noctuary.work.memo import Memo

KEPT_PER_WRITE = 64
"""Answers that a stop costs at most; a durable write each would cost more than most answers."""


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
        """Ask every query that nobody has asked this snapshot, profile and archive."""
        recaller = retriever.recaller
        archived = recaller.live_world().archive()
        asker = hash_json(
            [
                recaller.reader.manifest.digest,
                retriever.profile.to_json(),
                None if archived is None else archived.key,
                plan.depth,
            ]
        )
        keys = [hash_json([asker, q.text, str(q.as_of), q.extras.get(USER_KEY)]) for q in queries]
        known = self._memo.get_many(self._kind, keys)
        self.reused += len(known)
        missing = [(key, q) for key, q in zip(keys, queries, strict=True) if key not in known]
        for start in range(0, len(missing), KEPT_PER_WRITE):
            chunk = missing[start : start + KEPT_PER_WRITE]
            run = run_retriever(retriever, [query for _, query in chunk], plan)
            found = zip(chunk, run.top_scores, run.rankings, strict=True)
            fresh = {key: json.dumps([best, *ids]).encode() for (key, _), best, ids in found}
            self._memo.put_many(self._kind, fresh)
            known |= fresh
            done = len(queries) - len(missing) + start + len(chunk)
            progress.update("evaluate", done, len(queries))
        answers = [json.loads(known[key]) for key in keys]
        return Run(
            name=retriever.name,
            k=plan.depth,
            depth=plan.depth,
            query_ids=tuple(query.query_id for query in queries),
            rankings=tuple(tuple(ids) for _, *ids in answers),
            top_scores=tuple(best for best, *_ in answers),
            latency_ms=None,
            build_ms=None,
            index_bytes=None,
            unstable_prefixes=0,
        )
