"""What the live overlay costs, and how near its answers are to those of the next night.

`python -m bench.measure live [--rounds 15] [--held-out 50] [--keep]`

The sample's newest memories are held out of a first night and then written into its source: what
recall finds through the overlay is compared with what it finds after a second night. Costs are CPU
milliseconds, with and without the overlay in turn, so that a busy machine meets both.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.datasets import CHECKOUT
from bench.manifest import describe_run
from bench.results import RESULTS_DIR, write_result
from noctuary.evaluate.labels import read_queries
from noctuary_pipelines import sample

ROUNDS = 15
STORE_ROWS = (6_000, 130_000)
NEW_ROWS = (0, 500)
HELD_OUT = 50
"""Memories that come after the first night: a busy day of one person."""

_ASK = (
    "import json, sys, noctuary; "
    "found = noctuary.recall(sys.argv[1], dry_run=True); "
    "print(json.dumps([found.to_json()['warnings'], len(found.memories)]))"
)


def measure(rounds: int = ROUNDS, held_out: int = HELD_OUT) -> dict[str, Any]:
    """Return costs and agreement, as JSON values.

    Args:
        rounds: Repetitions of every timing, > 2.
        held_out: Memories that the first night does not see, > 0.
    """
    with tempfile.TemporaryDirectory(prefix="noctuary-live-") as folder:
        root = Path(folder)
        home, source = root / "home", root / "memory.db"
        home.mkdir()
        sample.build(source)
        rows = _take_out(source, held_out)
        environ = {n: v for n, v in os.environ.items() if not n.startswith("NOCTUARY_")}
        os.environ.clear()
        os.environ.update(environ | {"NOCTUARY_HOME": str(home)})
        _night(source)
        _put_back(source, rows)
        queries = [q.text for q in read_queries(sample.QUERIES).ranked]
        costs = _costs(queries, rounds, source, held_out)
        before = [_answer(query) for query in queries]
        _night(source)
        after = [_answer(query) for query in queries]
        held = {str(row[0]) for row in rows}
        return {
            "held_out": held_out,
            "costs": costs,
            "looks": [_look_cost(root, count, rounds) for count in STORE_ROWS],
            "agreement": _agree(before, after, held),
        }


def _look_cost(folder: Path, count: int, rounds: int) -> dict[str, Any]:
    """Return CPU milliseconds of one look at a store of some rows, by how many of them are new."""
    from noctuary.sources.live import Limits, Since
    from noctuary.sources.live import look_into_sqlite as look

    path = folder / f"{count}.db"
    stamp = datetime.fromtimestamp(time.time() - 30 * 86_400, UTC).isoformat()
    rows = (
        (
            i,
            f"Memory {i}: " + "where the spare key hangs and who has it " * 6,
            "facts",
            stamp,
            stamp,
        )
        for i in range(1, count + 1)
    )
    with closing(sqlite3.connect(path)) as db:
        db.execute(sample.SCHEMA.partition(";")[0])
        columns = "id, content, category, created_at, updated_at"
        db.executemany(f"INSERT INTO memories ({columns}) VALUES (?, ?, ?, ?, ?)", rows)
        db.commit()
    costs: dict[str, float] = {}
    for new in NEW_ROWS:
        since = Since(count - new, count - new, time.time_ns() // 1000)
        call = lambda since=since: look(path, since, Limits(2_000, time.perf_counter() + 60))  # noqa: E731
        costs[str(new)] = _cpu(call, rounds)
    return {"rows": count, "cpu_ms": costs}


def _take_out(source: Path, count: int) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(source)) as db, db:
        rows = db.execute("SELECT * FROM memories ORDER BY id DESC LIMIT ?", (count,)).fetchall()
        db.executemany("DELETE FROM memories WHERE id = ?", [(row[0],) for row in rows])
    return rows


def _put_back(source: Path, rows: Sequence[tuple[Any, ...]]) -> None:
    now = datetime.now(UTC).isoformat()
    with closing(sqlite3.connect(source)) as db, db:
        marks = ",".join("?" * len(rows[0]))
        db.executemany(f"INSERT INTO memories VALUES ({marks})", rows)
        ids = [(now, row[0]) for row in rows]
        db.executemany("UPDATE memories SET updated_at = ? WHERE id = ?", ids)


def _night(source: Path) -> None:
    command = [sys.executable, "-m", "noctuary.cli.entry", "nightly", str(source)]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the night failed ({done.returncode}): {done.stderr[-2000:]}")


def _answer(query: str) -> list[tuple[str, bool, bool]]:
    from noctuary.recall.api import recall

    found = recall(query, 10, dry_run=True)
    return [(str(m.id), m.live, m.lexical is not None) for m in found.memories]


def _agree(
    before: Sequence[Sequence[tuple[str, bool, bool]]],
    after: Sequence[Sequence[tuple[str, bool, bool]]],
    held: set[str],
) -> dict[str, float]:
    """Return shares over all queries: equal top 10, equal sets, overlap, held-out rows found."""
    pairs = [([r[0] for r in b], [r[0] for r in a]) for b, a in zip(before, after, strict=True)]
    overlap = [len(set(b) & set(a)) / max(len(set(b) | set(a)), 1) for b, a in pairs]
    wanted = [(set(b), set(a) & held) for b, a in pairs if set(a) & held]
    shown = [len(b & w) / len(w) for b, w in wanted]
    return {
        "queries": len(pairs),
        "same_order": sum(b == a for b, a in pairs) / len(pairs),
        "same_ids": sum(set(b) == set(a) for b, a in pairs) / len(pairs),
        "same_first": sum(b[:1] == a[:1] for b, a in pairs) / len(pairs),
        "mean_jaccard": statistics.fmean(overlap),
        "queries_with_held_out": len(wanted),
        "held_out_shown": statistics.fmean(shown) if shown else 0.0,
    }


def _costs(queries: Sequence[str], rounds: int, source: Path, held_out: int) -> dict[str, Any]:
    from noctuary.recall.api import recall
    from noctuary.sources.live import Limits, Since
    from noctuary.sources.live import look_into_sqlite as look

    with closing(sqlite3.connect(source)) as db:
        count, last = db.execute("SELECT count(*), max(id) FROM memories").fetchone()
    since = Since(last - held_out, count - held_out, time.time_ns() // 1000)
    told: dict[str, Any] = {
        "look_cpu_ms": _cpu(
            lambda: look(source, since, Limits(2_000, time.perf_counter() + 60)), rounds
        )
    }
    for _ in range(4):
        for query in queries:
            recall(query, dry_run=True)  # until every live row has its vector
    warm: dict[str, list[float]] = {"with": [], "without": []}
    for number in range(rounds):
        for name, enabled in (("with", "true"), ("without", "false")):
            os.environ["NOCTUARY_LIVE_ENABLED"] = enabled
            query = queries[number % len(queries)]
            recall(query, dry_run=True)
            warm[name].append(_cpu(lambda q=query: recall(q, dry_run=True), 5))
    os.environ.pop("NOCTUARY_LIVE_ENABLED")
    told["warm_cpu_ms"] = {name: statistics.median(values) for name, values in warm.items()}
    cold: dict[str, list[float]] = {"with": [], "without": []}
    for number in range(rounds):
        for name, enabled in (("with", "true"), ("without", "false")):
            environ = {**os.environ, "NOCTUARY_LIVE_ENABLED": enabled}
            cold[name].append(_process_cpu(queries[number % len(queries)], environ))
    told["cold_process_cpu_ms"] = {name: statistics.median(v) for name, v in cold.items()}
    for kind in ("warm_cpu_ms", "cold_process_cpu_ms"):
        told[kind]["ratio"] = told[kind]["with"] / told[kind]["without"]
    return told


def _cpu(call: Callable[[], object], rounds: int) -> float:
    found: list[float] = []
    for _ in range(rounds):
        began = time.process_time()
        call()
        found.append((time.process_time() - began) * 1000)
    return statistics.median(found)


def _process_cpu(query: str, environ: Mapping[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-c", _ASK, query], env=dict(environ), capture_output=True, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime) * 1000


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print; with --keep, write the committed result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--held-out", type=int, default=HELD_OUT)
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args(arguments)
    found = measure(given.rounds, given.held_out)
    print(json.dumps(found, indent=1))
    if given.keep:
        write_result(
            RESULTS_DIR / "live.json", {"kind": "live", "manifest": describe_run(), **found}
        )
