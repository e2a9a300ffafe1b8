"""Every command of bench, run on a made-up set of some memories: it ends well, and no more.

In a copy of the checkout, so that nothing is written where results are committed. A new command
without a line here, and without one that starts it, fails the first test. The others are slow ones:
nobody's memories depend on them.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench.measure.__main__ import NAMES
from tests.e2e.driver import DONE, ROOT, environment, run_night
from tests.rooms.embed.conftest import write_tiny_model
from tests.support.arms import as_rows, records
from tests.support.labelled_set import write_lines, write_set
from tests.support.shared import build_once

SET = "locomo"
SETS = (SET, "realmem", "hotpotqa", "scifact")
TINY, STORE, STORES = f"../shared/data/{SET}", f"stores/{SET}", "stores"
MEMORIES = 60

RUNS: dict[str, list[str]] = {
    "bench.measure commits": [
        *("--against", "HEAD", "--runs", "1", "--rounds", "2", "--only", "nights", "hooks"),
    ],
    "bench.measure engines": ["--sizes", "600"],
    "bench.measure hooks": [
        *("--store", STORE, "--queries", f"{TINY}/queries.jsonl", "--rounds", "2"),
    ],
    "bench.measure latency": ["--store", STORE, "--dataset", TINY, "--rounds", "2"],
    "bench.measure load": [
        *("--store", STORE, "--queries", f"{TINY}/queries.jsonl", "--before", ".", "--clients"),
        *("8", "--rounds", "1", "--pace-s", "0.4", "--phase-s", "3"),
    ],
    "bench.peers": ["--sets", SET, "--arms", "fts5_*"],
    "bench.tables": [],
    "bench": ["--sets", "realmem"],
    "bench.silence": ["--stores", "silent", "--sets", SET, "--out", "silence.json"],
    "bench.measure encoding": ["--data", TINY, "--documents", "40", "--model", "../tiny"],
    "bench.measure live": ["--rounds", "3", "--held-out", "5"],
    "bench.measure scale": ["--sizes", "40", "--limit-gb", "0"],
    "bench.measure reading": [STORE, "--questions", "8"],
    "bench.measure speed": ["--locomo", STORE, "--dataset", TINY, "--also", STORE, "--accept"],
    "bench.suite": ["--sets", SET, "--stores", STORES],
    "bench.verify": ["--sets", SET, "--stores", STORES, "--accept", "another set by this name"],
}
"""Module, and what of it -> its arguments."""

STARTED_BY = {"bench.peers.runner": "bench.peers"}
RUN_IN = {"bench.judged": "tests/rooms/bench/test_judged.py"}  # needs a harness and two models


def entry_points() -> set[str]:
    """Every module of bench that can be run."""
    found = [p for p in (ROOT / "bench").rglob("*.py") if '__name__ == "__main__"' in p.read_text()]
    names = (".".join(p.relative_to(ROOT).with_suffix("").parts) for p in found)
    return {name.removesuffix(".__main__") for name in names}


def test_no_command_is_forgotten() -> None:
    measured = {f"bench.measure {name}" for name in NAMES}
    assert entry_points() - {"bench.measure"} | measured == {
        *RUNS, *STARTED_BY, *RUN_IN
    }  # fmt: skip
    assert all((ROOT / path).is_file() for path in RUN_IN.values())
    assert set(STARTED_BY.values()) <= RUNS.keys()
    targets = set(
        re.findall(r"-m (bench(?:\.measure \w+|[\w.]*))", (ROOT / "Makefile").read_text())
    )
    assert targets
    assert targets <= RUNS.keys()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout with a small sample, sets beside it and a store of the first one."""
    return build_once(tmp_path_factory, "bench", _build) / "checkout"


def _build(directory: Path) -> None:
    checkout = directory / "checkout"
    skip = shutil.ignore_patterns("__pycache__", "memory.db*")
    for name in ("bench", "pipelines", "assets", "lib", "data/sample", "docs/benchmarks"):
        shutil.copytree(ROOT / name, checkout / name, ignore=skip)
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "all"]):
        who = ("-c", "user.name=bench", "-c", "user.email=bench@example.invalid")
        subprocess.run(["git", *who, *words], cwd=checkout, check=True)
    write_tiny_model(directory / "tiny")
    rows, again = as_rows(records(MEMORIES)), list[dict[str, str]]()
    for name in SETS:
        file = write_set(directory / "shared" / "data" / name, rows) / "queries.jsonl"
        asked = [json.loads(line) for line in file.read_text().splitlines()]
        again = [
            {**query, "query_id": f"{query['query_id']} {i}", "text": f"{query['text']} {i}"}
            for query in asked
            for i in range(2)
        ]
        write_lines(file, again)
    store = checkout / STORE
    store.parent.mkdir()
    ran = run_night(directory / "shared" / "data" / SET, store, extra=_told(checkout))
    assert ran.code == DONE, ran.says


def _told(checkout: Path) -> dict[str, str]:
    model = str(checkout.parent / "tiny")
    return {"NOCTUARY_ENCODER_MODEL": model, "NOCTUARY_EVALUATION_ENABLED": "false"}


@pytest.mark.slow
@pytest.mark.parametrize("module", RUNS, ids=[name.replace(" ", "-") for name in RUNS])
def test_a_command_of_bench_ends_well(checkout: Path, module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *module.split(), *RUNS[module]], cwd=checkout,
        env=environment(checkout / "home", _told(checkout)),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-1000:]}{done.stderr[-3000:]}"
