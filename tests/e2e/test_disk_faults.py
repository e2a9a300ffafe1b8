"""Promise 5 of docs/promises.md: a disk that fails or is full never costs the snapshot."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from noctuary.core.sqlite import close_logs
from tests.e2e.driver import ROOT
from tests.e2e.power_cut_programs import PROGRAMS, store_of
from tests.e2e.test_crash_states import answers, doctor_faults, kept_memories
from tests.support.crash_states import STRACE
from tests.support.disk_faults import Fault, FaultyRuns

pytestmark = pytest.mark.skipif(STRACE is None, reason="strace is not installed")

CALLS = {
    "fsync": ("EIO",),
    "fdatasync": ("EIO",),
    "write": ("ENOSPC", "EIO"),
    "pwrite64": ("ENOSPC", "EIO"),
    "rename": ("ENOSPC", "EIO"),
    "mkdir": ("ENOSPC",),
    "ftruncate": ("EIO",),
}
CAUSES = (
    "Input/output error", "fsync failed", "No space left on device", "disk I/O error",
    "disk is full",
    "SQLITE_IOERR", "SQLITE_FULL", "SQLITE_CANTOPEN", "No usable temporary directory",
)  # fmt: skip
"""What the system, Python, DuckDB and SQLite call such a fault."""
NAMES = ("first publication", "publication", "first memory", "memory")
FAULTS = {"publication": 5, "first memory": 10}
"""Of each program in the default run; the slow run tries every call."""


@pytest.fixture(scope="module")
def runs() -> Iterator[FaultyRuns]:
    env = {**os.environ, "NOCTUARY_HOME": os.devnull}
    running = FaultyRuns("tests.e2e.power_cut_programs", ROOT, env)
    yield running
    running.close()


def every_fault(runs: FaultyRuns, name: str, prepared: Path) -> list[Fault]:
    """Return each call of a program failing once, and the disk being full from there on."""
    found: list[Fault] = []
    tree = shutil.copytree(prepared, prepared.with_name("counted"))
    counts = runs.count(name, tree, CALLS)
    shutil.rmtree(tree)
    for call, errors in CALLS.items():
        for number in range(1, counts[call] + 1):
            found += [Fault(call, error, number) for error in errors]
            found += [Fault(call, error, number, stays=True) for error in errors[:1]]
    return found


def try_fault(runs: FaultyRuns, name: str, fault: Fault, prepared: Path, after: Path) -> None:
    tree = shutil.copytree(prepared, prepared.with_name("tried"))
    outcome = runs.run(name, tree, fault)
    assert outcome.end == "done" or any(cause in outcome.message for cause in CAUSES), outcome
    if name.endswith("memory"):
        said = [(int(key), text) for key, text in map(str.split, outcome.said.splitlines())]
        kept, before = kept_memories(tree), kept_memories(prepared)
        assert kept[: len(before) + len(said)] == before + said, outcome
        assert outcome.end in ("done", "refused"), outcome
        if "may be kept or not" not in outcome.message:
            assert outcome.end == "done" or "nothing was kept" in outcome.message, outcome
            assert len(kept) == len(before) + len(said), outcome
        again = runs.run(name, tree)
        assert (again.end, len(again.said.splitlines())) == ("done", 2)
        assert kept_memories(tree)[: len(kept)] == kept
        assert len(kept_memories(tree)) == len(kept) + 2
    else:
        # Every flush is of something that must last.
        assert outcome.end != "done" or fault.call != "fsync", outcome
        before = [] if outcome.said else [answers(prepared)[1:]]
        wanted = answers(after)[1:]
        assert answers(tree)[1:] in [*before, wanted], outcome
        assert [*doctor_faults(store_of(tree).root)] == []
        assert runs.run(name, tree).end == "done"
        assert answers(tree)[1:] == wanted
    shutil.rmtree(tree)


@pytest.fixture
def prepared(tmp_path: Path, request: pytest.FixtureRequest, runs: FaultyRuns) -> tuple[Path, Path]:
    """A directory before a program, and one after it."""
    name: str = request.node.callspec.params["name"]
    before = tmp_path / "before"
    before.mkdir()
    PROGRAMS[name][0](before)
    close_logs()
    after = shutil.copytree(before, tmp_path / "after")
    assert runs.run(name, after).end == "done"
    return before, after


@pytest.mark.parametrize("name", FAULTS)
def test_one_call_fails(name: str, prepared: tuple[Path, Path], runs: FaultyRuns) -> None:
    faults = every_fault(runs, name, prepared[0])
    for fault in random.Random(26).sample(faults, FAULTS[name]):
        try_fault(runs, name, fault, *prepared)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", NAMES)
def test_every_call_fails(name: str, prepared: tuple[Path, Path], runs: FaultyRuns) -> None:
    for fault in every_fault(runs, name, prepared[0]):
        try_fault(runs, name, fault, *prepared)
