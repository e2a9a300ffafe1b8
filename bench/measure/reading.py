"""How fast and how big recall is over published stores.

`python -m bench.measure reading STORE...`. Every measurement is a process of its own with one BLAS
thread: a warm recall, and fresh processes with the snapshot's pages in the page cache or dropped.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.children import ONE_THREAD, measure_in_child, run_in_child
from bench.manifest import describe_run
from bench.measure.clock import percentiles
from bench.measure.oneshot import RECALL
from bench.results import RESULTS_DIR, write_result
from noctuary.recall import inputs
from noctuary.recall.engine import Recaller
from noctuary.recall.reader import SnapshotReader

# Questions made of a store's own texts: some words of a memory in a row, without some of them.

RUN_WORDS = 12
"""Words that a question is cut from: about those of a prompt's longest sentence."""

LEFT_OUT = 1 / 3
"""Share of them that is left out, at least one stays; more makes questions vaguer."""


def make_questions(reader: SnapshotReader, count: int, seed: int = 0) -> list[str]:
    """Return questions, each about a memory drawn with equal odds, without repeats of a memory.

    Args:
        reader: The snapshot.
        count: How many; a smaller store gives as many as it has memories.
        seed: Equal seeds give equal questions about equal snapshots.
    """
    rng = random.Random(seed)
    positions = rng.sample(range(reader.count), min(count, reader.count))
    rows = reader.describe(positions)
    return [cut_question(str(rows[position]["content"]), rng) for position in positions]


def cut_question(text: str, rng: random.Random) -> str:
    """Return a run of a text's words without some of them, in order."""
    words = text.split()
    start = rng.randrange(max(len(words) - RUN_WORDS, 0) + 1)
    run = words[start : start + RUN_WORDS]
    kept = [word for word in run if rng.random() >= LEFT_OUT]
    return " ".join(kept or run[:1])


# A warm process.

K = 10
WARM_UP = 10
"""Questions before the clock runs, so that files are mapped; memory counts all of them."""

ROLLUP = Path("/proc/self/smaps_rollup")
STATUS = Path("/proc/self/status")
_ROLLUP_FIELDS = ("Rss", "Pss", "Pss_Anon", "Pss_File")
_STATUS_FIELDS = ("VmHWM", "RssAnon", "RssFile")


def read_kb(text: str, fields: Sequence[str]) -> dict[str, float]:
    """Return some fields of a file of /proc, whose values are in kB, in MB."""
    lines = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {name: round(int(lines[name].split()[0]) / 1000, 1) for name in fields}


def measure_memory() -> dict[str, float]:
    """Return the memory of this process in MB: resident, shared out, highest, without files."""
    return {
        **read_kb(ROLLUP.read_text(), _ROLLUP_FIELDS),
        **read_kb(STATUS.read_text(), _STATUS_FIELDS),
    }


def measure_warm(store: Path, count: int) -> dict[str, Any]:
    """Return times of recalls from end to end and by step, and the memory after them.

    Args:
        store: A published store.
        count: Questions.
    """
    started = time.perf_counter()
    recaller = Recaller.open(store)
    open_ms = (time.perf_counter() - started) * 1e3
    questions = make_questions(recaller.reader, count + WARM_UP)
    started = time.perf_counter()
    recaller.recall(questions[0], K)
    first_ms = (time.perf_counter() - started) * 1e3
    if recaller.reader.manifest.encoder is not None:
        inputs.warm_up(recaller.paths, recaller.reader.manifest)
    for question in questions[:WARM_UP]:
        recaller.recall(question, K)
    times: dict[int, float] = {}
    cpu: list[float] = []
    steps: dict[str, list[float]] = {}
    codes: set[str] = set()
    for number, question in enumerate(questions[WARM_UP:]):
        started, cpu_started = time.perf_counter(), time.process_time()
        result = recaller.recall(question, K)
        times[number] = (time.perf_counter() - started) * 1e3
        cpu.append((time.process_time() - cpu_started) * 1e3)
        codes.update(warning.code for warning in result.warnings)
        for step, spent_ms in result.phase_timing_ms.items():
            steps.setdefault(step, []).append(spent_ms)
    return {
        "memories": recaller.reader.count,
        "open_ms": round(open_ms, 1),
        "first_recall_ms": round(first_ms, 1),
        "recall": percentiles(times),
        # All threads; says on a busy machine what the wall time cannot.
        "recall_cpu": {"p50_ms": _at(cpu, 50.0), "p95_ms": _at(cpu, 95.0)},
        "steps": {
            step: {"p50_ms": _at(spent, 50.0), "p95_ms": _at(spent, 95.0)}
            for step, spent in steps.items()
        },
        "warnings": sorted(codes),
        "memory_mb": measure_memory(),
    }


