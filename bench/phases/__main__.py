"""Measure what every phase does to the answers on labelled sets, and write docs/benchmarks.

`python -m bench.phases --stores DIR [--sets NAME ...] [--out DIR] [--sample 400]`

A store that is not there is built by a real night. Exit codes: 0 done; 1 a set could not be loaded
or measured; 2 the sets are not there.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.datasets import find_shared
from bench.phases.asking import SAMPLE
from bench.phases.measure import measure_set
from bench.results import RESULTS_DIR, write_result
from bench.suite.loading import LoadedSet, load_all
from bench.suite.night import build_store
from bench.suite.plan import DEFAULT_STORES
from bench.tables import pages
from noctuary.core.errors import NoctuaryError
from noctuary.core.store import StorePaths

SETS = ("locomo", "prefeval", "realmem", "scifact")
"""Chat, preferences, dated memories with questions in time, and documents: one of each kind."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and return the exit code."""
    options = _parse(arguments)
    shared = find_shared()
    if shared is None:
        print("no labelled sets: put them beside the checkout as ../shared or set NOCTUARY_SHARED")
        return 2
    loaded, faults = load_all([(shared / "data" / name).absolute() for name in options.sets])
    for one in loaded:
        try:
            _measure(one, options.stores.absolute(), options.out, options.sample)
        except NoctuaryError as error:
            faults[one.name] = str(error)
    for name, fault in faults.items():
        print(f"FAULT {name}: {fault}", file=sys.stderr)
    if options.out == RESULTS_DIR:
        pages.main([])
    return int(bool(faults))


def _measure(loaded: LoadedSet, stores: Path, out: Path, sample: int) -> None:
    started = time.perf_counter()
    store = stores / loaded.name
    if not StorePaths(store).current.is_file():
        build_store(loaded.dataset.directory, store, stores / "_runs" / f"{loaded.name}.night.log")

    def log(text: str) -> None:
        print(f"[{time.perf_counter() - started:7.1f} s] {text}", flush=True)

    document = measure_set(loaded, store, at_most=sample, log=log)
    write_result(out / f"phases-{loaded.name}.json", document)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.phases", description=__doc__)
    parser.add_argument("--stores", type=Path, default=DEFAULT_STORES, help="one store per set")
    parser.add_argument("--sets", nargs="+", metavar="NAME", default=list(SETS))
    parser.add_argument("--out", type=Path, default=RESULTS_DIR, help="where the JSON goes")
    parser.add_argument("--sample", type=int, default=SAMPLE, help="questions of a set at most")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
