from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import cost
from bench.cost import measure_cost, read_costs, total_costs
from bench.results import read_results
from noctuary.core.errors import SourceFormatError, SourceMissingError
from noctuary.core.store import StorePaths


def record(asset: str, wall_ms: float, peak: int, **changes: Any) -> dict[str, Any]:
    base = {"asset": asset, "wall_ms": wall_ms, "cpu_ms": 2 * wall_ms, "peak_rss_bytes": peak}
    return {**base, "bytes_on_disk": 10, "rows": 7, **changes}


def store_with(root: Path, records: object) -> Path:
    path = StorePaths(root).costs
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(records), encoding="utf-8")
    return root


def test_totals_add_time_and_bytes_but_take_the_highest_peak() -> None:
    found = total_costs([record("a", 1.0, 300), record("b", 2.5, 200, bytes_on_disk=None)])
    assert found == {
        "wall_ms": 3.5,
        "cpu_ms": 7.0,
        "peak_rss_bytes": 300,
        "bytes_on_disk": 10,
    }


def test_a_document_keeps_the_order_in_which_assets_ran(tmp_path: Path) -> None:
    store = store_with(tmp_path / "s", [record("memories", 5.0, 1), record("edges", 1.0, 1)])
    document = measure_cost(store, "tiny")
    assert [entry["asset"] for entry in document["assets"]] == ["memories", "edges"]
    assert document["store_bytes"] == StorePaths(store).costs.stat().st_size


def test_the_command_writes_a_result_file(tmp_path: Path) -> None:
    store = store_with(tmp_path / "s", [record("memories", 5.0, 1, extra="dropped")])
    cost.main(["--store", str(store), "--name", "tiny", "--out", str(tmp_path / "out")])
    (document,) = read_results(tmp_path / "out", "cost")
    assert document["dataset"] == "tiny"
    assert document["assets"] == [record("memories", 5.0, 1)]


def test_missing_and_half_records_are_named(tmp_path: Path) -> None:
    with pytest.raises(SourceMissingError, match="run the nightly job first"):
        read_costs(tmp_path / "none.json")
    store = store_with(tmp_path / "s", [{"wall_ms": 1}])
    with pytest.raises(SourceFormatError, match="names no asset"):
        read_costs(StorePaths(store).costs)
    store = store_with(tmp_path / "t", {})
    with pytest.raises(SourceFormatError, match="must hold cost records"):
        read_costs(StorePaths(store).costs)


def test_records_by_name_are_read_too_and_a_stage_without_times_has_none(tmp_path: Path) -> None:
    store = store_with(tmp_path / "s", {"edges": {"asset": "edges", "rows": 3}})
    (found,) = read_costs(StorePaths(store).costs)
    assert (found["rows"], found["wall_ms"]) == (3, None)
