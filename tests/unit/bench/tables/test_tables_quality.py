from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.results import write_result
from bench.tables.quality_page import render
from noctuary.evaluate.metrics import Comparison, Difference, Mean, Report
from noctuary.evaluate.statistics import Interval

METRICS = ("recall@5", "recall@10", "all_relevant@10", "ndcg@10", "mrr@10")
MANIFEST = {
    "commit": "0123456789abcdef",
    "dirty": False,
    "machine": "Linux x, 2 cores",
    "load_average_1m": 0.5,
    "snapshot_digest": "feedfacecafebeef",
    "counts": {"memories": 12},
    "encoder": {"model": "legible"},
    "n_queries": 4,
    "labels_missing_from_snapshot": 2,
}


def mean(value: float, n: int = 4) -> Mean:
    interval = Interval(value, value - 0.1, value + 0.1, n) if n > 1 else None
    return Mean(value, interval, n)


def report(name: str, value: float) -> dict[str, Any]:
    strata = {
        "exact": {"recall@10": mean(value, 3), "ndcg@10": mean(value, 3)},
        "lone": {"recall@10": mean(value, 1), "ndcg@10": mean(value, 1)},
    }
    means = {metric: mean(value) for metric in METRICS}
    return dict(Report(name, 4, means, dict.fromkeys(METRICS, value), strata).to_json())


def difference(value: float, p: float, width: float = 0.05) -> Difference:
    interval = Interval(value, value - width, value + width, 4)
    return Difference(4, value, interval, p, p, 0.123, 3, 1, 0)


def comparison(ours: str, baseline: str, value: float, p: float = 0.001) -> dict[str, Any]:
    found = {metric: difference(value, p) for metric in METRICS}
    strata = {name: {"recall@10": difference(value, p)} for name in ("exact", "lone")}
    return dict(Comparison(ours, baseline, found, strata).to_json())


def described(group: str, **settings: Any) -> dict[str, Any]:
    return {"group": group, "description": f"a {group}", "against": [], "settings": settings}


MEANS = {
    "fts_seed": 0.3,
    "hybrid_seed": 0.4,
    "noctuary": 0.5,
    "no_graph": 0.45,
    "hybrid_seed_graph_w1": 0.42,
    "noctuary_decided": 0.5,
}


def scopes(p: float) -> dict[str, Any]:
    return {
        "all": {
            "reports": {arm: report(arm, value) for arm, value in MEANS.items()},
            "comparisons": {
                "noctuary": {
                    "fts_seed": comparison("noctuary", "fts_seed", 0.2, p),
                    "hybrid_seed": comparison("noctuary", "hybrid_seed", 0.1, p),
                },
                "no_graph": {"noctuary": comparison("no_graph", "noctuary", -0.01, 0.6)},
                "hybrid_seed_graph_w1": {
                    "hybrid_seed": comparison("hybrid_seed_graph_w1", "hybrid_seed", 0.02, 0.3)
                },
            },
        },
        "wing": {
            "reports": {"noctuary": report("noctuary", 0.6)},
            "comparisons": {"noctuary": {"fts_seed": comparison("noctuary", "fts_seed", 0.3)}},
        },
    }


def document(name: str = "tiny", p: float = 0.001) -> dict[str, Any]:
    return {
        "kind": "quality",
        "dataset": name,
        "split": "dev",
        "manifest": MANIFEST,
        "measured": {
            "night": {"seconds": 12.0},
            "evaluate_seconds": 3.0,
            "arms": {
                "all": {
                    "noctuary": {"latency": {"p50_ms": 1.26, "p95_ms": 4.0}, "warnings": {}},
                    "no_graph": {"latency": None, "warnings": {"dense_unavailable": 4}},
                }
            },
        },
        "arms": {
            "fts_seed": described("baseline"),
            "hybrid_seed": described("baseline"),
            "noctuary": described("noctuary"),
            "no_graph": described("ablation"),
            "hybrid_seed_graph_w1": described("graph_seed", graph_weight=1.0),
        },
        "metrics": list(METRICS),
        "scopes": scopes(p),
        "decided": None,
        "holes": {
            "pool_arms": ["fts_seed", "hybrid_seed"],
            "depth": 10,
            "pool_size": 17.25,
            "arms": {"noctuary": dict(mean(0.2).to_json())},
        },
        "abstention": {
            "noctuary": {
                "auroc": 0.61,
                "low": 0.5,
                "high": 0.7,
                "n_answerable": 4,
                "n_unanswerable": 3,
            }
        },
    }


