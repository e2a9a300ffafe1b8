"""A remembered digest stands for a file only while nobody can have touched it."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from noctuary.core.files import hash_file
from noctuary.work import stage as settled
from noctuary.work.stage import (
    BatchTimings,
    Cost,
    Stage,
    StageOutput,
    StageResult,
    TimedProgress,
    forget_result,
    give_back,
    hash_settled,
    load_result,
    measure,
    run_stage,
)

STAGE = Stage("letters", "1", ("out/letters.txt", "out/count.json"))
FACTS_ONLY = Stage("counting", "1")


@dataclass
class Work:
    """A body that writes its letters, and how often it ran."""

    root: Path
    letters: str = "abc"
    runs: int = 0
    facts: dict[str, Any] = field(default_factory=lambda: {"vowels": 1})
    notes: dict[str, Any] = field(default_factory=dict[str, Any])

    def body(self) -> StageOutput:
        self.runs += 1
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_text(self.letters)
        (self.root / "out" / "count.json").write_text(str(len(self.letters)))
        return StageOutput(len(self.letters), self.facts, self.notes)

    @property
    def path(self) -> Path:
        return self.root / "out" / "letters.txt"

    @property
    def stamp(self) -> Path:
        return self.root / "stamps" / "letters.json"

    def run(self, stage: Stage = STAGE, *, always: bool = False, **inputs: Any) -> StageResult:
        return run_stage(self.root, stage, {"corpus": "c1", **inputs}, self.body, always=always)


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(tmp_path)


def test_the_first_run_says_what_came_out_and_an_equal_second_one_does_nothing(work: Work) -> None:
    assert load_result(work.root, STAGE) is None
    first = work.run()
    assert (first.name, first.reused, first.rows, first.facts) == (
        "letters", False, 3, {"vowels": 1},
    )  # fmt: skip
    assert first.cost["bytes_on_disk"] == 4
    assert first.cost["wall_ms"] >= 0
    assert first.cost["peak_rss_bytes"] > 1_000_000
    for again in (load_result(work.root, STAGE), work.run()):
        assert again is not None
        assert again.reused
        assert (again.digest, again.rows, again.facts) == (first.digest, 3, {"vowels": 1})
    second = work.run()
    assert second.cost["bytes_on_disk"] == 4
    assert "cpu_ms" not in second.cost
    assert work.runs == 1
    forget_result(work.root, STAGE)
    forget_result(work.root, STAGE)
    assert not work.run().reused


@pytest.mark.parametrize(
    ("stage", "inputs"),
    [(STAGE, {"corpus": "c2"}), (STAGE, {"more": None}), (replace(STAGE, version="2"), {})],
    ids=["another-input", "one-input-more", "another-version"],
)
def test_another_input_or_version_runs_again_and_so_does_going_back(
    work: Work, stage: Stage, inputs: dict[str, Any]
) -> None:
    """One stamp per stage: yesterday's outputs were overwritten."""
    work.run()
    assert not work.run(stage, **inputs).reused
    assert not work.run().reused
    work.run(replace(STAGE, name="other"))
    assert work.run().reused, "stages do not see each other"


@pytest.mark.parametrize("change", ["edited", "deleted"])
def test_an_output_that_was_touched_runs_again(work: Work, change: str) -> None:
    work.run()
    if change == "edited":
        work.path.write_text("abd")
    else:
        work.path.unlink()
    assert load_result(work.root, STAGE) is None
    assert not work.run().reused
    assert work.path.read_text() == "abc"


CONTENTS = (b"", b"{", b"null", b"[]", b"{}", b"\xff", b'{"key": 1}', b'"key outputs rows facts"')
FIELDS = ("rows", "facts", "outputs", "key", "left")


@pytest.mark.parametrize("damage", [*CONTENTS, *FIELDS])
def test_a_damaged_stamp_or_one_with_a_field_of_another_type_runs_again(
    work: Work, damage: bytes | str
) -> None:
    work.run()
    if isinstance(damage, str):
        damage = json.dumps({**json.loads(work.stamp.read_text()), damage: None}).encode()
    work.stamp.write_bytes(damage)
    assert load_result(work.root, STAGE) is None
    assert not work.run().reused
    assert work.runs == 2


def test_the_digest_is_that_of_the_outputs_or_of_the_facts_where_there_are_none(work: Work) -> None:
    first = work.run(corpus="c1")
    assert work.run(corpus="c2").digest == first.digest
    work.letters = "xyz"
    assert work.run(corpus="c3").digest != first.digest
    counted = work.run(FACTS_ONLY)
    assert work.run(FACTS_ONLY).reused
    work.facts = {"vowels": 2}
    assert work.run(FACTS_ONLY, corpus="c2").digest != counted.digest


