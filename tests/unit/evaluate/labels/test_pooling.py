from __future__ import annotations

import ir_measures
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ir_measures import Judged

from noctuary.evaluate.run import Run, build_pool, unjudged_at_k


def run_of(name: str, query_ids: tuple[str, ...], rankings: tuple[tuple[str, ...], ...]) -> Run:
    """Return a run; pooling looks at these three fields alone."""
    return Run(
        name, 10, 10, query_ids, rankings, (None,) * len(query_ids), latency_ms=None, build_ms=None,
        index_bytes=None, unstable_prefixes=0,
    )  # fmt: skip


FTS = run_of("fts", ("q1", "q2"), (("3", "1", "2"), ("7",)))
OURS = run_of("ours", ("q1", "q3"), (("1", "4", "3"), ()))


def test_a_pool_is_the_union_of_the_first_k_with_who_found_what() -> None:
    assert build_pool([FTS, OURS], 2) == {
        "q1": {"1": ("fts", "ours"), "3": ("fts",), "4": ("ours",)},
        "q2": {"7": ("fts",)},
        "q3": {},
    }
    assert list(build_pool([FTS, OURS], 2)["q1"]) == ["1", "3", "4"]


def test_the_order_of_the_pool_tells_nothing_about_the_order_of_a_run() -> None:
    swapped = run_of("fts", ("q1",), (("1", "2", "3"),))
    assert list(build_pool([swapped], 3)["q1"]) == list(
        build_pool([run_of("fts", ("q1",), (("3", "2", "1"),))], 3)["q1"]
    )


def test_a_repeated_id_is_judged_once_and_still_takes_its_rank() -> None:
    run = run_of("a", ("q1",), (("1", "1", "2"),))
    assert build_pool([run], 2) == {"q1": {"1": ("a",)}}
    assert unjudged_at_k(run, {"q1": ["2"]}, 2).per_query == {"q1": 1.0}


def test_a_pool_needs_runs_with_names_of_their_own() -> None:
    with pytest.raises(ValueError, match="names of their own"):
        build_pool([FTS, FTS], 1)


def test_holes_are_the_share_of_what_was_returned() -> None:
    found = unjudged_at_k(FTS, {"q1": {"1": 0, "9": 1}, "q2": {"7": 1}}, 3)
    assert found.per_query == {"q1": pytest.approx(2 / 3), "q2": 0.0}
    assert found.mean == pytest.approx(1 / 3)
    assert (found.name, found.n_unjudged, found.without_judgements) == ("fts", 2, 0)


def test_queries_that_nobody_judged_are_counted_and_left_out_of_the_mean() -> None:
    found = unjudged_at_k(FTS, {"q2": []}, 3)
    assert (found.per_query, found.mean, found.without_judgements) == ({"q2": 1.0}, 1.0, 1)
    nothing = unjudged_at_k(FTS, {}, 3)
    assert (nothing.per_query, nothing.mean, nothing.without_judgements) == ({}, None, 2)


def test_an_empty_list_has_no_hole() -> None:
    assert unjudged_at_k(OURS, {"q3": ["1"]}, 5).per_query == {"q3": 0.0}


IDS = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8).map(tuple)


@given(st.lists(st.tuples(IDS, IDS), min_size=1, max_size=4), st.integers(1, 8))
def test_what_fed_a_pool_has_no_holes_in_it(
    rankings: list[tuple[tuple[str, ...], tuple[str, ...]]], k: int
) -> None:
    query_ids = tuple(f"q{i}" for i in range(len(rankings)))
    runs = [run_of(str(arm), query_ids, tuple(pair[arm] for pair in rankings)) for arm in (0, 1)]
    pool = build_pool(runs, k)
    assert all(unjudged_at_k(run, pool, k).mean == 0.0 for run in runs)
    assert all(len(ids) <= 2 * k for ids in pool.values())


@given(
    st.lists(st.tuples(IDS.filter(bool), IDS.filter(bool)), min_size=1, max_size=4),
    st.integers(1, 8),
)
def test_holes_are_one_minus_judged_of_ir_measures(
    rows: list[tuple[tuple[str, ...], tuple[str, ...]]], k: int
) -> None:
    query_ids = tuple(f"q{i}" for i in range(len(rows)))
    run = run_of("a", query_ids, tuple(ranking for ranking, _ in rows))
    qrels = {q: dict.fromkeys(judged, 1) for q, (_, judged) in zip(query_ids, rows, strict=True)}
    scored = {
        q: {found: -float(rank) for rank, found in enumerate(ranking)}
        for q, (ranking, _) in zip(query_ids, rows, strict=True)
    }
    theirs = {m.query_id: m.value for m in ir_measures.iter_calc([Judged @ k], qrels, scored)}
    ours = unjudged_at_k(run, qrels, k).per_query
    assert ours == {q: pytest.approx(1.0 - value) for q, value in theirs.items()}
