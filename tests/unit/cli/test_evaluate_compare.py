from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from noctuary.evaluate.run import Run as RetrieverRun
from noctuary.evaluate.run import write_run

Run = Callable[..., Result]
RunJson = Callable[..., Any]
N = 40


def keep_run(path: Path, name: str, found_at: Sequence[int], ids: Sequence[int] = ()) -> str:
    """Write a run that finds the relevant memory of each query at a rank; 0 means not at all."""
    numbers = list(ids) or list(range(len(found_at)))
    rankings = [
        tuple("hit" if rank == wanted else f"miss{rank}" for rank in range(1, 51))
        for wanted in found_at
    ]
    run = RetrieverRun(
        name=name,
        k=10,
        depth=50,
        query_ids=tuple(f"q{i}" for i in numbers),
        rankings=tuple(rankings),
        top_scores=(None,) * len(rankings),
        latency_ms=None,
        build_ms=None,
        index_bytes=None,
        unstable_prefixes=0,
    )
    write_run(path, run, {})
    return str(path)


@pytest.fixture
def queries(tmp_path: Path) -> Path:
    folder = tmp_path / "set"
    folder.mkdir()
    rows = [
        {
            "query_id": f"q{i}",
            "text": "?",
            "stratum": "even" if i % 2 == 0 else "odd",
            "relevant_ids": ["hit"],
        }
        for i in range(N)
    ]
    rows.append({"query_id": "none", "text": "?", "relevant_ids": []})
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "queries.jsonl"


@pytest.fixture
def runs(tmp_path: Path) -> tuple[str, str]:
    """Ours finds every second one first and the rest nowhere; the baseline finds nothing."""
    ours = keep_run(tmp_path / "ours.json", "ours", [1 - i % 2 for i in range(N)])
    return ours, keep_run(tmp_path / "none.json", "none", [0] * N)


def test_a_difference_is_shown_with_interval_p_holm_and_power(
    run: Run, runs: tuple[str, str], queries: Path
) -> None:
    result = run("evaluate", "compare", *runs, "--queries", str(queries), "--metric", "recall@5")
    assert result.exit_code == 0
    title, _, header, overall, even, odd = result.stdout.splitlines()
    assert title == "ours - none"
    for word in ("difference", "95 % interval", "p", "Holm", "detectable", "won/lost/tied"):
        assert word in header
    assert overall.split()[:2] == ["recall@5", "+0.500"]
    assert overall.split()[-2:] == ["20/0/20", "*"]
    assert even.split() == [
        "even", "+1.000", "[+1.000,", "+1.000]", "0.0001", "0.0002", "0.000", "20", "20/0/0", "*",
    ]  # fmt: skip
    assert odd.split()[:2] == ["odd", "+0.000"]
    assert odd.split()[-1] == "0/0/20"


def test_the_sign_is_that_of_the_first_run(
    run_json: RunJson, runs: tuple[str, str], queries: Path
) -> None:
    ours, none = runs
    arguments = ("--queries", str(queries.parent), "--metric", "mrr@50")
    value = run_json("evaluate", "compare", ours, none, *arguments)
    assert (value["ours"], value["baseline"]) == ("ours", "none")
    assert (value["queries"], value["of"]) == (N, N)
    overall = value["overall"]["mrr@50"]
    assert (overall["mean"], overall["wins"]) == (0.5, 20)
    assert 0.0 < overall["low"] < 0.5 < overall["high"] < 1.0
    assert overall["minimum_detectable"] == pytest.approx(2.801585 * 0.506370 / N**0.5, abs=1e-4)
    swapped = run_json("evaluate", "compare", none, ours, *arguments)["overall"]["mrr@50"]
    assert (swapped["mean"], swapped["losses"]) == (-0.5, 20)


def test_every_default_metric_is_compared(
    run_json: RunJson, runs: tuple[str, str], queries: Path
) -> None:
    value = run_json("evaluate", "compare", *runs, "--queries", str(queries))
    assert list(value["overall"]) == [
        "recall@5", "recall@10", "all_relevant@10", "precision@5", "ndcg@10", "mrr@50", "map@50",
    ]  # fmt: skip
    assert set(value["strata"]) == {"even", "odd"}


def test_queries_that_neither_was_asked_are_left_out_and_said(
    run: Run, tmp_path: Path, queries: Path
) -> None:
    pair = [keep_run(tmp_path / f"{name}.json", name, [1, 2]) for name in ("a", "b")]
    result = run("evaluate", "compare", *pair, "--queries", str(queries))
    assert result.exit_code == 0
    assert "! some_queries_not_asked: compared on 2 of 40" in result.stderr


def test_runs_over_different_queries_are_refused(run: Run, tmp_path: Path, queries: Path) -> None:
    a = keep_run(tmp_path / "a.json", "a", [1, 1, 1])
    b = keep_run(tmp_path / "b.json", "b", [1, 1])
    result = run("evaluate", "compare", a, b, "--queries", str(queries))
    assert result.exit_code == 1
    assert "1 labelled queries were asked of only one of 'a' and 'b'" in result.stderr
    assert "['q2']" in result.stderr
    other = keep_run(tmp_path / "c.json", "c", [1], ids=[900])
    result = run("evaluate", "compare", other, other, "--queries", str(queries))
    assert result.exit_code == 1
    assert "are they runs of another set?" in result.stderr


def test_files_that_are_missing_or_too_shallow_are_a_sentence(
    run: Run, run_json: RunJson, runs: tuple[str, str], tmp_path: Path, queries: Path
) -> None:
    gone = str(tmp_path / "gone.json")
    assert "no run file at" in run("evaluate", "compare", runs[0], gone, "--queries", gone).stderr
    assert "no query file" in run("evaluate", "compare", *runs, "--queries", gone).stderr
    deep = ("--metric", "recall@100")
    value = run_json("evaluate", "compare", *runs, "--queries", str(queries), *deep, code=1)
    assert "too shallow" in value["message"]
