"""Judging pools: what to judge, and how much of an arm's list nobody judged.

Pooling (Spärck Jones and van Rijsbergen 1975; TREC): judge the union of the first k of several
runs, for each query, instead of the whole corpus. What a run returns outside the pool is a hole: it
counts as wrong although nobody looked. An arm that fed the pool has no holes and is favoured over
one that did not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from noctuary.evaluate.run import Run

Pool = dict[str, dict[str, tuple[str, ...]]]
"""Names of the runs that found each memory, per query and memory id. Memories stand in the order of
their ids: a judge must not see what was ranked first, or by whom."""


class Holes(NamedTuple):
    """How much of the first k of a run nobody judged (unjudged@k).

    Attributes:
        name: The run's name.
        per_query: Share of the ids returned among the first k that were not judged, in [0, 1], per
            query that has judgements; 0 where nothing was returned.
        mean: Its mean over those queries; None if there is none.
        n_unjudged: How many of those ids were not judged, over all queries.
        without_judgements: Queries of the run that nobody judged at all; they do not count.
    """

    name: str
    per_query: Mapping[str, float]
    mean: float | None
    n_unjudged: int
    without_judgements: int


def build_pool(runs: Sequence[Run], k: int) -> Pool:
    """Pool the first k (>= 1) of every run, query by query.

    Args:
        runs: At least one, each with a name of its own; they may differ in their queries.
        k: How deep: deeper pools have fewer holes and cost more judgements.

    Returns:
        Queries in the order in which the runs first name them; a query for which no run returned
        anything has nothing to judge and is left in, empty.

    Raises:
        ValueError: If there is no run, or two have the same name.
    """
    names = [run.name for run in runs]
    if not names:
        raise ValueError("a pool needs at least one run")
    if len(set(names)) < len(names):
        raise ValueError(f"runs of a pool need names of their own, got {sorted(names)}")
    found: Pool = {}
    for run in runs:
        for query_id, ranking in zip(run.query_ids, run.rankings, strict=True):
            finders = found.setdefault(query_id, {})
            for memory_id in dict.fromkeys(ranking[:k]):
                finders[memory_id] = (*finders.get(memory_id, ()), run.name)
    return {query_id: dict(sorted(finders.items())) for query_id, finders in found.items()}


def unjudged_at_k(run: Run, judged: Mapping[str, Collection[str]], k: int) -> Holes:
    """Measure the holes of a run: 1 - Judged@k of ir-measures, duplicates counted once.

    The share is of what was returned: a list shorter than k has no holes where it ends.

    Args:
        run: The run.
        judged: Judged memory ids per query; a qrels mapping or a `Pool` will do.
        k: The cutoff, >= 1.
    """
    per_query: dict[str, float] = {}
    n_unjudged = 0
    for query_id, ranking in zip(run.query_ids, run.rankings, strict=True):
        if query_id in judged:
            returned = set(ranking[:k])
            unjudged = len(returned.difference(judged[query_id]))
            per_query[query_id] = unjudged / len(returned) if returned else 0.0
            n_unjudged += unjudged
    mean = sum(per_query.values()) / len(per_query) if per_query else None
    return Holes(run.name, per_query, mean, n_unjudged, len(run.query_ids) - len(per_query))
