"""Runs the real commands as processes that know nothing of the developer's own stores."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.night_forks import NightForks
from tests.support.hook_runner import NO_SERVER

ROOT = Path(__file__).resolve().parents[2]

NIGHT_TIMEOUT_S = 900
"""A night of the sample takes 20 s on a quiet machine; only a hang takes this long anywhere."""

DONE, FAILED, REFUSED, LOCKED, STOPPED = 0, 1, 3, 4, 130
"""Exit codes of `noctuary nightly`."""


@dataclass(frozen=True)
class Ran:
    """A process that ended: exit code and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        """What `--json` printed."""
        return json.loads(self.out)

    def stage(self, name: str) -> dict[str, Any]:
        """What one stage of the night reported."""
        (found,) = [s for s in self.report["stages"] if s["name"] == name]
        return found

    def note(self, stage: str, name: str) -> Any:
        """A number that is only true of this night."""
        return self.stage(stage)["notes"][name]

    @property
    def says(self) -> str:
        """Everything that a person sees."""
        return self.out + self.err


def environment(home: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment without what points at a store or says that make runs.

    One thread per process: several spin on each other where the machine is busy, and the vectors
    must not depend on it (test_incremental rebuilds with two). Fewer exact queries than by default:
    every night of a changed source asks them anew, and only test_evaluation looks at what they say.
    """
    foreign = ("NOCTUARY_", "DAGSTER_", "MAKE", "MFLAGS")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    told = {"OMP_NUM_THREADS": "1", "NOCTUARY_EVALUATION_EXACT_QUERIES": "8", **NO_SERVER}
    return {**kept, **told, "NOCTUARY_HOME": str(home), **(extra or {})}


def night_words(source: Path | None, store: Path, *options: str) -> list[str]:
    """Return the command line of a night."""
    named = [] if source is None else [str(source)]
    return [
        sys.executable,
        "-m",
        "noctuary.cli.entry",
        "nightly",
        *named,
        "--store",
        str(store),
        *options,
    ]


def run(
    words: Sequence[str],
    home: Path,
    *,
    extra: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    before_exec: Callable[[], None] | None = None,
) -> Ran:
    """Run a command to its end."""
    done = subprocess.run(
        words,
        env=environment(home, extra),
        cwd=cwd or home,
        capture_output=True,
        encoding="utf-8",
        timeout=NIGHT_TIMEOUT_S,
        check=False,
        preexec_fn=before_exec,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def run_night(
    source: Path | None,
    store: Path,
    *options: str,
    extra: Mapping[str, str] | None = None,
    before_exec: Callable[[], None] | None = None,
    fresh: bool = False,
) -> Ran:
    """Run a whole night in a process of its own; with `--json` unless options are given.

    The process is a fork of one that has the libraries, unless it must start afresh: with limits or
    threads of its own, or because the start is what a test is about.
    """
    words, home = night_words(source, store, *(options or ("--json",))), _home_of(store)
    if fresh or before_exec is not None:
        return run(words, home, extra=extra, before_exec=before_exec)
    told = environment(home, extra)
    return Ran(*_FORKS.run(words[2:], cwd=home, env=told, timeout_s=NIGHT_TIMEOUT_S))


def end_forks() -> None:
    """End the process that nights are forked from; the next night starts another."""
    _FORKS.close()


def start_night(source: Path, store: Path) -> subprocess.Popen[str]:
    """Start a night without waiting for it; end it with `kill`."""
    return start(night_words(source, store, "--json"), _home_of(store))


def start(
    words: Sequence[str],
    home: Path,
    *,
    extra: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.Popen[str]:
    """Start a command in a session of its own, so that `kill` reaches what it starts."""
    return subprocess.Popen(
        words,
        env=environment(home, extra),
        cwd=cwd or home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        start_new_session=True,
    )


def kill(process: subprocess.Popen[str], how: signal.Signals = signal.SIGKILL) -> None:
    """End a process that `start` started, and everything of its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, how)
    process.communicate()


_FORKS = NightForks(environment(ROOT))


def _home_of(store: Path) -> Path:
    """Return the nearest directory above a store that is there."""
    return next(p for p in store.parents if p.is_dir())
