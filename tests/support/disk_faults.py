"""Runs functions in forks of one process while strace lets one of their system calls fail or kill.

Run as a script, with the name of a module that holds `PROGRAMS`, it is that process: it reads one
order per line (a name and a directory, as JSON), forks, and the fork stops itself until somebody
has attached a tracer. It writes the fork's process id, then what became of it.
"""

from __future__ import annotations

import importlib
import json
import mmap
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.support.crash_states import STRACE

_SHARED_BYTES = 1 << 16
_ATTACH_S = 30.0
KILLED = "killed"


class Fault(NamedTuple):
    """Which system call fails, and how."""

    call: str
    error: str  # EIO, ENOSPC; KILLED where the process dies instead of making it
    number: int  # counted from 1
    stays: bool = False  # whether all later ones fail as well


class Outcome(NamedTuple):
    """What became of a function."""

    end: str  # "done", "refused" with a NoctuaryError, "failed" with another one, KILLED
    message: str
    said: str


class FaultyRuns:
    """The owner of the process that forks."""

    def __init__(self, module: str, root: Path, env: Mapping[str, str]) -> None:
        words = [sys.executable, "-m", "tests.support.disk_faults", module]
        self._server = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root, env=env, text=True
        )

    def close(self) -> None:
        """End the process."""
        self._server.communicate()

    def run(self, name: str, root: Path, fault: Fault | None = None) -> Outcome:
        """Run a function, with a fault or without."""
        pid = self._start(name, root)
        if fault is None:
            os.kill(pid, signal.SIGCONT)
            return self._end()
        when = f"{fault.number}{'+' if fault.stays else ''}"
        how = "signal=KILL" if fault.error == KILLED else f"error={fault.error}"
        return self._traced(pid, fault.call, f"inject={fault.call}:{how}:when={when}")[0]

    def run_for(self, name: str, root: Path, seconds: float) -> Outcome:
        """Run a function and kill it after some time, if it has not ended."""
        pid = self._start(name, root)
        handle = os.pidfd_open(pid)
        try:
            os.kill(pid, signal.SIGCONT)
            time.sleep(seconds)
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)
        return self._end()

    def count(self, name: str, root: Path, calls: Iterable[str]) -> Counter[str]:
        """Run a function and return how often it makes each of some system calls."""
        done, trace = self._traced(self._start(name, root), ",".join(calls), None)
        assert done.end == "done", done
        return Counter(re.findall(r"\b(\w+)\(", trace))

    def _start(self, name: str, root: Path) -> int:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        print(json.dumps([name, str(root)]), file=self._server.stdin, flush=True)
        pid = int(self._server.stdout.readline())
        _wait_for(pid, "State:\tT")
        return pid

    def _end(self) -> Outcome:
        assert self._server.stdout is not None
        return Outcome(*json.loads(self._server.stdout.readline()))

    def _traced(self, pid: int, call: str, inject: str | None) -> tuple[Outcome, str]:
        assert STRACE is not None
        words = [STRACE, "-f", "-qq", "-e", f"trace={call}", "-p", str(pid)]
        words += [] if inject is None else ["-e", inject]
        tracer = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        _wait_for(pid, f"TracerPid:\t{tracer.pid}")
        os.kill(pid, signal.SIGCONT)
        outcome = self._end()
        return outcome, tracer.communicate()[1]


def _wait_for(pid: int, line: str) -> None:
    deadline = time.monotonic() + _ATTACH_S
    while line not in Path(f"/proc/{pid}/status").read_text():
        assert time.monotonic() < deadline, f"{pid} has no {line!r}"
        time.sleep(0.002)


# The process that forks.


def _serve(programs: Mapping[str, tuple[object, Callable[..., None]]]) -> None:
    from noctuary.core.errors import NoctuaryError

    for order in sys.stdin:
        name, root = json.loads(order)
        shared, told_so_far = mmap.mmap(-1, _SHARED_BYTES), mmap.mmap(-1, _SHARED_BYTES)
        pid = os.fork()
        if pid == 0:
            # Through memory: a system call might be the one that fails, or the last.
            end, message = "done", ""
            os.kill(os.getpid(), signal.SIGSTOP)
            try:
                programs[name][1](Path(root), _teller(told_so_far))
            except NoctuaryError as error:
                end, message = "refused", str(error)
            except BaseException as error:
                end, message = "failed", repr(error)
            told = json.dumps([end, message]).encode()
            shared[: len(told)] = told
            os._exit(0)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
        os.waitpid(pid, 0)
        told = json.loads(bytes(shared).rstrip(b"\0") or json.dumps([KILLED, "it died"]))
        said = bytes(told_so_far).rstrip(b"\0").decode()
        sys.stdout.write(f"{json.dumps([*told, said])}\n")
        sys.stdout.flush()
        shared.close()
        told_so_far.close()


def _teller(memory: mmap.mmap) -> Callable[[str], object]:
    return lambda text: memory.write(text.encode())


if __name__ == "__main__":
    _serve(importlib.import_module(sys.argv[1]).PROGRAMS)
