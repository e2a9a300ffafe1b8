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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.manifest import describe_run
from bench.measure.oneshot import child_environment
from bench.results import RESULTS_DIR, write_result
from noctuary.agents.client import Refusal, ping
from noctuary.evaluate.labels import read_queries

ROUNDS = 40
"""Processes of each kind: p95 then rests on two values; more take longer."""

_READY_S = 30.0
_NOCTUARY = str(Path(sys.executable).with_name("noctuary"))


def measure_hooks(store: Path, prompts: Sequence[str], rounds: int = ROUNDS) -> dict[str, Any]:
    """Return milliseconds of each kind of hook process: p50, p95, max, CPU, and how many answered.

    The CPU time (median, the server's not counted) hardly moves with the machine's load.

    Args:
        store: A published store directory; nothing is written to it.
        prompts: Asked in turn.
        rounds: Processes of each kind, > 1.
    """
    with tempfile.TemporaryDirectory(prefix="noctuary-hooks-") as folder:
        home = Path(folder) / "home"
        shutil.copytree(store, home / store.name)
        runtime = Path(folder) / "run"
        runtime.mkdir(mode=0o700)
        environ = {n: v for n, v in os.environ.items() if not n.startswith("NOCTUARY_")}
        environ = child_environment(environ, Path(folder) / "pycache")
        environ |= {"NOCTUARY_HOME": str(home), "NOCTUARY_HOOK_CAPTURE": "false"}
        environ["NOCTUARY_HOOK_START_SERVER"] = "false"  # who is measured without one stays so
        warm = {**environ, "XDG_RUNTIME_DIR": str(runtime)}
        cold = {**environ, "XDG_RUNTIME_DIR": str(Path(folder) / "none")}
        server = subprocess.Popen(
            [_NOCTUARY, "serve", "--store", str(home / store.name)],
            env=warm,
            stdout=subprocess.DEVNULL,
        )
        try:
            _await_server(home / store.name, runtime)
            return _take_turns(prompts, rounds, warm, cold)
        finally:
            server.terminate()
            server.wait()


def _take_turns(
    prompts: Sequence[str], rounds: int, warm: Mapping[str, str], cold: Mapping[str, str]
) -> dict[str, Any]:
    hook = [_NOCTUARY, "hook", "--agent", "claude"]
    times: dict[str, list[float]] = {}
    spent: dict[str, list[float]] = {}
    answered: dict[str, int] = {}
    for i in range(-1, rounds):
        prompt = {"prompt": prompts[i % len(prompts)]}
        for name, command, event, environ in (
            ("bare", [sys.executable, "-c", "pass"], {}, cold),
            ("PreCompact", hook, {"hook_event_name": "PreCompact", "trigger": "auto"}, cold),
            ("prompt, warm server", hook, {"hook_event_name": "UserPromptSubmit", **prompt}, warm),
            ("prompt, no server", hook, {"hook_event_name": "UserPromptSubmit", **prompt}, cold),
        ):
            raw = json.dumps({"session_id": f"{name} {i}", "transcript_path": None, **event})
            before, started = _children_cpu_s(), time.perf_counter()
            done = subprocess.run(
                command, input=raw.encode(), stdout=subprocess.PIPE, env=environ, check=True
            )
            if i >= 0:  # the first round reads files from the disk for all
                times.setdefault(name, []).append((time.perf_counter() - started) * 1000)
                spent.setdefault(name, []).append((_children_cpu_s() - before) * 1000)
                answered[name] = answered.get(name, 0) + (b"additionalContext" in done.stdout)
    return {
        name: {
            "p50_ms": round(statistics.median(took), 1),
            "p95_ms": round(statistics.quantiles(took, n=20, method="inclusive")[-1], 1),
            "max_ms": round(max(took), 1),
            "cpu_ms": round(statistics.median(spent[name]), 1),
            "processes": len(took),
            "answered": answered[name],
        }
        for name, took in times.items()
    }


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _await_server(store: Path, runtime: Path) -> None:
    os.environ["XDG_RUNTIME_DIR"] = str(runtime)
    until = time.monotonic() + _READY_S
    while isinstance(ping(store), Refusal) and time.monotonic() < until:
        time.sleep(0.05)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", type=Path, required=True, help="a published store directory")
    parser.add_argument("--queries", type=Path, required=True, help="labelled queries to ask")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="processes of each kind")
    parser.add_argument("--keep", action="store_true", help="write docs/benchmarks/json/hooks.json")
    given = parser.parse_args(arguments)
    prompts = [query.text for query in read_queries(given.queries).ranked]
    processes = measure_hooks(given.store, prompts, given.rounds)
    document = {"kind": "hooks", "manifest": describe_run(), "processes": processes}
    if given.keep:
        write_result(RESULTS_DIR / "hooks.json", document)
    print(json.dumps(document, indent=1))
