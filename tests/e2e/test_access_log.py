"""The access log under many threads and processes, kills, forks and full disks: real ones.

What is asked each time: every row landed, in order, with its rank; or the caller was told.
"""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import threading
import time
from collections import defaultdict
from contextlib import closing
from pathlib import Path

import pytest

from noctuary.core.sqlite import close_logs
from noctuary.usage.access_log import append_retrievals
from noctuary.usage.statistics import Folded, fold_access_log

IDS = 3
THREADS, STORES, ROUNDS = 16, 12, 5
PROCESSES, APPENDS = 8, 200

WRITER = f"""
import sys
from pathlib import Path
from noctuary.usage.access_log import append_retrievals
name, appends, paths = sys.argv[1], int(sys.argv[2]), [Path(p) for p in sys.argv[3:]]
sys.stdin.readline()
for number in range(appends):
    ids = [f"{{name}}/{{number}}/{{i}}" for i in range({IDS})]
    path = paths[number % len(paths)]
    print(number, append_retrievals(path, snapshot_id=name, memory_ids=ids), flush=True)
"""


def rows_of(path: Path) -> list[tuple[str, int, str]]:
    with closing(sqlite3.connect(path)) as log:
        assert log.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return log.execute(
            "SELECT memory_id, rank, snapshot_id FROM retrievals ORDER BY position"
        ).fetchall()


def names_of(path: Path) -> list[str]:
    return [row[0] for row in rows_of(path)]


def require_whole_answers(path: Path) -> dict[str, list[int]]:
    """Check that every answer lies whole and in order; return the answers' numbers by writer."""
    found = rows_of(path)
    numbers: dict[str, list[int]] = defaultdict(list)
    for start in range(0, len(found), IDS):
        answer = found[start : start + IDS]
        name, number, _ = answer[0][0].split("/")
        assert answer == [(f"{name}/{number}/{i}", i + 1, name) for i in range(IDS)]
        numbers[name].append(int(number))
    return numbers


def start_writer(name: str, *paths: Path, appends: int = APPENDS) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, name, str(appends), *map(str, paths)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_together(*writers: subprocess.Popen[str]) -> list[str]:
    """Let all begin at once; return what each said."""
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    said = [writer.communicate(timeout=240) for writer in writers]
    assert [(writer.returncode, err) for writer, (_, err) in zip(writers, said, strict=True)] == [
        (0, "")
    ] * len(writers)
    return [out for out, _ in said]


