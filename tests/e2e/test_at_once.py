"""Two nights, a rollback and a forgetting at once; a night that stands still; a jumping clock."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from noctuary.cli.doctor import examine
from noctuary.snapshot.publish import is_intact, list_snapshots
from tests.e2e.byte_scan import find_texts
from tests.e2e.driver import DONE, FAILED, LOCKED, Ran, kill, run, run_night, start, start_night
from tests.e2e.killing import POLL_S, stamp_of
from tests.e2e.stores import Bench, add_memory, leftovers

pytestmark = pytest.mark.slow

SECRET = "Zanzibarova keeps the Oxenholme ledger beneath the third floorboard."
QUESTION = "Zanzibarova Oxenholme ledger"
DAY_S = 86_400


def words(bench: Bench, *command: str) -> list[str]:
    return [sys.executable, "-m", "noctuary.cli.entry", *command, "--store", str(bench.store)]


def shown(bench: Bench, question: str = QUESTION) -> tuple[str | None, tuple[int | str, ...]]:
    """Return which snapshot answers and which ids."""
    found = bench.ask(question)
    return found.snapshot_id, tuple(memory.id for memory in found.memories)


@pytest.fixture
def planted(small: Bench) -> tuple[Bench, int]:
    """A bench whose serving snapshot, and the one before it, hold a memory to forget."""
    number = add_memory(small.source, SECRET)
    for text in ("The bakery closes at two.", "The bakery closes at three."):
        add_memory(small.source, text)
        assert run_night(small.source, small.store).code == DONE
    return small, number


def require_forgotten(bench: Bench, number: int) -> None:
    """The next night and a forgetting complete what waits; nothing is left, nothing mixed."""
    ran = run_night(bench.source, bench.store)
    assert ran.code == DONE, ran.says
    run(words(bench, "forget", "--apply", "--yes"), bench.store.parent)
    assert number not in shown(bench)[1]
    assert find_texts(bench.store, [SECRET], skip=[bench.paths.encoders]) == []
    assert leftovers(bench.store) == []
    assert [f.message for f in examine(bench.paths) if f.level == "fail"] == []
    for name in list_snapshots(bench.paths):
        directory = bench.paths.snapshots / name
        assert is_intact(directory, json.loads((directory / "manifest.json").read_text())["digest"])


def test_two_nights_a_rollback_and_a_forgetting_at_once(planted: tuple[Bench, int]) -> None:
    bench, number = planted
    home, answered = bench.store.parent, dict[str | None, set[tuple[int | str, ...]]]()
    add_memory(bench.source, "The bakery closes at four.")
    nights = [start_night(bench.source, bench.store) for _ in range(2)]
    forgetting = start(words(bench, "forget", str(number), "--apply", "--yes"), home)
    back = start(words(bench, "rollback"), home)
    running = [*nights, forgetting, back]
    try:
        while any(process.poll() is None for process in running):
            is_forgotten = forgetting.poll() is not None
            name, ids = shown(bench)
            assert not is_forgotten or number not in ids
            answered.setdefault(name, set()).add(tuple(i for i in ids if i != number))
            time.sleep(0.05)
        said = [process.communicate() for process in running]
    finally:
        for process in running:
            kill(process)
    codes = [process.returncode for process in running]
    assert "Traceback" not in str(said), said
    assert set(codes) <= {DONE, FAILED, LOCKED}, (codes, said)
    assert codes[:2].count(DONE) >= 1, (codes, said)
    assert all(len(one) <= 2 for one in answered.values()), answered
    assert None not in answered
    require_forgotten(bench, number)


def test_a_night_that_stands_still_holds_up_nobody_who_asks(planted: tuple[Bench, int]) -> None:
    bench, number = planted
    home, watch = bench.store.parent, stamp_of("corpus_export")
    add_memory(bench.source, "The bakery closes at four.")
    before, first = watch(bench.store), shown(bench)
    night = start_night(bench.source, bench.store)
    try:
        while watch(bench.store) == before:
            assert night.poll() is None
            time.sleep(POLL_S)
        os.killpg(night.pid, signal.SIGSTOP)
        assert run_night(bench.source, bench.store).code == LOCKED
        refused = run(words(bench, "rollback"), home)
        assert refused.code == LOCKED, "it could serve a snapshot that the night removes"
        assert "would publish over this" in refused.says
        begun = time.monotonic()
        assert shown(bench) == first
        assert time.monotonic() - begun < 2
        hidden = run(words(bench, "forget", str(number), "--apply", "--yes"), home)
        assert "Traceback" not in hidden.says
        assert number not in shown(bench)[1], hidden.says
        os.killpg(night.pid, signal.SIGCONT)
        out, err = night.communicate(timeout=300)
    finally:
        kill(night)
    assert night.returncode in (DONE, FAILED), (out, err)
    assert number not in shown(bench)[1], "nor by the night that had read it before"
    require_forgotten(bench, number)


SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *at) {
    int found = syscall(SYS_clock_gettime, clock, at);
    const char *shift = getenv("CLOCK_SHIFT_S");
    if (clock == CLOCK_REALTIME && shift) at->tv_sec += atol(shift);
    return found;
}
time_t time(time_t *to) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    if (to) *to = at.tv_sec;
    return at.tv_sec;
}
"""
"""A clock that is set wrong, for a whole process and what it starts."""


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_clock_that_jumps_costs_nothing(planted: tuple[Bench, int], tmp_path: Path) -> None:
    bench, number = planted
    library, code = tmp_path / "clock.so", tmp_path / "clock.c"
    code.write_text(SHIM)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, code], check=True)
    names, home = [bench.serving], bench.store.parent

    def at(shift_s: float) -> dict[str, str]:
        return {"LD_PRELOAD": str(library), "CLOCK_SHIFT_S": str(int(shift_s))}

    now = time.time()
    told = run([sys.executable, "-c", "import datetime as d; print(d.datetime.now().year)"], home,
               extra=at(366 * DAY_S))  # fmt: skip
    assert int(told.out) > time.gmtime().tm_year
    hidden: Ran | None = None
    for turn, shift in enumerate((-DAY_S, 366 * DAY_S, -366 * DAY_S, 86_400 - now,
                                  2_208_988_800 - now, 0)):  # fmt: skip
        text = f"The clock was turned for the {turn} time by the sexton."
        added = add_memory(bench.source, text)
        ran = run_night(bench.source, bench.store, extra=at(shift), fresh=True)
        assert ran.code == DONE, (shift, ran.says)
        assert ran.report["status"] == "published", (shift, ran.says)
        names.append(bench.serving)
        assert names == sorted(names), "names follow the order of publication"
        assert {*list_snapshots(bench.paths)} >= {*names[-2:]}, "the newest two stay"
        asked = run(words(bench, "recall", text, "--json", "--dry-run"), home, extra=at(-shift))
        assert added in [m["id"] for m in json.loads(asked.out)["memories"]], (shift, asked.says)
        doctor = run(words(bench, "doctor", "--json"), home, extra=at(shift))
        assert "Traceback" not in doctor.says, (shift, doctor.says)
        if turn == 2:
            order = words(bench, "forget", str(number), "--apply", "--yes")
            hidden = run(order, home, extra=at(shift))
            names.append(bench.serving)  # its own night removed what is older
        assert (number in shown(bench)[1]) is (hidden is None), shift
    require_forgotten(bench, number)
