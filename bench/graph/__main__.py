"""Measure what the graph adds on every labelled set and write docs/benchmarks/json/graph-*.json.

`python -m bench.graph --stores DIR [--sets NAME...]`

DIR holds a store per set; one that is missing is built first. Exit codes: 0 done; 1 a set could not
be loaded or its night failed; 2 the sets are not there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.datasets import find_shared
from bench.graph.measure import measure_set
from bench.manifest import describe_run
from bench.results import RESULTS_DIR, write_result
from bench.suite.loading import load_set
from bench.suite.night import build_store
from noctuary.core.errors import NoctuaryError


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the sets that are asked for and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--stores", type=Path, required=True, help="a folder with a store per set")
    parser.add_argument("--sets", nargs="+", help="names of sets (default: all)")
    parser.add_argument("--out", type=Path, default=RESULTS_DIR, help="where the JSON goes")
    options = parser.parse_args(arguments)
    shared = find_shared()
    if shared is None:
        print("no labelled sets: put them beside the checkout as ../shared or set NOCTUARY_SHARED")
        return 2
    data = (shared / "data").absolute()
    names: list[str] = options.sets or sorted(p.name for p in data.iterdir() if p.is_dir())
    code = 0
    for name in names:
        try:
            _measure(data / name, options.stores / name, options.out)
        except NoctuaryError as error:
            print(f"{name}: {error}", file=sys.stderr)
            code = 1
    return code


def _measure(directory: Path, store: Path, out: Path) -> None:
    loaded = load_set(directory)
    store.parent.mkdir(parents=True, exist_ok=True)
    build_store(directory, store, store.with_name(f"{store.name}.night.log"))
    found = measure_set(loaded, store, lambda line: print(line, flush=True))
    document = {**found, "manifest": describe_run()}
    write_result(out / f"graph-{loaded.name}.json", document)


if __name__ == "__main__":
    sys.exit(main())
