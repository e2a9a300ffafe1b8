from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.results import write_result
from bench.tables.pages import render
from noctuary.evaluate.metrics import Difference
from noctuary.evaluate.statistics import Interval

MANIFEST = {"commit": "0123456789abcdef", "dirty": False, "memories": 1234, "n_queries": 40}


def difference(mean: float, half_width: float, p: float) -> dict[str, Any]:
    interval = Interval(mean, mean - half_width, mean + half_width, 40)
    return dict(Difference(40, mean, interval, p, p, 0.1, 3, 2, 35).to_json())


def condition(name: str, ndcg: dict[str, Any], changed: int = 7) -> dict[str, Any]:
    return {"name": name, "changed_rankings": changed, "differences": {"ndcg@10": ndcg}}


WORSE = difference(-0.2, 0.05, 0.001)
BETTER = difference(0.2, 0.05, 0.001)
UNSURE = difference(0.01, 0.05, 0.7)
NOTHING = difference(0.0, 0.0, 1.0)


@pytest.fixture
def page(tmp_path: Path) -> str:
    means = {"means": {"ndcg@10": 0.5, "recall@10": 0.625}}
    talk = {
        "kind": "phases",
        "dataset": "talk",
        "manifest": MANIFEST,
        "baselines": {"everything": means},
        "conditions": [
            condition("ltp 2, once", WORSE),
            condition("off", BETTER),
        ],
    }
    notes = {
        **talk,
        "dataset": "notes",
        "conditions": [condition("ltp 2, once", NOTHING, 0), condition("off", UNSURE)],
    }
    write_result(tmp_path / "phases-talk.json", talk)
    write_result(tmp_path / "phases-notes.json", notes)
    return render("phases", tmp_path)


def rows_of(page: str, start: str) -> list[list[str]]:
    lines = [line for line in page.splitlines() if line.startswith(f"| {start} |")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_a_row_has_a_cell_per_set_and_is_bold_only_where_test_and_interval_agree(page: str) -> None:
    assert rows_of(page, "ltp 2, once") == [
        ["ltp 2, once", "same", "**-0.200 [-0.250, -0.150]**"],
    ]
    assert rows_of(page, "off") == [
        ["off", "+0.010 [-0.040, +0.060]", "**+0.200 [+0.150, +0.250]**"],
    ]
    assert rows_of(page, "decide") == [["decide", "", ""]]


def test_the_sets_are_listed_with_their_baselines(page: str) -> None:
    assert rows_of(page, "talk") == [["talk", "1,234", "40", "everything", "0.500", "0.625"]]
    assert "commit 0123456789ab" in page
