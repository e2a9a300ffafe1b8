"""Measure every way to compact on sets with turns; writes docs/benchmarks/json/compaction-*.json.

`python -m bench.compaction --stores DIR [--sets NAME...] [--arms NAME...]`

DIR holds a store per set; each arm's night rebuilds clusters, summaries and the pack in it, the
rest is used again. "sample" is the bundled sample. Exit codes: 0 done; 1 a night failed; 2 the sets
are not there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.compaction.arms import ARMS
from bench.compaction.measure import measure_arm
from bench.compaction.sample_set import SAMPLE, write_sample_set
from bench.datasets import CHECKOUT, find_shared
from bench.manifest import describe_run
from bench.results import RESULTS_DIR, write_result
from bench.suite.loading import LoadedSet, load_set
from bench.suite.night import build_store
from noctuary.core.errors import NoctuaryError

DEFAULT_SETS = (SAMPLE, "locomo")
"""The sets whose memories are turns of sessions."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the sets that are asked for and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--stores", type=Path, required=True, help="a folder with a store per set")
    parser.add_argument("--sets", nargs="+", default=list(DEFAULT_SETS), help="names of sets")
    parser.add_argument("--arms", nargs="+", choices=list(ARMS), default=list(ARMS))
    parser.add_argument("--out", type=Path, default=RESULTS_DIR, help="where the JSON goes")
    options = parser.parse_args(arguments)
    shared = find_shared()
    code = 0
    for name in options.sets:
        if name != SAMPLE and shared is None:
            print(
                "no labelled sets: put them beside the checkout as ../shared or set NOCTUARY_SHARED"
            )
            return 2
        try:
            if name == SAMPLE:
                directory = write_sample_set(options.stores / "_sets" / SAMPLE)
            else:
                directory = (shared or CHECKOUT) / "data" / name
            loaded = load_set(directory.absolute())
            _measure(loaded, options.stores / name, options.arms, options.out)
        except NoctuaryError as error:
            print(f"{name}: {error}", file=sys.stderr)
            code = 1
    return code


def _measure(loaded: LoadedSet, store: Path, arms: Sequence[str], out: Path) -> None:
    store.parent.mkdir(parents=True, exist_ok=True)
    found = {}
    for arm in arms:
        log = store.with_name(f"{store.name}.night.log")
        build_store(loaded.dataset.directory.absolute(), store, log, ARMS[arm])
        found[arm] = measure_arm(loaded, store)
        means = found[arm]["views"]["compact"]["means"]
        saved = found[arm]["tokens_saved_share"]
        print(f"{loaded.name} {arm}: saved {saved:.3f}, {means}", flush=True)
    document = {
        "kind": "compaction_quality",
        "dataset": loaded.name,
        "n_queries": len(loaded.queries),
        "settings": {arm: dict(ARMS[arm]) for arm in arms},
        "arms": found,
        "manifest": describe_run(),
    }
    write_result(out / f"compaction-{loaded.name}.json", document)


if __name__ == "__main__":
    sys.exit(main())
