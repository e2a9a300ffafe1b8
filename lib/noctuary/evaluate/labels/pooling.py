"""Judging pools: what to judge, and how much of an arm's list nobody judged.

Pooling (Spärck Jones and van Rijsbergen 1975; TREC): judge the union of the first k of several
runs, for each query, instead of the whole corpus. What a run returns outside the pool is a hole: it
counts as wrong although nobody looked. An arm that fed the pool has no holes and is favoured over
one that did not.

What belongs here: pools and holes. What does not: reading judgements, scoring.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


class RankedRun(Protocol):
    """What pooling needs of a run; `noctuary.evaluate.run.Run` has it."""

    @property
    def name(self) -> str:
        """Name of the arm."""
        ...

    @property
    def query_ids(self) -> Sequence[str]:
        """The queries asked."""
        ...

    @property
    def rankings(self) -> Sequence[Sequence[str]]:
        """Ids found, best first, for each of `query_ids`."""
        ...


@dataclass(frozen=True, slots=True)
class Pool:
    """What is to be judged.

    Attributes:
        k: How many of each run's first ids are in it.
        found_by: Names of the runs that found each memory, per query and memory id. Memories stand
            in the order of their ids: a judge must not see what was ranked first, or by whom.
    """

    k: int
    found_by: Mapping[str, Mapping[str, tuple[str, ...]]]

    @property
    def ids(self) -> Mapping[str, tuple[str, ...]]:
        """The memories to judge, per query."""
        return {query_id: tuple(found) for query_id, found in self.found_by.items()}

    @property
    def n_pairs(self) -> int:
        """How many judgements the pool asks for."""
        return sum(len(found) for found in self.found_by.values())


@dataclass(frozen=True, slots=True)
class Holes:
    """How much of the first k of a run nobody judged (unjudged@k).

    Attributes:
        name: The run's name.
        k: The cutoff.
        per_query: Share of the ids returned among the first k that were not judged, in [0, 1], per
            query that has judgements; 0 where nothing was returned.
        mean: Its mean over those queries; None if there is none.
        n_unjudged: How many of those ids were not judged, over all queries.
        without_judgements: Queries of the run that nobody judged at all; they do not count.
    """

    name: str
    k: int
    per_query: Mapping[str, float]
    mean: float | None
    n_unjudged: int
    without_judgements: int


def build_pool(runs: Sequence[RankedRun], k: int) -> Pool:
    """Pool the first k of every run, query by query.

    Args:
        runs: At least one, each with a name of its own; they may differ in their queries.
        k: How deep, at least 1: deeper pools have fewer holes and cost more judgements.

    Returns:
        Queries in the order in which the runs first name them; a query for which no run returned
        anything has nothing to judge and is left in, empty.

    Raises:
        ValueError: If k is below 1, there is no run, or two have the same name.
    """
    _check_cutoff(k)
    names = [run.name for run in runs]
    if not names:
        raise ValueError("a pool needs at least one run")
    if len(set(names)) < len(names):
        raise ValueError(f"runs of a pool need names of their own, got {sorted(names)}")
    found_by: dict[str, dict[str, list[str]]] = {}
    for run in runs:
        for query_id, ranking in zip(run.query_ids, run.rankings, strict=True):
            finders = found_by.setdefault(query_id, {})
            for memory_id in dict.fromkeys(ranking[:k]):
                finders.setdefault(memory_id, []).append(run.name)
    return Pool(
        k,
        {
            query_id: {memory_id: tuple(finders[memory_id]) for memory_id in sorted(finders)}
            for query_id, finders in found_by.items()
        },
    )


def unjudged_at_k(run: RankedRun, judged: Mapping[str, Collection[str]], k: int) -> Holes:
    """Measure the holes of a run: 1 - Judged@k of ir-measures, duplicates counted once.

    The share is of what was returned: a list shorter than k has no holes where it ends.

    Args:
        run: The run.
        judged: Judged memory ids per query; a qrels mapping or `Pool.ids` will do.
        k: The cutoff, at least 1.

    Raises:
        ValueError: If k is below 1.
    """
    _check_cutoff(k)
    per_query: dict[str, float] = {}
    n_unjudged = without = 0
    for query_id, ranking in zip(run.query_ids, run.rankings, strict=True):
        known = judged.get(query_id)
        if known is None:
            without += 1
            continue
        returned = dict.fromkeys(ranking[:k])
        unjudged = sum(memory_id not in known for memory_id in returned)
        per_query[query_id] = unjudged / len(returned) if returned else 0.0
        n_unjudged += unjudged
    return Holes(
        name=run.name,
        k=k,
        per_query=per_query,
        mean=sum(per_query.values()) / len(per_query) if per_query else None,
        n_unjudged=n_unjudged,
        without_judgements=without,
    )


def _check_cutoff(k: int) -> None:
    if k < 1:
        raise ValueError(f"a cutoff counts ranks and starts at 1, got {k}")
