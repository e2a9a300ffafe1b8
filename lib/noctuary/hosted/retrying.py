"""Trying again, by tenacity: how often, after how long, and when it is enough.

What belongs here: the policy. What does not: HTTP (client.py), money.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, TypeVar

from noctuary.hosted.client import PassingFaultError

if TYPE_CHECKING:
    from tenacity import RetryCallState

FIRST_WAIT_S = 1.0
"""Before the first retry; doubles with each."""
MAX_WAIT_S = 32.0
"""Longest wait that is our own choice."""

Sleep = Callable[[float], None]
T = TypeVar("T")


class GaveUpError(Exception):
    """No try succeeded; the text says why, and after how much."""


@dataclass
class Patience:
    """How often something is asked again, and how long waiting may take.

    Attributes:
        retries: Further tries of one request.
        longest_asked_s: Longest wait that an endpoint may ask for.
        spread: Share of a wait that is left to chance, in [0, 1], so that many clients that failed
            together do not come back together.
        left_s: Seconds that may still be waited, over all requests.
        sleep: Waits.
    """

    retries: int
    longest_asked_s: float
    spread: float = 0.0
    left_s: float = math.inf
    sleep: Sleep = time.sleep

    def ask(self, ask: Callable[[], T]) -> T:
        """Return what `ask` returns, tried again after passing faults.

        Raises:
            GaveUpError: No try succeeded, or waiting on would take too long.
            ImportError: tenacity is not installed.
        """
        from tenacity import Retrying, retry_if_exception_type

        again = Retrying(
            retry=retry_if_exception_type(PassingFaultError),
            wait=self._wait_s,
            stop=self._is_enough,
            sleep=self._sleep,
            retry_error_callback=self._give_up,
        )
        return again(ask)

    def _wait_s(self, state: RetryCallState) -> float:
        """Return the seconds before a retry: doubling, or what the endpoint asks for and more."""
        fault, chance = _fault(state), self.spread * random.random()
        if fault.wait_s is not None:
            return min(fault.wait_s, self.longest_asked_s) + chance * FIRST_WAIT_S
        return min(FIRST_WAIT_S * 2.0 ** (state.attempt_number - 1), MAX_WAIT_S) * (1.0 - chance)

    def _is_enough(self, state: RetryCallState) -> bool:
        return state.attempt_number > self.retries or state.upcoming_sleep > self.left_s

    def _sleep(self, seconds: float) -> None:
        self.left_s -= seconds
        self.sleep(seconds)

    def _give_up(self, state: RetryCallState) -> NoReturn:
        said = f"{state.attempt_number} times in a row"
        if state.attempt_number <= self.retries:
            said = f"and waiting another {state.upcoming_sleep:.0f} s is more than is left"
        raise GaveUpError(f"{_fault(state)}, {said}") from None


def _fault(state: RetryCallState) -> PassingFaultError:
    """Return why the last try failed; only passing faults are tried again."""
    error = None if state.outcome is None else state.outcome.exception()
    assert isinstance(error, PassingFaultError)
    return error
