"""The data of one recall while it runs: its clock, its base ranking and what phases may ask."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.core.types import fire, has_hooks, to_micros
from noctuary.graph.walk import Link
from noctuary.recall.candidates import Candidates, Ledger, PastQuery
from noctuary.recall.inputs import GuardResult, Inputs, look_down
from noctuary.recall.legs import GraphRanking, Leg
from noctuary.recall.query import Mask, Positions, Query, Scores, aware
from noctuary.recall.reader import SnapshotGraph, SnapshotReader, SummaryView
from noctuary.recall.result import RecallWarning
from noctuary.recall.rows import Rows, Successor, through_hidden

if TYPE_CHECKING:
    from noctuary.graph.successors import SupersessionRow
    from noctuary.usage.reader import Usage


def elapsed_ms(since_s: float) -> float:
    """Return the milliseconds since a moment of `time.perf_counter`."""
    return (time.perf_counter() - since_s) * 1000


class RecallRun:
    """The clock, the deadline, the timings and the warnings of one recall."""

    def __init__(self, deadline_ms: float | None = None) -> None:
        self.started_s = time.perf_counter()
        self.deadline_ms = deadline_ms
        self.warnings: list[RecallWarning] = []
        self.phase_timing_ms: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Generator[None]:
        """Time one step; a step that runs twice is summed."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            before = self.phase_timing_ms.get(name, 0.0)
            self.phase_timing_ms[name] = round(before + elapsed_ms(begin), 3)

    def finish(self) -> None:
        """Note the time of the whole recall."""
        self.phase_timing_ms["total"] = round(elapsed_ms(self.started_s), 3)

    def left_ms(self) -> float:
        """Return the time left until the deadline; infinite without one, below 0 after it."""
        limit_ms = math.inf if self.deadline_ms is None else self.deadline_ms
        return limit_ms - elapsed_ms(self.started_s)

    def late(self) -> bool:
        """Say whether the deadline has passed."""
        return self.left_ms() < 0

    def warn(self, code: str, message: str) -> None:
        """Record a degradation, once."""
        self.extend([RecallWarning(code, message)])

    def extend(self, warnings: Iterable[RecallWarning]) -> None:
        """Record degradations; the same one twice is one."""
        self.warnings.extend(w for w in warnings if w not in self.warnings)

    def fire(self, name: str, context: dict[str, object]) -> None:
        """Call the hooks of a name; one that raises is a warning."""
        if has_hooks(name):
            for fault in fire(name, context):
                self.warn("hook_failed", fault)


QueryVector = Callable[[str], NDArray[np.float32]]
"""Encodes a query; raises EncoderError, OSError or ValueError where it cannot."""


class BaseRanking(NamedTuple):
    """Candidates with their scores after every step before the phases; arrays have length m."""

    positions: Positions  # ascending, distinct
    fused: Scores  # after fusion (or the alternative scorer), in [0, 1]
    with_graph: Scores  # after what the graph added
    matched: Scores  # after the exact-match bonus
    relevance: Scores  # times the quality of summaries; what sort_by="relevance" starts from
    final: Scores  # after the importance prior
    lexical: Leg
    dense: Leg
    graph: GraphRanking | None = None  # None where it abstained
    # Concepts that the query names among all that the scope shows; None where the graph leg did not
    # look, or saw less.
    links: tuple[Link, ...] | None = None
    exact: Mask | None = None  # which hold every word of the query; None without a bonus for it
    # Summaries of turns that were hit, ascending; their turns are candidates in their place.
    opened: Positions | None = None

    @property
    def order(self) -> NDArray[np.int64]:
        """Places from best to worst: by final score, then relevance, then position."""
        return np.lexsort((self.positions, -self.relevance, -self.final))

    def relevance_of(self, candidates: Candidates) -> Scores:
        """Return the relevance before prior and phases; a late-comer's own score."""
        places = np.searchsorted(self.positions, candidates.positions)
        inside = places < self.positions.size
        known = np.zeros(candidates.size, dtype=np.bool_)
        known[inside] = self.positions[places[inside]] == candidates.positions[inside]
        relevance = candidates.scores.copy()
        relevance[known] = self.relevance[places[known]]
        return relevance


