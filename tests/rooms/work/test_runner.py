"""The local runner: who does the work, what an error and a death become."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from pathlib import Path

import pytest

from noctuary.core.errors import EncoderError, ShardError
from noctuary.work.content import VALUE
from noctuary.work.runner import ATTEMPTS, LocalRunner
from noctuary.work.shards import BatchTask, Shard, list_shards, open_table
from tests.support.batch_tasks import DieOnce, Fail, NameProcess, ShoutTexts, batches_of

TEXTS = [f"memory {number}" for number in range(40)]
ONE, TWO = LocalRunner(workers=1), LocalRunner(workers=2)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return tmp_path / "fragments"


def shards_of(tmp_path: Path, texts: list[str] = TEXTS, rows: int = 10) -> list[Shard]:
    return list(list_shards(batches_of(texts), tmp_path / "shards", "salt", rows))


def values(task: BatchTask, shards: list[Shard], here: Path, runner: LocalRunner) -> list[str]:
    made = runner.run(task, shards, here)
    assert [fragment.key for fragment in made] == [shard.key for shard in shards]
    return [v for fragment in made for v in open_table(fragment.path)[VALUE].to_pylist()]


class Told:
    def __init__(self) -> None:
        self.reports: list[tuple[str, int, int]] = []

    def update(self, task: str, done: int, total: int) -> None:
        self.reports.append((task, done, total))


def test_small_work_stays_in_this_process(tmp_path: Path, here: Path) -> None:
    told = values(NameProcess(row_ms=0.001), shards_of(tmp_path), here, LocalRunner(workers=2))
    assert {text.split()[0] for text in told} == {str(os.getpid())}
    assert told[0].split()[1] == "2", "it has all the threads that there are"


def test_large_work_goes_to_processes_of_one_thread_each(
    tmp_path: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    before = dict(os.environ)
    told = {tuple(text.split()) for text in values(NameProcess(), shards_of(tmp_path), here, TWO)}
    assert {process for process, _, _ in told}.isdisjoint({str(os.getpid())})
    assert 1 <= len(told) <= 2, "a worker keeps its function from shard to shard"
    assert {(given, variable) for _, given, variable in told} == {("1", "1")}
    assert dict(os.environ) == before


def test_a_worker_imports_nothing_from_where_it_is(
    tmp_path: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pickle.py").write_text("raise SystemExit")
    monkeypatch.chdir(tmp_path)
    assert values(ShoutTexts(row_ms=1e6), shards_of(tmp_path), here, TWO)


def test_processes_and_this_process_write_the_same_bytes_and_count_rows(tmp_path: Path) -> None:
    shards, told = shards_of(tmp_path), Told()
    one, two = tmp_path / "one", tmp_path / "two"
    ONE.run(ShoutTexts(), shards, one)
    TWO.run(ShoutTexts(row_ms=1e6), shards, two, told)
    assert sorted(p.name for p in one.iterdir()) == sorted(p.name for p in two.iterdir())
    assert all(p.read_bytes() == (two / p.name).read_bytes() for p in one.iterdir())
    assert told.reports == [("shout", done, 40) for done in (10, 20, 30, 40)]


@pytest.mark.parametrize(
    ("how", "kind", "sentence", "runner"),
    [
        ("plain", ShardError, "fail: .* failed: ValueError: the seventh is odd", ONE),
        ("full", ShardError, "No space left on device", ONE),
        ("noctuary", EncoderError, "^no such model$", ONE),
        ("plain", ShardError, "fail: .* failed: ValueError: the seventh is odd", TWO),
        ("stubborn", ShardError, "no way", TWO),
    ],
)
def test_an_error_arrives_in_its_own_words(
    how: str, kind: type[Exception], sentence: str, runner: LocalRunner, tmp_path: Path, here: Path
) -> None:
    with pytest.raises(kind, match=sentence):
        runner.run(Fail(how), shards_of(tmp_path, [*TEXTS, "bad"]), here)
    assert not list(here.glob(".*")), "nothing half-written is left"


def test_what_others_made_before_an_error_is_taken_over(tmp_path: Path, here: Path) -> None:
    shards = shards_of(tmp_path, [*TEXTS, "bad"])
    with pytest.raises(ShardError):
        ONE.run(Fail(), shards, here)
    before = {path: path.stat().st_mtime_ns for path in here.iterdir()}
    assert len(before) == 4
    ONE.run(ShoutTexts(), shards, here)
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_worker_that_is_killed_is_replaced(tmp_path: Path, here: Path) -> None:
    marks = marks_of(tmp_path, ATTEMPTS - 1)
    texts = [*TEXTS[:20], "bad", *TEXTS[20:]]
    told = values(DieOnce(marks), shards_of(tmp_path, texts), here, TWO)
    assert told == [text.upper() for text in texts]
    assert not list(marks.iterdir())


def test_workers_killed_between_two_shards_are_replaced(tmp_path: Path, here: Path) -> None:
    resource_tracker.ensure_running()
    before = set(children_of(os.getpid()))

    class KillAll(Told):
        def update(self, task: str, done: int, total: int) -> None:
            super().update(task, done, total)
            for worker in set(children_of(os.getpid())) - before if done == 10 else ():
                os.kill(worker, signal.SIGKILL)

    told = KillAll()
    TWO.run(DieOnce(marks_of(tmp_path, 0), pause_s=0.1), shards_of(tmp_path), here, told)
    assert [done for _, done, _ in told.reports] == [10, 20, 30, 40]


def test_a_shard_that_always_kills_its_workers_is_named(tmp_path: Path, here: Path) -> None:
    marks = marks_of(tmp_path, 9)
    with pytest.raises(ShardError, match=rf"die: .*died {ATTEMPTS} times.*memory"):
        TWO.run(DieOnce(marks), shards_of(tmp_path, [*TEXTS, "bad"]), here)
    assert len(list(marks.iterdir())) == 9 - ATTEMPTS


def test_an_interrupt_ends_the_workers_at_once(tmp_path: Path, here: Path) -> None:
    class Interrupt:
        def update(self, task: str, done: int, total: int) -> None:
            raise KeyboardInterrupt

    slow = DieOnce(marks_of(tmp_path, 0), pause_s=0.2)
    # Servers that other tests of this process share are its children as well, and so is what
    # counts the semaphores of multiprocessing: it stays.
    resource_tracker.ensure_running()
    before = set(children_of(os.getpid()))
    with pytest.raises(KeyboardInterrupt):
        TWO.run(slow, shards_of(tmp_path, TEXTS * 5), here, Interrupt())
    assert set(children_of(os.getpid())) <= before


@pytest.fixture
def night(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs a slow task in two workers, until it is killed."""
    marks = marks_of(tmp_path, 0)
    program = (
        "from pathlib import Path; from tests.rooms.work.test_runner import *;"
        f"TWO.run(DieOnce(Path({str(marks)!r}), 0.5), shards_of(Path({str(tmp_path)!r}),"
        f" TEXTS * 9), Path({str(tmp_path / 'fragments')!r}))"
    )
    root = Path(__file__).parents[3]
    process = subprocess.Popen([sys.executable, "-c", program], cwd=root)
    yield process
    process.kill()
    process.wait()


def test_workers_end_with_a_killed_night(night: subprocess.Popen[bytes], here: Path) -> None:
    wait_until(lambda: here.exists() and any(here.glob("*.arrow")))
    children = children_of(night.pid)
    assert len(children) == 3, "two workers, and what counts the semaphores of multiprocessing"
    night.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(is_running(child) for child in children))


def marks_of(tmp_path: Path, deaths: int) -> Path:
    marks = tmp_path / "marks"
    marks.mkdir()
    for number in range(deaths):
        (marks / str(number)).touch()
    return marks


def children_of(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in path.read_text().split()] if path.exists() else []


def is_running(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def wait_until(holds: Callable[[], bool], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)
