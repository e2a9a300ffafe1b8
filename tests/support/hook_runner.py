"""Hook processes in batches: every case is a process with a stdin and a stdout of its own.

A warmed parent forks them, so that ten thousand do not import numpy ten thousand times. What a
case's process then runs is what the installed command runs behind its imports:
`noctuary.cli.entry.run_hook`, to the `os._exit` at its end.

    python -m tests.support.hook_runner < cases.jsonl > results.jsonl
"""

from __future__ import annotations

import base64
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

LIMIT_S = 8.0
"""When a case counts as hanging: far beyond the 3 s that a hook gives itself, for busy machines."""

PER_PARENT = 500
"""Cases of one parent: they and their results are in memory at once."""


NO_SERVER = {"NOCTUARY_HOOK_START_SERVER": "false"}
"""For every case that does not ask for one: a server would outlive it."""


class Case(NamedTuple):
    """One hook process.

    Attributes:
        agent: Its `--agent`.
        raw: What it reads on stdin.
        environ: Variables besides the parent's.
        store: Its `--store`.
        max_file_bytes: Longest file that it may write, as on a full disk; None for no limit.
        closed: File descriptors that are closed when it begins.
    """

    agent: str
    raw: bytes
    environ: Mapping[str, str]
    store: str | None = None
    max_file_bytes: int | None = None
    closed: tuple[int, ...] = ()


class Done(NamedTuple):
    """What became of it.

    Attributes:
        code: Exit code; negative for a signal.
        stdout: Everything that it printed.
        took_ms: Wall time from the fork to the end.
    """

    code: int
    stdout: bytes
    took_ms: float


def run_cases(cases: Iterable[Case]) -> Iterator[Done]:
    """Run cases one after the other in parents of their own; yield what became of each."""
    waiting = iter(cases)
    while some := list(islice(waiting, PER_PARENT)):
        yield from _run_some(some)


def _run_some(cases: Sequence[Case]) -> Iterator[Done]:
    lines = "".join(f"{json.dumps({**c._asdict(), 'raw': _b64(c.raw)})}\n" for c in cases)
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.hook_runner"],
        input=lines.encode(),
        capture_output=True,
        cwd=root,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    for line in done.stdout.splitlines():
        found = json.loads(line)
        yield Done(found["code"], base64.b64decode(found["stdout"]), found["took_ms"])


def run_installed(
    case: Case, *, arguments: tuple[str, ...] | None = None, wait_s: float = 20.0
) -> Done:
    """Run the installed `noctuary hook`: everything from the start of Python on."""
    command = [str(Path(sys.executable).with_name("noctuary")), "hook"]
    given = ("--agent", case.agent, *(("--store", case.store) if case.store else ()))
    environ = {n: v for n, v in os.environ.items() if not n.startswith("NOCTUARY_")}
    started = time.perf_counter()
    done = subprocess.run(
        [*command, *(given if arguments is None else arguments)],
        input=case.raw,
        capture_output=True,
        env={**environ, **NO_SERVER, **case.environ},
        timeout=wait_s,
        check=False,
    )
    return Done(done.returncode, done.stdout, (time.perf_counter() - started) * 1000)


def _b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode("ascii")


def _fork(case: Case) -> Done:
    (stdin, feed), (drain, stdout) = os.pipe(), os.pipe()
    started = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        _become(case, stdin, stdout, (feed, drain))
    os.close(stdin)
    os.close(stdout)
    printed = _exchange(case.raw, feed, drain, started + LIMIT_S)
    if printed is None:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    took_ms = (time.perf_counter() - started) * 1000
    return Done(os.waitstatus_to_exitcode(status), printed or b"", took_ms)


def _become(case: Case, stdin: int, stdout: int, others: tuple[int, ...]) -> None:
    """Be the hook's process; does not return."""
    started_s = time.monotonic()
    try:
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        for handle in (stdin, stdout, *others, *case.closed):
            if handle > 2 or handle in case.closed:
                os.close(handle)
        os.environ.update({**NO_SERVER, **case.environ})
        if case.max_file_bytes is not None:
            limits = (case.max_file_bytes, case.max_file_bytes)
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        from noctuary.cli.entry import run_hook

        store = ["--store", case.store] if case.store else []
        run_hook(["--agent", case.agent, *store], started_s)
    finally:
        os._exit(97)  # the hook ends the process itself: it must never come here


def _exchange(raw: bytes, feed: int, drain: int, until: float) -> bytes | None:
    """Write stdin and read stdout to its end; None where that takes too long."""
    os.set_blocking(feed, False)
    printed, open_ = bytearray(), True
    try:
        while (left_s := until - time.perf_counter()) > 0:
            readable, writable, _ = select.select([drain], [feed] if open_ else [], [], left_s)
            if writable:
                try:
                    raw = raw[os.write(feed, raw[:65_536]) :]
                except BrokenPipeError:
                    raw = b""
                if not raw:
                    os.close(feed)
                    open_ = False
            if readable:
                part = os.read(drain, 65_536)
                if not part:
                    return bytes(printed)
                printed += part
        return None
    finally:
        os.close(drain)
        if open_:
            os.close(feed)


def _warm() -> None:
    """Import what a recall needs, once for all cases; open nothing."""
    os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1"))
    for name in (
        "noctuary.agents.hooks",
        "noctuary.context.inject",
        "noctuary.recall.api",
        "noctuary.agents.client",
        "noctuary.cli.entry",
        "noctuary.sources.transcripts",
    ):
        import_module(name)


def main() -> None:
    """Read cases from stdin, run each, print results."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    for name in [n for n in os.environ if n.startswith("NOCTUARY_")]:
        del os.environ[name]
    _warm()
    for line in sys.stdin.buffer:
        raw: dict[str, Any] = json.loads(line)
        raw |= {"raw": base64.b64decode(raw["raw"]), "closed": tuple(raw["closed"])}
        done = _fork(Case(**raw))
        result = {"code": done.code, "stdout": _b64(done.stdout), "took_ms": done.took_ms}
        sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
