from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.evaluate.report import (
    DIFFERENCE_COLUMNS,
    MAX_IDS,
    MAX_QUERIES,
    MAX_STRATUM_ROWS,
    PerQuery,
    Table,
    arms_table,
    as_count,
    as_interval,
    as_mean,
    as_p,
    as_signed,
    decision_table,
    difference_cells,
    drops_table,
    means_table,
    metrics_table,
    queries_table,
    strata_table,
)
from noctuary.evaluate.statistics import Interval
from noctuary.snapshot.checks import Drop
from tests.unit.reports.builders import (
    METRICS,
    arms,
    comparison,
    decision,
    difference,
    random_scores,
    scores,
)


def texts(table: Table) -> list[list[str]]:
    return [list(row) for row in table.rows]


def pair(ours: Sequence[float], baseline: Sequence[float]) -> PerQuery:
    """Return two arms that differ in recall@10 only."""
    return PerQuery(
        scores("ours", [[value, 0.5] for value in ours]),
        scores("theirs", [[value, 0.5] for value in baseline]),
        {"q0": ["m1", "m2"]},
    )


def test_every_row_is_as_long_as_the_heads() -> None:
    reports, comparisons = arms(3)
    both = PerQuery(random_scores("a", 9, 1), random_scores("b", 9, 2))
    for table in (
        means_table(reports, "recall@10"),
        arms_table(comparisons, "recall@10", folded=False),
        metrics_table(comparisons[0]),
        strata_table(comparisons, "recall@10"),
        queries_table(both, "ndcg@10", None, losers=True),
        queries_table(both, "ndcg@10", {}, losers=False),
    ):
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.columns)}


def test_a_difference_is_shown_with_everything_that_is_known_of_it() -> None:
    cells = difference_cells(difference(-0.041, -0.07, -0.012, p=0.0031))
    assert dict(zip(DIFFERENCE_COLUMNS, cells, strict=True)) == {
        "difference": "\u22120.041",
        "interval": "\u22120.070 to \u22120.012",
        "p": "0.0031",
        "Holm p": "0.0031",
        "detectable": "0.062",
        "n": "40",
        "better": "7",
        "worse": "5",
        "same": "28",
        "verdict": "▼ worse",
    }


def test_the_verdict_needs_significance() -> None:
    found = [difference(0.1, 0.05, 0.2, p=0.01), difference(0.1, 0.05, 0.2), difference(0.1)]
    assert [difference_cells(one)[-1] for one in found] == [
        "▲ better",
        "○ not significant",
        "○ not significant",
    ]


def test_raw_and_adjusted_p_are_not_mixed_up() -> None:
    found = replace(difference(0.1, 0.05, 0.2), p_value=0.01, p_holm=0.04)
    assert difference_cells(found)[2:4] == ["0.0100", "0.0400"]


def test_means_are_sorted_by_the_first_metric() -> None:
    reports, _ = arms(4)
    table = means_table(reports, "recall@10")
    shown = [float(row[2].split()[0]) for row in table.rows]
    assert shown == sorted(shown, reverse=True)
    assert table.columns == ("arm", "n", *METRICS)


def test_arms_are_sorted_by_their_difference() -> None:
    found = [comparison(str(mean), difference(mean)) for mean in (0.1, -0.2, 0.3)]
    assert [row[0] for row in texts(arms_table(found, "recall@10", folded=True))] == [
        "0.3",
        "0.1",
        "-0.2",
    ]


def test_losers_and_winners_are_the_largest_changes_first() -> None:
    both = pair([0.0, 1.0, 0.5, 0.2, 1.0], [1.0, 0.0, 0.5, 0.5, 0.75])
    losers = texts(queries_table(both, "recall@10", None, losers=True))
    winners = texts(queries_table(both, "recall@10", None, losers=False))
    assert losers == [
        ["q0", "all", "0.000", "1.000", "\u22121.000", "m1, m2"],
        ["q3", "all", "0.200", "0.500", "\u22120.300", ""],
    ]
    assert [row[0] for row in winners] == ["q1", "q4"]


