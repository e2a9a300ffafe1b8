"""`python -m bench.compaction_growth [--sizes 10000 100000 1000000] [--out FILE.json]`.

Clusters and summarises synthetic turns of every size, each in a process of its own, and writes what
it cost as JSON and as a plot. Summaries are embedded by a cheap deterministic encoder; what the
bundled one costs per summary is measured apart. A million turns take some twenty minutes, 1.7 GB of
disk and less than 2 GB of memory.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.children import ONE_THREAD, measure_in_child, run_in_child
from bench.compaction_growth.plot import write_plot
from bench.manifest import describe_run
from bench.results import RESULTS_DIR, write_result
from noctuary.compact.clusters import CHRONOLOGICAL

SIZES = (10_000, 100_000, 1_000_000)

MEMORY_BOUND_BYTES = 2_000_000_000
"""What a million turns may take at most."""


def measure_sizes(
    sizes: Sequence[int],
    *,
    one_session: int = 0,
    embed: bool = True,
) -> dict[str, Any]:
    """Return the whole document, sizes in ascending order.

    Args:
        sizes: Turns of each store.
        one_session: Measure a single session of so many turns as well; 0 for none.
        embed: Measure the bundled encoder on summaries of the smallest store.
    """
    document: dict[str, Any] = {
        "kind": "compaction_growth",
        "manifest": {**describe_run(), "environment": ONE_THREAD},
        "memory_bound_bytes": MEMORY_BOUND_BYTES,
        "runs": [],
    }
    for size in sorted(sizes):
        with tempfile.TemporaryDirectory(prefix="noctuary-compaction-") as folder:
            document["runs"].append(_store(folder, size))
            if embed and "embedding" not in document:
                document["embedding"] = measure_in_child(_words("embedding", folder))
    if one_session:
        with tempfile.TemporaryDirectory(prefix="noctuary-compaction-") as folder:
            document["one_session"] = [_store(folder, one_session, "one")]
    document["growth"] = {CHRONOLOGICAL: growth(document["runs"])}
    return document


def growth(runs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the exponents with which seconds and memory grow from the first to the last run.

    1 is linear, 2 quadratic, 0 does not grow. Empty where there is one size only.
    """
    if len(runs) < 2:
        return {}
    first, last = runs[0], runs[-1]
    ratio = math.log(last["turns"] / first["turns"])
    return {
        name: round(math.log(max(last[name], 0.01) / max(first[name], 0.01)) / ratio, 3)
        for name in ("cpu_s", "peak_rss_bytes")
    }


def _store(folder: str, size: int, *shape: str) -> dict[str, Any]:
    """Make one store and measure it."""
    run_in_child(_words("corpus", folder, str(size), *shape))
    run = measure_in_child(_words("measure", folder))
    print(
        f"{size} turns: {run['cpu_s']} s, {run['peak_rss_bytes'] / 1e6:.0f} MB",
        flush=True,
    )
    return run


def _words(module: str, *arguments: str) -> list[str]:
    return ["-m", f"bench.compaction_growth.{module}", *arguments]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the result and its plot; 1 where a run took more memory than the bound."""
    parser = argparse.ArgumentParser(prog="python -m bench.compaction_growth", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--one-session", type=int, default=0, metavar="TURNS")
    parser.add_argument("--no-embedding", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS_DIR / "compaction-growth.json")
    parser.add_argument("--plot", type=Path, help="default: beside the plots of the suite")
    options = parser.parse_args(arguments)
    document = measure_sizes(
        options.sizes,
        one_session=options.one_session,
        embed=not options.no_embedding,
    )
    write_result(options.out, document)
    write_plot(
        options.plot or RESULTS_DIR.parent / "plots" / "compaction-growth.png", document["runs"]
    )
    worst = max(run["peak_rss_bytes"] for run in document["runs"])
    return 0 if worst <= MEMORY_BOUND_BYTES else 1


if __name__ == "__main__":
    sys.exit(main())
