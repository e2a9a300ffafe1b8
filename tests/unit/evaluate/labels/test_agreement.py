from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.evaluate.labels import agreement

GRADES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30)


def expand(table: list[list[int]]) -> tuple[list[int], list[int]]:
    """Return the grades behind a table of counts, row: first judge, column: second."""
    pairs = [
        (x, y) for x, row in enumerate(table) for y, count in enumerate(row) for _ in range(count)
    ]
    return [x for x, _ in pairs], [y for _, y in pairs]


def kappa_of(a: list[int], b: list[int]) -> float:
    """Return kappa of two judges over the same items of one query."""
    judged = ({str(i): grade for i, grade in enumerate(grades)} for grades in (a, b))
    first, second = ({"q": row} for row in judged)
    return agreement(first, second).kappa


def test_two_by_two_in_closed_form() -> None:
    a, b = expand([[20, 5], [10, 15]])
    observed = 35 / 50
    expected = (25 / 50) * (30 / 50) + (25 / 50) * (20 / 50)
    assert kappa_of(a, b) == pytest.approx((observed - expected) / (1 - expected))
    assert kappa_of(a, b) == pytest.approx(0.4)


def test_the_example_of_cohen_1960_with_three_grades() -> None:
    """His table 1: proportions of 200 cases judged by two psychologists, kappa 0.492."""
    a, b = expand([[88, 14, 18], [10, 40, 10], [2, 6, 12]])
    assert kappa_of(a, b) == pytest.approx((0.70 - 0.41) / (1 - 0.41))
    assert round(kappa_of(a, b), 3) == 0.492


def test_opposite_judges_are_at_minus_one_and_equal_ones_at_one() -> None:
    assert kappa_of([0, 1, 0, 1], [1, 0, 1, 0]) == pytest.approx(-1.0)
    assert kappa_of([0, 2, 1, 1], [0, 2, 1, 1]) == pytest.approx(1.0)


def test_a_constant_judge_agrees_no_better_than_chance() -> None:
    assert kappa_of([1, 1, 1, 1], [1, 1, 1, 0]) == pytest.approx(0.0)
    assert kappa_of([1, 1], [0, 0]) == pytest.approx(0.0)


def test_two_judges_constant_at_one_grade_are_defined_as_agreeing() -> None:
    assert kappa_of([1, 1, 1], [1, 1, 1]) == 1.0


@given(GRADES)
def test_kappa_lies_in_its_range_and_does_not_depend_on_who_is_first(
    pairs: list[tuple[int, int]],
) -> None:
    a, b = [x for x, _ in pairs], [y for _, y in pairs]
    kappa = kappa_of(a, b)
    assert -1.0 - 1e-12 <= kappa <= 1.0
    assert kappa_of(b, a) == pytest.approx(kappa)
    assert kappa_of(a, a) == pytest.approx(1.0)
    assert (kappa == pytest.approx(1.0)) == (a == b)


@given(GRADES)
def test_grades_are_names(pairs: list[tuple[int, int]]) -> None:
    names = {0: 7, 1: 0, 2: -3, 3: 100}
    a, b = [x for x, _ in pairs], [y for _, y in pairs]
    renamed = kappa_of([names[x] for x in a], [names[y] for y in b])
    assert renamed == pytest.approx(kappa_of(a, b))


QRELS_A = {"q1": {"1": 3, "2": 0, "3": 1}, "q2": {"1": 2, "4": 0}, "q3": {"9": 1}}
QRELS_B = {"q1": {"1": 2, "2": 0, "5": 1}, "q2": {"1": 0, "4": 1, "6": 2}}


def test_only_pairs_judged_in_both_count() -> None:
    found = agreement(QRELS_A, QRELS_B)
    assert (found.n_pairs, found.n_queries) == (4, 2)
    assert (found.only_in_a, found.only_in_b) == (2, 2)
    # Grades of a: 3, 0, 2, 0; of b: 2, 0, 0, 1.
    assert found.observed == pytest.approx(1 / 4)
    assert found.expected == pytest.approx((2 * 2 + 1 * 1) / 16)
    assert found.kappa == pytest.approx((1 / 4 - 5 / 16) / (11 / 16))
    assert not found.is_degenerate


def test_a_threshold_makes_grades_relevant_or_not() -> None:
    found = agreement(QRELS_A, QRELS_B, threshold=2)
    # Of a: yes, no, yes, no; of b: yes, no, no, no.
    assert found.observed == pytest.approx(3 / 4)
    assert found.expected == pytest.approx(1 / 2 * 1 / 4 + 1 / 2 * 3 / 4)
    assert found.kappa == pytest.approx(0.5)


def test_files_that_list_relevant_ids_only_are_degenerate_and_say_so() -> None:
    found = agreement({"q1": {"1": 1, "2": 1}, "q2": {"3": 1}}, {"q1": {"1": 1}, "q2": {"3": 1}})
    assert found.is_degenerate
    assert (found.kappa, found.observed, found.expected) == (1.0, 1.0, 1.0)
    assert (found.low, found.high) == (None, None)


def test_nothing_in_common_is_refused() -> None:
    with pytest.raises(ValueError, match="no pair of query and memory is judged in both"):
        agreement({"q1": {"1": 1}}, {"q1": {"2": 1}, "q2": {"1": 1}})


def test_the_interval_holds_kappa_and_is_the_same_every_time() -> None:
    a = {f"q{i}": {"x": i % 2, "y": (i // 2) % 2, "z": i % 3 // 2} for i in range(40)}
    b = {q: {m: g if hash_free(q, m) else 1 - g for m, g in row.items()} for q, row in a.items()}
    found = agreement(a, b)
    assert found.low is not None
    assert found.high is not None
    assert -1.0 <= found.low < found.kappa < found.high <= 1.0
    assert agreement(a, b) == found


def hash_free(query_id: str, memory_id: str) -> bool:
    """Say yes four times out of five, the same in every process."""
    return (int(query_id[1:]) * 7 + ord(memory_id)) % 5 != 0


def test_one_query_has_no_interval() -> None:
    one = {"q1": {"1": 1, "2": 0}}
    assert agreement(one, one).low is None
