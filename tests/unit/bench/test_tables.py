from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import tables
from bench.results import write_result
from bench.tables import render, table

METRICS = ["recall@5", "recall@10", "ndcg@10", "mrr@100"]
MANIFEST = {
    "commit": "0123456789abcdef",
    "dirty": False,
    "machine": "Linux x, 2 cores",
    "load_average_1m": 0.5,
}


def means(value: float, width: float = 0.1) -> dict[str, Any]:
    ends = {"mean": value, "low": value - width, "high": value + width}
    return {"n": 4, **{name: dict(ends) for name in METRICS}}


def arm(value: float, **changes: object) -> dict[str, Any]:
    base = {
        "description": "words",
        "profile": None,
        "warnings": {},
        "overall": means(value),
        "strata": {"exact": means(value), "multi-hop": means(value / 2)},
        "latency": {"p50_ms": 1.26, "p95_ms": 4.0, "n": 4},
    }
    return {**base, **changes}


def quality() -> dict[str, Any]:
    return {
        "kind": "quality",
        "dataset": "tiny",
        "scope": "all",
        "split": "dev",
        "manifest": {
            **MANIFEST,
            "snapshot_digest": "feedfacecafebeef",
            "counts": {"memories": 12},
            "encoder": {"model": "legible"},
            "n_queries": 4,
            "labels_missing_from_snapshot": 0,
        },
        "readme_baseline": {"ALL": {"n": 4, **dict.fromkeys(METRICS, 0.321)}},
        "metrics": METRICS,
        "arms": {
            "fts_plain": arm(0.3),
            "fused_cc": arm(
                0.5, vs_baseline={"overall": means(0.2, 0.05), "strata": {}, "baseline": "x"}
            ),
            "dense": arm(
                0.31,
                warnings={"dense_unavailable": 4},
                vs_baseline={"overall": means(0.01, 0.05), "strata": {}, "baseline": "x"},
            ),
        },
    }


def cost() -> dict[str, Any]:
    record = {"wall_ms": 1500, "cpu_ms": 2500, "peak_rss_bytes": 3_200_000, "bytes_on_disk": 10**6}
    return {
        "kind": "cost",
        "dataset": "tiny",
        "manifest": MANIFEST,
        "store_bytes": 2_000_000,
        "total": record,
        "assets": [{"asset": "memories", **record, "rows": 12}],
    }


def latency() -> dict[str, Any]:
    cold = {"median_ms": 200.4, "min_ms": 180.0, "ratio_to_import_numpy": 1.5}
    return {
        "kind": "latency",
        "dataset": "tiny",
        "manifest": {**MANIFEST, "memories": 12, "k": 10},
        "warm": {
            "fts_plain": {"p50_ms": 2.0, "p95_ms": 3.0},
            "recall": {"p50_ms": 5.0, "p95_ms": 9.0},
            "ratio_p50": 2.5,
            "n": 20,
        },
        "cold": {
            "import_numpy": {"median_ms": 150.0, "min_ms": 140.0},
            "fts_plain": cold,
            "recall": cold,
            "rounds": 7,
            "recall_warnings": [],
        },
    }


@pytest.fixture
def results(tmp_path: Path) -> Path:
    directory = tmp_path / "json"
    write_result(directory / "quality-tiny-all.json", quality())
    write_result(directory / "cost-tiny.json", cost())
    write_result(directory / "latency-tiny.json", latency())
    return directory


def row_of(page: str, start: str) -> list[str]:
    line = next(line for line in page.splitlines() if line.startswith(f"| {start} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_quality_table_holds_the_readme_beside_every_arm(results: Path) -> None:
    page = render(results)
    assert row_of(page, "*FTS5 as the set's README states it*")[1:5] == ["0.321"] * 4
    assert row_of(page, "fts_plain")[1] == "0.300 [0.200, 0.400]"
    assert row_of(page, "fts_plain")[-1] == "1.3 / 4.0"
    assert "4 queries (dev), 12 memories, snapshot feedfacecafe, encoder legible" in page


def test_a_difference_is_bold_only_if_its_interval_excludes_zero(results: Path) -> None:
    page = render(results)
    assert row_of(page, "fused_cc")[5] == "**+0.200 [+0.150, +0.250]**"
    assert row_of(page, "dense (degraded)")[5] == "+0.010 [-0.040, +0.060]"
    assert row_of(page, "fts_plain")[5] == ""


def test_a_degraded_arm_is_marked_and_its_warnings_listed(results: Path) -> None:
    assert "- dense: dense_unavailable x 4" in render(results)


def test_strata_cost_and_latency_have_their_tables(results: Path) -> None:
    page = render(results)
    assert "| arm | exact (4) | multi-hop (4) |" in page
    assert row_of(page, "memories") == ["memories", "1.50", "2.50", "3.2", "1.0", "12"]
    assert row_of(page, "recall") == ["recall", "5.0 / 9.0", "200 (180)", "1.50"]
    assert row_of(page, "import numpy") == ["import numpy", "", "150 (140)", "1.00"]
    assert "Warm recall takes 2.50 x the FTS5 search." in page


def test_check_passes_on_what_was_written_and_fails_on_a_drift(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "results.md"
    options = ["--json", str(results), "--page", str(page)]
    assert tables.main([*options, "--check"]) == 1
    assert tables.main(options) == 0
    assert tables.main([*options, "--check"]) == 0
    capsys.readouterr()
    page.write_text(page.read_text(encoding="utf-8").replace("0.321", "0.399"), encoding="utf-8")
    assert tables.main([*options, "--check"]) == 1
    said = capsys.readouterr().out
    assert "-| *FTS5 as the set's README states it* | 0.399" in said
    assert "+| *FTS5 as the set's README states it* | 0.321" in said


def test_check_fails_when_a_json_file_changes_under_the_page(results: Path, tmp_path: Path) -> None:
    page = tmp_path / "results.md"
    options = ["--json", str(results), "--page", str(page)]
    tables.main(options)
    file = results / "cost-tiny.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    document["assets"][0]["rows"] = 13
    file.write_text(json.dumps(document), encoding="utf-8")
    assert tables.main([*options, "--check"]) == 1


def test_a_page_without_results_is_only_its_header(tmp_path: Path) -> None:
    assert "## " not in render(tmp_path)


def test_a_table_aligns_numbers_right() -> None:
    assert table(["a", "b"], [["x", "1"]]) == "| a | b |\n| --- | ---: |\n| x | 1 |"
