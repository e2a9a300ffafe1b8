"""Latency of recall, measured side by side with an FTS5 search and with `import numpy`, in one run.

`python -m bench.measure latency --store STORE_DIR --dataset ../shared/data/locomo`

Absolute times move with the machine and its load; the ratios of things measured in turn, in one
run, move much less. Warm: the same queries in one process, the two systems alternating. Cold: fresh
processes in alternating rounds, interpreter start included.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.arms import SetContext, list_arms
from bench.arms.keyword import distinct_words
from bench.datasets import Dataset, open_dataset, read_corpus
from bench.manifest import describe_run
from bench.results import RESULTS_DIR, write_result
from noctuary.core.errors import StoreError
from noctuary.evaluate.labels import Query, read_queries
from noctuary.recall.engine import Recaller

K = 10
WARM_QUERIES = 200
"""Queries timed in the warm part, spread over the set: p95 then rests on ten values."""

COLD_ROUNDS = 7
"""Rounds of fresh processes: enough for a median that one busy moment does not move."""

COLD_NUMPY = "import numpy"
COLD_FTS = """
import sqlite3, sys
rows = sqlite3.connect(sys.argv[1]).execute(
    "SELECT rowid FROM plain WHERE plain MATCH ? ORDER BY bm25(plain), rowid LIMIT ?",
    (sys.argv[2], int(sys.argv[3])),
).fetchall()
print(len(rows))
"""
COLD_RECALL = """
import sys
from noctuary.recall.api import recall
result = recall(sys.argv[2], int(sys.argv[3]), store=sys.argv[1], dry_run=True)
print(len(result.memories), *(warning.code for warning in result.warnings))
"""


def measure_latency(
    store: Path, dataset: Dataset, *, queries: int = WARM_QUERIES, rounds: int = COLD_ROUNDS
) -> dict[str, Any]:
    """Return the latency document of a store.

    Raises:
        StoreError: If the store has no snapshot that opens, or a cold recall finds nothing.
    """
    rows = read_corpus(dataset)
    asked = _spread(read_queries(dataset.queries).ranked, queries)
    recaller = Recaller.open(store)
    return {
        "kind": "latency",
        "dataset": dataset.name,
        "manifest": {
            **describe_run(),
            "snapshot_id": recaller.snapshot_id,
            "memories": recaller.reader.count,
            "k": K,
        },
        "warm": measure_warm(SetContext(dataset, rows, recaller), asked),
        "cold": measure_cold(store, rows, asked[0].text, rounds),
    }


def measure_warm(context: SetContext, asked: Sequence[Query]) -> dict[str, Any]:
    """Time recall and the plain FTS5 search on the same queries in one process, alternating."""
    arms = {arm.name: arm for arm in list_arms(context, graph_seed=False)}
    fts, ours = arms["fts_plain"].make(), arms["noctuary"].make()
    systems: dict[str, Callable[[Query], object]] = {
        "fts_plain": lambda query: fts.retrieve_hits(query, K),
        "recall": lambda query: ours.retrieve_hits(query, K),
    }
    for query in asked[:5]:
        for ask in systems.values():
            ask(query)
    times: dict[str, list[float]] = {name: [] for name in systems}
    for turn, query in enumerate(asked):
        # The order flips each turn, so that neither system always finds the caches that the other
        # left.
        for name in sorted(systems, reverse=bool(turn % 2)):
            times[name].append(_time_ms(systems[name], query))
    document: dict[str, Any] = {name: _percentiles(values) for name, values in times.items()}
    document["ratio_p50"] = round(document["recall"]["p50_ms"] / document["fts_plain"]["p50_ms"], 2)
    document["n"] = len(asked)
    return document


def measure_cold(
    store: Path, rows: Sequence[dict[str, Any]], text: str, rounds: int
) -> dict[str, Any]:
    """Time fresh processes that import numpy, search FTS5 on disk, and recall, by turns."""
    match = " OR ".join(f'"{word}"' for word in distinct_words(text).split())
    with tempfile.TemporaryDirectory() as directory:
        database = Path(directory) / "fts.sqlite"
        _write_fts(database, rows)
        commands = {
            "import_numpy": [COLD_NUMPY],
            "fts_plain": [COLD_FTS, str(database), match, str(K)],
            "recall": [COLD_RECALL, str(store.absolute()), text, str(K)],
        }
        said = {name: _run(command)[1] for name, command in commands.items()}
        if said["recall"].split()[:1] in ([], ["0"]):
            raise StoreError(f"a cold recall on {store} found nothing: {said['recall']!r}")
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(rounds):
            for name, command in commands.items():
                times[name].append(_run(command)[0])
    document: dict[str, Any] = {name: _spread_of(values) for name, values in times.items()}
    for name in ("fts_plain", "recall"):
        ratios = [a / b for a, b in zip(times[name], times["import_numpy"], strict=True)]
        document[name]["ratio_to_import_numpy"] = round(statistics.median(ratios), 2)
    return {**document, "rounds": rounds, "recall_warnings": said["recall"].split()[1:]}


def _spread(queries: Sequence[Query], count: int) -> list[Query]:
    """Return about `count` queries at even steps, so that every part of the set is timed."""
    step = max(1, len(queries) // count)
    return list(queries[::step])[:count]


def _time_ms(ask: Callable[[Query], object], query: Query) -> float:
    started = time.perf_counter_ns()
    ask(query)
    return (time.perf_counter_ns() - started) / 1e6


def _percentiles(values: Sequence[float]) -> dict[str, float]:
    p50, p95 = np.percentile(values, [50.0, 95.0])
    return {"p50_ms": round(float(p50), 3), "p95_ms": round(float(p95), 3)}


def _spread_of(values: Sequence[float]) -> dict[str, Any]:
    return {"median_ms": round(statistics.median(values), 1), "min_ms": round(min(values), 1)}


def _write_fts(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE VIRTUAL TABLE plain USING fts5(content, content='')")
    connection.executemany(
        "INSERT INTO plain(rowid, content) VALUES (?, ?)",
        ((position, row["content"]) for position, row in enumerate(rows)),
    )
    connection.commit()
    connection.close()


def _run(command: Sequence[str]) -> tuple[float, str]:
    """Run a snippet in a fresh interpreter; return its wall time in ms and what it printed."""
    started = time.perf_counter_ns()
    done = subprocess.run(
        [sys.executable, "-c", *command], capture_output=True, text=True, check=False
    )
    elapsed_ms = (time.perf_counter_ns() - started) / 1e6
    if done.returncode != 0:
        raise StoreError(f"a cold process failed: {done.stderr.strip()[-500:]}")
    return elapsed_ms, done.stdout.strip()


def main(arguments: Sequence[str] | None = None) -> None:
    """Write latency-DATASET.json."""
    parser = argparse.ArgumentParser(prog="python -m bench.measure latency", description=__doc__)
    parser.add_argument("--store", type=Path, required=True, help="a store with a snapshot")
    parser.add_argument("--dataset", type=Path, required=True, help="folder of a labelled set")
    parser.add_argument("--out", type=Path, default=RESULTS_DIR)
    parser.add_argument("--rounds", type=int, default=COLD_ROUNDS)
    options = parser.parse_args(arguments)
    dataset = open_dataset(options.dataset)
    document = measure_latency(options.store, dataset, rounds=options.rounds)
    path = options.out / f"latency-{dataset.name}.json"
    write_result(path, document)
    print(json.dumps({"warm": document["warm"], "cold": document["cold"]}))
    print(f"wrote {path}")
