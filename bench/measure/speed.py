"""Whether the read path keeps its promises of speed; writes speed.json.

`python -m bench.measure speed --locomo STORE --dataset DIR [--also STORE...] [--accept]`

Measures every store in a process of its own, then fresh processes over the locomo store. `--also`
takes stores of other sizes, as `scale` leaves them. Under 15 minutes on two cores.

Fresh processes are compared with the speed.json that is there. Exit codes: 0 every ratio is OK or
OKish; 1 one FAILs: nothing is written, unless with --accept.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from bench.children import ONE_THREAD, measure_in_child
from bench.datasets import open_dataset
from bench.manifest import describe_run
from bench.measure import reading
from bench.measure.oneshot import measure_oneshot
from bench.measure.targets import compare, judge
from bench.results import RESULTS_DIR, read_result, write_result
from bench.verify.verdict import Verdict
from noctuary.core.errors import SourceFormatError
from noctuary.core.files import write_text
from noctuary.evaluate.labels import read_queries
from noctuary.recall.engine import Recaller

QUESTIONS = 200
"""Questions per store: p95 then rests on ten values."""

LARGE, FEW = 100_000, 24
"""From so many memories on, FTS5 gets so few questions: one takes a second at a million."""

WARM = """
import json, sys
from pathlib import Path
from bench.measure.warm import measure_warm
texts = json.loads(Path(sys.argv[2]).read_text())
print(json.dumps(measure_warm(Path(sys.argv[1]), texts, int(sys.argv[3]))))
"""
_RESULT = "speed.json"


def measure_store(store: Path, questions: Sequence[str], fts_questions: int) -> dict[str, Any]:
    """Return the document of one store: warm times and the memory of a serving process."""
    place = str(store.absolute())
    with tempfile.TemporaryDirectory(prefix="noctuary-speed-") as folder:
        texts = Path(folder) / "questions.json"
        write_text(texts, json.dumps(questions))
        document = measure_in_child(["-c", WARM, place, str(texts), str(fts_questions)])
    memory = measure_in_child(["-c", reading.WARM, place, str(len(questions))])["memory_mb"]
    print(f"measured {store.name}", flush=True)
    return {**document, "resident": {"VmRSS": memory["Rss"]}, "synthetic": False}


def measure_other(store: Path) -> dict[str, Any]:
    """Measure a store without labelled questions, with some made of its own texts."""
    reader = Recaller.open(store).reader
    with closing(reader):
        questions = reading.make_questions(reader, QUESTIONS)
        few = FEW if reader.count >= LARGE else QUESTIONS
    return {**measure_store(store, questions, few), "synthetic": True}


def measure(locomo: Path, dataset: Path, others: Sequence[Path]) -> dict[str, Any]:
    """Return the whole document: of a store built from `dataset`, and of others."""
    run = describe_run()
    ranked = read_queries(open_dataset(dataset).queries).ranked
    texts = list(dict.fromkeys(query.text for query in ranked))
    texts = texts[:: max(len(texts) // QUESTIONS, 1)][:QUESTIONS]
    stores = [measure_store(locomo, texts, QUESTIONS)]
    stores[0]["store"] = dataset.absolute().name
    with tempfile.TemporaryDirectory(prefix="noctuary-speed-") as pycache:
        oneshot = measure_oneshot(locomo, texts[0], Path(pycache))
    print("measured fresh processes", flush=True)
    stores += [measure_other(store) for store in others]
    return {
        "kind": "speed",
        "manifest": {**run, "k": 10, "environment": ONE_THREAD},
        "stores": stores,
        "oneshot": oneshot,
        "targets": judge(stores, oneshot),
    }


def has_crept(document: dict[str, Any], path: Path) -> bool:
    """Print how fresh processes compare with a committed result, and say whether one FAILs."""
    try:
        committed = read_result(path)["oneshot"]["ratios"]
    except SourceFormatError:
        print(f"nothing to compare with at {path}")
        return False
    judged = compare(document["oneshot"]["ratios"], committed)
    for name, old, new, verdict in judged:
        print(f"{verdict.value:<6} {name}: {new} (committed: {old})")
    return any(verdict is Verdict.FAIL for *_, verdict in judged)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write speed.json and print the targets."""
    parser = argparse.ArgumentParser(prog="python -m bench.measure speed", description=__doc__)
    parser.add_argument("--locomo", type=Path, required=True, help="a store built from --dataset")
    parser.add_argument("--dataset", type=Path, required=True, help="folder of the labelled set")
    parser.add_argument("--also", type=Path, nargs="*", default=[], help="stores of other sizes")
    parser.add_argument("--out", type=Path, default=RESULTS_DIR)
    parser.add_argument("--accept", action="store_true", help="write the result though one FAILs")
    options = parser.parse_args(arguments)
    document = measure(options.locomo, options.dataset, options.also)
    for target in document["targets"]:
        sign = ">=" if target["at_least"] else "<="
        print(
            f"{'met   ' if target['met'] else 'MISSED'} {target['name']}: "
            f"{target['measured']} {sign} {target['limit']}"
        )
    if has_crept(document, options.out / _RESULT) and not options.accept:
        print("FAIL   slower than committed; mend it, or take it as it is with --accept")
        return 1
    write_result(options.out / _RESULT, document)
    return 0
