"""Trying again: how often, after how long, and when it is enough.

What belongs here: the policy. What does not: HTTP (client.py), money (cost.py).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from noctuary.encode.hosted.faults import PassingFaultError, ProviderDownError

RETRIES = 6
"""Further tries of one request. With the waits below they outlast about a minute of trouble."""
FIRST_WAIT_S = 1.0
"""Before the first retry; doubles with each."""
MAX_WAIT_S = 32.0
"""Longest wait that is our own choice."""
MAX_RETRY_AFTER_S = 120.0
"""Longest wait that a provider may ask for: limits are per minute, so two of them pass."""
NIGHT_PATIENCE_S = 1_200.0
"""Seconds that a whole night may spend waiting between tries. More outlasts longer outages and
keeps the store locked for as long."""

Sleep = Callable[[float], None]
T = TypeVar("T")


@dataclass
class Patience:
    """How long waiting may still take, over all requests.

    Attributes:
        left_s: Seconds that may still be waited, at least 0.
        sleep: Waits.
        chance: Returns a number in [0, 1): waits are spread, so that many clients that failed
            together do not come back together.
    """

    left_s: float = NIGHT_PATIENCE_S
    sleep: Sleep = time.sleep
    chance: Callable[[], float] = random.random

    def wait(self, seconds: float) -> bool:
        """Wait, or say False where that would take longer than is left."""
        if seconds > self.left_s:
            return False
        self.left_s -= seconds
        self.sleep(seconds)
        return True


def ask_patiently(ask: Callable[[], T], patience: Patience, title: str) -> T:
    """Return what `ask` returns, tried again after passing faults.

    Args:
        ask: One try.
        patience: What may be waited; used up by this.
        title: Who is asked, for the error.

    Raises:
        ProviderDownError: No try succeeded, or waiting on would take too long.
    """
    for number in range(RETRIES + 1):
        try:
            return ask()
        except PassingFaultError as error:
            reason, wait_s = str(error), wait_before(number, error.wait_s, patience.chance())
        if number == RETRIES:
            raise ProviderDownError(_down(title, reason, f"{RETRIES + 1} times in a row"))
        if not patience.wait(wait_s):
            raise ProviderDownError(
                _down(title, reason, f"and waiting another {wait_s:.0f} s is more than is left")
            )
    raise AssertionError("every try returns or raises")


def wait_before(retry: int, asked_s: float | None, chance: float) -> float:
    """Return the seconds before a retry.

    Exponential backoff with half of it left to chance; where the provider names a time, that time
    and never less, up to MAX_RETRY_AFTER_S.

    Args:
        retry: Number of the retry, from 0.
        asked_s: What the provider asks for, at least 0; None where it does not say.
        chance: In [0, 1).

    Returns:
        Between 0 and MAX_RETRY_AFTER_S + FIRST_WAIT_S.
    """
    if asked_s is not None:
        return min(asked_s, MAX_RETRY_AFTER_S) + chance * FIRST_WAIT_S
    return min(FIRST_WAIT_S * 2.0**retry, MAX_WAIT_S) * (0.5 + chance / 2)


def _down(title: str, reason: str, tries: str) -> str:
    return (
        f"{title} gives no vectors: {reason}, {tries}. What came before is kept: run the night "
        "again later and it goes on from there."
    )
