from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from noctuary.evaluate.report import Latency
from noctuary.reports.model import PerQuery, RankingDecision
from noctuary.reports.tables import (
    DIFFERENCE_COLUMNS,
    MAX_IDS,
    MAX_QUERIES,
    MAX_STRATUM_ROWS,
    Table,
    arms_table,
    decision_table,
    difference_cells,
    drops_table,
    macro_table,
    means_table,
    metrics_table,
    queries_table,
    strata_means_table,
    strata_table,
)
from noctuary.snapshot.drops import Drop
from tests.unit.reports.builders import METRICS, arms, comparison, difference, random_scores, scores


def texts(table: Table) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.rows]


def pair(ours: Sequence[float], baseline: Sequence[float]) -> PerQuery:
    """Return two arms that differ in recall@10 only."""
    return PerQuery(
        scores("ours", [[value, 0.5] for value in ours]),
        scores("theirs", [[value, 0.5] for value in baseline]),
        {"q0": ["m1", "m2"]},
    )


def test_every_row_is_as_long_as_the_heads() -> None:
    reports, comparisons = arms(3)
    timed = [replace(reports[0], latency=Latency(1.25, 3.5, 40)), *reports[1:]]
    both = PerQuery(random_scores("a", 9, 1), random_scores("b", 9, 2))
    for table in (
        means_table(reports, "recall@10", "c"),
        means_table(timed, "recall@10", "c"),
        macro_table(reports, "c"),
        strata_means_table(reports, "recall@10", "c"),
        arms_table(comparisons, "recall@10", "c"),
        metrics_table(comparisons[0], "c"),
        strata_table(comparisons, "recall@10", "c"),
        queries_table(both, "ndcg@10", None, "c", losers=True),
        queries_table(both, "ndcg@10", {}, "c", losers=False),
    ):
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.columns)}


def test_a_difference_is_shown_with_everything_that_is_known_of_it() -> None:
    cells = [cell.text for cell in difference_cells(difference(-0.041, -0.07, -0.012, p=0.0031))]
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
        "verdict": "worse",
    }


def test_the_verdict_needs_significance() -> None:
    found = [difference(0.1, 0.05, 0.2, p=0.01), difference(0.1, 0.05, 0.2), difference(0.1)]
    assert [difference_cells(one)[-1].text for one in found] == [
        "better",
        "not significant",
        "not significant",
    ]


def test_raw_and_adjusted_p_are_not_mixed_up() -> None:
    found = replace(difference(0.1, 0.05, 0.2), p_value=0.01, p_holm=0.04)
    assert [cell.text for cell in difference_cells(found)[2:4]] == ["0.0100", "0.0400"]


def test_means_are_sorted_by_the_first_metric_and_show_latency_only_if_timed() -> None:
    reports, _ = arms(4)
    table = means_table(reports, "recall@10", "c")
    shown = [float(row[2].text) for row in table.rows]
    assert shown == sorted(shown, reverse=True)
    assert table.columns == ("arm", "n", *METRICS)
    timed = means_table([replace(reports[0], latency=Latency(1.25, 3.5, 40))], "recall@10", "c")
    assert timed.columns[-2:] == ("p50 ms", "p95 ms")
    assert texts(timed)[0][-2:] == ["1.2", "3.5"]


def test_macro_means_are_the_reports_own() -> None:
    reports, _ = arms(1)
    shown = texts(macro_table(reports, "c"))
    assert shown[1] == ["arm 1", "2", *(f"{reports[1].macro[metric]:.3f}" for metric in METRICS)]


def test_arms_are_sorted_by_their_difference() -> None:
    found = [comparison(str(mean), difference(mean)) for mean in (0.1, -0.2, 0.3)]
    assert [row[0] for row in texts(arms_table(found, "recall@10", "c"))] == ["0.3", "0.1", "-0.2"]


