"""`python -m bench.scale.reading STORE...`: how fast and how big recall is over published stores.

Every measurement is a process of its own with one BLAS thread: recall, the dense leg's engines side
by side, and fresh processes with the snapshot's pages in the page cache and dropped from it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.children import ONE_THREAD, measure_in_child, run_in_child
from bench.manifest import describe_run
from bench.results import RESULTS_DIR, write_result
from bench.scale.asked import LEFT_OUT, RUN_WORDS, make_questions
from bench.speed.oneshot import RECALL
from noctuary.recall.engine import Recaller

QUESTIONS = 200
"""Per measurement: p95 then rests on ten values."""

FRESH_ROUNDS = 7
"""Fresh processes of each kind, in turns: enough for a median that a busy moment does not move."""

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
    warm = measure_in_child(["-m", "bench.scale.reading_warm", place, count])
    return {
        "store": store.name,
        "memories": warm["memories"],
        "questions": questions,
        "question": f"of {RUN_WORDS} words of a memory in a row, {LEFT_OUT:.2f} left out, seed 0",
        "warm": {WALK: warm},
        "dense": measure_in_child(["-m", "bench.scale.reading_engines", place, count]),
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
    parser = argparse.ArgumentParser(prog="python -m bench.scale.reading", description=__doc__)
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


if __name__ == "__main__":
    sys.exit(main())