class Search:
    """One recall while it runs: what is asked, of which rows, and what the steps came to.

    Whatever a phase wants to know beyond the candidates it asks here: the snapshot's part never
    changes, the inputs are recorded for a replay. Positions may be those of any kind of row.
    """

    def __init__(
        self,
        reader: SnapshotReader,
        graph: SnapshotGraph,
        query: Query,
        inputs: Inputs,
        *,
        rows: Rows | None = None,
        ranker: Callable[[Search, str, int], BaseRanking],
        encode: QueryVector | None = None,
        run: RecallRun | None = None,
    ) -> None:
        self.reader = reader  # with the live rows that this recall may see
        self.graph, self.query, self.inputs = graph, query, inputs
        self.rows, self.run = rows or Rows(), run or RecallRun()
        self.encode = encode  # how a text becomes a vector; None where there is no dense leg
        self.ranker = ranker  # ranks another text in the same scope
        self.known_share: Callable[[str], float] = lambda _: 1.0  # how much of it that says
        self.profile, self.k = query.profile, query.k
        self.candidates = Candidates(np.empty(0, np.int64), np.empty(0), np.empty(0, np.bool_))
        self.guard: GuardResult | None = None
        self.base: BaseRanking | None = None  # the ranking before the phases
        self.ledger = Ledger()
        self.vectors: dict[str, NDArray[np.float32]] = {}  # of the texts that were asked
        self.total_in = 0
        self._ids: dict[int, str] = {}

    @cached_property
    def now_us(self) -> int:
        """The moment of the recall: `as_of`, else the clock."""
        as_of = self.query.scope.as_of
        return self.inputs.now_us() if as_of is None else to_micros(aware(as_of))

    @property
    def wants_events(self) -> bool:
        """Say whether anybody will look at score events."""
        return self.profile.explain or self.profile.replay_log or has_hooks("post_score_event")

    def search(self, text: str, depth: int) -> tuple[Positions, Scores]:
        """Ask the base ranking another question in the same scope."""
        found = self.ranker(self, text, depth)
        return found.positions[found.order], found.final[found.order]

    def wings_of(self, positions: Positions) -> list[str | None]:
        """Return wings; a summary has its first turn's."""
        values = self.reader.facets["wing"].values
        codes = self.reader.codes_at("wing", positions)
        return [None if code < 0 else values[code] for code in codes]

    def usage_of(self, positions: Positions) -> Usage:
        """Return usage inside the window, zeros where none is known; a summary has none."""
        if not self.inputs.knows_usage():
            from noctuary.usage.reader import Usage

            return Usage.none(positions.size)
        return self.inputs.usage_of(self._ids_of(positions))

    def co_retrievals(self, positions: Positions) -> NDArray[np.int64]:
        """Return, per position, how often it was recalled together with any of the others."""
        if not self.inputs.knows_usage():
            return np.zeros(positions.size, dtype=np.int64)
        return self.inputs.co_retrieved(self._ids_of(positions))

    def _ids_of(self, positions: Positions) -> list[str]:
        wanted: list[int] = positions.tolist()
        missing = [p for p in wanted if p not in self._ids]
        if missing:
            self._ids.update(self.reader.memory_ids(missing))
        return [self._ids[p] for p in wanted]

    def most_used(self, limit: int) -> Positions:
        """Return the most often recalled memories that this recall may see, most first."""

        # Others' memories may fill the head of the list: they must not use up the limit.
        def visible(ids: list[str]) -> list[int]:
            return self._visible(list(self.reader.positions_of(ids).values())).tolist()

        return np.array(look_down(self.inputs.most_used, visible, limit), dtype=np.int64)

    def summaries_of(self, positions: Positions) -> Mapping[int, SummaryView]:
        """Return the accepted summary of each source of which this recall may see every turn."""
        found, mask = self.reader.summaries.of_sources(positions), self.rows.memories
        return {p: s for p, s in found.items() if mask is None or mask[list(s.sources)].all()}

    def successors_of(self, positions: Positions) -> Mapping[int, Successor]:
        """Return what the night found to replace the positions, and these successors in turn.

        `as_of` is in the mask: a memory ends when its successor was created, or later, so whoever
        sees both asks for a moment after that. A successor that is not searched is passed through.
        """
        from noctuary.graph.successors import NO_SUCCESSOR

        index = self.reader.superseded
        rows: dict[int, SupersessionRow] = {}
        while positions.size:
            newer = index.successors(positions, visible=self.rows.allowed)
            found = map(index.row_of, positions[newer != NO_SUCCESSOR].tolist())
            fresh = {row.older: row for row in found if row is not None and row.older not in rows}
            rows.update(fresh)
            positions = np.array([row.newer for row in fresh.values()], dtype=np.int64)
        wanted = ("supersessions", "older", "older, evidence_position")
        evidence = dict(self.reader.look_up(*wanted, [str(older) for older in rows]))
        links = {
            r.older: Successor(
                r.newer, r.reason, r.confidence, r.similarity, r.age_gap_days, evidence[r.older]
            )
            for r in rows.values()
        }
        return links if self.rows.hidden is None else through_hidden(links, self.rows)

    def past_queries(self, *, since_us: int, limit: int) -> Sequence[PastQuery]:
        """Return logged queries of other wording, most similar first, with what is still seen."""
        logged, fault = self.inputs.past_queries(
            self.query.text, since_us=since_us, limit=limit, user=self.query.scope.user
        )
        if fault is not None:
            self.run.warn("query_log", fault)
        places = self.reader.positions_of(sorted({i for *_, found in logged for i in found}))
        seen = [self._visible([places[i] for i in found if i in places]) for *_, found in logged]
        return [
            PastQuery(*row[:3], tuple(kept.tolist()))
            for row, kept in zip(logged, seen, strict=True)
        ]

    def rerank_scores(self, positions: Positions) -> NDArray[np.float64] | RecallWarning:
        """Return the profile's cross-encoder's scores of the positions, or why there are none."""
        rows = self.reader.describe(positions.tolist())
        texts = [str(rows[p]["content"]) for p in positions.tolist()]
        timeout_ms = min(self.profile.rerank_timeout_ms, self.run.left_ms())
        return self.inputs.rerank(self.profile.reranker, self.query.text, texts, timeout_ms)

    def _visible(self, positions: Sequence[int]) -> Positions:
        kept, mask = np.array(positions, dtype=np.int64), self.rows.memories
        return kept if mask is None else kept[mask[kept]]
