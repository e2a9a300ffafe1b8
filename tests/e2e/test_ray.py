"""The same night by processes of this machine and by Ray, and with workers killed in its middle.

Ray really runs: started by the night itself, on this machine. What each runner does with a shard is
tested in tests/rooms/work.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noctuary.core.files import read_array
from noctuary.core.manifest import read_manifest, read_pointer
from noctuary.core.store import StorePaths
from noctuary.recall.api import recall
from noctuary.work.content import KEY, MANIFEST_FILE
from tests.e2e.driver import DONE, NIGHT_TIMEOUT_S, ROOT, Ran, environment, kill, run, start
from tests.support.labelled_cut import SHARED, write_cut

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        importlib.util.find_spec("dagster_ray") is None or not SHARED.is_dir(),
        reason=f"needs the extra: make setup-ray; and evaluation data at {SHARED}",
    ),
]

SETS = {"locomo": 400, "realmem": 300, "2wikimultihopqa": 500}
"""Memories of each that a night of these tests reads."""

SHARD_ROWS = 60
"""Every set becomes five shards and more."""

NOT_OF_THE_STORE = {
    "corpus/read_at",
    "costs.json",
    "graph.duckdb",
    "ledger.json",
    "stamps/evaluation_report.json",
}
"""Clocks, what it cost, and a database's pages, whose tables are compared as parquet files."""


def night_words(source: Path, store: Path) -> list[str]:
    script = Path(__file__).with_name("small_shards.py")
    return [sys.executable, str(script), str(SHARD_ROWS), str(source), "--store", str(store)]


def night(source: Path, store: Path, kind: str) -> Ran:
    extra = {"NOCTUARY_RUNNER_KIND": kind, "NOCTUARY_RUNNER_WORKERS": "2", "PYTHONPATH": str(ROOT)}
    ran = run([*night_words(source, store), "--json"], source.parent, extra=extra)
    assert ran.code == DONE, ran.says
    return ran


def files_of(store: Path) -> dict[str, bytes]:
    """Return what a night left to work with, by name; what it keeps for the next night too."""
    work = store / "work"
    names = {str(path.relative_to(work)): path for path in work.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in names.items() if name not in NOT_OF_THE_STORE}


def digest_of(store: Path) -> str:
    paths = StorePaths(store)
    return read_manifest(paths.snapshots / read_pointer(paths).snapshot_id).digest


def tier_rows(store: Path, name: str) -> Any:
    import lancedb

    table = lancedb.connect(str(store / "lance")).open_table(name)
    return table.to_arrow().sort_by("memory_id")


@pytest.fixture(params=sorted(SETS))
def both(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Path, Path]:
    """A source, and the stores that both runners made of it."""
    source = tmp_path / "source"
    assert write_cut(request.param, SETS[request.param], source) >= 20
    for kind in ("local", "ray"):
        night(source, tmp_path / kind, kind)
    return source, tmp_path / "local", tmp_path / "ray"


def test_both_runners_make_the_same_store(both: tuple[Path, Path, Path]) -> None:
    """Exactly: every artifact byte for byte, the digest, every tier's rows, every answer."""
    source, local, ray = both
    one, other = files_of(local), files_of(ray)
    assert sorted(one) == sorted(other)
    assert [name for name in one if one[name] != other[name]] == []
    assert len([name for name in one if name.startswith("content/")]) >= 6
    assert digest_of(local) == digest_of(ray)
    for tier in ("memory_vectors_64", "memory_vectors_full"):
        assert tier_rows(local, tier).equals(tier_rows(ray, tier))
    report = json.loads(one["evaluation/report.json"])
    assert report == json.loads(other["evaluation/report.json"])
    questions = (source / "queries.jsonl").read_text(encoding="utf-8").splitlines()[:20]
    asked = [json.loads(line)["text"] for line in questions]
    assert answers_of(local, asked) == answers_of(ray, asked)


def answers_of(store: Path, asked: list[str]) -> list[list[Any]]:
    """Return the ids that each question finds, best first."""
    found = [recall(text, 10, store=store, dry_run=True).memories for text in asked]
    assert any(found)
    return [[memory.id for memory in memories] for memories in found]


