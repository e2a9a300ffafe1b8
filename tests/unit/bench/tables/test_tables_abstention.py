from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.results import write_result
from bench.tables.abstention import SHIPPED, SIGNALS
from bench.tables.pages import render

MANIFEST = {"commit": "0123456789abcdef", "dirty": False}
SURE = {"auroc": 0.8123, "low": 0.75, "high": 0.86, "n": 7}
ONE = {"auroc": 1.0, "low": None, "high": None, "n": 1}


def document() -> dict[str, Any]:
    threshold = {
        "signal": SHIPPED, "max_recall_loss": 0.05, "threshold": 0.1234, "recall": 0.8,
        "recall_kept": 0.76, "answerable_abstained": 0.06, "abstained": {"unanswerable": 0.5},
    }  # fmt: skip
    return {
        "kind": "abstention",
        "manifest": MANIFEST,
        "sets": {
            "friends": {
                "questions": {"answerable": 30, "unanswerable": 7, "foreign": 1},
                "aurocs": {name: {"unanswerable": SURE, "foreign": ONE} for name in SIGNALS},
                "thresholds": [
                    threshold,
                    {**threshold, "recall": 0.0, "recall_kept": 0.0},
                    {**threshold, "max_recall_loss": 0.1},
                    {**threshold, "signal": SIGNALS[1]},
                ],
            }
        },
    }


def test_every_kind_of_question_and_the_shipped_threshold_have_their_rows(tmp_path: Path) -> None:
    write_result(tmp_path / "abstention.json", document())
    page = render("abstention", tmp_path)
    sure = "0.812 [0.75, 0.86]"
    assert f"| friends | labelled | 7 | {sure} | {sure} | {sure} |" in page
    assert "| friends | foreign | 1 | 1.000 | 1.000 | 1.000 |" in page
    assert "| friends | removed |" not in page
    assert "| friends | 30 | 0.800 | 95.0% | 6.0% | 50.0% |  |  |" in page
    assert "| friends | 30 | 0.000 |  | 6.0% | 50.0% |  |  |" in page
    assert page.count("| friends | 30 |") == 2
    assert "commit 0123456789ab" in page
