from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.results import write_result
from bench.tables.abstention_table import render

MANIFEST = {"commit": "0123456789abcdef", "dirty": False}
SURE = {"auroc": 0.8123, "low": 0.75, "high": 0.86, "n": 7}
ONE = {"auroc": 1.0, "low": None, "high": None, "n": 1}


def document() -> dict[str, Any]:
    threshold = {
        "signal": "score", "max_recall_loss": 0.05, "threshold": 0.1234, "recall": 0.8,
        "recall_kept": 0.76, "answerable_abstained": 0.06, "abstained": {"unanswerable": 0.5},
    }  # fmt: skip
    return {
        "kind": "abstention",
        "manifest": MANIFEST,
        "signals": {"score": "what is said of it"},
        "sets": {
            "friends": {
                "memories": 1234,
                "questions": {"answerable": 30, "unanswerable": 7, "foreign": 1},
                "score_ms": {"p50": 0.25, "p95": 0.5},
                "aurocs": {"score": {"unanswerable": SURE, "foreign": ONE}},
                "refits": {"refitted": {"unanswerable": SURE, "weights": {}}},
                "thresholds": [threshold, {**threshold, "recall": 0.0, "recall_kept": 0.0}],
            }
        },
    }


def test_every_signal_threshold_and_time_has_its_row(tmp_path: Path) -> None:
    write_result(tmp_path / "abstention.json", document())
    page = render(tmp_path)
    assert "| AUROC, labelled | friends (7) |" in page
    assert "| score: what is said of it | 0.812 [0.75, 0.86] |" in page
    assert "| score: what is said of it | 1.000 |" in page
    assert "| refitted | 0.812 [0.75, 0.86] |" in page
    assert "AUROC, removed" not in page
    assert "| friends | score | 5% | 0.123 | 0.800 | 95.0% | 6.0% | 50.0% |  |  |" in page
    assert "| friends | score | 5% | 0.123 | 0.000 |  | 6.0% | 50.0% |  |  |" in page
    assert "| friends | 1,234 | 0.250 | 0.500 |" in page
    assert "commit 0123456789ab" in page


def test_without_a_result_there_is_the_page_and_no_table(tmp_path: Path) -> None:
    page = render(tmp_path)
    assert page.startswith("# Knowing when there is no answer")
    assert "|" not in page