def page_of(directory: Path, *documents: dict[str, Any]) -> str:
    for found in documents:
        write_result(directory / f"quality-{found['dataset']}.json", found)
    return render(directory)


def rows(page: str, heading: str) -> list[list[str]]:
    after = page.split(f"{heading}\n", 1)[1]
    lines = [line for line in after.split("\n#", 1)[0].splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.fixture
def page(tmp_path: Path) -> str:
    return page_of(tmp_path, document())


def test_the_summary_has_every_headline_arm_of_every_scope_with_intervals(page: str) -> None:
    found = rows(page, "## All sets")
    assert [row[:3] for row in found[2:]] == [
        ["tiny", "fts_seed", "4"],
        ["tiny", "hybrid_seed", "4"],
        ["tiny", "noctuary", "4"],
        ["tiny", "noctuary_decided", "4"],
        ["tiny, own wing", "noctuary", "4"],
    ]
    assert found[2][3:] == ["0.300 [0.200, 0.400]"] * len(METRICS)


def test_the_gain_is_shown_with_corrected_p_and_detectable_difference(page: str) -> None:
    found = rows(page, "### R@10: difference to fts_seed")
    assert found[2] == [
        "tiny", "noctuary", "4", "**+0.200 [+0.150, +0.250]**", "0.001", "0.002", "0.123", "3 / 1",
    ]  # fmt: skip


def test_in_the_summary_p_is_corrected_over_the_sets(tmp_path: Path) -> None:
    page = page_of(tmp_path, document("a", p=0.03), document("b", p=0.04))
    found = rows(page, "### R@10: difference to hybrid_seed")
    # Each is below .05 alone; two sets together are not.
    assert [row[4:6] for row in found[2:]] == [["0.030", "0.060"], ["0.040", "0.060"]]
    assert [row[3] for row in found[2:]] == ["+0.100 [+0.050, +0.150]"] * 2


def test_ablations_stand_beside_noctuary_with_their_interval_and_degradation(page: str) -> None:
    (_, _, row) = rows(page, "### tiny: Ablations")
    assert row[0] == "no_graph (degraded)"
    assert row[5] == "-0.010 [-0.060, +0.040]"
    assert "- no_graph: dense_unavailable x 4" in page
    (_, _, ours) = rows(page, "### tiny: noctuary")[:3]
    assert ours[-1] == "1.3 / 4.0"


def test_a_stratum_of_one_query_has_no_interval_and_says_so(page: str) -> None:
    found = rows(page, "### tiny: R@10 per stratum")
    assert found[2][:3] == ["exact", "3", "0.300 [0.200, 0.400]"]
    assert found[3][:3] == ["lone", "1", "0.300 [n = 1]"]


def test_the_graph_experiment_has_its_section(page: str) -> None:
    found = rows(page, "### tiny: graph (4 queries)")
    assert [row[:2] for row in found[2:]] == [["hybrid_seed", ""], ["hybrid_seed_graph_w1", "1"]]
    assert found[3][5] == "+0.020 [-0.030, +0.070]"


def test_holes_name_their_pool_and_abstention_has_an_interval(page: str) -> None:
    assert "the first ten results of `fts_seed`, `hybrid_seed`." in page
    holes = next(line for line in page.splitlines() if line.startswith("| tiny | 17.2 |"))
    assert "0.200 [0.100, 0.300]" in holes
    assert "| tiny | noctuary | 4 / 3 | 0.610 [0.500, 0.700] |" in page


def test_every_set_has_its_plot_and_its_caption(page: str) -> None:
    assert "(plots/tiny.png)" in page
    assert "4 queries (dev), 12 memories, snapshot feedfacecafe, encoder legible" in page
    assert "2 labelled memories are not in the snapshot and count as misses" in page
    assert "- `no_graph`: a ablation" in page
