"""Promises 2, 3 and 4 of docs/promises.md: SIGKILL at system calls and at random times.

A file of its own beside `test_kills.py`: there whole nights die at their stages, here every command
that writes does, in forks of one process, so that a kill costs half a second.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from noctuary.cli.backup import choose_files, list_backups, restore_files
from noctuary.cli.exchange import import_snapshot
from noctuary.core.sqlite import close_logs
from noctuary.core.store import StorePaths
from tests.e2e.driver import ROOT
from tests.e2e.kill_programs import (
    KILLED,
    PROGRAMS,
    back_up_home,
    proposed,
    restore_home,
)
from tests.e2e.test_crash_states import (
    CHECKS,
    GoOn,
    Look,
    Watched,
    answers,
    doctor_faults,
    memory_faults,
    remember_again,
)
from tests.rooms.curate.test_apply import apply
from tests.support import disk_faults
from tests.support.claude_memory import table_of
from tests.support.crash_states import STRACE, Recording, State
from tests.support.disk_faults import Fault, FaultyRuns, Outcome

pytestmark = pytest.mark.skipif(STRACE is None, reason="strace is not installed")

CALLS = (
    "write", "pwrite64", "fsync", "fdatasync", "rename", "mkdir", "rmdir", "unlink", "unlinkat",
    "ftruncate", "link", "sendfile", "copy_file_range", "fchmod", "chmod",
)  # fmt: skip
"""What changes a disk: between two of them a kill leaves what a kill at the second leaves."""
SEED = int(os.environ.get("KILLS_SEED", "26"))
TRIALS = 1_000
HEALED_EVERY = 4
"""One trial in so many of the slow run is gone on from."""
SAMPLE = {"publication": 4, "rollback": 3, "memory": 4, "backup": 3, "logs": 3, "injections": 3}
"""Kills of the default run."""


class Kill(NamedTuple):
    """When a program dies: at the n-th of a system call, or after a part of its time."""

    call: str
    number: int
    part: float = 0.0


def export_faults(tree: Path, state: State, watched: Watched) -> Iterator[str]:
    """An export is not there, or whole."""
    if state.said and not (tree / "export").is_dir():
        yield "the export is lost"
    if (tree / "export").is_dir():
        import_snapshot(tree / "export", StorePaths(tree / "there"))
    if answers(tree) != watched.answers[0]:
        yield "the store answers otherwise"
    yield from doctor_faults(tree)


def backup_faults(tree: Path, state: State, watched: Watched) -> Iterator[str]:
    """Each backup that is listed is whole."""
    names = list_backups(tree / "backups")
    if state.said and state.said not in names:
        yield f"{state.said} is lost"
    for name in names:
        chosen = choose_files(tree / "backups", tree / "back", name, None)
        restore_files(tree / "backups", tree / "back", chosen, dry_run=True)
    yield from memory_faults(tree, State(0, "", "", {}), watched)
    yield from doctor_faults(tree)


def back_up_again(tree: Path, watched: Watched) -> None:
    said: list[str] = []
    back_up_home(tree, said.append)
    assert [*backup_faults(tree, State(0, "", said[0], {}), watched)] == []


def restore_faults(tree: Path, state: State, watched: Watched) -> Iterator[str]:
    """A store and the own memories are not there, or as in the backup."""
    (before, after), found = watched.answers, answers(tree)
    if found not in ((after,) if state.said else (before, after)):
        yield f"recall answers {found[0]}"
    yield from memory_faults(tree, State(0, "", "1 There are two pumps." * bool(state.said), {}),
                             watched)  # fmt: skip


def restore_again(tree: Path, watched: Watched) -> None:
    restore_home(tree, lambda _: None, may_replace=True)
    assert [*restore_faults(tree, State(0, "", "restored", {}), watched)] == []


def curation_faults(tree: Path, state: State, watched: Watched) -> Iterator[str]:
    """A cache is as before or as after the whole application, which ends as it began."""
    found = table_of(tree / "memory.db")
    kept = table_of(watched.recording.before / "memory.db")
    if (found != kept) and state.said not in ("", "applied"):
        yield "what was undone is not as before"
    if found != kept and any(p.action != "NOOP" for p in proposed(tree)[0]):
        yield "half of it was applied"
    with closing(sqlite3.connect(tree / "memory.db")) as db:
        yield from (s for (s,) in db.execute("PRAGMA integrity_check") if s != "ok")


def curate_again(tree: Path, watched: Watched) -> None:
    applied = apply(tree / "memory.db", proposed(tree))
    assert applied.journal_id or not applied.tombstones
    assert table_of(tree / "memory.db") != table_of(watched.recording.before / "memory.db")


def injection_faults(tree: Path, state: State, watched: Watched) -> Iterator[str]:
    """The record is sound and has what was acknowledged."""
    path = tree / "injected.sqlite"
    if not path.exists():
        if state.said:
            yield "the record is lost"
        return
    with closing(sqlite3.connect(path)) as db:
        yield from (s for (s,) in db.execute("PRAGMA integrity_check") if s != "ok")
        made = db.execute("SELECT 1 FROM sqlite_master").fetchone()
        found = (
            db.execute("SELECT count(DISTINCT first_us) FROM injected").fetchone() if made else [0]
        )
        if found[0] < len(state.said.splitlines()):
            yield f"{found[0]} injections, said {state.said!r}"


MORE: dict[str, tuple[Look, GoOn]] = {
    "memories": (memory_faults, remember_again),
    "export": (export_faults, lambda tree, watched: None),
    "backup": (backup_faults, back_up_again),
    "restore": (restore_faults, restore_again),
    "curation": (curation_faults, curate_again),
    "injections": (injection_faults, lambda tree, watched: None),
}


class Killer:
    """Kills one program again and again; each time on a fresh copy of what it begins with."""

    def __init__(self, runs: FaultyRuns, name: str, directory: Path) -> None:
        self.runs, self.name, self.directory = runs, name, directory
        self.before, self.after = directory / "before", directory / "after"
        # Where a home lies is part of the name of its own store: one place for all.
        tree = self._fresh_tree(prepare=True)
        shutil.copytree(tree, self.before)
        self.calls = runs.count(name, tree, CALLS)
        shutil.copytree(tree, self.after)
        begun = time.monotonic()
        assert runs.run(name, self._fresh_tree()).end == "done"
        self.seconds = time.monotonic() - begun
        recording = Recording(self.before, (), 0, frozenset())
        self.watched = Watched(name, recording, self.after)

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
        if self.name == "forget --apply":
            yield from self._forget_faults(tree, done)
            return
        look, go_on = {**CHECKS, **MORE}[self.name]
        # Each tree has a name of its own: this process keeps files open by it.
        moved = tree.rename(self.directory / f"tree-{random.getrandbits(64):016x}")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("NOCTUARY_HOME", str(moved / "home"))
            yield from look(moved, State(0, "", done.said, {}), self.watched)
            if heal:
                go_on(moved, self.watched)
        if heal and self.name in ("export", "injections"):
            again = self.runs.run(self.name, moved)
            if again.end != "done" and not (done.said and "export" in again.message):
                yield f"the next run: {again}"
        shutil.rmtree(moved)

    def _forget_faults(self, tree: Path, done: Outcome) -> Iterator[str]:
        told = self.runs.run("look for forgotten", tree)
        if told.end != "done":
            yield f"{told}"
            return
        shown, kept, pending, traces, level, codes = json.loads(told.said)
        if shown and (pending or done.said):
            yield "a forgotten memory shows"
        if not kept:
            yield f"another memory does not show: {codes}"
        if traces and not pending and (done.said or not shown):
            yield f"{traces} traces that nobody looks for"
        if pending and level != "warn":
            yield f"doctor calls it {level}"
        again = self.runs.run("forget again", tree)
        healed = json.loads(self.runs.run("look for forgotten", tree).said)
        if again.said != "gone" or healed[:5] != [False, True, False, 0, "ok"]:
            yield f"not healed: {again}, {healed}"

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
    running = FaultyRuns("tests.e2e.kill_programs", ROOT, env)
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
    """Each system call of all programs that are short, and random times; a table is printed."""
    chooser, faults, tried, killed = (
        random.Random(SEED),
        list[str](),
        Counter[str](),
        Counter[str](),
    )
    lines = list[str]()
    share, begun = -(-TRIALS * 13 // 10 // len(KILLED)), time.monotonic()
    for number, name in enumerate(KILLED):
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
        lines.append(f"{name}: {tried[name]} tried, {killed[name]} killed, {len(faults)} faults "
                     f"so far, {took_s:.0f} s, seed {SEED}")  # fmt: skip
        (tmp_path / "kills.txt").write_text("\n".join([*lines, *faults]))
    assert faults == [], f"seed {SEED}"
    assert tried.total() >= TRIALS, tried
