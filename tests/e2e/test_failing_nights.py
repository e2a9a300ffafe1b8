"""Promises 2 to 5 of docs/promises.md: whole nights and hooks whose disk fails, or that are killed.

`test_disk_faults.py` and `test_many_kills.py` do that to short programs, one thread at a time. Here
a library that is loaded first counts the calls of all threads of a real command.
"""

from __future__ import annotations

import errno
import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from noctuary.agents.hooks import CAPTURE
from noctuary.cli.doctor import examine
from tests.e2e.conftest import FirstNight
from tests.e2e.driver import DONE, FAILED, ROOT, Ran, environment, night_words, run_night
from tests.e2e.night_forks import NightForks
from tests.e2e.stores import Bench, add_memory, answers, editing, leftovers
from tests.e2e.test_disk_faults import CAUSES
from tests.support.transcripts import ClaudeSession, write_session

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

KINDS = ("write", "flush", "rename", "create", "remove", "resize", "mkdir")
"""In the order of tests/support/failing_disk.c."""
ERRORS: dict[str, tuple[int, ...]] = {
    "write": (errno.ENOSPC, errno.EIO),
    "flush": (errno.EIO,),
    "rename": (errno.ENOSPC, errno.EIO),
    "create": (errno.EMFILE, errno.ENOSPC),
    "remove": (errno.EIO,),
    "resize": (errno.EIO,),
    "mkdir": (errno.ENOSPC,),
}
KILLED = 0
EVERY_KIND = "every kind"
TRIED = int(os.environ.get("FAULTS", "250"))
SEED = int(os.environ.get("FAULTS_SEED", "26"))
QUERIES = ["boiler error", "bakery on Mondays"]
HOOK_S = 20
"""A hook takes a tenth of a second; only one that hangs takes this long on any machine."""


class Fault(NamedTuple):
    """The n-th call of a kind fails, and perhaps all later ones; with error 0 the process dies."""

    kind: str
    number: int
    error: int
    stays: bool = False

    @property
    def words(self) -> str:
        kind = -1 if self.kind == EVERY_KIND else KINDS.index(self.kind)
        return f"{kind} {self.number} {self.error} {int(self.stays)}"


class Disk:
    """The library, and what it counted."""

    def __init__(self, directory: Path) -> None:
        self.library, self._shared = directory / "disk.so", directory / "counts"
        code = ROOT / "tests" / "support" / "failing_disk.c"
        words = ["cc", "-Wall", "-Werror", "-O1", "-shared", "-fPIC", "-o", self.library, code]
        subprocess.run(words, check=True)

    def variables(self, under: Path, fault: Fault | None) -> dict[str, str]:
        """Return what a process must be told, beside LD_PRELOAD; counting begins anew."""
        self._shared.write_bytes(bytes(8 * len(KINDS) + 4096))
        told = {"DISK_UNDER": str(under), "DISK_COUNTS": str(self._shared)}
        return told if fault is None else {**told, "DISK_FAULT": fault.words}

    @property
    def counts(self) -> dict[str, int]:
        """How many calls of each kind there were."""
        numbers = struct.unpack_from(f"{len(KINDS)}q", self._shared.read_bytes())
        return dict(zip(KINDS, numbers, strict=True))

    @property
    def failed_at(self) -> str:
        """The file whose call failed first; empty if none did."""
        return self._shared.read_bytes()[8 * len(KINDS) :].rstrip(b"\0").decode()


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Disk:
    return Disk(tmp_path_factory.mktemp("disk"))


@pytest.fixture(scope="module")
def forks(disk: Disk) -> Iterator[NightForks]:
    running = NightForks(environment(ROOT, {"LD_PRELOAD": str(disk.library)}))
    yield running
    running.close()