def test_always_runs_and_says_whether_anything_changed(work: Work) -> None:
    assert not work.run(always=True).reused
    assert work.run(always=True).reused
    work.facts = {"vowels": 2}
    assert not work.run(always=True).reused
    work.letters = "xyz"
    assert not work.run(always=True).reused
    assert not work.run(always=True, corpus="c2").reused
    assert work.runs == 5


def test_a_body_that_fails_leaves_no_stamp(work: Work) -> None:
    work.run()

    def broken() -> StageOutput:
        work.path.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_stage(work.root, STAGE, {"corpus": "c2"}, broken)
    assert (work.stamp.exists(), load_result(work.root, STAGE)) == (False, None)
    assert not work.run().reused


def test_notes_are_of_the_run_that_made_them_and_in_no_digest(work: Work) -> None:
    work.notes = {"computed": 3}
    first = work.run()
    assert first.notes == {"computed": 3}
    assert work.run().notes == {}
    work.notes = {"computed": 0}
    again = work.run(always=True)
    assert (again.reused, again.notes) == (True, {"computed": 0})
    assert again.digest == first.digest


OLD_NS = 1_700_000_000_000_000_000


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    ("settled_ns", "ahead_ns", "reads"),
    [(0, 0, 1), (settled.SETTLED_NS, 0, 3), (0, 3_600_000_000_000, 3)],
    ids=["settled", "just-written", "of-the-future"],
)
def test_only_a_settled_file_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settled_ns: int, ahead_ns: int, reads: int
) -> None:
    found: list[Path] = []

    def count(path: Path) -> str:
        found.append(path)
        return hash_file(path)

    monkeypatch.setattr(settled, "hash_file", count)
    monkeypatch.setattr(settled, "SETTLED_NS", settled_ns)
    path = tmp_path / "a"
    path.write_text("one")
    moment = time.time_ns() + ahead_ns
    os.utime(path, ns=(moment, moment))
    assert [hash_settled(path) for _ in range(3)] == [digest("one")] * 3
    assert found == [path] * reads


def in_place(path: Path) -> None:
    path.write_text("two")


def in_place_with_its_old_times(path: Path) -> None:
    times = path.stat()
    path.write_text("two")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def by_another_file(path: Path) -> None:
    times = path.stat()
    other = path.with_name("b")
    other.write_text("two")
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    other.replace(path)


@pytest.mark.parametrize("change", [in_place, in_place_with_its_old_times, by_another_file])
def test_a_changed_file_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    monkeypatch.setattr(settled, "SETTLED_NS", 0)
    path = tmp_path / "a"
    path.write_text("one")
    os.utime(path, ns=(OLD_NS, OLD_NS))
    assert hash_settled(path) == digest("one")
    time.sleep(0.05)  # longer than a tick of the file system's clock
    change(path)
    assert hash_settled(path) == digest("two")


def test_hashes_are_kept_for_a_week_unless_their_file_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def count(path: Path) -> str:
        read.append(path.name)
        return hash_file(path)

    monkeypatch.setattr(settled, "hash_file", count)
    monkeypatch.setattr(settled, "SETTLED_NS", 0)
    kept, inside, outside = tmp_path / "hashes.json", tmp_path / "store" / "a", tmp_path / "b"
    inside.parent.mkdir()
    for path in (inside, outside):
        path.write_text("one")

    def another_process() -> list[str]:
        """Return which files a process reads that has what the last one kept."""
        read.clear()
        monkeypatch.setattr(settled, "_hashes", {})
        settled.load_hashes(kept)
        assert {hash_settled(path) for path in (inside, outside)} == {digest("one")}
        settled.save_hashes(kept, inside.parent)
        return list(read)

    assert another_process() == ["a", "b"]
    assert another_process() == ["b"], "what lies outside of the store is not kept"
    kept.write_text(kept.read_text().replace(digest("one"), digest("two")))
    assert another_process() == ["a", "b"]
    assert another_process() == ["b"]
    began_s = time.time()
    monkeypatch.setattr(time, "time", lambda: began_s + settled.FULL_LOOK_S)
    assert another_process() == ["a", "b"]
    assert another_process() == ["b"], "a week begins anew"


def timings(*batches: tuple[int, int, float]) -> BatchTimings:
    found = BatchTimings()
    for offset, rows, ms in batches:
        found.add(offset, rows, ms)
    return found


