"""One recall over one pinned snapshot: scope, legs, fusion, graph, prior, order.

Raises nothing for bad data.

What belongs here: the order of the steps. Each step's arithmetic lives in its own module.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mnemon.errors import EncoderError
from mnemon.graph.arrays import GraphArrays
from mnemon.graph.walk import Walk, walk
from mnemon.recall.fusion import (
    add_exact_match,
    add_graph,
    apply_importance,
    fuse_convex,
    fuse_rrf,
    pool_candidates,
)
from mnemon.recall.legs import Leg, find_exact_matches, rank_dense, rank_lexical
from mnemon.recall.opening import open_serving
from mnemon.recall.profile import Profile
from mnemon.recall.query_encoder import encode_query
from mnemon.recall.reader import SnapshotReader
from mnemon.recall.result import (
    GraphHit,
    LegHit,
    RecalledMemory,
    RecallResult,
    RecallWarning,
)
from mnemon.recall.scope import Mask, Scope, build_mask
from mnemon.snapshot.layout import StorePaths
from mnemon.types import UNDATED_US, from_micros

SORT_ORDERS = ("relevance", "importance", "recency")
# The reference store's blend for sort_by="importance" (research/peers.md 2.4): importance leads,
# relevance still counts.
_IMPORTANCE_SORT_RELEVANCE = 0.4
_IMPORTANCE_SORT_IMPORTANCE = 0.6


@dataclass
class _Run:
    """The state of one recall: what is known so far, and what went wrong."""

    started_s: float
    deadline_ms: float | None
    warnings: list[RecallWarning] = field(default_factory=list)
    timings_ms: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Generator[None]:
        """Time one step."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.timings_ms[name] = round((time.perf_counter() - begin) * 1000, 3)

    def late(self) -> bool:
        """Say whether the deadline has passed."""
        if self.deadline_ms is None:
            return False
        return (time.perf_counter() - self.started_s) * 1000 > self.deadline_ms

    def warn(self, code: str, message: str) -> None:
        """Record a degradation."""
        self.warnings.append(RecallWarning(code, message))


@dataclass(frozen=True, slots=True)
class _Ranked:
    """Candidates with their scores, before the order of the answer is chosen."""

    positions: NDArray[np.int64]
    relevance: NDArray[np.float64]
    lexical: Leg
    dense: Leg
    arrived: Walk | None


def check_arguments(k: int, sort_by: str) -> None:
    """Refuse what no store could honour.

    Raises:
        ValueError: If k is negative or sort_by is unknown.
    """
    if k < 0:
        raise ValueError(f"k must be >= 0, found {k}")
    if sort_by not in SORT_ORDERS:
        raise ValueError(f"sort_by must be one of {SORT_ORDERS}, found {sort_by!r}")


