"""How long an agent waits for `noctuary hook`: whole processes, interpreter start included.

`python -m bench.measure hooks --store STORE --queries FILE [--rounds 40] [--keep]`

The store is copied, and every prompt is the first of a session of its own, so that each has
something to inject. "bare" is `python -c pass`: what any hook written in Python costs at least on
this machine at this moment. The rounds take turns, so that a busy moment meets all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.manifest import describe_run
from bench.measure.oneshot import child_environment, serving
from bench.results import RESULTS_DIR, write_result
from noctuary.evaluate.labels import read_queries

ROUNDS = 40
"""Processes of each kind: p95 then rests on two values; more take longer."""

Asked = tuple[float, float, bool]
"""Wall and CPU milliseconds of a process, and whether it injected something."""


def measure_hooks(
    sides: Mapping[str, tuple[str, Path]], prompts: Sequence[str], rounds: int = ROUNDS
) -> dict[str, Any]:
    """Return by side the milliseconds of each kind of hook process: p50, p95, max, CPU, answers.

    The CPU time (median, the server's not counted) hardly moves with the machine's load.

    Args:
        sides: Whose noctuary (a Python beside its program), and a published store directory, to
            which nothing is written. All take turns.
        prompts: Asked in turn.
        rounds: Processes of each kind, > 1.
    """
    found: dict[str, dict[str, list[Asked]]] = {side: {} for side in sides}
    with tempfile.TemporaryDirectory(prefix="nh-") as folder, ExitStack() as stack:
        copies = {
            side: _copy(Path(folder) / str(number), python, store, stack)
            for number, (side, (python, store)) in enumerate(sides.items())
        }
        for i in range(-1, rounds):
            for side, copy in copies.items():
                for name, asked in _ask(i, prompts[i % len(prompts)], *copy):
                    if i >= 0:  # the first round reads files from the disk for all
                        found[side].setdefault(name, []).append(asked)
    return {
        side: {name: _summary(asked) for name, asked in kinds.items()}
        for side, kinds in found.items()
    }


def _copy(
    folder: Path, python: str, store: Path, stack: ExitStack
) -> tuple[str, Mapping[str, str], Mapping[str, str]]:
    """Copy a store and start its server; return the environments with and without that."""
    home, runtime = folder / "home", folder / "run"
    shutil.copytree(store, home / store.name)
    runtime.mkdir(mode=0o700)
    environ = {n: v for n, v in os.environ.items() if not n.startswith("NOCTUARY_")}
    environ = child_environment(environ, folder / "pycache")
    environ |= {"NOCTUARY_HOME": str(home), "NOCTUARY_HOOK_CAPTURE": "false"}
    asks = "from noctuary.core.settings import HookSettings; print(HookSettings._fields)"
    found = subprocess.run([python, "-c", asks], stdout=subprocess.PIPE, text=True, check=True)
    if "start_server" in found.stdout:  # an older commit refuses what it does not know
        environ["NOCTUARY_HOOK_START_SERVER"] = "false"  # who is measured without one stays so
    warm = {**environ, "XDG_RUNTIME_DIR": str(runtime)}
    stack.enter_context(serving(home / store.name, warm, python))
    return python, warm, {**environ, "XDG_RUNTIME_DIR": str(folder / "none")}


def _ask(
    i: int, prompt: str, python: str, warm: Mapping[str, str], cold: Mapping[str, str]
) -> Iterator[tuple[str, Asked]]:
    hook = [str(Path(python).with_name("noctuary")), "hook", "--agent", "claude"]
    prompted = {"hook_event_name": "UserPromptSubmit", "prompt": prompt}
    for name, command, event, environ in (
        ("bare", [python, "-c", "pass"], {}, cold),
        ("PreCompact", hook, {"hook_event_name": "PreCompact", "trigger": "auto"}, cold),
        ("prompt, warm server", hook, prompted, warm),
        ("prompt, no server", hook, prompted, cold),
    ):
        raw = json.dumps({"session_id": f"{name} {i}", "transcript_path": None, **event})
        before, started = _children_cpu_s(), time.perf_counter()
        done = subprocess.run(
            command, input=raw.encode(), stdout=subprocess.PIPE, env=environ, check=True
        )
        wall_ms = (time.perf_counter() - started) * 1000
        cpu_ms = (_children_cpu_s() - before) * 1000
        yield name, (wall_ms, cpu_ms, b"additionalContext" in done.stdout)


def _summary(asked: Sequence[Asked]) -> dict[str, Any]:
    took, spent, answered = zip(*asked, strict=True)
    return {
        "p50_ms": round(statistics.median(took), 1),
        "p95_ms": round(statistics.quantiles(took, n=20, method="inclusive")[-1], 1),
        "max_ms": round(max(took), 1),
        "cpu_ms": round(statistics.median(spent), 1),
        "processes": len(took),
        "answered": sum(answered),
    }


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", type=Path, required=True, help="a published store directory")
    parser.add_argument("--queries", type=Path, required=True, help="labelled queries to ask")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="processes of each kind")
    parser.add_argument("--keep", action="store_true", help="write docs/benchmarks/json/hooks.json")
    given = parser.parse_args(arguments)
    prompts = [query.text for query in read_queries(given.queries).ranked]
    processes = measure_hooks({"now": (sys.executable, given.store)}, prompts, given.rounds)["now"]
    document = {"kind": "hooks", "manifest": describe_run(), "processes": processes}
    if given.keep:
        write_result(RESULTS_DIR / "hooks.json", document)
    print(json.dumps(document, indent=1))
