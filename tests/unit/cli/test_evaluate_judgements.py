from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from noctuary.evaluate.labels import read_qrels
from noctuary.evaluate.run import Run as RetrieverRun
from noctuary.evaluate.run import write_run

Run = Callable[..., Result]
RunJson = Callable[..., Any]


def keep_run(path: Path, name: str, rankings: Sequence[str], depth: int = 3) -> str:
    """Write a run over q1, q2, ... whose rankings are spelled letter by letter."""
    run = RetrieverRun(
        name=name,
        k=depth,
        depth=depth,
        query_ids=tuple(f"q{i}" for i in range(1, len(rankings) + 1)),
        rankings=tuple(tuple(ranking) for ranking in rankings),
        top_scores=(None,) * len(rankings),
        latency_ms=None,
        build_ms=None,
        index_bytes=None,
        unstable_prefixes=0,
    )
    write_run(path, run, {})
    return str(path)


@pytest.fixture
def runs(tmp_path: Path) -> tuple[str, str]:
    return (
        keep_run(tmp_path / "fts.json", "fts", ["ab", "x"]),
        keep_run(tmp_path / "ours.json.gz", "ours", ["bc", ""]),
    )


def qrels(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_kappa_says_over_what_and_what_did_not_count(
    run: Run, run_json: RunJson, tmp_path: Path
) -> None:
    a = qrels(tmp_path / "a", "q1 0 1 3\nq1 0 2 0\nq2 0 1 2\nq2 0 4 0\nq3 0 9 1\n")
    b = qrels(tmp_path / "b", "q1 0 1 2\nq1 0 2 0\nq2 0 1 0\nq2 0 4 1\n")
    result = run("evaluate", "kappa", a, b, "--threshold", "2")
    assert result.exit_code == 0
    assert result.stdout.startswith("kappa 0.500 [")
    assert " over 4 pairs of 2 queries\n" in result.stdout
    assert "observed agreement 0.750, expected by chance 0.500" in result.stdout
    assert "not counted: 1 in A, 0 in B" in result.stdout
    value = run_json("evaluate", "kappa", a, b)
    assert value["kappa"] == pytest.approx((1 / 4 - 5 / 16) / (11 / 16))
    assert (value["n_pairs"], value["is_degenerate"]) == (4, False)


def test_files_without_zeros_are_called_degenerate(run: Run, tmp_path: Path) -> None:
    file = qrels(tmp_path / "a", '{"query_id": "q1", "relevant_ids": [1, 2]}\n')
    result = run("evaluate", "kappa", file, file)
    assert result.exit_code == 0
    assert "kappa 1.000 over 2 pairs" in result.stdout
    assert "! degenerate: " in result.stderr


def test_judgements_that_cannot_be_compared_are_a_sentence(
    run: Run, run_json: RunJson, tmp_path: Path
) -> None:
    a, b = qrels(tmp_path / "a", "q1 0 1 1\n"), qrels(tmp_path / "b", "q1 0 2 1\n")
    result = run("evaluate", "kappa", a, b)
    assert result.exit_code == 1
    assert result.stderr.startswith("noctuary: no pair of query and memory is judged in both")
    bad = qrels(tmp_path / "bad", "q1 0 1\n")
    assert "line 1: found 3 fields" in run_json("evaluate", "kappa", a, bad, code=1)["message"]
    assert "no file of judgements" in run("evaluate", "kappa", a, str(tmp_path / "no")).stderr


def test_a_pool_waits_for_judgements_and_becomes_a_qrels_file(
    run: Run, runs: tuple[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "judge.jsonl"
    result = run("evaluate", "pool", *runs, "-k", "2", "--out", str(out))
    assert result.exit_code == 0
    assert "4 pairs of 2 queries to judge, from the first 2 of 2 runs" in result.stdout
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert lines == [
        {"query_id": "q1", "grades": {"a": None, "b": None, "c": None}},
        {"query_id": "q2", "grades": {"x": None}},
    ]
    out.write_text(out.read_text().replace("null", "0"))
    assert read_qrels(out) == {"q1": {"a": 0, "b": 0, "c": 0}, "q2": {"x": 0}}


def test_a_pool_that_nobody_judged_is_refused_as_judgements(
    run: Run, runs: tuple[str, str], tmp_path: Path
) -> None:
    out = str(tmp_path / "judge.jsonl")
    run("evaluate", "pool", *runs, "-k", "1", "--out", out)
    result = run("evaluate", "holes", *runs, "--judged", out, "-k", "1")
    assert result.exit_code == 1
    assert "grades must be integers >= 0 of ids, found ['a: None', 'b: None']" in result.stderr


def test_who_found_what_is_written_only_when_asked(
    run_json: RunJson, runs: tuple[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "judge.jsonl"
    value = run_json("evaluate", "pool", *runs, "-k", "1", "--out", str(out), "--found-by")
    assert value == {"k": 1, "runs": 2, "queries": 2, "pairs": 3}
    first = json.loads(out.read_text().splitlines()[0])
    assert first["found_by"] == {"a": ["fts"], "b": ["ours"]}


def test_runs_of_one_name_cannot_be_told_apart_in_a_pool(
    run: Run, runs: tuple[str, str], tmp_path: Path
) -> None:
    result = run("evaluate", "pool", runs[0], runs[0], "-k", "1", "--out", str(tmp_path / "o"))
    assert result.exit_code == 1
    assert "names of their own" in result.stderr
    assert not (tmp_path / "o").exists()


def test_holes_are_a_line_per_run(
    run: Run, run_json: RunJson, runs: tuple[str, str], tmp_path: Path
) -> None:
    judged = qrels(tmp_path / "qrels", "q1 0 a 1\nq1 0 b 0\nq2 0 x 1\n")
    result = run("evaluate", "holes", *runs, "--judged", judged, "-k", "2")
    assert result.exit_code == 0
    header, fts, ours = (line.split() for line in result.stdout.splitlines())
    assert header == ["run", "unjudged@2", "ids", "queries"]
    assert fts == ["fts", "0.000", "[0.000,", "0.000]", "0", "2"]
    assert (ours[:2], ours[-2:]) == (["ours", "0.250"], ["1", "2"])
    value = run_json("evaluate", "holes", *runs, "--judged", judged, "-k", "2")
    assert value["runs"][1]["per_query"] == {"q1": 0.5, "q2": 0.0}
    assert value["runs"][1]["n_unjudged"] == 1


def test_queries_that_nobody_judged_are_said(
    run: Run, runs: tuple[str, str], tmp_path: Path
) -> None:
    judged = qrels(tmp_path / "qrels", "q1 0 a 1\n")
    result = run("evaluate", "holes", runs[0], "--judged", judged, "-k", "2")
    assert "! fts: 1 queries have no judgement at all" in result.stderr
    nothing = qrels(tmp_path / "other", "q9 0 a 1\n")
    result = run("evaluate", "holes", runs[0], "--judged", nothing, "-k", "2")
    assert result.stdout.splitlines()[1].split() == ["fts", "-", "-", "0", "0"]


@pytest.mark.parametrize("command", ["pool", "holes"])
def test_a_run_that_is_too_shallow_or_no_run_is_a_sentence(
    run: Run, runs: tuple[str, str], tmp_path: Path, command: str
) -> None:
    judged = qrels(tmp_path / "qrels", "q1 0 a 1\n")
    rest = ["--out", str(tmp_path / "o")] if command == "pool" else ["--judged", judged]
    result = run("evaluate", command, runs[0], *rest)
    assert result.exit_code == 1
    assert "is a run of depth 3; -k 10 looks deeper" in result.stderr
    result = run("evaluate", command, judged, "-k", "1", *rest)
    assert result.exit_code == 1
    assert "holds no run" in result.stderr
