from __future__ import annotations

from typing import Any

import pytest

from bench.suite.holes import build_pool, unjudged_at_k
from noctuary.evaluate.run import Run


def run_of(name: str, query_ids: tuple[str, ...], rankings: tuple[tuple[str, ...], ...]) -> Run:
    """Return a run; pooling reads its ids and rankings alone."""
    return Run(name, 3, 3, query_ids, rankings, (None,) * len(query_ids))


FTS = run_of("fts", ("q1", "q2"), (("3", "1", "2"), ("7",)))
OURS = run_of("ours", ("q1", "q3"), (("1", "4", "3"), ()))


def test_a_pool_is_the_union_of_the_first_k_in_no_runs_order() -> None:
    assert build_pool([FTS, OURS], 2) == {"q1": ["1", "3", "4"], "q2": ["7"], "q3": []}


@pytest.mark.parametrize(
    ("judged", "shares"),
    [
        ({"q1": ["3"], "q2": ["7"]}, {"q1": 2 / 3, "q2": 0.0}),
        ({"q2": []}, {"q2": 1.0}),
        ({"q9": ["3"]}, {}),
        (build_pool([FTS, OURS], 3), {"q1": 0.0, "q2": 0.0}),
    ],
    ids=["some", "none-relevant", "not-asked", "own-pool"],
)
def test_holes_are_the_share_of_what_was_returned_to_judged_queries(
    judged: Any, shares: dict[str, float]
) -> None:
    assert unjudged_at_k(FTS, judged, 3) == pytest.approx(shares)
