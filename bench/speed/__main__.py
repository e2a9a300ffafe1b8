"""`python -m bench.speed --locomo STORE --dataset DIR [--sizes 10000 ...] [--accept]`.

Builds the synthetic stores, measures every store in a process of its own, then fresh processes over
the locomo store, and writes speed.json. Under 15 minutes on two cores.

Fresh processes are held against the speed.json that is there. Exit codes: 0 every ratio is OK or
OKish; 1 one FAILs: nothing is written, unless with --accept.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.children import ONE_THREAD, measure_in_child
from bench.datasets import open_dataset
from bench.manifest import describe_run
from bench.results import RESULTS_DIR, read_result, write_result
from bench.speed.oneshot import measure_oneshot
from bench.speed.targets import compare, judge
from bench.verify.verdict import Verdict
from noctuary.core.errors import SourceFormatError
from noctuary.core.files import write_text
from noctuary.evaluate.labels import read_queries

SIZES = (10_000, 100_000, 1_000_000)
"""Growth is promised from the first to the last, the other ratios at each."""

QUESTIONS = 200
"""Questions per store: p95 then rests on ten values."""

FTS_QUESTIONS = {10_000: 190, 100_000: 100, 1_000_000: 24}
"""Questions that the FTS5 searches are asked, by size: at a million memories one takes a second."""

BUILD = """
import json, sys
from pathlib import Path
from bench.speed.pack import build_store
print(json.dumps(build_store(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))))
"""
_RESULT = "speed.json"


def measure_store(
    store: Path, questions: Path, fts_questions: int, vectors: Path | None
) -> dict[str, Any]:
    """Return the document of one store: warm times and the memory of a serving process."""
    given = [] if vectors is None else ["--vectors", str(vectors)]
    warm = ["-m", "bench.speed.warm", str(store), str(questions), "--fts", str(fts_questions)]
    document = measure_in_child([*warm, *given])
    resident = ["-m", "bench.speed.resident", str(store), str(questions)]
    document["resident"] = measure_in_child(resident)
    document["synthetic"] = vectors is not None
    print(f"measured {store.name}", flush=True)
    return document


def measure_synthetic(size: int, root: Path, encoder_from: Path) -> dict[str, Any]:
    """Build the synthetic store of a size unless it is there, and measure it."""
    store = root / f"synthetic-{size}"
    built: dict[str, Any] = {}
    if not (store / "CURRENT").is_file():
        built = measure_in_child(["-c", BUILD, str(store), str(size), str(encoder_from)])
        print(f"built {store.name} in {built['total_s']:.0f} s", flush=True)
    document = measure_store(
        store,
        store / "questions.json",
        FTS_QUESTIONS.get(size, FTS_QUESTIONS[max(SIZES)]),
        store / "question_vectors.npy",
    )
    return {**document, "build": built}


def measure(locomo: Path, dataset: Path, sizes: Sequence[int], root: Path) -> dict[str, Any]:
    """Return the whole document.

    Args:
        locomo: A store built from `dataset`; its query encoder serves the synthetic stores too.
        dataset: Folder of the labelled set.
        sizes: Of the synthetic stores.
        root: Where these are built; what is there already is used.
    """
    run = describe_run()
    ranked = read_queries(open_dataset(dataset).queries).ranked
    texts = list(dict.fromkeys(query.text for query in ranked))
    texts = texts[:: max(len(texts) // QUESTIONS, 1)][:QUESTIONS]
    with tempfile.TemporaryDirectory(prefix="noctuary-speed-") as folder:
        questions = Path(folder) / "questions.json"
        write_text(questions, json.dumps(texts))
        stores = [measure_store(locomo.absolute(), questions, QUESTIONS, None)]
        stores[0]["store"] = dataset.absolute().name
        oneshot = measure_oneshot(locomo, texts[0], Path(folder) / "pycache")
        print("measured fresh processes", flush=True)
    stores += [measure_synthetic(size, root, locomo) for size in sizes]
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
    parser = argparse.ArgumentParser(prog="python -m bench.speed", description=__doc__)
    parser.add_argument("--locomo", type=Path, required=True, help="a store built from --dataset")
    parser.add_argument("--dataset", type=Path, required=True, help="folder of the labelled set")
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES))
    parser.add_argument("--stores", type=Path, help="keep the synthetic stores here")
    parser.add_argument("--out", type=Path, default=RESULTS_DIR)
    parser.add_argument("--accept", action="store_true", help="write the result though one FAILs")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="noctuary-speed-") as temporary:
        root = (options.stores or Path(temporary)).absolute()
        document = measure(options.locomo, options.dataset, options.sizes, root)
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


if __name__ == "__main__":
    sys.exit(main())
