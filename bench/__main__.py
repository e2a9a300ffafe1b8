"""`make bench`: a fresh night on each set, then latency and speed, then the tables.

`python -m bench [--sets locomo realmem 2wikimultihopqa] [--stores DIR]`

How good the answers are is measured by `python -m bench.suite` (`make bench-quality`).

Every step is its own process, so that no measurement inherits the memory or the caches of another.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.datasets import CHECKOUT, find_shared, open_dataset
from bench.results import RESULTS_DIR
from bench.tables import pages

SETS = ("locomo", "realmem", "2wikimultihopqa")
"""One of chat, one of extracted memories, one of passages: all of similar size."""

SPEED_SET = "locomo"
"""The real set of `bench.measure speed`, which needs its store."""


def plan_steps(name: str, directory: Path, store: Path, out: Path) -> list[list[str]]:
    """Return the commands for one set, in order, without the interpreter."""
    place = ["--store", str(store)]
    return [
        ["-m", "noctuary.cli.entry", "nightly", str(directory), *place],
        ["-m", "bench.measure", "latency", *place, "--dataset", str(directory), "--out", str(out)],
    ]


def run_set(name: str, directory: Path, store: Path, out: Path) -> None:
    """Build and measure one set; a step that fails ends the run with its exit code."""
    open_dataset(directory)
    for step in plan_steps(name, directory, store, out):
        run_step(step)


def plan_speed(directory: Path, root: Path) -> list[str]:
    """Return the command that holds the read path against its promises."""
    return [
        *(
            "-m",
            "bench.measure",
            "speed",
            "--locomo",
            str(root / SPEED_SET),
            "--dataset",
            str(directory),
        ),
    ]


def run_step(step: Sequence[str]) -> None:
    """Run one command in a process of its own; a failure ends the run with its exit code."""
    print(f"$ python {' '.join(step)}", flush=True)
    done = subprocess.run([sys.executable, *step], cwd=CHECKOUT, check=False)
    if done.returncode != 0:
        sys.exit(done.returncode)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every set asked for, then write the tables; 2 means that the sets are not there."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--sets", nargs="+", default=SETS, metavar="NAME")
    parser.add_argument("--stores", type=Path, help="keep the stores here; default: thrown away")
    options = parser.parse_args(arguments)
    shared = find_shared()
    if shared is None:
        print("no labelled sets: put them beside the checkout as ../shared or set NOCTUARY_SHARED")
        return 2
    with tempfile.TemporaryDirectory(prefix="noctuary-bench-") as temporary:
        root = (options.stores or Path(temporary)).absolute()
        for name in options.sets:
            run_set(name, (shared / "data" / name).absolute(), root / name, RESULTS_DIR)
        if SPEED_SET in options.sets:
            run_step(plan_speed((shared / "data" / SPEED_SET).absolute(), root))
    return pages.main([])


if __name__ == "__main__":
    sys.exit(main())