def test_losers_and_winners_are_the_largest_changes_first() -> None:
    both = pair([0.0, 1.0, 0.5, 0.2, 1.0], [1.0, 0.0, 0.5, 0.5, 0.75])
    losers = texts(queries_table(both, "recall@10", None, "c", losers=True))
    winners = texts(queries_table(both, "recall@10", None, "c", losers=False))
    assert losers == [
        ["q0", "all", "0.000", "1.000", "\u22121.000", "m1, m2"],
        ["q3", "all", "0.200", "0.500", "\u22120.300", ""],
    ]
    assert [row[0] for row in winners] == ["q1", "q4"]


def test_equal_changes_are_in_the_order_of_their_ids_and_cut_with_a_word() -> None:
    n = MAX_QUERIES + 5
    table = queries_table(pair([0.0] * n, [1.0] * n), "recall@10", None, "c", losers=True)
    assert [row[0] for row in texts(table)] == sorted(f"q{i}" for i in range(n))[:MAX_QUERIES]
    assert table.footnote == f"{MAX_QUERIES} of {n} shown, the largest changes first."


def test_changes_within_rounding_are_no_changes() -> None:
    both = pair([0.1 + 0.2], [0.3])
    assert not queries_table(both, "recall@10", None, "c", losers=False).rows


def test_texts_are_shown_only_if_given() -> None:
    both = pair([0.0], [1.0])
    assert "text" not in queries_table(both, "recall@10", None, "c", losers=True).columns
    shown = queries_table(both, "recall@10", {"q0": "where?"}, "c", losers=True)
    assert (shown.columns[-1], texts(shown)[0][-1]) == ("text", "where?")


def test_many_relevant_ids_are_counted() -> None:
    both = replace(pair([0.0], [1.0]), relevant_ids={"q0": [f"m{i}" for i in range(MAX_IDS + 3)]})
    shown = texts(queries_table(both, "recall@10", None, "c", losers=True))[0][-1]
    assert shown.endswith(f"m{MAX_IDS - 1} and 3 more")


def test_losers_need_the_same_queries_on_both_sides() -> None:
    with pytest.raises(ValueError, match="'a' and 'b' differ"):
        PerQuery(scores("a", [[0, 0]]), scores("b", [[0, 0]], query_ids=["other"]))


def test_hundreds_of_strata_are_cut_with_a_word() -> None:
    reports, comparisons = arms(4, n=400, n_strata=400)
    table = strata_table(comparisons, "recall@10", "c")
    assert len(table.rows) == MAX_STRATUM_ROWS
    assert table.footnote.startswith(f"{MAX_STRATUM_ROWS} of 1600 rows are shown")
    assert not strata_table(comparisons[:3], "recall@10", "c").footnote
    assert "of 2000 rows" in strata_means_table(reports, "recall@10", "c").footnote


def test_the_gates_losses_keep_their_own_correction() -> None:
    drop = Drop("labelled: temporal", "recall@10", -0.04, -0.07, -0.012, 74, 0.0031)
    assert texts(drops_table([drop], "c")) == [
        [
            "labelled: temporal",
            "recall@10",
            "\u22120.040",
            "\u22120.070 to \u22120.012",
            "0.0031",
            "74",
        ]
    ]


def test_a_decisions_rows_may_have_any_columns() -> None:
    rows = [
        {"challenger": "rrf", "gain": -0.01234, "confirmed": None, "vetoes": ["exact"]},
        {"challenger": "graph_0", "gain": 1, "chosen": True},
    ]
    table = decision_table(RankingDecision(None, "because", rows), "c")
    assert table.columns == ["challenger", "gain", "confirmed", "vetoes", "chosen"]
    assert texts(table) == [
        ["rrf", "\u22120.0123", "none", '["exact"]', "none"],
        ["graph_0", "1", "none", "none", "yes"],
    ]
    kinds = [cell.kind for cell in table.rows[0]]
    assert kinds == ["text", "number", "text", "text", "text"]
