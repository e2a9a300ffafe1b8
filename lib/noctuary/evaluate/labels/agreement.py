"""How far two judges agree beyond chance: Cohen's kappa.

kappa = (p_o - p_e) / (1 - p_e), with p_o the share of pairs on which both gave the same grade and
p_e = sum over grades of p_a(grade) * p_b(grade), the share expected if each judge kept their own
frequencies but judged at random (Cohen 1960, A Coefficient of Agreement for Nominal Scales).

What belongs here: agreement of labels. What does not: reading them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from noctuary.evaluate.labels.qrels import Qrels
from noctuary.evaluate.statistics.bootstrap import (
    DEFAULT_CONFIDENCE,
    DEFAULT_DRAWS,
    DEFAULT_SEED,
    MIN_VALUES,
    bootstrap_means,
)

KAPPA_OF_CONSTANT_JUDGES = 1.0
"""Kappa where both judges gave one and the same grade throughout: p_o = p_e = 1, so the quotient is
0/0. They never disagree, hence 1; such a sample says nothing about agreement beyond chance, and
`Agreement.is_degenerate` is there to say so."""


@dataclass(frozen=True, slots=True)
class Agreement:
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
    low: float | None = None
    high: float | None = None

    @property
    def is_degenerate(self) -> bool:
        """Whether both judges gave one and the same grade throughout; kappa is then by custom."""
        return self.expected == 1.0


def cohens_kappa(a: Sequence[int], b: Sequence[int]) -> float:
    """Return Cohen's kappa of two judges over the same items in the same order.

    Grades are names: a 2 against a 3 disagrees as much as a 0 against a 3.

    Args:
        a: Grades of the first judge.
        b: Grades of the second.

    Returns:
        In [-1, 1]: 1 where they agree on everything, 0 where no better than chance (and exactly 0
        where one judge is constant and the other is not). Both constant at the same grade:
        `KAPPA_OF_CONSTANT_JUDGES`.

    Raises:
        ValueError: If the lengths differ or there is no item.
    """
    if len(a) != len(b):
        raise ValueError(f"two judges need the same items, got {len(a)} and {len(b)} grades")
    if not len(a):
        raise ValueError("agreement over no item is undefined")
    return float(_kappas(_count_pairs(a, b, sorted({*a, *b}))[None, :, :])[0])


def agreement(
    qrels_a: Qrels,
    qrels_b: Qrels,
    *,
    threshold: int | None = None,
    draws: int = DEFAULT_DRAWS,
    seed: int = DEFAULT_SEED,
    confidence: float = DEFAULT_CONFIDENCE,
) -> Agreement:
    """Compare two files of judgements over the pairs that both judged.

    A pair that one file leaves out was not judged there; it is counted apart and never taken for a
    0. Files that list relevant ids only agree on every common pair by construction.

    The interval is a percentile bootstrap over queries, because judgements of one query depend on
    each other; draws in which both judges are constant count as `KAPPA_OF_CONSTANT_JUDGES`.

    Args:
        qrels_a: Judgements of the first judge.
        qrels_b: Judgements of the second.
        threshold: Grades of at least this count as relevant and all others as not, before kappa:
            for scales whose steps are not the question (UMBRELA's 0 to 3: 2). None keeps grades.
        draws: Resamples of the interval.
        seed: Its seed.
        confidence: Its coverage, in (0, 1).

    Raises:
        ValueError: If no pair is judged in both.
    """
    common = [
        (query_id, [m for m in judged if m in qrels_b.get(query_id, {})])
        for query_id, judged in qrels_a.items()
    ]
    a = [[_cut(qrels_a[q][m], threshold) for m in ids] for q, ids in common if ids]
    b = [[_cut(qrels_b[q][m], threshold) for m in ids] for q, ids in common if ids]
    if not a:
        raise ValueError("no pair of query and memory is judged in both; are the ids the same?")
    grades = sorted({grade for rows in (a, b) for row in rows for grade in row})
    tables = np.stack([_count_pairs(x, y, grades) for x, y in zip(a, b, strict=True)])
    total = tables.sum(axis=0)
    n_pairs = int(total.sum())
    observed, expected = _shares(total[None, :, :])
    low, high = _interval(tables, draws, seed, confidence)
    return Agreement(
        kappa=float(_kappas(total[None, :, :])[0]),
        n_pairs=n_pairs,
        observed=float(observed[0]),
        expected=float(expected[0]),
        only_in_a=sum(len(judged) for judged in qrels_a.values()) - n_pairs,
        only_in_b=sum(len(judged) for judged in qrels_b.values()) - n_pairs,
        n_queries=len(a),
        low=low,
        high=high,
    )


def _cut(grade: int, threshold: int | None) -> int:
    return grade if threshold is None else int(grade >= threshold)


def _count_pairs(a: Sequence[int], b: Sequence[int], grades: Sequence[int]) -> NDArray[np.float64]:
    """Return shape (g, g): how often the first judge gave row's grade and the second column's."""
    place = {grade: index for index, grade in enumerate(grades)}
    table = np.zeros((len(grades), len(grades)), dtype=np.float64)
    for x, y in zip(a, b, strict=True):
        table[place[x], place[y]] += 1.0
    return table


def _shares(
    tables: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return observed and expected agreement of tables of shape (t, g, g), none empty."""
    shares = tables / tables.sum(axis=(1, 2), keepdims=True)
    observed = np.trace(shares, axis1=1, axis2=2)
    expected = (shares.sum(axis=2) * shares.sum(axis=1)).sum(axis=1)
    return observed, expected


def _kappas(tables: NDArray[np.float64]) -> NDArray[np.float64]:
    observed, expected = _shares(tables)
    # Both constant at one grade: all of the table in one cell of the diagonal.
    constant = np.count_nonzero(tables, axis=(1, 2)) == 1
    degenerate = constant & (observed == 1.0)
    room = np.where(degenerate, 1.0, 1.0 - expected)
    return np.where(degenerate, KAPPA_OF_CONSTANT_JUDGES, (observed - expected) / room)


def _interval(
    tables: NDArray[np.float64], draws: int, seed: int, confidence: float
) -> tuple[float | None, float | None]:
    """Return the percentile interval of kappa from per-query tables of shape (n, g, g)."""
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must lie in (0, 1), got {confidence}")
    n, g, _ = tables.shape
    if n < MIN_VALUES or np.count_nonzero(tables.sum(axis=0)) == 1:
        return None, None
    # Kappa does not change with the scale of its table, so mean tables do as well as sums.
    means = bootstrap_means(tables.reshape(n, g * g), draws, seed).reshape(draws, g, g)
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(_kappas(means), [tail, 1.0 - tail])
    return float(low), float(high)
