"""Nights in forks of one process that has imported the libraries: each saves three CPU seconds.

A fork is a real process: its own id, working directory, environment, output and exit code, and the
command's own `main` runs in it to the end of the interpreter. What it does not show is the start of
the interpreter itself; the first nights, the killed and the limited ones show that (see `driver`).

Run as a script it is that process. It reads one order per line (JSON: words, cwd, env, out, err)
and writes "ready" once and then each order's exit code.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

_PRELOADED = (
    "noctuary_pipelines.definitions",
    "noctuary_pipelines.resources",
    "alembic.command",
    "lance_namespace",
    "jinja2",
)
"""What a night imports and takes long, without the libraries that start threads at import: no
thread survives a fork, and what it held stays locked."""


class NightForks:
    """The owner of one forking process; started at the first order. For one thread."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._process: subprocess.Popen[str] | None = None

    def run(
        self, words: Sequence[str], *, cwd: Path, env: Mapping[str, str], timeout_s: float
    ) -> tuple[int, str, str]:
        """Run `python -m words` in a fork; return its exit code and what it wrote.

        Raises:
            TimeoutError: It did not end in time; it is killed.
        """
        try:
            with tempfile.TemporaryDirectory() as directory:
                out, err = Path(directory, "out"), Path(directory, "err")
                order = {"words": [*words], "cwd": str(cwd), "env": dict(env)}
                self._tell({**order, "out": str(out), "err": str(err)})
                code = int(self._hear(timeout_s))
                return code, out.read_text("utf-8"), err.read_text("utf-8")
        except BaseException:
            # Also a test that is out of time: the next order must not read this one's answer.
            self.close()
            raise

    def close(self) -> None:
        """End the process, and the night that it may be running."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()
        self._process = None

    def _tell(self, order: Mapping[str, object]) -> None:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, __file__],
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                encoding="utf-8",
                start_new_session=True,
            )
            assert self._hear(120) == "ready"
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def _hear(self, timeout_s: float) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        # One line per order and nothing before it is read: the buffer is empty here.
        if not select.select([self._process.stdout], [], [], timeout_s)[0]:
            raise TimeoutError(f"the forked night did not end within {timeout_s} s")
        line = self._process.stdout.readline().strip()
        assert line, "the forking process ended; what it said is on stderr"
        return line


def _serve() -> None:
    """Fork for every order until the owner is gone; in a fork, become the ordered command."""
    # Like `python -m`: the working directory comes first, not this file's.
    del sys.path[0]
    for name in _PRELOADED:
        importlib.import_module(name)
    threads = len([*Path("/proc/self/task").iterdir()])
    assert threads == 1, f"{threads} threads at the fork: one of {_PRELOADED} starts its own"
    _say("ready")
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _become(**json.loads(line))
            return
        _say(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _become(words: list[str], cwd: str, env: dict[str, str], out: str, err: str) -> None:
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.path.insert(0, cwd)
    for fd, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, out, os.O_WRONLY | os.O_CREAT),
        (2, err, os.O_WRONLY | os.O_CREAT),
    ):
        opened = os.open(path, flags, 0o600)
        os.dup2(opened, fd)
        os.close(opened)
    sys.argv = words
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _serve()
