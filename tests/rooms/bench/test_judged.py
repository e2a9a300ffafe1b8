from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.judged import build_pool, cohens_kappa, may_judge, read_qrels, unjudged_at_k
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


def qrels(*grades: int) -> dict[str, dict[str, int]]:
    return {"q": {str(place): grade for place, grade in enumerate(grades)}}


def test_kappa_is_that_of_cohen_1960_with_three_grades() -> None:
    table = [[88, 14, 18], [10, 40, 10], [2, 6, 12]]
    pairs = [(x, y) for x in range(3) for y in range(3) for _ in range(table[x][y])]
    a, b = (qrels(*(pair[side] for pair in pairs)) for side in (0, 1))
    assert cohens_kappa(a, b) == pytest.approx((0.70 - 0.41) / (1 - 0.41))
    assert not may_judge(a, b)
    assert may_judge(a, a)


def test_only_pairs_judged_in_both_count_and_a_threshold_makes_two_grades() -> None:
    a = {"q1": {"1": 3, "2": 0, "3": 1}, "q2": {"1": 2, "4": 0}, "q3": {"9": 1}}
    b = {"q1": {"1": 2, "2": 0, "5": 1}, "q2": {"1": 0, "4": 1, "6": 2}}
    assert cohens_kappa(a, b) == pytest.approx((1 / 4 - 5 / 16) / (11 / 16))
    assert cohens_kappa(a, b, threshold=2) == pytest.approx(0.5)
    with pytest.raises(ValueError, match="judged in both"):
        cohens_kappa(a, {"q1": {"7": 1}})


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30))
def test_kappa_is_symmetric_and_one_only_for_equal_judges(pairs: list[tuple[int, int]]) -> None:
    a, b = (qrels(*(pair[side] for pair in pairs)) for side in (0, 1))
    kappa = cohens_kappa(a, b)
    assert -1.0 - 1e-12 <= kappa <= 1.0
    assert cohens_kappa(b, a) == pytest.approx(kappa)
    assert (kappa == pytest.approx(1.0)) == (a == b)


def test_judgements_are_lines_of_json_or_of_trec(tmp_path: Path) -> None:
    path = tmp_path / "qrels"
    path.write_text('{"query_id": "q1", "grades": {"1": 0, "b": 3}}\n\nq1\t0\t13\t2\nq2 Q0 14 -2\n')
    assert read_qrels(path) == {"q1": {"1": 0, "b": 3, "13": 2}, "q2": {"14": 0}}
