"""Blocking work in threads, with a time limit and progress; the event loop never waits for it.

What belongs here: threads, the limit, how many at once. What does not: what is done in them.

Work that overruns cannot be stopped, only left behind: it keeps its place until it is over, so that
a store that hangs ends in a clear "busy" and not in a thousand threads. The threads are daemons: a
server whose client has gone does not wait for them.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from noctuary.errors import NoctuaryError

T = TypeVar("T")

MAX_AT_ONCE = 8
"""Calls worked on at once: more than the cores only shares them out among more callers."""

PROGRESS_EVERY_S = 0.5
"""Time between two reports of progress; nothing is reported about calls that are faster."""

THREAD_PREFIX = "noctuary-mcp-"
"""Begins the names of this package's threads."""

Report = Callable[[float, float], Awaitable[None]]
"""Takes the seconds waited so far, growing, and the most there will be."""


class OverdueError(NoctuaryError, TimeoutError):
    """Work did not end in time, or every place was taken; nothing was changed."""


class Workers:
    """A bounded number of threads; for one event loop at a time.

    Args:
        timeout_s: Longest time of one call, waiting for a place included, > 0.
        at_once: Calls worked on at once, >= 1.
    """

    def __init__(self, timeout_s: float, at_once: int = MAX_AT_ONCE) -> None:
        self.timeout_s = timeout_s
        self._at_once = at_once
        self._busy = 0
        self._lock = threading.Lock()

    async def run(self, work: Callable[[], T], what: str, report: Report | None = None) -> T:
        """Do some work in a thread and return its result.

        Args:
            work: Called once, without arguments, in a thread of its own.
            what: What it is called in a message, for example "recall".
            report: Called every PROGRESS_EVERY_S seconds while it runs.

        Raises:
            OverdueError: It took longer than `timeout_s`, or no place became free in that time.
            Exception: Whatever the work raises.
        """
        started = time.monotonic()
        while not self._take():
            if time.monotonic() - started >= self.timeout_s:
                raise OverdueError(_busy_message(what, self._at_once, self.timeout_s))
            await asyncio.sleep(min(_RETRY_S, self.timeout_s))
        outcome: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._start(work, outcome)
        try:
            return await self._wait(outcome, what, started, report)
        finally:
            outcome.cancel()  # no effect on one that is done; else nobody waits for it any more

    async def _wait(
        self, outcome: asyncio.Future[T], what: str, started: float, report: Report | None
    ) -> T:
        while True:
            waited = time.monotonic() - started
            left = self.timeout_s - waited
            done, _ = await asyncio.wait({outcome}, timeout=max(0.0, min(PROGRESS_EVERY_S, left)))
            if done:
                return outcome.result()
            waited = time.monotonic() - started
            if waited >= self.timeout_s:
                raise OverdueError(_overdue_message(what, self.timeout_s))
            if report is not None:
                await report(waited, self.timeout_s)

    def _start(self, work: Callable[[], T], outcome: asyncio.Future[T]) -> None:
        loop = outcome.get_loop()

        def settle(set_outcome: Callable[[], None]) -> None:
            if not outcome.done():
                set_outcome()

        def run() -> None:
            result: T
            try:
                result = work()
            except Exception as error:
                failure = error
                told = lambda: outcome.set_exception(failure)  # noqa: E731 (one of two)
            else:
                told = lambda: outcome.set_result(result)  # noqa: E731
            finally:
                self._give_back()
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(settle, told)

        threading.Thread(target=run, name=f"{THREAD_PREFIX}call", daemon=True).start()

    def _take(self) -> bool:
        with self._lock:
            if self._busy >= self._at_once:
                return False
            self._busy += 1
            return True

    def _give_back(self) -> None:
        with self._lock:
            self._busy -= 1


_RETRY_S = 0.02
"""How often a call that waits for a place looks again."""


def _overdue_message(what: str, timeout_s: float) -> str:
    return (
        f"{what} was given up after {timeout_s:g} s; nothing was changed. The store may be opening "
        "or busy: call it again in a few seconds, and if that fails too, go on without memories "
        "and tell the user to run `noctuary doctor`."
    )


def _busy_message(what: str, at_once: int, timeout_s: float) -> str:
    return (
        f"{what} found no free place within {timeout_s:g} s: {at_once} earlier calls are still "
        "running. Nothing was changed: call it again in a few seconds, fewer calls at once."
    )
