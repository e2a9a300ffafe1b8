"""Measure every labelled set with every arm, and write docs/benchmarks.

`python -m bench.suite [--sets ...] [--stores DIR] [--out DIR] [--arms GLOB...] [--jobs 2]
[--fresh] [--reranker PATH] [--rescore [--write]]`

Stopped, it goes on where it was: a run is reused while corpus, queries, settings and the code that
ranks are the same. Exit codes: 0 done; 1 a set could not be loaded or measured, or --rescore found
a difference; 2 the sets are not there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.datasets import find_shared
from bench.manifest import describe_run
from bench.results import write_result
from bench.suite.evaluation import EvaluationOptions
from bench.suite.loading import LoadedSet, load_all
from bench.suite.plan import JOBS, SuitePaths
from bench.suite.result import rescore
from bench.suite.runner import SuiteRun
from bench.suite.seconds import Ledger
from bench.tables import pages
from noctuary.core.errors import NoctuaryError
from noctuary_pipelines.progress import choose_progress

SUITE_FILE = "suite.json"
"""What the whole suite took, per set and step."""

DIFFERENCES_SHOWN = 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suite and return the exit code."""
    options = _parse(arguments)
    shared = find_shared()
    if shared is None:
        print("no labelled sets: put them beside the checkout as ../shared or set NOCTUARY_SHARED")
        return 2
    data = (shared / "data").absolute()
    names: list[str] = options.sets or sorted(p.name for p in data.iterdir() if p.is_dir())
    paths = SuitePaths.below(options.stores, options.out)
    loaded, faults = load_all([data / name for name in names])
    for name, fault in faults.items():
        print(f"{name} cannot be loaded: {fault}", file=sys.stderr, flush=True)
    if options.rescore:
        return max(_rescore(loaded, paths, write=options.write), int(bool(faults)))
    faults |= _run(loaded, paths, options)
    for name, fault in faults.items():
        print(f"FAULT {name}: {fault}", file=sys.stderr)
    if options.out is None:
        pages.main([])
    return int(bool(faults))


def _run(
    sets: Sequence[LoadedSet], paths: SuitePaths, options: argparse.Namespace
) -> dict[str, str]:
    ledger = Ledger(paths.seconds())
    ledger.begin(afresh=options.fresh)

    def log(text: str) -> None:
        print(f"[{ledger.elapsed():7.1f} s] {text}", flush=True)

    asking = EvaluationOptions(tuple(options.arms), options.reranker, choose_progress(None), log)
    faults = SuiteRun(paths, ledger, asking, options.jobs, options.fresh).work_through(sets)
    ledger.close()
    document = {"kind": "suite", "manifest": describe_run(), **ledger.to_json()}
    write_result(paths.results / SUITE_FILE, document)
    print(
        f"{len(sets) - len(faults)} sets in {ledger.wall_seconds[-1]:.0f} s "
        f"({document['wall_total_seconds']:.0f} s with earlier invocations, "
        f"{document['sum_seconds']:.0f} s of work)"
    )
    return faults


def _rescore(sets: Sequence[LoadedSet], paths: SuitePaths, *, write: bool) -> int:
    worst = 0
    for loaded in sets:
        try:
            found = rescore(loaded, paths, write=write)
        except NoctuaryError as error:
            found = [f"{loaded.name}: {error}"]
        print(f"{loaded.name}: {len(found)} differences" if found else f"{loaded.name}: agrees")
        for line in found[:DIFFERENCES_SHOWN]:
            print(f"  {line}")
        worst = max(worst, int(bool(found)))
    return worst


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.suite", description=__doc__)
    parser.add_argument("--sets", nargs="*", metavar="NAME", help="default: all that are there")
    parser.add_argument("--stores", type=Path, help="stores and runs [default: artifacts/bench]")
    parser.add_argument("--out", type=Path, help="write here instead of docs/benchmarks")
    parser.add_argument("--arms", nargs="+", default=["*"], metavar="GLOB", help="which arms run")
    parser.add_argument("--jobs", type=int, choices=(1, 2), default=JOBS)
    parser.add_argument("--fresh", action="store_true", help="throw away stores and runs first")
    parser.add_argument("--reranker", metavar="PATH", help="a cross-encoder for its arms")
    parser.add_argument("--rescore", action="store_true", help="only check the committed numbers")
    parser.add_argument("--write", action="store_true", help="with --rescore: replace them")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
