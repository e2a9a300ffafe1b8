"""The store's lock between real processes."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from noctuary.core.errors import StoreError, StoreLockedError
from noctuary.work.lock import find_holder, hold_lock
from tests.support.descriptors import open_files

HOLD = """
import sys
from pathlib import Path
from noctuary.work.lock import hold_lock
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
    path.parent.mkdir()
    path.write_text("4194304999")  # a longer pid than any
    holder = start_holder(path)
    try:
        assert path.read_text() == str(holder.pid)
        for _ in range(2):  # a refused attempt must not take the holder's name away
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


def test_the_lock_is_free_after_an_error_and_one_process_cannot_hold_it_twice(path: Path) -> None:
    with pytest.raises(KeyError), hold_lock(path):
        raise KeyError
    with hold_lock(path), pytest.raises(StoreLockedError, match=str(os.getpid())), hold_lock(path):
        pass


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


def test_a_forked_process_that_outlives_the_holder_does_not_keep_the_lock(path: Path) -> None:
    """As a worker of multiprocessing does that survives its parent's kill -9."""
    script = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from noctuary.work.lock import hold_lock\n"
        "with hold_lock(Path(sys.argv[1])):\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        time.sleep(60)\n"
        "        os._exit(0)\n"
        "    print(child, flush=True)\n"
        "    time.sleep(60)\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    child = int(holder.stdout.readline())
    try:
        assert find_holder(path) == str(holder.pid)
        holder.kill()
        holder.wait()
        os.kill(child, 0)
        with hold_lock(path):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        holder.communicate()


def test_a_forked_process_that_leaves_the_block_frees_nothing(path: Path) -> None:
    with hold_lock(path):
        child = os.fork()
        if not child:
            os._exit(0 if find_holder(path) else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert find_holder(path) == str(os.getpid())


RACE = """
import sys
from pathlib import Path
from noctuary.core.errors import StoreLockedError
from noctuary.work.lock import hold_lock
for line in sys.stdin:
    try:
        with hold_lock(Path(sys.argv[1])):
            print("won", flush=True)
            sys.stdin.readline()
    except StoreLockedError:
        print("lost", flush=True)
        sys.stdin.readline()
"""


def test_of_two_processes_exactly_one_gets_it_fifty_times(path: Path) -> None:
    """Two wait at a pipe, are let go at once, and hold what they get until both have tried."""
    command, pipe = [sys.executable, "-c", RACE, str(path)], subprocess.PIPE
    with ExitStack() as stack:
        racers = [
            subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1)
            for _ in range(2)
        ]
        for racer in racers:
            stack.callback(racer.communicate)

        def tell(word: str) -> None:
            for racer in racers:
                assert racer.stdin is not None
                racer.stdin.write(f"{word}\n")

        for _ in range(50):
            tell("go")
            said = [racer.stdout.readline().strip() for racer in racers if racer.stdout]
            assert sorted(said) == ["lost", "won"]
            tell("leave")
            while find_holder(path):
                time.sleep(0.001)


def test_nobody_holds_a_lock_that_is_free_or_was_never_made(path: Path) -> None:
    assert find_holder(path) is None
    with hold_lock(path):
        assert find_holder(path) == str(os.getpid())
    assert find_holder(path) is None
    assert path.read_text() == str(os.getpid())


def test_who_asks_for_the_holder_does_not_turn_a_night_away(path: Path) -> None:
    with hold_lock(path):
        pass
    with path.open() as handle:
        fcntl.flock(handle, fcntl.LOCK_SH)
        threading.Timer(0.008, handle.close).start()
        with hold_lock(path):
            pass


def test_a_removed_lock_file_is_made_anew_before_anybody_counts_on_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening and locking the file may be removed: such a lock would keep nobody out."""
    path.parent.mkdir()
    flock, removed = fcntl.flock, [False]

    def remove_then_lock(fd: int, operation: int) -> None:
        if not removed[0]:
            path.unlink()
            removed[0] = True
        flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", remove_then_lock)
    with hold_lock(path):
        assert path.read_text() == str(os.getpid())
        assert find_holder(path) == str(os.getpid())


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.ENOLCK, "has no working flock .* keep the store on a local disk"),
        (errno.EOPNOTSUPP, "has no working flock"),
        (errno.EIO, "cannot be taken"),
    ],
)
def test_a_file_system_without_locks_is_a_sentence(
    path: Path, monkeypatch: pytest.MonkeyPatch, number: int, says: str
) -> None:
    """What the kernel answers on such a mount, where none can be mounted."""

    def refuse(fd: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(StoreError, match=says), hold_lock(path):
        pass
    assert find_holder(path) is None
    assert str(path) not in open_files()


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "nightly.lock").mkdir()
    with (
        pytest.raises(StoreError, match="a night needs a store that it can write"),
        hold_lock(tmp_path / "nightly.lock"),
    ):
        pass
