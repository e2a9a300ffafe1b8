"""Measure every signal of abstention on several sets; writes docs/benchmarks/json/abstention.json.

`python -m bench.abstention --stores DIR [--sets NAME...]`

DIR holds a store per set, as `python -m bench.suite --stores DIR` builds them; "sample" is the
bundled sample. Exit codes: 0 done; 1 a store is missing; 2 the sets are not there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from bench.abstention.measure import judge_refits, judge_signals, judge_thresholds
from bench.abstention.questions import ANSWERABLE, Asked, gather
from bench.abstention.signals import DESCRIPTIONS, Asker
from bench.compaction.sample_set import SAMPLE, write_sample_set
from bench.constants.asking import RememberedVectors
from bench.datasets import find_shared
from bench.manifest import describe_run
from bench.results import RESULTS_DIR, write_result
from bench.suite.loading import load_set
from noctuary.core.errors import NoctuaryError
from noctuary.evaluate.metrics import recall_at_k
from noctuary.recall.engine import Recaller
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Scope

RESULT = RESULTS_DIR / "abstention.json"
SETS = (SAMPLE, "locomo", "locomo_obs", "realmem", "scifact", "prefeval")
"""Attribution's constants were fitted on locomo, support's on the sample and prefeval
(docs/decisions/0008)."""

K = 10
UNTIMED = 20
"""First questions of a set, whose pages come from the disk."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the sets that are asked for and return the exit code."""
    document = {"kind": "abstention", "signals": dict(DESCRIPTIONS)}
    return measure_sets(__doc__ or "", arguments, _measure, SETS, RESULT, document)


def measure_sets(
    told: str,
    arguments: Sequence[str] | None,
    measure: Callable[[str, Path, Path], dict[str, Any]],
    sets: Sequence[str],
    result: Path,
    document: Mapping[str, Any],
) -> int:
    """Measure sets one by one, write what is known after each, and return the exit code.

    Args:
        told: What the command does, on its first line.
        arguments: Of the command.
        measure: Gets a set's name, the folder of all sets and that of the stores.
        sets: Measured unless others are asked for.
        result: Where the JSON goes unless another file is asked for.
        document: What it holds beside the sets.
    """
    parser = argparse.ArgumentParser(description=told.splitlines()[0])
    parser.add_argument("--stores", type=Path, required=True, help="a folder with a store per set")
    parser.add_argument("--sets", nargs="+", default=list(sets), help="names of sets")
    parser.add_argument("--out", type=Path, default=result, help="where the JSON goes")
    options = parser.parse_args(arguments)
    shared = find_shared()
    if shared is None:
        print("no labelled sets: put them beside the checkout as ../shared or set NOCTUARY_SHARED")
        return 2
    data, stores = (shared / "data").absolute(), options.stores.absolute()
    found: dict[str, Any] = {}
    try:
        for name in options.sets:
            found[name] = measure(name, data, stores)
            write_result(options.out, {**document, "sets": found, "manifest": describe_run()})
    except NoctuaryError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _measure(name: str, data: Path, stores: Path) -> dict[str, Any]:
    folder = data / name
    if name == SAMPLE:
        folder = write_sample_set(stores / "_sets" / SAMPLE)
    loaded = load_set(folder.absolute())
    questions = gather(loaded, data)
    recaller = Recaller.open(stores / name)
    with closing(recaller.reader):
        world: Any = RememberedVectors(recaller.inputs_now())
        asker = Asker(recaller, world)
        rows = [asker.signals(one) for one in questions]
        recalls = [_recall(recaller, one, world) for one in questions if one.kind == ANSWERABLE]
    table = {signal: np.array([row[signal] for row in rows]) for signal in DESCRIPTIONS}
    times = np.quantile(asker.score_ms[UNTIMED:], [0.5, 0.95])
    print(f"{name}: {len(questions)} questions, score {times[0]:.2f} ms p50", flush=True)
    return {
        "memories": recaller.reader.count,
        "questions": {
            kind: sum(one.kind == kind for one in questions)
            for kind in dict.fromkeys(one.kind for one in questions)
        },
        "score_ms": {"p50": round(float(times[0]), 3), "p95": round(float(times[1]), 3)},
        "aurocs": judge_signals(questions, table),
        "refits": judge_refits(questions, table),
        "thresholds": judge_thresholds(questions, table, recalls),
    }


def _recall(recaller: Recaller, asked: Asked, world: Any) -> float:
    scope = Scope(as_of=asked.query.as_of)
    found = recaller.recall(
        asked.query.text, K, profile=RetrievalProfile(), inputs=world, scope=scope
    )
    return recall_at_k([str(m.id) for m in found.memories], asked.query.relevant_ids, K)


if __name__ == "__main__":
    sys.exit(main())
