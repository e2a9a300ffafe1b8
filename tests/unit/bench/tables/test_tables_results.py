from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.results import write_result
from bench.tables import pages
from bench.tables.markdown import commits, short, table

MANIFEST = {
    "commit": "0123456789abcdef",
    "dirty": False,
    "machine": "Linux x, 2 cores",
    "load_average_1m": 0.5,
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
def docs(tmp_path: Path) -> Path:
    write_result(tmp_path / "json" / "cost-tiny.json", cost())
    write_result(tmp_path / "json" / "latency-tiny.json", latency())
    return tmp_path


def test_cost_and_latency_have_their_tables(docs: Path) -> None:
    page = pages.render("results", docs / "json")
    cost_row = "| tiny | 1.50 | 2.50 | 3.2 | 2.0 |"
    latency_row = "| tiny | 12 | 2.0 / 3.0 | 5.0 / 9.0 | 2.50 | 200 (180) | 1.50 |"
    assert cost_row in page
    assert latency_row in page


def test_an_engine_that_was_not_measured_has_empty_cells(docs: Path) -> None:
    engine = {"p50_ms": 1.234, "recall@10": 0.97}
    environment = {"OPENBLAS_NUM_THREADS": "1"}
    document = {
        "kind": "engines",
        "manifest": {**MANIFEST, "queries": 200, "depth": 50, "environment": environment},
        "sets": [
            {"vectors": "made", "rows": 10_000, "engines": {"exact": engine, "funnel": engine}}
        ],
    }
    write_result(docs / "json" / "engines.json", document)
    page = pages.render("results", docs / "json")
    assert "| made | 10,000 | 1.23 | 1.23 |  | 0.970 |  |" in page
    assert "OPENBLAS_NUM_THREADS=1" in page


def test_check_passes_on_what_was_written_and_fails_on_a_drift(
    docs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--docs", str(docs)]
    assert pages.main([*options, "--check"]) == 1
    assert pages.main(options) == 0
    assert pages.main([*options, "--check"]) == 0
    capsys.readouterr()
    page = docs / "results.md"
    page.write_text(page.read_text(encoding="utf-8").replace("2.50", "9.99"), encoding="utf-8")
    assert pages.main([*options, "--check"]) == 1
    said = capsys.readouterr().out
    assert "-| tiny | 1.50 | 9.99 |" in said
    assert "+| tiny | 1.50 | 2.50 |" in said


def test_check_fails_when_a_json_file_changes_under_the_page(docs: Path) -> None:
    pages.main(["--docs", str(docs)])
    file = docs / "json" / "cost-tiny.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    document["total"]["wall_ms"] = 13
    file.write_text(json.dumps(document), encoding="utf-8")
    assert pages.main(["--docs", str(docs), "--check"]) == 1


def test_the_committed_pages_are_what_the_committed_files_say() -> None:
    assert pages.main(["--check"]) == 0


def test_a_page_without_results_is_only_its_header(tmp_path: Path) -> None:
    rendered = {name: pages.render(name, tmp_path) for name in pages.PAGES}
    assert [name for name, page in rendered.items() if page.count("\n") != 3] == []


def test_cells_are_written_as_they_are_read() -> None:
    assert table([{"a": "x", "b": "1"}]) == "| a | b |\n| --- | ---: |\n| x | 1 |"
    assert [short(m) for m in ("recall@5", "ndcg@10", "mrr@10")] == ["R@5", "nDCG@10", "MRR@10"]
    changed = {"manifest": {**MANIFEST, "dirty": True}}
    said = "Measured on commit 0123456789ab with local changes, commit 0123456789ab."
    assert commits([changed, {"manifest": MANIFEST}, changed]) == said
