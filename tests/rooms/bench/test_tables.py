from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.measure.commits import middle
from bench.results import write_result
from bench.tables import pages, quality
from bench.tables.markdown import commits, short, table
from noctuary.evaluate.metrics import Difference
from noctuary.evaluate.statistics import Interval

MANIFEST = {
    "commit": "0123456789abcdef",
    "dirty": False,
    "machine": "Linux x, 2 cores",
    "load_average_1m": 0.5,
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
    write_result(tmp_path / "json" / "latency-tiny.json", latency())
    return tmp_path


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
    assert "-| tiny | 12 | 2.0 / 3.0 | 5.0 / 9.0 | 9.99 |" in said
    assert "+| tiny | 12 | 2.0 / 3.0 | 5.0 / 9.0 | 2.50 |" in said


def test_check_fails_when_a_json_file_changes_under_the_page(docs: Path) -> None:
    pages.main(["--docs", str(docs)])
    file = docs / "json" / "latency-tiny.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    document["warm"]["ratio_p50"] = 13
    file.write_text(json.dumps(document), encoding="utf-8")
    assert pages.main(["--docs", str(docs), "--check"]) == 1


def test_commits_compares_the_medians_of_both_sides(tmp_path: Path) -> None:
    def night(cpu_s: float, embedding_s: float) -> dict[str, Any]:
        sizes = {"peak_rss_bytes": 3 * 10**8, "store_bytes": 10**7}
        stages = {"memory_vectors": {"cpu_s": embedding_s, "rows": 5}}
        return {"cpu_s": cpu_s, "wall_s": cpu_s / 2, **sizes, "stages": stages}

    before = middle([night(90.0, 20.0), night(30.0, 20.0), night(40.0, 20.0)])
    part = {"before": before, "now": middle([night(11.0, 5.0), night(9.0, 5.0)])}
    manifest = {**MANIFEST, "against": "fedcba9876543210", "runs": 3}
    document = {"kind": "commits", "parts": {"sample": {"manifest": manifest, **part}}}
    write_result(tmp_path / "json" / "commits.json", document)
    page = pages.render("commits", tmp_path / "json")
    night_row = "| sample | 40.0 / 10.0 | 0.25 | 20.0 / 5.0 | 0.25 | 300 / 300 | 1.00 |"
    assert night_row + " 10 / 10 | 1.00 |" in page
    assert "| the rest | 20.0 / 5.0 |\n| night / embedding | 2.00 / 2.00 |" in page


def test_the_committed_pages_are_what_the_committed_files_say() -> None:
    assert pages.main(["--check"]) == 0


def test_cells_are_written_as_they_are_read() -> None:
    assert table([{"a": "x", "b": "1"}]) == "| a | b |\n| --- | ---: |\n| x | 1 |"
    assert [short(m) for m in ("recall@5", "ndcg@10", "mrr@10")] == ["R@5", "nDCG@10", "MRR@10"]
    changed = {"manifest": {**MANIFEST, "dirty": True}}
    said = "Measured on commit 0123456789ab with local changes, commit 0123456789ab."
    assert commits([changed, {"manifest": MANIFEST}, changed]) == said


def gains_of(name: str, p: float) -> dict[str, Any]:
    """A set in which the shipped arm gains .1 with this p."""
    gain = Difference(4, 0.1, Interval(0.1, 0.05, 0.15, 4), p, p, 0.1, 3, 1, 0)
    compared = {"fts_seed": {"overall": {"recall@10": gain.to_json()}}}
    reports = {"noctuary": {"n": 4, "overall": {}}}
    scope = {"reports": reports, "comparisons": {"noctuary": compared}}
    return {"dataset": name, "scopes": {"all": scope}}


def test_p_is_corrected_over_the_sets() -> None:
    """The committed sets are far from the limit: no page of theirs would show it."""
    one, other = gains_of("a", 0.03), gains_of("b", 0.04)
    cells = [row["Δ R@10 to fts_seed"] for row in quality._gains([one, other])]  # pyright: ignore[reportPrivateUsage]
    assert cells == ["+0.100 [+0.050, +0.150]"] * 2, "each is below .05 alone, two together not"
    (alone,) = quality._gains([one])  # pyright: ignore[reportPrivateUsage]
    assert alone["Δ R@10 to fts_seed"] == "**+0.100 [+0.050, +0.150]**"
