"""Holes: how much of an arm's list lies outside a judging pool made of the baselines' lists.

The sets publish relevant ids only; whatever else an arm returns counts as wrong, judged or not. A
pool is what a person would have to judge to be fair to its members: the labelled ids and the first
ten of every baseline (Spärck Jones and van Rijsbergen 1975; TREC). An arm with many holes was never
given a fair chance by such a pool.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from bench.suite.plan import DEPTH
from noctuary.evaluate.labels import Query
from noctuary.evaluate.metrics import Mean
from noctuary.evaluate.run import Run
from noctuary.evaluate.statistics import Resampling, mean_interval

POOL_GROUP = "baseline"
"""Arms of this group feed the pool; noctuary's own arms must not choose what is judged."""


def measure_holes(
    runs: Mapping[str, Run],
    queries: Sequence[Query],
    arms: Mapping[str, Mapping[str, Any]],
    resampling: Resampling,
) -> dict[str, Any] | None:
    """Return holes@DEPTH of every arm against the baselines' pool, with intervals.

    Args:
        runs: All arms of the set.
        queries: The same queries, with labels.
        arms: Group of each arm.
        resampling: Draws, seed and confidence.

    Returns:
        None if no baseline has a run.
    """
    feeding = [run for name, run in runs.items() if arms.get(name, {}).get("group") == POOL_GROUP]
    if not feeding:
        return None
    pool = build_pool(feeding, DEPTH)
    judged = {query.query_id: {*query.relevant_ids, *pool[query.query_id]} for query in queries}
    return {
        "pool_arms": [run.name for run in feeding],
        "depth": DEPTH,
        "pool_size": round(float(np.mean([len(found) for found in judged.values()])), 2),
        "arms": {
            name: _mean_holes(run, judged, resampling).to_json() for name, run in runs.items()
        },
    }


def _mean_holes(run: Run, judged: Mapping[str, set[str]], resampling: Resampling) -> Mean:
    values = np.array(list(unjudged_at_k(run, judged, DEPTH).values()))
    return Mean(float(values.mean()), mean_interval(values, resampling), values.size)


def build_pool(runs: Sequence[Run], k: int) -> dict[str, list[str]]:
    """Return the ids to judge per query: the first k of every run, without saying whose."""
    found: dict[str, set[str]] = {}
    for run in runs:
        for query_id, ranking in zip(run.query_ids, run.rankings, strict=True):
            found.setdefault(query_id, set()).update(ranking[:k])
    return {query_id: sorted(ids) for query_id, ids in found.items()}


def unjudged_at_k(run: Run, judged: Mapping[str, Collection[str]], k: int) -> dict[str, float]:
    """Return the share of the first k that was not judged, per judged query (1 - Judged@k)."""
    shares: dict[str, float] = {}
    for query_id, ranking in zip(run.query_ids, run.rankings, strict=True):
        if query_id in judged:
            returned = set(ranking[:k])
            unjudged = returned.difference(judged[query_id])
            shares[query_id] = len(unjudged) / max(len(returned), 1)
    return shares
