"""Judgements: pooling of runs, holes in a run, and the agreement of two judges.

Pooling (Spärck Jones and van Rijsbergen 1975; TREC): the union of the first k of several runs is
judged instead of the whole corpus. What a run returns outside the pool is a hole: it counts as
wrong although nobody looked, which favours the arms that fed the pool.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from noctuary.evaluate.run import Run

Qrels = Mapping[str, Mapping[str, int]]
"""Grade by memory id, by query id; 0: not relevant."""


def read_qrels(path: Path) -> dict[str, dict[str, int]]:
    """Read judgements: a JSON object (query_id, grades) or a TREC line per line, mixed freely."""
    judged: dict[str, dict[str, int]] = {}
    for line in filter(str.strip, path.read_text(encoding="utf-8").splitlines()):
        if line.startswith("{"):
            row = json.loads(line)
            grades = {str(i): int(grade) for i, grade in row["grades"].items()}
            judged.setdefault(row["query_id"], {}).update(grades)
        else:
            query_id, _, memory_id, grade = line.split()
            judged.setdefault(query_id, {})[memory_id] = max(int(grade), 0)
    return judged


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


KAPPA_GATE = 0.6
"""Agreement with a human judge that a model needs before its judgements count."""


def cohens_kappa(a: Qrels, b: Qrels, threshold: int | None = None) -> float:
    """Return (p_o - p_e) / (1 - p_e) over the pairs that both judged (Cohen 1960), in [-1, 1].

    Grades from a threshold on count as one. Two judges with one and the same grade throughout
    never disagree, so their kappa is 1. ValueError if no pair is judged in both.
    """

    def cut(grade: int) -> int:
        return grade if threshold is None else int(grade >= threshold)

    pairs = [
        (cut(grade), cut(b[query_id][memory_id]))
        for query_id, grades in a.items()
        for memory_id, grade in grades.items()
        if memory_id in b.get(query_id, {})
    ]
    if not pairs:
        raise ValueError("no pair of query and memory is judged in both; are the ids the same?")
    n = len(pairs)
    observed = sum(x == y for x, y in pairs) / n
    kept = [[judge[side] for judge in pairs] for side in (0, 1)]
    expected = sum(kept[0].count(g) * kept[1].count(g) for g in {*kept[0], *kept[1]}) / n**2
    return 1.0 if expected == 1.0 else (observed - expected) / (1.0 - expected)


def may_judge(human: Qrels, model: Qrels, threshold: int | None = None) -> bool:
    """Return whether a model agrees well enough with a human judge to judge in their place."""
    return cohens_kappa(human, model, threshold) >= KAPPA_GATE
