"""Asking one set's questions under a condition: the sample, its halves, scopes and pasts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path

import numpy as np

from bench.arms.base import ArmRetriever, Hits, SetContext
from bench.arms.corpus_views import CorpusViews
from bench.phases.grid import Condition, Frame, Use, baseline_profile
from bench.phases.past import Past
from bench.suite.loading import LoadedSet
from noctuary.core.types import from_micros
from noctuary.evaluate.labels import Query
from noctuary.recall.candidates import is_dated
from noctuary.recall.engine import Recaller
from noctuary.recall.inputs import Inputs
from noctuary.recall.query import Mask, Scope
from noctuary.recall.result import RecalledMemory

SAMPLE = 400
"""Most questions of a set; more narrows the intervals, and takes that much longer."""

SEED = 20_251
"""Of the sample and of its halves."""

K = 10
ROUNDS = 5
HALVES = 2
_REPEATS = {"once": 1, "five": 5, "labels": 1, "labels_five": 5, "again": 1, "again_labels": 1}
_DAY = timedelta(days=1)

Worlds = tuple[Inputs, Inputs]
"""By half: what a question of that half is answered with."""


def sample_queries(queries: Sequence[Query], at_most: int, seed: int = SEED) -> list[Query]:
    """Return a random sample in random order, the same for the same seed."""
    order = np.random.default_rng(seed).permutation(len(queries))
    return [queries[i] for i in order[:at_most].tolist()]


class Asking:
    """One set's sampled questions over one pinned snapshot.

    Attributes:
        queries: The sample; question i is of half i mod 2.
        warnings: Codes of all warnings met, with how often.
    """

    def __init__(
        self, loaded: LoadedSet, recaller: Recaller, scratch: Path, at_most: int = SAMPLE
    ) -> None:
        self.queries = sample_queries(loaded.queries, at_most)
        self.recaller = recaller
        self._half_of = {q.query_id: i % HALVES for i, q in enumerate(self.queries)}
        self._scratch = scratch
        self._worlds: dict[Use, Worlds] = {}
        self._user = CorpusViews(SetContext(loaded.dataset, loaded.rows, recaller)).asking_user

    def frames(self) -> frozenset[Frame]:
        """Return the frames that this set has: those of time need dates, those of wings wings."""
        found: set[Frame] = {"everything"}
        dated = bool(is_dated(self.recaller.reader.created_at_us).any())
        winged = all(query.wing is not None for query in self.queries)
        if dated:
            found.add("after")
        if winged and dated:
            found |= {"wing_after", "wing_newest"}
        if winged and all(query.as_of is not None for query in self.queries):
            found.add("asked")
        return frozenset(found)

    def retriever(self, condition: Condition) -> PhaseRetriever:
        """Return what answers under a condition; its past is made on first use."""
        worlds = self._worlds_of(condition.use)

        def ask(query: Query, k: int) -> tuple[list[RecalledMemory], list[str]]:
            world = worlds[self._half_of[query.query_id]]
            scope = self._scope(query, condition.frame)
            result = self.recaller.recall(
                query.text, k, profile=condition.profile, scope=scope, inputs=world
            )
            return list(result.memories), [warning.code for warning in result.warnings]

        return PhaseRetriever(condition, ask, self._sources)

    @cached_property
    def _sources(self) -> dict[str, list[str]]:
        """Public ids of the turns of every accepted summary."""
        reader = self.recaller.reader
        return {
            summary_id: [str(i) for i in reader.public_ids(view.sources).values()]
            for summary_id, view in zip(reader.summaries.ids, reader.summaries.views, strict=True)
        }

    def _scope(self, query: Query, frame: Frame) -> Scope:
        if frame == "everything":
            return Scope(user=self._user)
        if frame == "after":
            return Scope(user=self._user, as_of=self._newest[None] + _DAY)
        if frame == "asked":
            return Scope(wing=query.wing, user=self._user, as_of=query.as_of)
        newest = self._newest.get(query.wing, self._newest[None])
        moment = newest + _DAY if frame == "wing_after" else newest
        return Scope(wing=query.wing, user=self._user, as_of=moment)

    @cached_property
    def _newest(self) -> dict[str | None, datetime]:
        """Date of the newest memory of every wing that has one, and (None) of all."""
        reader = self.recaller.reader
        created, wings = reader.created_at_us, reader.facets["wing"]
        dated = is_dated(created)
        parts = {name: dated & (wings.codes == code) for code, name in enumerate(wings.values)}
        masks: dict[str | None, Mask] = {None: dated, **parts}
        moments = {n: from_micros(int(created[m].max())) for n, m in masks.items() if m.any()}
        return {name: moment for name, moment in moments.items() if moment is not None}

    def _worlds_of(self, use: Use) -> Worlds:
        if use not in self._worlds:
            self._worlds[use] = self._make_worlds(use)
        return self._worlds[use]

    def _make_worlds(self, use: Use) -> Worlds:
        if use == "none":
            world = Past(self._scratch / use, self.recaller).world()
            return world, world
        halves = [self.queries[half::HALVES] for half in range(HALVES)]
        pasts = [self._make_past(use, half, asked) for half, asked in enumerate(halves)]
        # What a half is answered with is the other half's past, unless it asks again.
        return (pasts[0], pasts[1]) if use.startswith("again") else (pasts[1], pasts[0])

    def _make_past(self, use: Use, half: int, asked: Sequence[Query]) -> Inputs:
        past = Past(self._scratch / f"{use}-{half}", self.recaller)
        if use == "queries":
            past.log_queries({q.text: self._found(q, past.world()) for q in asked}, self._user)
        elif use == "rounds":
            for _ in range(ROUNDS):
                world = past.world()
                past.log([self._found(q, world, ltp=True) for q in asked])
        elif use in ("labels", "labels_five", "again_labels"):
            past.log([q.relevant_ids for q in asked], _REPEATS[use])
        else:
            past.log([self._found(q, past.world()) for q in asked], _REPEATS[use])
        return past.world()

    def _found(self, query: Query, world: Inputs, *, ltp: bool = False) -> list[str]:
        """Return what a recall would have logged."""
        profile = baseline_profile().replaced(ltp_enabled=ltp)
        result = self.recaller.recall(
            query.text, K, profile=profile, scope=Scope(user=self._user), inputs=world
        )
        return [str(memory.id) for memory in result.memories]


Ask = Callable[[Query, int], tuple[list[RecalledMemory], list[str]]]
"""A question and k in; memories and codes of warnings out."""


class PhaseRetriever(ArmRetriever):
    """Answers under one condition."""

    def __init__(self, condition: Condition, ask: Ask, sources: dict[str, list[str]]) -> None:
        super().__init__(condition.name)
        self._ask = ask
        self._sources = sources if condition.credit_summaries else {}

    def retrieve_hits(self, query: Query, k: int) -> Hits:
        """Return ids; with credit, a summary under the id of a labelled turn that it holds."""
        memories, warnings = self._ask(query, k)
        self.warnings.update(warnings)
        labels = set(query.relevant_ids)
        hits: Hits = []
        for memory in memories:
            turns = self._sources.get(str(memory.id), [])
            shown = next((turn for turn in turns if turn in labels), str(memory.id))
            hits.append((shown, memory.final_score))
        return hits
