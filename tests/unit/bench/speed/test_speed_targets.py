from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from bench.results import write_result
from bench.speed.targets import Target, compare, judge
from bench.tables.pages import render


def store(memories: int, p95_ms: float, *, ratio: float = 0.5, synthetic: bool = True) -> Any:
    times = {"p50_ms": 1.0, "p95_ms": p95_ms, "n": 9}
    return {
        "store": f"s{memories}",
        "memories": memories,
        "synthetic": synthetic,
        "runtime_not_used": "",
        "systems": {"recall": times, "recall_known_vector": times, "fts_seed": times},
        "ratio_to_fts_seed": {"recall": ratio, "recall_known_vector": ratio, "fts_seed": 1.0},
        "ratio_to_fts_plain": {"recall": ratio, "recall_known_vector": ratio, "fts_seed": 1.0},
        "resident": {"VmRSS": memories / 1000, "RssFile": 1.0},
        "phases_ms": {"lexical": 0.1, "total": 0.2},
    }


def oneshot(**ratios: float) -> Any:
    good = {
        "import_recall_to_numpy": 1.2,
        "recall_to_numpy": 1.9,
        "client_to_bare": 4.0,
        "library_to_recall": 30.0,
    }
    times = {"median_ms": 10.0, "min_ms": 9.0, "rounds": 3}
    names = ("bare", "import_numpy", "import_recall", "recall", "client", "command", "library")
    return {"systems": dict.fromkeys(names, times), "ratios": {**good, **ratios}}


def met(targets: list[dict[str, Any]]) -> dict[str, bool]:
    return {target["name"]: target["met"] for target in targets}


def test_a_limit_is_still_kept_where_it_is_reached() -> None:
    assert Target("x", 2.0, 2.0).met
    assert Target("x", 20.0, 20.0, at_least=True).met
    assert not Target("x", 2.01, 2.0).met
    assert not Target("x", 19.9, 20.0, at_least=True).met
    assert not Target("x", float("nan"), 2.0).met


def test_growth_is_from_the_smallest_to_the_largest_synthetic_store() -> None:
    stores = [store(5_882, 99.0, synthetic=False), store(1_000_000, 8.2), store(10_000, 2.0)]
    found = {target["name"]: target for target in judge(stores, None)}
    growth = found["growth of p95, warm recall, 10,000 to 1,000,000"]
    assert growth["measured"] == 4.1
    assert not growth["met"]
    assert found["resident MB at 1,000,000"]["met"]
    assert not any("growth" in target["name"] for target in judge(stores[:2], None))


@pytest.mark.parametrize(
    ("changed", "missed"),
    [
        ({"recall_to_numpy": 2.1}, "one-shot recall / import numpy"),
        ({"client_to_bare": 5.1}, "client / bare interpreter"),
        ({"library_to_recall": 19.0}, "sentence-transformers process / one-shot recall"),
        ({"import_recall_to_numpy": 1.31}, "import of the recall function / import numpy"),
    ],
)
def test_each_promise_of_fresh_processes_is_held_on_its_own(
    changed: dict[str, float], missed: str
) -> None:
    assert all(met(judge([], oneshot())).values())
    assert [name for name, kept in met(judge([], oneshot(**changed))).items() if not kept] == [
        missed
    ]


def test_a_recall_that_knows_its_vector_must_be_four_times_as_fast() -> None:
    found = met(judge([store(10_000, 1.0, ratio=0.26)], None))
    assert found["s10000: warm recall / FTS5, p50"]
    assert not found["s10000: warm recall without encoding / FTS5, p50"]


def test_the_page_names_every_promise_that_is_missed(tmp_path: Path) -> None:
    stores = [store(10_000, 1.0, ratio=0.2), store(1_000_000, 9.0, ratio=0.2)]
    document = {
        "kind": "speed",
        "manifest": {"k": 10, "commit": "c" * 40, "dirty": False, "machine": "m",
                     "load_average_1m": 0.1},
        "stores": stores,
        "oneshot": oneshot(),
        "targets": judge(stores, oneshot()),
    }  # fmt: skip
    write_result(tmp_path / "speed.json", document)
    text = render("results", tmp_path)
    assert "2 of 11 promises are not kept." in text
    assert "| growth of p95, warm recall, 10,000 to 1,000,000 | 9.00 | <= 4 |" in text
    assert "| s1000000 | 1,000,000 | 9 / 9 | 1.00 / 9.00 |" in text


@pytest.mark.parametrize(
    ("measured", "said"),
    [(1.5, "OK"), (1.66, "OK"), (1.72, "OKish"), (1.8, "FAIL"), (math.nan, "FAIL")],
)
def test_what_creeps_in_is_said_beside_the_committed_figure(measured: float, said: str) -> None:
    found = compare({"import_recall_to_numpy": measured}, {"import_recall_to_numpy": 1.61})
    assert [verdict for *_, verdict in found] == [said]
    assert compare({}, {"import_recall_to_numpy": 1.61}) == []