def run_script(script: str, *words: Path) -> str:
    """Run code in a process of its own; it must not complain."""
    head = (
        "import os, sys, sqlite3, signal, resource\nfrom pathlib import Path\n"
        "from noctuary.core.sqlite import close_logs\n"
        "from noctuary.usage.access_log import append_retrievals\n"
        "path = Path(sys.argv[1])\n"
        "def say(*ids): return append_retrievals(path, snapshot_id='s', memory_ids=ids)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", head + script, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_sixteen_threads_on_twelve_stores_land_every_row(tmp_path: Path) -> None:
    paths = [tmp_path / f"store-{n}.sqlite" for n in range(STORES)]
    faults: list[str | None] = []
    barrier = threading.Barrier(THREADS)

    def work(name: str) -> None:
        barrier.wait()
        for number in range(ROUNDS * STORES):
            ids = [f"{name}/{number}/{i}" for i in range(IDS)]
            path = paths[number % STORES]
            faults.append(append_retrievals(path, snapshot_id=name, memory_ids=ids))

    threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # What one append could not wait for on a busy machine lands with a later one or with this.
    close_logs()
    assert len(faults) == THREADS * ROUNDS * STORES
    assert "dropped" not in "".join(fault or "" for fault in faults)
    for nth, path in enumerate(paths):
        expected = list(range(nth, ROUNDS * STORES, STORES))
        assert require_whole_answers(path) == {f"t{n}": expected for n in range(THREADS)}


def test_eight_processes_land_every_row_in_one_store(tmp_path: Path) -> None:
    path = tmp_path / "access.sqlite"
    names = [f"w{n}" for n in range(PROCESSES)]
    said = run_together(*(start_writer(name, path) for name in names))
    # What one append could not wait for has landed with a later one.
    assert require_whole_answers(path) == {name: list(range(APPENDS)) for name in names}
    assert "dropped" not in "".join(said)
    assert not path.with_name("access.sqlite-wal").exists(), "the last to leave closes the log"
    folded = fold_access_log(Folded(), path, set(names_of(path)))
    assert len(folded.by_memory) == PROCESSES * APPENDS * IDS


@pytest.mark.slow
def test_eight_processes_land_every_row_in_two_hundred_stores(tmp_path: Path) -> None:
    """More stores than a process keeps connections to."""
    paths = [tmp_path / f"{n}.sqlite" for n in range(APPENDS)]
    names = [f"w{n}" for n in range(PROCESSES)]
    run_together(*(start_writer(name, *paths) for name in names))
    for nth, path in enumerate(paths):
        assert require_whole_answers(path) == {name: [nth] for name in names}


def test_a_process_keeps_few_of_many_stores_open(tmp_path: Path) -> None:
    said = run_script(
        """
for n in range(100):
    assert append_retrievals(path / f"{n}.sqlite", snapshot_id="s", memory_ids=["1"]) is None
print(len([1 for p in path.iterdir() if p.name.endswith("-wal")]))
""",
        tmp_path,
    )
    assert 1 <= int(said) <= 32
    assert len(list(tmp_path.iterdir())) == 100, "at the end none is open"


def test_a_killed_writer_loses_at_most_its_last_write(tmp_path: Path) -> None:
    path, chance = tmp_path / "access.sqlite", random.Random(4)
    for life in range(6):
        writer = start_writer(f"w{life}", path, appends=1_000_000)
        assert writer.stdin is not None
        assert writer.stdout is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
        said = [writer.stdout.readline() for _ in range(chance.randrange(2, 40))]
        time.sleep(chance.random() * 0.003)
        writer.kill()
        said += writer.stdout.read().splitlines(keepends=True)
        writer.communicate()
        logged = require_whole_answers(path)[f"w{life}"]
        assert logged == list(range(len(logged)))
        # A line may have been cut off by the kill; an append may have landed that was not told of.
        told = [line for line in said if line.endswith("None\n")]
        assert len(told) <= len(logged) <= len(told) + 1
    assert append_retrievals(path, snapshot_id="s", memory_ids=["w/0/0", "w/0/1"]) is None


def test_the_log_may_be_deleted_while_processes_write(tmp_path: Path) -> None:
    path, chance = tmp_path / "access.sqlite", random.Random(5)
    writers = [start_writer(f"w{n}", path) for n in range(4)]
    done = threading.Event()

    def delete() -> None:
        while not done.wait(0.02 + 0.03 * chance.random()):
            path.unlink(missing_ok=True)

    deleter = threading.Thread(target=delete)
    deleter.start()
    try:
        said = run_together(*writers)
    finally:
        done.set()
        deleter.join()
    assert all(len(out.splitlines()) == APPENDS for out in said)
    path.unlink(missing_ok=True)
    assert append_retrievals(path, snapshot_id="w", memory_ids=["w/0/0", "w/0/1", "w/0/2"]) is None
    assert require_whole_answers(path) == {"w": [0]}


FORKS = {
    "python": "pid = os.fork()",
    # A fork that no hook hears of, as an embedding program does it.
    "c": "import ctypes; pid = ctypes.PyDLL(None).fork()",
}


@pytest.mark.parametrize("fork", FORKS)
@pytest.mark.parametrize("first_to_leave", ["parent", "child"])
def test_a_fork_leaves_two_writers(tmp_path: Path, fork: str, first_to_leave: str) -> None:
    path = tmp_path / "access.sqlite"
    run_script(
        f"""
assert say("before") is None
other = sqlite3.connect(path, isolation_level=None)
other.execute("BEGIN IMMEDIATE")
assert say("waiting") is not None
other.execute("ROLLBACK")
other.close()
read, write = os.pipe()
{FORKS[fork]}
name, faults = "child" if pid == 0 else "parent", []
for n in range(100):
    faults.append(say(f"{{name}}-{{n}}"))
if name == {first_to_leave!r}:
    close_logs()
    os.write(write, b"!")
else:
    os.read(read, 1)
    for n in range(100, 150):
        faults.append(say(f"{{name}}-{{n}}"))
    close_logs()
# A slow disk may let one of them wait in vain; what waited has landed since.
assert all("rows wait for the next)" in f for f in faults if f is not None), faults
if pid == 0:
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
""",
        path,
    )
    last = {name: 100 if name == first_to_leave else 150 for name in ("parent", "child")}
    expected = [f"{name}-{n}" for name, end in last.items() for n in range(end)]
    assert sorted(names_of(path)) == sorted(["before", "waiting", *expected])


def test_forks_while_threads_write_neither_hang_nor_repeat_a_row(tmp_path: Path) -> None:
    path = tmp_path / "access.sqlite"
    run_script(
        """
import threading, warnings
warnings.simplefilter("ignore")
def work(name):
    for n in range(150):
        assert say(f"{name}-{n}") is None
threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(4)]
for t in threads: t.start()
for n in range(10):
    pid = os.fork()
    if pid == 0:
        os._exit(0 if say(f"child-{n}") is None else 1)
    assert os.waitpid(pid, 0)[1] == 0
for t in threads: t.join()
""",
        path,
    )
    expected = [f"t{t}-{n}" for t in range(4) for n in range(150)]
    assert sorted(names_of(path)) == sorted([*expected, *(f"child-{n}" for n in range(10))])


def test_a_signal_handler_may_recall_in_the_middle_of_an_append(tmp_path: Path) -> None:
    path = tmp_path / "access.sqlite"
    said = run_script(
        """
import itertools
numbers = itertools.count()
def handle(*_):
    assert say(f"handler-{next(numbers)}") is None
signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.0007, 0.0007)
for n in range(1500):
    assert say(f"main-{n}") is None
signal.setitimer(signal.ITIMER_REAL, 0)
print(next(numbers))
""",
        path,
    )
    assert int(said) > 10
    names = names_of(path)
    assert [n for n in names if n.startswith("main")] == [f"main-{n}" for n in range(1500)]
    assert {n for n in names if n.startswith("h")} == {f"handler-{n}" for n in range(int(said))}
    assert len(names) == 1500 + int(said)


def test_a_full_disk_keeps_the_rows_until_there_is_room(tmp_path: Path) -> None:
    """No file of that process may grow beyond the limit, then it may: the disk was cleared."""
    path = tmp_path / "access.sqlite"
    said = run_script(
        """
resource.setrlimit(resource.RLIMIT_FSIZE, (120_000, resource.RLIM_INFINITY))
faults = [say(f"memory-{n}") for n in range(400)]
failed = [f for f in faults if f is not None]
assert failed, "the limit bites"
assert all("not logged" in f for f in failed)
assert "dropped" not in failed[-1]
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert say("after") is None
print(len(failed))
""",
        path,
    )
    assert 0 < int(said) < 400
    assert names_of(path) == [*(f"memory-{n}" for n in range(400)), "after"]


def test_what_waits_is_written_when_the_process_ends(tmp_path: Path) -> None:
    path = tmp_path / "access.sqlite"
    run_script(
        """
assert say("1") is None
other = sqlite3.connect(path, isolation_level=None)
other.execute("BEGIN IMMEDIATE")
assert "locked" in say("2")
other.execute("ROLLBACK")
""",
        path,
    )
    assert names_of(path) == ["1", "2"]


def test_a_process_that_ends_under_a_lock_does_not_hang(tmp_path: Path) -> None:
    path = tmp_path / "access.sqlite"
    append_retrievals(path, snapshot_id="s", memory_ids=["1"])
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        started = time.monotonic()
        run_script('assert "locked" in say("2")', path)
        assert time.monotonic() - started < 10
        other.rollback()
    assert names_of(path) == ["1"]
