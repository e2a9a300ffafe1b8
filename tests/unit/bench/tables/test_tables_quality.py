from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.results import write_result
from bench.tables.pages import render
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
    "k": 10,
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
    return render("quality", directory)


def rows(page: str, heading: str) -> list[list[str]]:
    after = page.split(f"{heading}\n", 1)[1]
    lines = [line for line in after.split("\n#", 1)[0].splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.fixture
def page(tmp_path: Path) -> str:
    return page_of(tmp_path, document())


def test_every_headline_arm_has_its_scores_with_intervals(page: str) -> None:
    found = rows(page, "## Scores")
    # noctuary_decided is the same as noctuary here.
    arms = ["fts_seed", "hybrid_seed", "noctuary"]
    assert [row[:3] for row in found[2:]] == [["tiny", "4", arm] for arm in arms]
    assert found[2][3:] == ["0.300 [0.200, 0.400]"] * 4


def test_the_decided_arm_is_shown_where_it_differs(tmp_path: Path) -> None:
    changed = document()
    changed["scopes"]["all"]["reports"]["noctuary_decided"] = report("noctuary_decided", 0.6)
    page = page_of(tmp_path, changed)
    (row,) = (row for row in rows(page, "## Scores") if row[2] == "noctuary_decided")
    assert row[3:] == ["0.600 [0.500, 0.700]"] * 4


def test_gains_have_a_row_per_scope_and_are_bold_where_significant(page: str) -> None:
    found = rows(page, "## Gains over the baselines")
    assert found[2:] == [
        ["tiny", "4", "noctuary", "**+0.200 [+0.150, +0.250]**", "**+0.100 [+0.050, +0.150]**"],
        ["tiny, own wing", "4", "noctuary", "**+0.300 [+0.250, +0.350]**", ""],
    ]


def test_p_is_corrected_over_the_sets(tmp_path: Path) -> None:
    page = page_of(tmp_path, document("a", p=0.03), document("b", p=0.04))
    found = rows(page, "## Gains over the baselines")
    # Each is below .05 alone; two sets together are not.
    whole = [row for row in found[2:] if "wing" not in row[0]]
    assert [row[4] for row in whole] == ["+0.100 [+0.050, +0.150]"] * 2


def test_holes_name_their_pool(page: str) -> None:
    assert "`fts_seed`, `hybrid_seed`. The more holes" in page
    assert rows(page, "## Holes")[2:] == [["tiny", "4", "12", "0.200 [0.100, 0.300]"]]


def test_the_page_names_split_depth_encoder_plots_and_degraded_arms(page: str) -> None:
    assert "dev split over the whole corpus, at k = 10, with legible." in page
    assert "R@10 of 1 arms minus that of `noctuary`, ablations too: [tiny](plots/tiny.png)." in page
    assert "- tiny, no_graph: dense_unavailable x 4" in page
