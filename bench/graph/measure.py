"""One set asked with the graph on, off and without sessions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bench.arms.base import ArmRetriever, SetContext
from bench.arms.corpus_views import CorpusViews
from bench.arms.recalled import RecallRetriever
from bench.suite.loading import LoadedSet
from noctuary.evaluate.metrics import FAMILIES, Scores, compare, parse_metric
from noctuary.recall.engine import Recaller
from noctuary.recall.profile import RetrievalProfile

METRICS = ("recall@5", "recall@10", "ndcg@10")
K = 10
OFF = "off"
CONDITIONS: Mapping[str, Mapping[str, Any]] = {
    OFF: {"graph_weight": 0.0},
    "on": {},
    "no_sessions": {"session_weight": 0.0},
}
"""By name, what differs from the default profile."""


def measure_set(loaded: LoadedSet, store: Path, told: Callable[[str], None]) -> dict[str, Any]:
    """Return means and differences of every condition, as plain values.

    Args:
        loaded: The set.
        store: Its store.
        told: Gets a line per condition.
    """
    recaller = Recaller.open(store)
    views = CorpusViews(SetContext(loaded.dataset, loaded.rows, recaller))
    scores: dict[str, Scores] = {}
    for name, changes in CONDITIONS.items():
        retriever = RecallRetriever(name, views, RetrievalProfile(**changes), timed=False)
        scores[name] = _score(name, retriever, loaded)
        told(f"{loaded.name} {name}: {dict(retriever.warnings) or 'no warning'}")
    pairs = [(found, scores[OFF]) for name, found in scores.items() if name != OFF]
    return {
        "kind": "graph_quality",
        "dataset": loaded.name,
        "n_queries": len(loaded.queries),
        "memories": recaller.reader.count,
        "conditions": {name: dict(changes) for name, changes in CONDITIONS.items()},
        "means": {name: _means(found) for name, found in scores.items()},
        "differences": {found.ours: found.to_json() for found in compare(pairs)},
    }


def _score(name: str, retriever: ArmRetriever, loaded: LoadedSet) -> Scores:
    metrics = [parse_metric(metric) for metric in METRICS]
    values = np.zeros((len(loaded.queries), len(metrics)))
    for row, query in enumerate(loaded.queries):
        ranking = [found for found, _ in retriever.retrieve_hits(query, K)]
        values[row] = [FAMILIES[family](ranking, query.gains, k) for family, k in metrics]
    return Scores(
        name=name,
        metrics=METRICS,
        query_ids=tuple(query.query_id for query in loaded.queries),
        strata=tuple(query.stratum for query in loaded.queries),
        values=values,
    )


def _means(scores: Scores) -> dict[str, dict[str, float]]:
    strata = np.array(scores.strata)
    groups = {"all": np.ones(strata.size, dtype=bool)}
    groups |= {name: strata == name for name in sorted(set(scores.strata))}
    return {
        name: {
            metric: round(float(scores.column(metric)[rows].mean()), 5) for metric in scores.metrics
        }
        for name, rows in groups.items()
    }
