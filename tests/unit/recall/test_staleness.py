from __future__ import annotations

import os
import time

import pytest

from noctuary.recall.api import recall
from tests.support.store import Store


def stale_messages(store: Store, hours_ago: float) -> list[str]:
    moment = time.time() - hours_ago * 3600
    os.utime(store.paths.last_night, (moment, moment))
    result = recall("spare key")
    assert result.memories[0].id == 101
    return [w.message for w in result.warnings if w.code == "stale_snapshot"]


@pytest.mark.parametrize(("hours_ago", "stale"), [(0, False), (35, False), (37, True), (-9, False)])
def test_a_night_that_did_not_come_is_a_warning(
    plain_store: Store, hours_ago: float, stale: bool
) -> None:
    assert bool(stale_messages(plain_store, hours_ago)) is stale


def test_the_warning_says_how_long_and_what_to_do(plain_store: Store) -> None:
    (message,) = stale_messages(plain_store, 100)
    assert "100 h" in message
    assert "noctuary doctor" in message


def test_the_limit_is_a_setting_and_zero_never_warns(
    plain_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOCTUARY_RECALL_STALE_AFTER_HOURS", "10")
    assert stale_messages(plain_store, 11)
    assert not stale_messages(plain_store, 9)
    monkeypatch.setenv("NOCTUARY_RECALL_STALE_AFTER_HOURS", "0")
    assert not stale_messages(plain_store, 1000)


def test_a_store_from_before_nights_were_noted_does_not_warn(plain_store: Store) -> None:
    plain_store.paths.last_night.unlink()
    assert "stale_snapshot" not in [w.code for w in recall("spare key").warnings]
