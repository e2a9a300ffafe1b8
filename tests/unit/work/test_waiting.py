"""Waiting for the store's lock, between real processes."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from noctuary.errors import StoreError, StoreLockedError
from noctuary.work.lock import find_holder, hold_lock
from noctuary.work.waiting import wait_for_lock
from tests.unit.work.test_lock import start_holder


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store" / "nightly.lock"


def test_whoever_waits_has_the_lock_when_its_holder_ends(path: Path) -> None:
    holder = start_holder(path)
    told: list[str] = []
    threading.Timer(0.8, lambda: holder.communicate("")).start()
    with wait_for_lock(path, told.append):
        assert holder.poll() is not None
        assert find_holder(path) is not None
    assert told == [str(holder.pid)], "once, however long it takes"
    assert find_holder(path) is None


def test_nobody_waits_for_a_lock_that_is_free(path: Path) -> None:
    told: list[str] = []
    started = time.monotonic()
    with wait_for_lock(path, told.append), pytest.raises(StoreLockedError), hold_lock(path):
        pass
    assert told == []
    assert time.monotonic() - started < 5


def test_the_lock_is_let_go_when_the_work_fails(path: Path) -> None:
    with pytest.raises(ZeroDivisionError), wait_for_lock(path, print):
        _ = 1 / 0
    with hold_lock(path):
        pass


def test_a_lock_that_can_never_be_had_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(StoreError, match="cannot be opened"),
        wait_for_lock(tmp_path / "file" / "nightly.lock", print),
    ):
        pass