class Nights:
    """Nights on copies of a changed store, compared with one that nobody disturbs."""

    def __init__(self, forks: NightForks, disk: Disk, first: FirstNight, directory: Path) -> None:
        self._forks, self._disk, self._directory = forks, disk, directory
        self.changed = first.bench.twin(directory / "changed")
        self._before = answers(self.changed, QUERIES)
        add_memory(self.changed.source, "The bakery on Alder Street closes at two on Mondays.")
        with editing(self.changed.source) as db:
            (row_id,) = db.execute("SELECT min(id) FROM memories WHERE is_sensitive = 0").fetchone()
            db.execute("UPDATE memories SET is_sensitive = 1 WHERE id = ?", [row_id])
        twin = self.twin("undisturbed")
        ran = self._run(twin, None, twin.store)
        assert ran.code == DONE, ran.says
        self._after, self._digest = answers(twin, QUERIES), twin.manifest.digest
        self.counts = disk.counts
        assert self._before != self._after
        assert min(self.counts.values()) > 0, self.counts

    def try_fault(self, fault: Fault, where: str = "", *, heal: bool = True) -> tuple[int, str]:
        """Let a night suffer a fault below a directory of its store; return its exit code."""
        bench = self.twin("tried")
        ran = self._run(bench, fault, bench.store / where)
        said = f"{fault}, at {self._disk.failed_at!r}, exit code {ran.code}: {ran.says}"
        self.require_harmless(bench, ran.code, said)
        if fault.error == KILLED:
            assert ran.code in (DONE, -signal.SIGKILL), said
        elif ran.code != DONE:
            assert ran.code == FAILED, said
            causes = (os.strerror(fault.error), *CAUSES)
            assert any(cause in ran.says for cause in causes), said
        if heal:
            self.require_healed(bench, said)
        shutil.rmtree(bench.store.parent)
        return ran.code, self._disk.failed_at

    def require_harmless(self, bench: Bench, code: int, said: str) -> None:
        """Recall serves exactly before or after, and the doctor finds no fault."""
        assert "Traceback" not in said, said
        expected = [self._after] if code == DONE else [self._before, self._after]
        assert answers(bench, QUERIES) in expected, said
        assert [f.message for f in examine(bench.paths) if f.level == "fail"] == [], said

    def require_healed(self, bench: Bench, said: str) -> None:
        """The next night makes what nobody disturbed, and leaves nothing behind."""
        healed = run_night(bench.source, bench.store)
        assert healed.code == DONE, f"{said}\nthen {healed.says}"
        assert bench.manifest.digest == self._digest, said
        assert leftovers(bench.store) == [], said

    def twin(self, name: str) -> Bench:
        return self.changed.twin(self._directory / name)

    def _run(self, bench: Bench, fault: Fault | None, under: Path) -> Ran:
        words, home = night_words(bench.source, bench.store, "--json"), bench.store.parent
        told = environment(home, self._disk.variables(under, fault))
        return Ran(*self._forks.run(words[2:], cwd=home, env=told, timeout_s=600))


@pytest.fixture(scope="module")
def nights(
    forks: NightForks,
    disk: Disk,
    small_night: FirstNight,
    tmp_path_factory: pytest.TempPathFactory,
) -> Nights:
    return Nights(forks, disk, small_night, tmp_path_factory.mktemp("nights"))


def draw(counts: Mapping[str, int], chooser: random.Random) -> Fault:
    """Draw a kind, then a call of it, then whether it fails once, stays failing, or kills."""
    kind = chooser.choice(KINDS)
    number, how = chooser.randint(1, counts[kind]), chooser.random()
    if how < 0.25:
        return Fault(kind, number, KILLED)
    return Fault(kind, number, chooser.choice(ERRORS[kind]), stays=how < 0.5)


