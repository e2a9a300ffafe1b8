"""Promises 2, 3 and 4 of docs/promises.md: SIGKILL at system calls and at random times.

A file of its own beside `test_kills.py`: there whole nights die at their stages, here every command
that writes does, in forks of one process, so that a kill costs half a second.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from noctuary.core.sqlite import close_logs
from tests.e2e.driver import ROOT
from tests.e2e.power_cut_programs import PROGRAMS
from tests.e2e.test_crash_states import CHECKS, Watched
from tests.support import disk_faults
from tests.support.crash_states import STRACE, Recording, State
from tests.support.disk_faults import Fault, FaultyRuns, Outcome

pytestmark = pytest.mark.skipif(STRACE is None, reason="strace is not installed")

CALLS = (
    "write", "pwrite64", "fsync", "fdatasync", "rename", "mkdir", "rmdir", "unlink", "unlinkat",
    "ftruncate", "link", "sendfile", "copy_file_range", "fchmod", "chmod",
)  # fmt: skip
"""What changes a disk: between two of them a kill leaves what a kill at the second leaves."""
SEED = int(os.environ.get("KILLS_SEED", "26"))
KILLS = 1_000
HEALED_EVERY = 4
"""One trial in so many of the slow run is gone on from."""
SAMPLE = {
    "publication": 4,
    "rollback": 3,
    "memory": 4,
    "forgetting for good": 4,
    "backup": 3,
    "logs": 3,
}
"""Kills of the default run."""


class Kill(NamedTuple):
    """When a program dies: at the n-th of a system call, or after a part of its time."""

    call: str
    number: int
    part: float = 0.0


class Killer:
    """Kills one program again and again; each time on a fresh copy of what it begins with."""

    def __init__(self, runs: FaultyRuns, name: str, directory: Path) -> None:
        self.runs, self.name, self.directory = runs, name, directory
        self.before, self.after = directory / "before", directory / "after"
        tree = self._fresh_tree(prepare=True)
        shutil.copytree(tree, self.before)
        self.calls = runs.count(name, tree, CALLS)
        shutil.copytree(tree, self.after)
        begun = time.monotonic()
        assert runs.run(name, self._fresh_tree()).end == "done"
        self.seconds = time.monotonic() - begun
        recording = Recording(self.before, (), 0, frozenset())
        self.watched = Watched(name, recording, tree, self.after)

    def every_kill(self) -> list[Kill]:
        """Return a kill at each system call."""
        return [Kill(call, n + 1) for call in CALLS for n in range(self.calls[call])]

    def try_kill(self, kill: Kill, *, heal: bool = True) -> tuple[str, list[str]]:
        """Kill it once; return how it ended and what is wrong then, or after healing."""
        tree = self._fresh_tree()
        if kill.call:
            done = self.runs.run(self.name, tree, Fault(kill.call, disk_faults.KILLED, kill.number))
        else:
            done = self.runs.run_for(self.name, tree, kill.part * self.seconds)
        if done.end not in ("done", disk_faults.KILLED):
            return done.end, [f"{kill}: {done}"]
        try:
            found = [*self._faults(tree, done, heal=heal)]
        except Exception as error:
            found = [repr(error)]
        close_logs()
        return done.end, [f"{self.name}, {kill}, it had said {done.said!r}: {f}" for f in found]

    def _faults(self, tree: Path, done: Outcome, *, heal: bool) -> Iterator[str]:
        look, go_on = CHECKS[self.name]
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("NOCTUARY_HOME", str(tree / "home"))
            yield from look(tree, State(0, "", done.said, {}), self.watched)
            if heal:
                go_on(tree, self.watched)

    def _fresh_tree(self, *, prepare: bool = False) -> Path:
        tree = self.directory / "tree"
        shutil.rmtree(tree, ignore_errors=True)
        if prepare:
            tree.mkdir(parents=True)
            PROGRAMS[self.name][0](tree)
            close_logs()
            return tree
        return shutil.copytree(self.before, tree)


@pytest.fixture(scope="module")
def runs() -> Iterator[FaultyRuns]:
    env = {**os.environ, "NOCTUARY_HOME": os.devnull, "NOCTUARY_LIVE_DEADLINE_MS": "20000"}
    running = FaultyRuns("tests.e2e.power_cut_programs", ROOT, env)
    yield running
    running.close()


@pytest.mark.parametrize("name", SAMPLE)
def test_a_killed_command_leaves_the_old_or_the_new(
    name: str, runs: FaultyRuns, tmp_path: Path
) -> None:
    killer, chooser = Killer(runs, name, tmp_path), random.Random(SEED)
    found = [killer.try_kill(k) for k in chooser.sample(killer.every_kill(), SAMPLE[name])]
    assert [fault for _, faults in found for fault in faults] == [], f"seed {SEED}"
    assert any(end == disk_faults.KILLED for end, _ in found)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_thousand_kills(runs: FaultyRuns, tmp_path: Path) -> None:
    """At system calls of every program, at each of a short one, and at random times.

    `-o tmp_path_retention_policy=all` keeps the table, kills.txt.
    """
    chooser, faults = random.Random(SEED), list[str]()
    tried, killed = Counter[str](), Counter[str]()
    share, begun = -(-KILLS * 16 // 10 // len(PROGRAMS)), time.monotonic()
    for number, name in enumerate(PROGRAMS):
        killer = Killer(runs, name, tmp_path / str(number))
        kills = killer.every_kill()
        timed = [Kill("", 0, chooser.uniform(0, 1)) for _ in range(share // 4)]
        kills = [*chooser.sample(kills, min(len(kills), share - len(timed))), *timed]
        for turn, kill in enumerate(kills):
            end, found = killer.try_kill(kill, heal=turn % HEALED_EVERY == 0)
            tried[name] += 1
            killed[name] += end == disk_faults.KILLED
            faults += found
        shutil.rmtree(tmp_path / str(number))
        took_s = time.monotonic() - begun
        with (tmp_path / "kills.txt").open("a") as table:
            table.write(f"{name}: {tried[name]} tried, {killed[name]} killed, {took_s:.0f} s\n")
    assert faults == [], f"seed {SEED}"
    assert killed.total() >= KILLS, (tried, killed)
