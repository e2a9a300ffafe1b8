"""The reference's fusion: weighted reciprocal ranks, then importance as a prior. Pure functions.

No search, no graph.

Source: hybrid-recall-design A.3 and B.5, ADR 0005: RRF(d) = sum_leg w_leg / (60 + rank_leg(d)),
w = 1 for the keyword and the dense leg, each to depth 50; then, for sort_by="relevance", times
(0.7 + 0.3 * importance). Production has the prior (A.3, ADR 0005, research/peers.md 2.4), the
section on the prototype (B.5) is silent about it; it is applied here. Where importance is one
constant, as in nearly every labelled set, it cannot change an order.
"""

from __future__ import annotations

from collections.abc import Sequence

RRF_K = 60
"""Rank offset in ranks (Cormack 2009); larger flattens the head of each leg."""

LEG_DEPTH = 50
"""Rows taken from each leg before fusion; more costs time, less loses hits that both legs have."""

KEYWORD_WEIGHT = 1.0
DENSE_WEIGHT = 1.0

FLAWED_GRAPH_WEIGHT = 0.35
"""Weight of the graph leg in the reference."""

IMPORTANCE_PRIOR = 0.3
"""p in score * ((1 - p) + p * importance)."""

Scores = dict[int, float]
"""Fused scores by row, in the order in which the legs named the rows."""


def fuse_ranks(legs: Sequence[tuple[Sequence[int], float]]) -> Scores:
    """Return the weighted reciprocal-rank score of every row of the legs.

    Args:
        legs: (rows best first, weight >= 0) per leg; a leg of weight 0 names nothing.
    """
    scores: Scores = {}
    for rows, weight in legs:
        if weight <= 0:
            continue
        for rank, row in enumerate(rows, start=1):
            scores[row] = scores.get(row, 0.0) + weight / (RRF_K + rank)
    return scores


def order_by_prior(scores: Scores, importance: Sequence[float]) -> list[tuple[int, float]]:
    """Return (row, score after the importance prior), best first.

    Ties, which RRF makes often, keep the order in which the legs named the rows: keyword hits
    first, as a dictionary filled leg by leg and sorted has them.

    Args:
        scores: Fused scores by row.
        importance: By row, in [0, 1].
    """
    final = [
        (row, score * ((1.0 - IMPORTANCE_PRIOR) + IMPORTANCE_PRIOR * importance[row]))
        for row, score in scores.items()
    ]
    return sorted(final, key=lambda item: -item[1])


def fuse_seed(
    keyword: Sequence[int], dense: Sequence[int], importance: Sequence[float]
) -> list[tuple[int, float]]:
    """Return the reference's fusion of its two legs: (row, score), best first."""
    legs = [(keyword, KEYWORD_WEIGHT), (dense, DENSE_WEIGHT)]
    return order_by_prior(fuse_ranks(legs), importance)


def fuse_flawed(
    keyword: Sequence[int],
    dense: Sequence[int],
    graph: Sequence[int],
    importance: Sequence[float],
) -> list[tuple[int, float]]:
    """Return the reference's fusion with its graph leg, structural flaw included.

    Rows of the graph leg that a base leg named are dropped. What remains has one leg only and
    scores at most 0.35 / 61 = .0057, with full importance; a row of a base leg scores at least
    1 / 110 = .0091, and .0064 with importance 0. The graph can therefore only append rows behind
    all others: it never changes the first k unless the base legs together name fewer than k.
    """
    base = {*keyword, *dense}
    outside = [row for row in graph if row not in base][:LEG_DEPTH]
    legs = [
        (keyword, KEYWORD_WEIGHT),
        (dense, DENSE_WEIGHT),
        (outside, FLAWED_GRAPH_WEIGHT),
    ]
    return order_by_prior(fuse_ranks(legs), importance)


def fuse_repaired(
    keyword: Sequence[int],
    dense: Sequence[int],
    graph: Sequence[int],
    importance: Sequence[float],
    graph_weight: float,
) -> list[tuple[int, float]]:
    """Return the fusion with graph rows in the common pool: a third leg like the others.

    A row that a base leg named as well gains by its rank in the graph leg. Weight 0 is exactly
    `fuse_seed`.
    """
    legs = [
        (keyword, KEYWORD_WEIGHT),
        (dense, DENSE_WEIGHT),
        (graph[:LEG_DEPTH], graph_weight),
    ]
    return order_by_prior(fuse_ranks(legs), importance)
