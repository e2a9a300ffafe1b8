"""Who judged what: pools to judge, and how far two judges agree beyond chance."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from noctuary.evaluate.labels import Qrels
from noctuary.evaluate.run import Run
from noctuary.evaluate.statistics import MIN_VALUES, STANDARD, Floats, bootstrap_means


class Agreement(NamedTuple):
    """Agreement of two files of judgements over the pairs that both judged.

    Attributes:
        kappa: Cohen's kappa, in [-1, 1].
        n_pairs: Pairs of query and memory judged in both.
        observed: p_o, in [0, 1].
        expected: p_e, in [0, 1].
        only_in_a: Pairs judged in the first file alone; they do not count.
        only_in_b: Pairs judged in the second file alone.
        n_queries: Queries with a pair judged in both.
        low: Lower end of kappa's interval; None for fewer than two queries or a degenerate sample.
        high: Upper end, as above.
    """

    kappa: float
    n_pairs: int
    observed: float
    expected: float
    only_in_a: int
    only_in_b: int
    n_queries: int
    low: float | None
    high: float | None

    @property
    def is_degenerate(self) -> bool:
        """Whether both judges gave one and the same grade throughout; kappa is then by custom."""
        return self.expected == 1.0


def _kappas(tables: Floats) -> tuple[Floats, Floats, Floats]:
    """Return kappa = (p_o - p_e) / (1 - p_e), p_o and p_e of tables of pairs of grades.

    Cohen 1960. p_o is the share of pairs with equal grades; p_e = sum over grades of
    p_a(grade) * p_b(grade), the share expected if each judge kept their own frequencies but judged
    at random. Grades are names: a 2 against a 3 disagrees as much as a 0 against a 3.

    Args:
        tables: Shape (t, g, g), none empty: how often the first judge gave row's grade and the
            second column's.

    Returns:
        Shape (t,) each; kappa in [-1, 1], and 1 where both gave one and the same grade throughout:
        there 0/0 says nothing of agreement beyond chance, but they never disagree.
    """
    shares = tables / tables.sum(axis=(1, 2), keepdims=True)
    observed = np.trace(shares, axis1=1, axis2=2)
    expected = (shares.sum(axis=2) * shares.sum(axis=1)).sum(axis=1)
    constant = (np.count_nonzero(tables, axis=(1, 2)) == 1) & (observed == 1.0)
    kappa = np.where(constant, 1.0, (observed - expected) / np.where(constant, 1.0, 1.0 - expected))
    return kappa, observed, expected


def agreement(qrels_a: Qrels, qrels_b: Qrels, *, threshold: int | None = None) -> Agreement:
    """Compare two files of judgements over the pairs that both judged.

    A pair that one file leaves out was not judged there; it is counted apart and never taken for a
    0. Files that list relevant ids only agree on every common pair by construction.

    Args:
        qrels_a: Judgements of the first judge.
        qrels_b: Judgements of the second.
        threshold: Grades of at least this count as relevant and all others as not, before kappa:
            for scales whose steps are not the question (UMBRELA's 0 to 3: 2). None keeps grades.

    Raises:
        ValueError: If no pair is judged in both.
    """

    def cut(grade: int) -> int:
        return grade if threshold is None else int(grade >= threshold)

    common = [
        [(cut(grade), cut(qrels_b[query_id][m])) for m, grade in judged.items() if m in other]
        for query_id, judged in qrels_a.items()
        if (other := qrels_b.get(query_id))
    ]
    common = [pairs for pairs in common if pairs]
    if not common:
        raise ValueError("no pair of query and memory is judged in both; are the ids the same?")
    grades = sorted({grade for pairs in common for pair in pairs for grade in pair})
    tables = np.zeros((len(common), len(grades), len(grades)))
    for table, pairs in zip(tables, common, strict=True):
        for a, b in pairs:
            table[grades.index(a), grades.index(b)] += 1.0
    (kappa,), (observed,), (expected,) = _kappas(tables.sum(axis=0, keepdims=True))
    n_pairs = int(tables.sum())
    return Agreement(
        float(kappa),
        n_pairs,
        float(observed),
        float(expected),
        sum(map(len, qrels_a.values())) - n_pairs,
        sum(map(len, qrels_b.values())) - n_pairs,
        len(common),
        *_interval(tables),
    )


def _interval(tables: Floats) -> tuple[float | None, float | None]:
    n, g, _ = tables.shape
    if n < MIN_VALUES or np.count_nonzero(tables.sum(axis=0)) == 1:
        return None, None
    # Judgements of one query depend on each other, so queries are drawn. Kappa does not change with
    # the scale of its table, so mean tables do as well as sums.
    kappas, _, _ = _kappas(bootstrap_means(tables.reshape(n, g * g)).reshape(-1, g, g))
    low, high = np.quantile(kappas, STANDARD.tails)
    return float(low), float(high)


# Judging pools: what to judge, and how much of an arm's list nobody judged.
#
# Pooling (Spärck Jones and van Rijsbergen 1975; TREC): judge the union of the first k of several
# runs, for each query, instead of the whole corpus. What a run returns outside the pool is a hole:
# it counts as wrong although nobody looked. An arm that fed the pool has no holes and is favoured
# over one that did not.


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
    """Pool the first k (>= 1) of every run, query by query; runs may differ in their queries.

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

    The share is of what was returned: a list shorter than k has no holes where it ends. `judged`
    holds memory ids per query; a qrels mapping or a `Pool` will do.
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
