"""`python -m bench.graph_growth [--sizes 10000 100000 1000000] [--out FILE.json] [--plot FILE]`.

Builds the graph of synthetic memories of every size in a process of its own and writes what it cost
as JSON and as a plot. A million memories take some ten minutes and 6 GB.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.children import ONE_THREAD, measure_in_child
from bench.graph_growth.plot import write_plot
from bench.manifest import describe_run
from bench.results import RESULTS_DIR, write_result

SIZES = (10_000, 100_000, 1_000_000)


def measure_sizes(sizes: Sequence[int]) -> dict[str, Any]:
    """Return the whole document, sizes in ascending order."""
    run = describe_run()
    builds: list[dict[str, Any]] = []
    for size in sorted(sizes):
        builds.append(measure_in_child(["-m", "bench.graph_growth.measure", str(size)]))
        print(
            f"{size} memories: {builds[-1]['build_cpu_s']} s, "
            f"{builds[-1]['peak_rss_bytes'] / 1e6:.0f} MB",
            flush=True,
        )
    return {
        "kind": "graph_growth",
        "manifest": {**run, "environment": ONE_THREAD},
        "builds": builds,
        "growth": growth(builds),
    }


def growth(builds: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the exponents with which seconds and memory grow from the first to the last build.

    1 is linear, 2 quadratic; memory without what the memories themselves take. Empty where there is
    one size only.
    """
    if len(builds) < 2:
        return {}
    first, last = builds[0], builds[-1]
    ratio = math.log(last["memories"] / first["memories"])
    return {
        name: round(math.log(value(last) / value(first)) / ratio, 3)
        for name, value in (("build_cpu_s", _seconds), ("own_rss_bytes", _own_bytes))
    }


def _seconds(build: Mapping[str, Any]) -> float:
    return max(float(build["build_cpu_s"]), 0.01)


def _own_bytes(build: Mapping[str, Any]) -> float:
    return max(float(build["peak_rss_bytes"] - build["memories_rss_bytes"]), 1.0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the result and its plot."""
    parser = argparse.ArgumentParser(prog="python -m bench.graph_growth", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--out", type=Path, default=RESULTS_DIR / "graph-growth.json")
    parser.add_argument("--plot", type=Path, help="default: beside the plots of the suite")
    options = parser.parse_args(arguments)
    document = measure_sizes(options.sizes)
    write_result(options.out, document)
    write_plot(
        options.plot or RESULTS_DIR.parent / "plots" / "graph-growth.png", document["builds"]
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