def test_a_disk_that_fails_while_a_night_publishes(nights: Nights) -> None:
    """Late enough that everything was computed: the last third of all flushes and renames."""
    for kind in ("flush", "rename"):
        count = nights.counts[kind]
        code, at = nights.try_fault(Fault(kind, count - count // 3, errno.EIO, stays=True))
        assert code == FAILED
        assert at, "no call failed"


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
def test_a_call_of_a_night_fails_or_kills_it(nights: Nights, tmp_path: Path) -> None:
    """`-o tmp_path_retention_policy=all` keeps the table, faults.txt."""
    chooser, faults, ended = random.Random(SEED), list[str](), Counter[tuple[str, int]]()
    for number in range(TRIED):
        fault = draw(nights.counts, chooser)
        try:
            code, at = nights.try_fault(fault, heal=number % 2 == 0)
        except AssertionError as error:
            faults.append(str(error))
            code, at = -1, str(error)
        ended[fault.kind, code] += 1
        with (tmp_path / "faults.txt").open("a") as table:
            table.write(f"{number} {fault} {code} {at}\n")
    assert faults == [], ended
    codes = {code for _, code in ended}
    assert codes == {DONE, FAILED, -signal.SIGKILL}, ended


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_directory_that_cannot_be_written(nights: Nights) -> None:
    store, wrong = nights.changed.store, list[str]()
    # This night has its encoder already, and writes nothing there.
    names = {p.name for p in store.iterdir() if p.is_dir()} - {"encoders"}
    for directory in sorted(names):
        for error in (errno.EROFS, errno.EACCES):
            try:
                _, at = nights.try_fault(Fault(EVERY_KIND, 1, error, stays=True), directory)
                assert at, "no call failed"
            except AssertionError as found:
                wrong.append(f"{directory}: {found}")
    assert wrong == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_night_that_may_open_few_files(nights: Nights) -> None:
    """Real limits, from where Python hardly starts to where a night has enough."""
    codes = set[int]()
    for most in (16, 24, 32, 40, 48, 56, 64, 80, 96, 128):
        bench = nights.twin(f"limit-{most}")

        def limit(most: int = most) -> None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

        ran = run_night(bench.source, bench.store, before_exec=limit)
        said = f"at most {most} files, exit code {ran.code}: {ran.says}"
        nights.require_harmless(bench, ran.code, said)
        # SQLite does not tell why it cannot open a file.
        causes = (os.strerror(errno.EMFILE), "unable to open database file")
        assert ran.code == DONE or any(cause in ran.says for cause in causes), said
        nights.require_healed(bench, said)
        codes.add(ran.code)
    assert codes == {DONE, FAILED}


# Hooks: they never fail, never block, and the next one goes on.


class Hooks:
    """One agent's session on a published store."""

    def __init__(self, disk: Disk, bench: Bench) -> None:
        self.bench, self.disk, self.home = bench, disk, bench.store.parent
        self.transcript = self.home / "agent" / "shop" / "first.jsonl"
        self.transcript.parent.mkdir(parents=True)
        session = ClaudeSession("first-1111-2222-4333-8444-555555555555")
        for number in range(3):
            session.user(f"The pump in the cellar has {number} valves.")
        write_session(self.transcript, session.lines)

    def fire(self, event: str, fault: Fault | None = None) -> Ran:
        """Run what an agent runs at an event, or the process by which a Stop keeps turns."""
        told = {
            "LD_PRELOAD": str(self.disk.library),
            "XDG_RUNTIME_DIR": str(self.home / "none"),
            "NOCTUARY_HOOK_CAPTURE": "false",
            "NOCTUARY_HOOK_START_SERVER": "false",
            "NOCTUARY_HOOK_DEADLINE_MS": "5000",  # a busy machine must not decide
            **self.disk.variables(self.home, fault),
        }
        words = ["noctuary.cli.entry", "hook", "--agent", "claude", "--store", self.bench.store]
        if event == CAPTURE:
            words = ["noctuary.agents.hooks", "claude", self.transcript, self.bench.store]
        said = {
            "hook_event_name": event,
            "session_id": str(uuid.uuid4()),  # else it gets no memory twice
            "transcript_path": str(self.transcript),
            "cwd": str(self.home),
            "prompt": "which chicken biscuits does Kompot eat in two bowls",
        }
        done = subprocess.run(
            [sys.executable, "-m", *map(str, words)],
            input=json.dumps(said),
            cwd=self.home,
            env=environment(self.home, told),
            capture_output=True,
            encoding="utf-8",
            timeout=HOOK_S,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    @property
    def kept(self) -> int:
        """How many turns are kept."""
        turns = self.bench.paths.turns
        if not turns.exists():
            return 0
        with closing(sqlite3.connect(turns)) as db:
            # A file whose making was cut short has no table yet.
            made = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'turns'").fetchone()
            return int(db.execute("SELECT count(*) FROM turns").fetchone()[0]) if made else 0


EVENTS = ("SessionStart", "UserPromptSubmit", "Stop", "SessionEnd", CAPTURE)


@pytest.fixture
def hooks(disk: Disk, small: Bench) -> Hooks:
    return Hooks(disk, small)


def try_hook(hooks: Hooks, event: str, fault: Fault, turns: int) -> None:
    """Let a hook suffer a fault; the next ones do what it did not."""
    before = hooks.kept
    ran = hooks.fire(event, fault)
    said = f"{event}, {fault}: {ran.code}, {ran.says}"
    if fault.error == KILLED:
        assert ran.code in (DONE, -signal.SIGKILL), said
    else:
        assert (ran.code, ran.err) == (DONE, ""), said
        assert not ran.out or json.loads(ran.out), said
    assert hooks.kept >= before, said
    assert "hookSpecificOutput" in hooks.fire("UserPromptSubmit").out, said
    hooks.fire(CAPTURE)
    assert hooks.kept == turns, said
    assert [f.message for f in examine(hooks.bench.paths) if f.level == "fail"] == [], said


def every_hook_fault(hooks: Hooks) -> list[tuple[str, Fault]]:
    """Return each call that each event makes in a store without turns, failing and killing."""
    found: list[tuple[str, Fault]] = []
    for event in EVENTS:
        hooks.bench.paths.turns.unlink(missing_ok=True)
        assert hooks.fire(event).code == DONE
        for kind, count in hooks.disk.counts.items():
            for number in range(1, count + 1):
                found += [(event, Fault(kind, number, e)) for e in (*ERRORS[kind], KILLED)]
                found.append((event, Fault(kind, number, ERRORS[kind][0], stays=True)))
    return found


@pytest.mark.parametrize("share", [pytest.param(0.1), pytest.param(1.0, marks=pytest.mark.slow)])
def test_a_hook_whose_disk_fails_or_that_is_killed(hooks: Hooks, share: float) -> None:
    faults, wrong = every_hook_fault(hooks), list[str]()
    hooks.fire(CAPTURE)
    turns = hooks.kept
    assert turns > 0
    assert {event for event, _ in faults} == {*EVENTS}, "each writes something"
    for event, fault in random.Random(SEED).sample(faults, int(len(faults) * share)):
        for name in ("turns.sqlite", "turns.sqlite-wal", "turns.sqlite-shm"):
            (hooks.bench.store / name).unlink(missing_ok=True)
        try:
            try_hook(hooks, event, fault, turns)
        except AssertionError as error:
            wrong.append(str(error))
    assert wrong == []


HOLDER = """
import fcntl, os, signal, sqlite3, sys
held = []
for path in sys.argv[1:]:
    if path.endswith(".sqlite"):
        held.append(sqlite3.connect(path, isolation_level=None))
        held[-1].execute("BEGIN IMMEDIATE")
    else:
        held.append(open(path, "r+b"))
        fcntl.flock(held[-1], fcntl.LOCK_EX)
print("holds", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_hooks_pass_a_process_that_holds_every_lock_and_stands_still(hooks: Hooks) -> None:
    for event in EVENTS:
        hooks.fire(event)
    known = sorted(str(p) for end in ("sqlite", "lock") for p in hooks.home.rglob(f"*.{end}"))
    assert {Path(name).suffix for name in known} == {".sqlite", ".lock"}
    words = [sys.executable, "-c", HOLDER, *known]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"holds\n"
            for event in EVENTS[:-1]:
                ran = hooks.fire(event)
                assert (ran.code, ran.err) == (DONE, ""), f"{event}: {ran}"
                assert ("hookSpecificOutput" in ran.out) is (event == "UserPromptSubmit"), ran
        finally:
            holder.kill()
    assert hooks.fire(CAPTURE).code == DONE
    assert hooks.kept > 0