def _at(values: Sequence[float], percent: float) -> float:
    return round(float(np.percentile(list(values), percent)), 3)


# The whole measurement.

QUESTIONS = 200
"""Per measurement: p95 then rests on ten values."""

FRESH_ROUNDS = 7
"""Fresh processes of each kind, in turns: enough for a median that a busy moment does not move."""

WARM = """
import json, sys
from pathlib import Path
from bench.measure.reading import measure_warm
print(json.dumps(measure_warm(Path(sys.argv[1]), int(sys.argv[2]))))
"""
RESULT = "scale-reading.json"
WALK = "walk"
"""Key of the only way to follow the graph; earlier results hold `ppr` beside it."""


def measure_reading(store: Path, questions: int = QUESTIONS) -> dict[str, Any]:
    """Return the document of one store.

    Args:
        store: A published store of any size, with its LanceDB tables on disk.
        questions: Asked by every measurement.
    """
    place, count = str(store.absolute()), str(questions)
    warm = measure_in_child(["-c", WARM, place, count])
    return {
        "store": store.name,
        "memories": warm["memories"],
        "questions": questions,
        "question": f"of {RUN_WORDS} words of a memory in a row, {LEFT_OUT:.2f} left out, seed 0",
        "warm": {WALK: warm},
        "fresh": measure_fresh(store),
        "load_average_1m": round(os.getloadavg()[0], 2),
    }


def measure_fresh(store: Path, rounds: int = FRESH_ROUNDS) -> dict[str, Any]:
    """Return wall times of processes that start, recall once and end.

    "dropped" asks the kernel to forget the snapshot's pages before each start. A page that another
    process maps stays, so nothing else may serve the store meanwhile.
    """
    recaller = Recaller.open(store)
    (text,) = make_questions(recaller.reader, 1, seed=1)
    snapshot = recaller.reader.directory
    recaller.reader.close()
    del recaller
    command = ["-c", RECALL, str(store.absolute()), text]
    with tempfile.TemporaryDirectory(prefix="noctuary-reading-") as pycache:
        os.environ["PYTHONPYCACHEPREFIX"] = pycache
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        run_in_child(command)
        times: dict[str, list[float]] = {"cached": [], "dropped": []}
        for _ in range(rounds):
            for kind, found in times.items():
                if kind == "dropped":
                    drop_pages(snapshot)
                started = time.perf_counter()
                run_in_child(command)
                found.append((time.perf_counter() - started) * 1e3)
        del os.environ["PYTHONPYCACHEPREFIX"]
    return {
        kind: {"median_ms": round(statistics.median(found), 1), "min_ms": round(min(found), 1)}
        for kind, found in times.items()
    }


def drop_pages(directory: Path) -> None:
    """Ask the kernel to forget what it holds of a directory's files."""
    for path in sorted(directory.iterdir()):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the stores, smallest first as given, and write scale-reading.json after each."""
    parser = argparse.ArgumentParser(prog="python -m bench.measure reading", description=__doc__)
    parser.add_argument("stores", type=Path, nargs="+", help="published stores")
    parser.add_argument("--questions", type=int, default=QUESTIONS)
    parser.add_argument("--out", type=Path, default=RESULTS_DIR)
    options = parser.parse_args(arguments)
    document: dict[str, Any] = {"kind": "scale-reading", "manifest": describe_run(), "stores": []}
    document["manifest"].update(k=10, environment=ONE_THREAD)
    for store in options.stores:
        found = measure_reading(store, options.questions)
        document["stores"].append(found)
        write_result(options.out / RESULT, document)
        recall = found["warm"][WALK]["recall"]
        print(f"{found['memories']:,} memories: p50 {recall['p50_ms']} p95 {recall['p95_ms']} ms")
    return 0
