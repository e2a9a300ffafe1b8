"""Times and memory of a process that recalls: `python -m bench.scale.reading_warm STORE N`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.scale.asked import make_questions
from bench.speed.clock import percentiles
from noctuary.recall import inputs
from noctuary.recall.engine import Recaller

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
    runtime = "the snapshot has no vectors"
    if recaller.reader.manifest.encoder is not None:
        runtime = inputs.warm_up(recaller.paths, recaller.reader.manifest)
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
        "runtime_not_used": runtime,
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print one JSON object."""
    store, count = sys.argv[1:] if arguments is None else arguments
    print(json.dumps(measure_warm(Path(store), int(count))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
