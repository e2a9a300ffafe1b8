"""What a night cost, per asset: the store's cost records as a committed JSON file and a table.

`python -m bench.measure cost --store STORE_DIR --name locomo`
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from bench.manifest import describe_run
from bench.results import RESULTS_DIR, write_result
from noctuary.core.errors import SourceFormatError, SourceMissingError
from noctuary.core.files import tree_bytes
from noctuary.core.store import StorePaths

FIELDS = ("wall_ms", "cpu_ms", "peak_rss_bytes", "bytes_on_disk", "rows")


def read_costs(path: Path) -> list[dict[str, Any]]:
    """Return the cost record of every asset, in the order of the file.

    The file holds records by asset name, or a list of them. A measurement that a record lacks (a
    stage that was up to date has no times) is None.

    Raises:
        SourceMissingError: If no night has written costs.
        SourceFormatError: If the file is not that.
    """
    try:
        loaded: object = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SourceMissingError(f"no cost records at {path}: run the nightly job first") from None
    except ValueError as error:
        raise SourceFormatError(f"{path} is not JSON: {error}") from error
    found = list(cast("dict[str, Any]", loaded).values()) if isinstance(loaded, dict) else loaded
    if not isinstance(found, list) or not found:
        raise SourceFormatError(f"{path} must hold cost records, one per asset")
    records = cast("list[dict[str, Any]]", found)
    for record in records:
        if "asset" not in record:
            raise SourceFormatError(f"a cost record in {path} names no asset: {record}")
    return [{name: record.get(name) for name in ("asset", *FIELDS)} for record in records]


def total_costs(records: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what the assets cost together: sums of time and bytes, the highest peak of memory.

    Rows are not summed: a memory and its vector are the same memory.
    """
    return {
        "wall_ms": sum(record["wall_ms"] or 0 for record in records),
        "cpu_ms": sum(record["cpu_ms"] or 0 for record in records),
        "peak_rss_bytes": max(record["peak_rss_bytes"] or 0 for record in records),
        "bytes_on_disk": sum(record["bytes_on_disk"] or 0 for record in records),
    }


def measure_cost(store: Path, name: str) -> dict[str, Any]:
    """Return the cost document of a store."""
    records = read_costs(StorePaths(store).costs)
    return {
        "kind": "cost",
        "dataset": name,
        "manifest": describe_run(),
        "store_bytes": tree_bytes(store),
        "total": total_costs(records),
        "assets": records,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Write cost-NAME.json."""
    parser = argparse.ArgumentParser(prog="python -m bench.measure cost", description=__doc__)
    parser.add_argument("--store", type=Path, required=True, help="a store that has had a night")
    parser.add_argument("--name", required=True, help="what the store was built from")
    parser.add_argument("--out", type=Path, default=RESULTS_DIR)
    options = parser.parse_args(arguments)
    path = options.out / f"cost-{options.name}.json"
    write_result(path, measure_cost(options.store, options.name))
    print(f"wrote {path}")
