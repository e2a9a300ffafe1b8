"""The store's lock between real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mnemon.errors import StoreLockedError
from mnemon.work.lock import hold_lock

HOLD = """
import sys
from pathlib import Path
from mnemon.work.lock import hold_lock
with hold_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def start_holder(path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store" / "nightly.lock"


def test_a_second_process_is_told_who_holds_it(path: Path) -> None:
    holder = start_holder(path)
    try:
        with pytest.raises(StoreLockedError, match=rf"process {holder.pid}\b"), hold_lock(path):
            pass
        # A refused attempt must not take the holder's name away.
        with pytest.raises(StoreLockedError, match=rf"process {holder.pid}\b"), hold_lock(path):
            pass
    finally:
        holder.communicate("")
    with hold_lock(path):
        assert path.read_text() == str(os.getpid())


def test_a_killed_holder_frees_it(path: Path) -> None:
    holder = start_holder(path)
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    assert holder.returncode == -signal.SIGKILL
    with hold_lock(path):
        pass


def test_the_lock_is_free_after_the_block_and_after_an_error(path: Path) -> None:
    with hold_lock(path):
        pass
    with pytest.raises(KeyError), hold_lock(path):
        raise KeyError
    with hold_lock(path):
        pass


def test_one_process_cannot_hold_it_twice(path: Path) -> None:
    with (
        hold_lock(path),
        pytest.raises(StoreLockedError, match=str(os.getpid())),
        hold_lock(path),
    ):
        pass


def test_two_stores_do_not_wait_for_each_other(tmp_path: Path) -> None:
    with hold_lock(tmp_path / "a" / "nightly.lock"), hold_lock(tmp_path / "b" / "nightly.lock"):
        pass


def test_what_a_longer_pid_left_behind_is_not_read_as_part_of_the_next(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("4194304999")
    holder = start_holder(path)
    try:
        assert path.read_text() == str(holder.pid)
    finally:
        holder.communicate("")


def test_a_program_started_inside_does_not_keep_the_lock(path: Path) -> None:
    with hold_lock(path):
        child = subprocess.Popen(
            [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
        )
    try:
        with hold_lock(path):
            pass
    finally:
        child.communicate()
