"""The cheapest ways from one concept to another, over stated relations and shared memories.

What belongs here: costs, bounds, the search. What does not: names and evidence of what was found
(`paths`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.graph.view.relations import RelationReader
from noctuary.graph.view.source import GraphSource

COST_UNIT = 1_000
"""Costs are whole thousandths: sums in any order are equal, so that equal ways are found equal."""

STATED_COST = 1.0
"""A hop over a stated relation; dearer ones let shared memories win over what a text says."""

SHARED_COST = 1.0
"""A hop over shared memories costs this and log2(1 + a * b / s**2): a and b memories hold its two
ends, s of them both. At least 2; two hubs that meet once in a memory are far apart."""

MAX_EXPANDED = 2_000
"""Concepts looked at before the search gives up: some two seconds at worst."""

MAX_HOLDERS = 200
"""Memories of one concept that are walked through; a hub beyond joins everything and explains
nothing."""

MAX_WAYS = 50
"""Equally cheap ways that are counted."""

_FAR = int(np.iinfo(np.int64).max)


class Ways(NamedTuple):
    """What a search found.

    Attributes:
        chains: Concepts on the way, ends included; all of the same cost. Empty where there is none.
        cost: In thousandths; 0 where there is none.
        expanded: Concepts looked at.
        gave_up: Whether MAX_EXPANDED ended the search.
        hubs: Concepts of which only MAX_HOLDERS memories were walked through, ascending.
        uncounted: Whether there are more than MAX_WAYS ways.
    """

    chains: tuple[tuple[int, ...], ...]
    cost: int
    expanded: int
    gave_up: bool
    hubs: tuple[int, ...]
    uncounted: bool


class PathSearch:
    """One search; Dijkstra over (hops, concept), so that a bound on hops keeps cheap ways."""

    def __init__(self, source: GraphSource, start: int, goal: int, max_hops: int) -> None:
        self._source, self._start, self._goal = source, start, goal
        self._max_hops = max_hops
        self._relations = RelationReader(source)
        self._costs = np.full((max_hops + 1, source.concept_count), _FAR, dtype=np.int64)
        self._before: dict[tuple[int, int], list[int]] = {}
        self._hubs: set[int] = set()
        self._expanded = 0

    def run(self) -> Ways:
        """Return the cheapest ways of at most `max_hops` hops; start and goal differ."""
        self._costs[0, self._start] = 0
        waiting = [(0, 0, self._start)]
        gave_up = False
        while waiting:
            cost, hops, concept = heapq.heappop(waiting)
            if cost >= self._goal_cost():
                break
            if hops == self._max_hops or cost > self._costs[hops, concept]:
                continue
            if self._expanded == MAX_EXPANDED:
                gave_up = True
                break
            self._expanded += 1
            for reached, total in self._expand(concept, hops, cost):
                heapq.heappush(waiting, (total, hops + 1, reached))
        return self._result(gave_up)

    def _goal_cost(self) -> int:
        return int(self._costs[:, self._goal].min())

    def _expand(self, concept: int, hops: int, cost: int) -> Iterator[tuple[int, int]]:
        """Yield what is now reached cheaper than before, noting where from."""
        targets, steps = self._hops_from(concept)
        totals = steps + cost
        near = totals <= self._goal_cost()
        targets, totals = targets[near], totals[near]
        known = self._costs[: hops + 2, targets].min(axis=0)
        cheaper = totals < known
        as_cheap = (totals == known) & (totals == self._costs[hops + 1, targets])
        self._costs[hops + 1, targets[cheaper]] = totals[cheaper]
        for reached in targets[as_cheap].tolist():
            self._before[hops + 1, reached].append(concept)
        found = zip(targets[cheaper].tolist(), totals[cheaper].tolist(), strict=True)
        for reached, total in found:
            self._before[hops + 1, reached] = [concept]
            yield reached, total

    def _hops_from(self, concept: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the concepts one hop away, ascending and distinct, and the cost of the hop."""
        beside, costs = self._shared_hops(concept)
        stated = self._stated_hops(concept)
        unit = np.full(stated.size, round(STATED_COST * COST_UNIT), dtype=np.int64)
        targets, totals = np.concatenate([stated, beside]), np.concatenate([unit, costs])
        order = np.lexsort((totals, targets))
        distinct, first = np.unique(targets[order], return_index=True)
        return distinct, totals[order][first]

    def _stated_hops(self, concept: int) -> NDArray[np.int64]:
        as_of = self._source.sight.as_of_us
        found = self._relations.around([concept])
        ends = {end for r in found if r.holds(as_of) for end in (r.src, r.dst)}
        return np.array(sorted(ends - {concept}), dtype=np.int64)

    def _shared_hops(self, concept: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        holders = self._source.holders(concept)
        if holders.size > MAX_HOLDERS:
            self._hubs.add(concept)
            holders = holders[:MAX_HOLDERS]
        indptr, concepts = self._by_memory
        pieces = [concepts[indptr[p] : indptr[p + 1]] for p in holders.tolist()]
        beside = np.concatenate(pieces) if pieces else np.empty(0, dtype=np.int64)
        targets, shared = np.unique(beside[beside != concept], return_counts=True)
        held = self._source.frequencies
        rarity = held[concept] * held[targets] / shared.astype(np.float64) ** 2
        costs = np.rint(COST_UNIT * (SHARED_COST + np.log2(1.0 + rarity)))
        return targets.astype(np.int64), costs.astype(np.int64)

    @cached_property
    def _by_memory(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the concepts of every memory as compressed rows: indptr (n+1,), concepts."""
        held = self._source.held
        order = np.argsort(held.positions, kind="stable")
        indptr = np.zeros(self._source.sight.seen.size + 1, dtype=np.int64)
        np.cumsum(np.bincount(held.positions, minlength=indptr.size - 1), out=indptr[1:])
        return indptr, held.concepts[order]

    def _result(self, gave_up: bool) -> Ways:
        cost = self._goal_cost()
        hubs = tuple(sorted(self._hubs))
        if cost == _FAR:
            return Ways((), 0, self._expanded, gave_up, hubs, False)
        hops = int(np.argmin(self._costs[:, self._goal]))
        chains: list[tuple[int, ...]] = []
        for chain in self._chains(hops, self._goal):
            if len(chains) == MAX_WAYS:
                return Ways(tuple(chains), cost, self._expanded, gave_up, hubs, True)
            chains.append(chain)
        return Ways(tuple(chains), cost, self._expanded, gave_up, hubs, False)

    def _chains(self, hops: int, concept: int) -> Iterator[tuple[int, ...]]:
        if hops == 0:
            yield (concept,)
            return
        for before in sorted(self._before[hops, concept]):
            for chain in self._chains(hops - 1, before):
                yield (*chain, concept)