def test_equal_changes_are_in_the_order_of_their_ids_and_cut_with_a_word() -> None:
    n = MAX_QUERIES + 5
    table = queries_table(pair([0.0] * n, [1.0] * n), "recall@10", None, losers=True)
    assert [row[0] for row in texts(table)] == sorted(f"q{i}" for i in range(n))[:MAX_QUERIES]
    assert table.footnote == f"{MAX_QUERIES} of {n} shown, the largest changes first."


def test_changes_within_rounding_are_no_changes() -> None:
    both = pair([0.1 + 0.2], [0.3])
    assert not queries_table(both, "recall@10", None, losers=False).rows


def test_texts_are_shown_only_if_given() -> None:
    both = pair([0.0], [1.0])
    assert "text" not in queries_table(both, "recall@10", None, losers=True).columns
    shown = queries_table(both, "recall@10", {"q0": "where?"}, losers=True)
    assert (shown.columns[-1], texts(shown)[0][-1]) == ("text", "where?")


def test_many_relevant_ids_are_counted() -> None:
    both = replace(pair([0.0], [1.0]), relevant_ids={"q0": [f"m{i}" for i in range(MAX_IDS + 3)]})
    shown = texts(queries_table(both, "recall@10", None, losers=True))[0][-1]
    assert shown.endswith(f"m{MAX_IDS - 1} and 3 more")


def test_hundreds_of_strata_are_cut_with_a_word() -> None:
    _, comparisons = arms(4, n=400, n_strata=400)
    table = strata_table(comparisons, "recall@10")
    assert len(table.rows) == MAX_STRATUM_ROWS
    assert table.footnote.startswith(f"{MAX_STRATUM_ROWS} of 1600 rows are shown")
    assert not strata_table(comparisons[:3], "recall@10").footnote


def test_the_gates_losses_keep_their_own_correction() -> None:
    drop = Drop("labelled: temporal", "recall@10", -0.04, -0.07, -0.012, 74, 0.0031)
    assert texts(drops_table([drop])) == [
        [
            "labelled: temporal",
            "recall@10",
            "\u22120.040",
            "\u22120.070 to \u22120.012",
            "0.0031",
            "74",
        ]
    ]


def test_a_decisions_rows_are_shown_as_text() -> None:
    table = decision_table(decision(None, "because", rrf=-0.5, graph_0=0.5))
    assert texts(table) == [
        ["rrf", "\u22120.5000", "\u22120.0123", "none", "0.5000", "\u22120.5000", "none", ""],
        ["graph_0", "0.5000", "\u22120.0123", "none", "0.5000", "0.5000", "0.2500", ""],
    ]
    assert not decision_table({"reason": "off", "decision": None}).rows


def plain(text: str) -> float:
    return float(text.replace("\u2212", "-"))


@given(st.floats(-1, 1))
def test_numbers_are_rounded_to_three_decimals_and_nothing_else(value: float) -> None:
    for text in (as_mean(value), as_signed(value)):
        assert plain(text) == pytest.approx(value, abs=0.0005 + 1e-12)
        assert "-" not in text, "a hyphen is no minus"


@given(st.floats(-1, 1).filter(lambda value: abs(value) >= 0.0006))
def test_differences_carry_their_sign(value: float) -> None:
    assert as_signed(value)[0] == ("+" if value > 0 else "\u2212")


def test_a_difference_that_rounds_to_zero_has_no_sign() -> None:
    assert as_signed(-0.0004) == as_signed(0.0004) == as_signed(0.0) == "0.000"


@given(st.floats(0, 1))
def test_p_values_never_look_like_zero(value: float) -> None:
    text = as_p(value)
    if text == "<0.0001":
        assert value < 0.0001
    else:
        assert float(text) > 0
        assert float(text) == pytest.approx(value, abs=0.00005 + 1e-12)


def test_intervals_name_both_ends() -> None:
    assert as_interval(Interval(0.5, 0.4, 0.6, 9)) == "0.400 to 0.600"
    assert as_interval(Interval(0.0, -0.1, 0.1, 9), signed=True) == "\u22120.100 to +0.100"


def test_what_is_missing_says_so() -> None:
    assert {as_mean(None), as_interval(None)} == {"none"}


def test_counts_have_thin_blanks() -> None:
    assert as_count(1234567) == "1\u202f234\u202f567"
