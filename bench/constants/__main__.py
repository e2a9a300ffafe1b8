"""Cross-validate the graph leg's constants and write docs/benchmarks/json/graph-constants.json.

`python -m bench.constants --stores DIR [--families NAME...]`

DIR holds a store per set, as `python -m bench.suite --stores DIR` builds them. Exit codes: 0 done;
1 a store is missing; 2 the sets are not there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.constants.asking import score_settings
from bench.constants.folds import FOLDS, Validated, cross_validate, fold_of
from bench.constants.grid import FAMILIES, Family, apply_setting
from bench.datasets import CHECKOUT, find_shared
from bench.manifest import describe_run
from bench.results import write_result
from bench.suite.loading import load_all
from noctuary.core.errors import NoctuaryError

RESULT = CHECKOUT / "docs" / "benchmarks" / "json" / "graph-constants.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the families that are asked for and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    names = [family.name for family in FAMILIES]
    parser.add_argument("--stores", type=Path, required=True, help="a folder with a store per set")
    parser.add_argument("--families", nargs="+", choices=names, default=names)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args(arguments)
    shared = find_shared()
    if shared is None:
        print("no labelled sets: put them beside the checkout as ../shared or set NOCTUARY_SHARED")
        return 2
    chosen = [family for family in FAMILIES if family.name in options.families]
    try:
        found = [_run(family, shared / "data", options.stores) for family in chosen]
    except NoctuaryError as error:
        print(error, file=sys.stderr)
        return 1
    document = {"kind": "graph_constants", "manifest": describe_run(), "families": found}
    write_result(options.out, document)
    return 0


def _run(family: Family, data: Path, stores: Path) -> dict[str, Any]:
    settings = family.settings()
    loaded, faults = load_all([data / name for name in family.sets])
    for fault in faults.values():
        raise NoctuaryError(fault)
    scores, folds = {}, {}
    for one in loaded:
        name, queries = one.dataset.name, one.queries

        def told(done: int, name: str = name) -> None:
            print(f"{family.name} {name}: {done} of {len(settings)} settings", flush=True)

        scores[name] = score_settings(stores / name, queries, settings, told)
        folds[name] = fold_of([query.query_id for query in queries])
        apply_setting(settings[0])
    validated = cross_validate(scores, folds)
    described = _describe(family, settings, validated, scores)
    print(described, flush=True)
    return described


def _describe(
    family: Family, settings: list[dict[str, Any]], found: Validated, scores: dict[str, Any]
) -> dict[str, Any]:
    by_set = {
        name: {"n": int(values.shape[1]), "mean": [round(float(m), 5) for m in values.mean(axis=1)]}
        for name, values in scores.items()
    }
    return {
        "family": family.name,
        "metric": "mean of recall@5, recall@10 and ndcg@10, sets weighted equally",
        "folds": FOLDS,
        "settings": settings,
        "shipped": settings[0],
        "chosen": settings[found.chosen],
        "chosen_by_fold": [settings[i] for i in found.chosen_by_fold],
        "shipped_score": round(found.shipped, 5),
        "held_out_score": round(found.held_out, 5),
        "in_sample_score": round(found.in_sample, 5),
        "sets": by_set,
    }


if __name__ == "__main__":
    sys.exit(main())