def test_the_report_names_the_first_of_the_slowest_batches_and_where_it_began() -> None:
    found = timings((0, 10, 12.0), (10, 10, 47.0), (20, 5, 1.0), (25, 5, 47.0))
    report = found.report()
    assert report == {
        "total_ms": 107.0,
        "batches": 4,
        "batch_timings_ms": [12.0, 47.0, 1.0, 47.0],
        "avg_batch_ms": 26.75,
        "slowest_batch": {"index": 1, "ms": 47.0, "offset": 10},
    }
    # The summary counts rows per second instead of listing.
    assert {**found.summary(), "batch_timings_ms": report["batch_timings_ms"]} == {
        **report,
        "rows_per_s": round(30 / 0.107),
    }


def test_nothing_done_is_no_division_by_zero() -> None:
    assert BatchTimings().report()["avg_batch_ms"] == 0.0
    assert BatchTimings().report()["slowest_batch"] is None
    assert BatchTimings().summary()["rows_per_s"] is None


class Seen:
    def __init__(self) -> None:
        self.reports: list[tuple[str, int, int]] = []

    def update(self, task: str, done: int, total: int) -> None:
        self.reports.append((task, done, total))


def test_a_timed_progress_notes_its_task_and_passes_everything_on() -> None:
    seen = Seen()
    progress = TimedProgress("export", seen)
    progress.update("export", 10, 25)
    progress.update("other", 3, 3)
    progress.update("export", 25, 25)
    assert seen.reports == [("export", 10, 25), ("other", 3, 3), ("export", 25, 25)]
    assert (progress.timings.offsets, progress.timings.rows) == ([0, 10], [10, 15])
    assert all(ms >= 0 for ms in progress.timings.ms)


def printed(code: str) -> list[float]:
    """Run code in a process of its own: threads and heap of this one are other tests' as well."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def test_wall_time_counts_waiting_and_cpu_time_does_not() -> None:
    wall_ms, cpu_ms = printed(
        "import time; from noctuary.work.stage import Cost, measure\n"
        "with measure() as cost: time.sleep(0.3)\n"
        "print(cost.wall_ms, cost.cpu_ms)"
    )
    assert wall_ms >= 300
    assert cpu_ms < wall_ms / 2


def test_cpu_time_counts_every_thread() -> None:
    def spin() -> None:
        end = time.thread_time() + 0.05
        while time.thread_time() < end:
            pass

    with measure() as cost:
        threads = [threading.Thread(target=spin) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert cost.cpu_ms >= 100


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux forgets the high-water mark")
def test_peak_memory_is_that_of_the_block() -> None:
    small, large, after = printed(
        "import numpy as np; from noctuary.work.stage import Cost, measure\n"
        "with measure() as small: pass\n"
        "with measure() as large: np.ones(64 << 20, dtype=np.uint8).sum()\n"
        "with measure() as after: pass\n"
        "print(small.peak_rss_bytes, large.peak_rss_bytes, after.peak_rss_bytes)"
    )
    assert large - small > 32 << 20
    assert after < large


def test_a_cost_is_plain_values_also_when_the_block_fails() -> None:
    seen: list[Cost] = []

    def fail() -> None:
        with measure() as cost:
            seen.append(cost)
            time.sleep(0.01)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    found = asdict(seen[0])
    assert found.keys() == {"wall_ms", "cpu_ms", "peak_rss_bytes"}
    assert all(value == round(value, 1) for value in found.values())
    assert found["wall_ms"] >= 10
    assert found["peak_rss_bytes"] > 0


# The last block keeps the heap from shrinking by itself.
FREED_BELOW_A_BLOCK = """
import ctypes
from pathlib import Path
from noctuary.work.stage import give_back

def resident_mb():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmRSS"))

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
blocks = []
for _ in range(50_000):
    blocks.append(libc.malloc(4_000))
    ctypes.memset(blocks[-1], 1, 4_000)
for block in blocks[:-1]:
    libc.free(block)
held = resident_mb()
give_back()
print(held, resident_mb())
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="not glibc")
def test_freed_memory_goes_back() -> None:
    held_mb, left_mb = printed(FREED_BELOW_A_BLOCK)
    assert held_mb > 190
    assert left_mb < held_mb - 150


def test_arrows_pool_is_asked_where_arrow_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow as pa

    asked: list[bool] = []

    class Pool:
        def release_unused(self) -> None:
            asked.append(True)

    def another_library(name: str | None) -> object:
        return object()

    monkeypatch.setattr(pa, "default_memory_pool", Pool)
    give_back()
    assert asked == [True]
    monkeypatch.delitem(sys.modules, "pyarrow")
    monkeypatch.setattr(ctypes, "CDLL", another_library)
    give_back()  # where the library cannot nothing happens
    assert asked == [True]
