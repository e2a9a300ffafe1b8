from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from noctuary.agents import mcp as bounded
from noctuary.agents.mcp import OverdueError, Workers

PATIENT_S = 30.0


def threads_at_work() -> int:
    return sum(t.name == "AnyIO worker thread" for t in threading.enumerate())


def until_no_thread_is_left() -> None:
    """Behind the end of a loop: an idle thread ends with it, a busy one with its work."""
    end = time.monotonic() + 10
    while threads_at_work():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_work_is_done_in_another_thread_and_its_result_returned() -> None:
    async def run() -> tuple[int, str]:
        ident = await Workers(PATIENT_S).run(threading.get_ident, "it")
        return ident, threading.current_thread().name

    ident, _ = asyncio.run(run())
    assert ident != threading.get_ident()


def test_what_the_work_raises_is_raised_here() -> None:
    def fail() -> None:
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        asyncio.run(Workers(PATIENT_S).run(fail, "it"))


def test_overdue_work_ends_in_a_sentence_while_the_loop_goes_on() -> None:
    go = threading.Event()

    workers = Workers(0.2)

    async def run() -> tuple[str, int]:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticking = asyncio.create_task(tick())
        with pytest.raises(OverdueError) as raised:
            await workers.run(lambda: go.wait(10), "recall")
        ticking.cancel()
        return str(raised.value), ticks

    started = time.monotonic()
    said, ticks = asyncio.run(run())
    assert 0.2 <= time.monotonic() - started < 5
    assert "recall was given up after 0.2 s; nothing was changed" in said
    assert "call it again in a few seconds" in said
    assert ticks >= 3
    go.set()
    until_no_thread_is_left()


def test_the_time_limit_holds_while_every_place_is_taken_and_places_come_back() -> None:
    go = threading.Event()
    workers = Workers(0.15, at_once=2)

    async def run() -> list[str]:
        waiting = [workers.run(lambda: go.wait(10), "get") for _ in range(5)]
        overdue = await asyncio.gather(*waiting, return_exceptions=True)
        assert threads_at_work() == 2, "what was given up keeps its place until it is over"
        assert workers.places.borrowed_tokens == 2
        go.set()
        while workers.places.borrowed_tokens:
            await asyncio.sleep(0.005)
        assert await workers.run(lambda: 7, "get") == 7
        return sorted(str(error) for error in overdue)

    said = asyncio.run(run())
    assert [s.split(" within")[0] for s in said[:3]] == ["get found no free place"] * 3
    assert all("2 earlier calls are still running" in s for s in said[:3])
    assert all("given up" in s for s in said[3:])


def test_more_calls_than_places_are_all_answered() -> None:
    async def run() -> list[int]:
        workers = Workers(PATIENT_S, at_once=3)

        def work(number: int) -> Callable[[], int]:
            def do() -> int:
                time.sleep(0.002)
                return number * number

            return do

        return await asyncio.gather(*(workers.run(work(n), "it") for n in range(30)))

    assert asyncio.run(run()) == [n * n for n in range(30)]


def test_progress_grows_and_is_silent_about_fast_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "PROGRESS_EVERY_S", 0.1)
    reports: list[tuple[float, float]] = []

    async def report(waited_s: float, most_s: float) -> None:
        reports.append((waited_s, most_s))

    async def run() -> None:
        workers = Workers(PATIENT_S)
        await workers.run(lambda: None, "it", report)
        assert reports == []
        await workers.run(lambda: time.sleep(0.35), "it", report)

    asyncio.run(run())
    waited = [w for w, _ in reports]
    assert len(waited) >= 2
    assert waited == sorted(set(waited))
    assert all(0 < w < most == PATIENT_S for w, most in reports)


def test_a_caller_that_goes_away_leaves_nothing_behind() -> None:
    go = threading.Event()
    workers = Workers(PATIENT_S, at_once=1)

    def fail_late() -> None:
        go.wait(10)
        raise LookupError("nobody hears this")

    async def run() -> int:
        task = asyncio.create_task(workers.run(fail_late, "it"))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go.set()
        return await workers.run(lambda: 3, "it")

    assert asyncio.run(run()) == 3


def test_work_that_outlives_the_loop_ends_quietly() -> None:
    go = threading.Event()

    async def run() -> None:
        with pytest.raises(OverdueError):
            await Workers(0.05).run(lambda: go.wait(10), "it")

    asyncio.run(run())
    go.set()
    until_no_thread_is_left()