class Recaller:
    """Answers queries from one pinned snapshot of one store; safe to share between threads."""

    def __init__(self, paths: StorePaths, reader: SnapshotReader, snapshot_id: str) -> None:
        self.paths = paths
        self.reader = reader
        self.snapshot_id = snapshot_id
        self._graph = GraphArrays(**reader.graph_arrays)

    @staticmethod
    def open(store_dir: Path) -> Recaller:
        """Pin the serving snapshot of a store.

        Raises:
            StoreError: If nothing is published or nothing published can be opened.
        """
        paths = StorePaths(store_dir)
        opened = open_serving(paths)
        return Recaller(paths, opened.reader, opened.snapshot_id)

    def recall(
        self,
        query: str,
        k: int = 10,
        *,
        profile: Profile | None = None,
        scope: Scope | None = None,
        sort_by: str = "relevance",
        deadline_ms: float | None = None,
    ) -> RecallResult:
        """Return the k best memories for a query.

        Args:
            query: Any text; blank text finds nothing and says so.
            k: How many, >= 0; more than the store holds returns all that match.
            profile: How to rank; None means the built-in default.
            scope: Filters, applied before ranking in every leg.
            sort_by: "relevance", "importance" (0.4 relevance + 0.6 importance) or "recency".
            deadline_ms: After this much wall time remaining legs are skipped with a warning.

        Raises:
            ValueError: If k is negative or sort_by is unknown.
        """
        check_arguments(k, sort_by)
        chosen = profile or Profile()
        run = _Run(time.perf_counter(), deadline_ms)
        memories: tuple[RecalledMemory, ...] = ()
        if not query.strip():
            run.warn("empty_query", "the query holds no text")
        elif k > 0:
            memories = self._answer(run, query, k, chosen, scope or Scope(), sort_by)
        run.timings_ms["total"] = round((time.perf_counter() - run.started_s) * 1000, 3)
        return RecallResult(
            query=query,
            memories=memories,
            warnings=tuple(run.warnings),
            timings_ms=run.timings_ms,
            snapshot_id=self.snapshot_id,
            store=str(self.paths.root),
            profile=chosen.to_json(),
        )

    def _answer(
        self, run: _Run, query: str, k: int, profile: Profile, scope: Scope, sort_by: str
    ) -> tuple[RecalledMemory, ...]:
        with run.step("scope"):
            mask, warnings = build_mask(scope, self.reader.facets, self.reader.created_at_us)
            run.warnings.extend(warnings)
        if mask is not None and not mask.any():
            return ()
        ranked = self._rank(run, query, max(k, profile.depth), profile, mask)
        if profile.exact_match_bonus > 0:
            with run.step("exact"):
                ranked = self._with_exact_matches(ranked, query, profile.exact_match_bonus)
        final = apply_importance(
            ranked.relevance, self._importance(ranked.positions), profile.importance_prior
        )
        key = self._sort_key(sort_by, ranked, final)
        order = np.lexsort((ranked.positions, -ranked.relevance, -key))[:k]
        with run.step("fetch"):
            return self._describe(ranked, key, order)

    def _rank(
        self, run: _Run, query: str, depth: int, profile: Profile, mask: Mask | None
    ) -> _Ranked:
        lexical = dense = Leg.empty(self.reader.count)
        if profile.lexical_weight > 0:
            with run.step("lexical"):
                lexical = rank_lexical(self.reader, query, mask, depth)
        if profile.dense_weight > 0:
            dense = self._dense_leg(run, query, mask, depth)
        with run.step("fuse"):
            positions = pool_candidates([lexical.ranking, dense.ranking])
            relevance = _fuse(positions, lexical, dense, profile)
        if profile.graph_weight <= 0 or not positions.size:
            return _Ranked(positions, relevance, lexical, dense, None)
        if run.late():
            run.warn("deadline_graph", "the deadline passed before the graph leg; it was skipped")
            return _Ranked(positions, relevance, lexical, dense, None)
        with run.step("graph"):
            return self._with_graph(positions, relevance, lexical, dense, profile, mask)

    def _dense_leg(self, run: _Run, query: str, mask: Mask | None, depth: int) -> Leg:
        if run.late():
            run.warn("deadline_dense", "the deadline passed before the dense leg; it was skipped")
            return Leg.empty(self.reader.count)
        try:
            with run.step("encode"):
                vector = encode_query(self.paths, self.reader.manifest, query)
            with run.step("dense"):
                return rank_dense(self.reader, vector, mask, depth)
        except (EncoderError, OSError, ValueError) as error:
            run.warn("dense_unavailable", f"answered without the dense leg: {error}")
            return Leg.empty(self.reader.count)

    def _with_graph(
        self,
        positions: NDArray[np.int64],
        relevance: NDArray[np.float64],
        lexical: Leg,
        dense: Leg,
        profile: Profile,
        mask: Mask | None,
    ) -> _Ranked:
        order = np.lexsort((positions, -relevance))
        arrived = walk(positions[order], relevance[order], self._graph, mask=mask)
        if arrived.is_empty:
            return _Ranked(positions, relevance, lexical, dense, None)
        pool = pool_candidates([positions, arrived.positions])
        base = _fuse(pool, lexical, dense, profile)
        extra = np.zeros(pool.size, dtype=np.float64)
        extra[np.searchsorted(pool, arrived.positions)] = arrived.scores
        return _Ranked(pool, add_graph(base, extra, profile.graph_weight), lexical, dense, arrived)

    def _with_exact_matches(self, ranked: _Ranked, query: str, bonus: float) -> _Ranked:
        exact = find_exact_matches(self.reader, query, ranked.positions)
        return replace(ranked, relevance=add_exact_match(ranked.relevance, exact, bonus))

    def _importance(self, positions: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return importance in [0, 1] even where the file holds something else."""
        stored = self.reader.importance[positions].astype(np.float64)
        return np.clip(np.nan_to_num(stored), 0.0, 1.0)

    def _sort_key(
        self, sort_by: str, ranked: _Ranked, final: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        if sort_by == "importance":
            return (
                _IMPORTANCE_SORT_RELEVANCE * ranked.relevance
                + _IMPORTANCE_SORT_IMPORTANCE * self._importance(ranked.positions)
            )
        if sort_by == "recency":
            return _scale_dates(self.reader.created_at_us, ranked.positions)
        return final

    def _describe(
        self, ranked: _Ranked, key: NDArray[np.float64], order: NDArray[np.int64]
    ) -> tuple[RecalledMemory, ...]:
        chosen = [int(p) for p in ranked.positions[order]]
        rows = self.reader.fetch_rows(chosen)
        lexical_ranks, dense_ranks = ranked.lexical.rank_of(), ranked.dense.rank_of()
        graph_hits = self._graph_hits(ranked.arrived, set(chosen))
        memories: list[RecalledMemory] = []
        for index, position in zip(order, chosen, strict=True):
            (
                _,
                memory_id,
                content,
                category,
                tags,
                importance,
                created,
                session,
                wing,
                room,
                user,
            ) = rows[position]
            memories.append(
                RecalledMemory(
                    id=self.reader.public_id(memory_id),
                    content=content,
                    category=category,
                    tags=tuple(t.strip() for t in tags.split(",") if t.strip()),
                    importance=importance,
                    created_at=from_micros(created),
                    wing=wing,
                    room=room,
                    session_id=session,
                    user=user,
                    final_score=float(key[index]),
                    relevance=float(ranked.relevance[index]),
                    lexical=_leg_hit(ranked.lexical, lexical_ranks, position),
                    dense=_leg_hit(ranked.dense, dense_ranks, position),
                    graph=graph_hits.get(position),
                )
            )
        return tuple(memories)

    def _graph_hits(self, arrived: Walk | None, wanted: set[int]) -> dict[int, GraphHit]:
        if arrived is None:
            return {}
        places = [i for i, t in enumerate(arrived.positions) if int(t) in wanted]
        seed_ids = self.reader.fetch_ids({int(arrived.seeds[i]) for i in places})
        return {
            int(arrived.positions[i]): GraphHit(
                score=float(arrived.scores[i]),
                seed_id=seed_ids[int(arrived.seeds[i])],
                relation=self.reader.relations[int(arrived.relations[i])],
                concept=self.reader.concept_name(int(arrived.concepts[i])),
            )
            for i in places
        }


def _fuse(
    positions: NDArray[np.int64], lexical: Leg, dense: Leg, profile: Profile
) -> NDArray[np.float64]:
    weights = (profile.lexical_weight, profile.dense_weight)
    if profile.fusion == "rrf":
        return fuse_rrf(positions, (lexical.ranking, dense.ranking), weights, profile.rrf_k)
    legs = [leg.scores[positions].astype(np.float64) for leg in (lexical, dense)]
    return fuse_convex(legs, weights)


def _leg_hit(leg: Leg, ranks: dict[int, int], position: int) -> LegHit | None:
    rank = ranks.get(position)
    return None if rank is None else LegHit(rank, float(leg.scores[position]))


def _scale_dates(
    created_at_us: NDArray[np.int64], positions: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return dates scaled to (0, 1] over the store, the newest at 1; undated memories are 0."""
    dated = created_at_us[created_at_us != UNDATED_US]
    if not dated.size:
        return np.zeros(positions.size, dtype=np.float64)
    low, high = int(dated.min()), int(dated.max())
    chosen = created_at_us[positions]
    # One more microsecond than since the oldest, so that undated memories come after it.
    ages = np.maximum(chosen, low).astype(np.float64) - low + 1.0
    return np.where(chosen == UNDATED_US, 0.0, ages / (float(high) - low + 1.0))
