"""Vectors of live rows take no more time than the recall itself has."""

from __future__ import annotations

import math

import pytest

from noctuary.recall import inputs as live_vectors
from noctuary.recall.api import recall
from noctuary.recall.inputs import Inputs
from tests.support.live import Cache
from tests.support.store import Store

NEW = "The spare key was moved to the neighbour."


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_vectors, "_kept", {})


@pytest.mark.parametrize("left_ms", [math.inf, 1e6, 0.0, -1.0])
def test_a_row_is_encoded_while_the_recall_has_time(
    served_dense: Store, cache: Cache, monkeypatch: pytest.MonkeyPatch, left_ms: float
) -> None:
    plain = Inputs.live_vectors
    asked: list[float] = []

    def within(self: Inputs, rows: object, within_ms: float = math.inf) -> object:
        asked.append(within_ms)
        return plain(self, rows, left_ms)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(Inputs, "live_vectors", within)
    cache.add(NEW)
    (memory,) = [m for m in recall("spare key neighbour", deadline_ms=60_000).memories if m.live]
    assert (memory.dense is not None) == (left_ms > 0)
    assert len(asked) == 1
    assert 0 < asked[0] < 60_000, "what is left of the recall's deadline"


def test_what_was_encoded_once_needs_no_time(served_dense: Store, cache: Cache) -> None:
    cache.add(NEW)
    assert recall("spare key neighbour").memories[0].dense is not None
    assert live_vectors._kept  # pyright: ignore[reportPrivateUsage]
    again = recall("spare key neighbour", deadline_ms=60_000).memories[0]
    assert (again.live, again.dense is not None) == (True, True)