@pytest.mark.parametrize(
    ("kind", "program"), [("local", "--multiprocessing-fork"), ("ray", "ray::MapWorker")]
)
def test_a_night_whose_worker_is_killed_completes(
    kind: str, program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    write_cut("locomo", SETS["locomo"], source)
    night(source, tmp_path / "whole", "local")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    process = start_killable(source, tmp_path / "killed", kind)
    try:
        killed = kill_workers(process.pid, program, 3)
        out, err = process.communicate(timeout=NIGHT_TIMEOUT_S)
    finally:
        kill(process)
    assert process.returncode == DONE, out + err
    assert killed == 3
    whole, again = files_of(tmp_path / "whole"), files_of(tmp_path / "killed")
    artifacts = [name for name in whole if not name.startswith("content/")]
    assert [name for name in artifacts if whole[name] != again.get(name)] == []
    assert digest_of(tmp_path / "whole") == digest_of(tmp_path / "killed")
    assert repeated_keys(tmp_path / "killed") == 0
    assert left_over(tmp_path / "killed") == []


def start_killable(source: Path, store: Path, kind: str) -> Any:
    words = ["env", f"NOCTUARY_RUNNER_KIND={kind}", "NOCTUARY_RUNNER_WORKERS=2"]
    return start([*words, *night_words(source, store), "--json"], source.parent)


def kill_workers(night_pid: int, program: str, times: int) -> int:
    """Kill -9 one worker of a night after another, so many; return how many there were."""
    killed: set[int] = set()
    deadline = time.monotonic() + NIGHT_TIMEOUT_S
    while len(killed) < times and time.monotonic() < deadline and is_running(night_pid):
        for pid in descendants(night_pid) - killed:
            if program in command_of(pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed.add(pid)
                break
        time.sleep(0.5)
    return len(killed)


def descendants(pid: int) -> set[int]:
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, task.read_text().split()):
                found |= {child} | descendants(child)
    return found


def command_of(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def is_running(pid: int) -> bool:
    with suppress(OSError):
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    return False


def fragments_of(store: Path) -> Iterator[Path]:
    yield from (store / "work" / "content").rglob("*.arrow")


def repeated_keys(store: Path) -> int:
    """Count rows whose key stands twice in a content store."""
    import pyarrow as pa

    repeated = 0
    for directory in (store / "work" / "content").iterdir():
        keys: list[bytes] = []
        for path in directory.glob("*.arrow"):
            with pa.memory_map(str(path)) as source:
                keys += pa.ipc.open_file(source).read_all()[KEY].to_pylist()
        repeated += len(keys) - len(set(keys))
    return repeated


def left_over(store: Path) -> list[Path]:
    """Return files beside fragments that no manifest names, and shards."""
    extra: list[Path] = []
    for directory in (store / "work" / "content").iterdir():
        told = json.loads((directory / MANIFEST_FILE).read_text())
        named = {line[0] for line in told["fragments"]} | {MANIFEST_FILE}
        extra += [path for path in directory.iterdir() if path.name not in named]
    return [*extra, *(p for p in (store / "work" / "shards").rglob("*") if p.is_file())]


def test_a_ray_night_is_quiet_and_leaves_nothing_behind(tmp_path: Path) -> None:
    source = tmp_path / "source"
    write_cut("realmem", 60, source)
    before = {path for path in Path("/tmp").glob("noctuary-ray-*")}
    ran = night(source, tmp_path / "store", "ray")
    # Long steps tell how far they are on a slow machine.
    assert [line for line in ran.err.splitlines() if " of " not in line] == []
    assert {path for path in Path("/tmp").glob("noctuary-ray-*")} - before == set()
    assert json.loads(ran.out)["status"] == "published"
    vectors = read_array(tmp_path / "store" / "work" / "vectors" / "memories.npy")
    assert vectors.shape[0] == len((source / "corpus.jsonl").read_text().splitlines())
    assert np.isfinite(vectors).all()


def test_without_a_cluster_at_the_address_a_night_says_so(tmp_path: Path) -> None:
    source = tmp_path / "source"
    write_cut("realmem", 20, source)
    extra = {
        "NOCTUARY_RUNNER_KIND": "ray",
        "NOCTUARY_RUNNER_ADDRESS": "127.0.0.1:1",
        "PYTHONPATH": str(ROOT),
    }
    told = environment(tmp_path, extra)
    ran = run([*night_words(source, tmp_path / "store"), "--json"], tmp_path, extra=told)
    assert ran.code == 1
    assert "does not answer at 127.0.0.1:1" in ran.report["message"]
