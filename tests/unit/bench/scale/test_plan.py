"""A plan is arithmetic on what was measured: it can be done by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.results import SCHEMA_VERSION
from bench.scale.__main__ import fit_slopes
from bench.scale.plan import CORE_HOUR_USD, CORES_IN_USE, MACHINE_CORES, plan_stages, totals
from bench.tables.pages import render


def _stage(name: str, seconds: float) -> dict[str, Any]:
    return {
        "name": name, "rows": 1, "reused": False, "wall_s": seconds, "cpu_s": 2 * seconds,
        "driver_peak_rss_bytes": 1, "bytes_on_disk": round(1e6 * seconds), "counts": {},
        "peak_pss_bytes": 2**30,
    }  # fmt: skip


def _night(memories: int, factor: float) -> dict[str, Any]:
    whole = {
        "status": "published", "wall_s": 100 * factor, "limit_bytes": 6 * 2**30,
        "group_peak_bytes": 2**30, "peak_pss_bytes": 2**30, "peak_anonymous_bytes": 2**29,
        "processes": 3, "store_bytes": 2**30,
        "stages": [_stage("memory_vectors", 50 * factor), _stage("concept_graph", 10 * factor**2),
                   _stage("snapshot", 0.01)],
    }  # fmt: skip
    return {"memories": memories, "source_bytes": 2**20, "first": whole, "nothing_new": whole}


@pytest.fixture
def document() -> dict[str, Any]:
    nights = [_night(10_000, 1.0), _night(100_000, 10.0), _night(1_000_000, 100.0)]
    return {
        "schema_version": SCHEMA_VERSION, "kind": "scale", "model": "cut",
        "manifest": {"commit": "0" * 40, "dirty": False, "machine": "m", "libraries": {},
                     "measured_at": "2026-11-22T00:00:00+00:00", "load_average_1m": 0.0},
        "slopes": fit_slopes(nights), "nights": nights,
        "bundled_model": {"memories": 10_000, "cpu_s": 120.0},
    }  # fmt: skip


def test_what_grows_with_the_square_is_planned_with_the_square(document: dict[str, Any]) -> None:
    assert document["slopes"]["concept_graph"]["cpu_s"] == pytest.approx(2.0)
    planned = {stage.name: stage for stage in plan_stages(document, 10_000_000)}
    assert set(planned) == {"memory_vectors", "concept_graph"}
    graph = planned["concept_graph"]
    assert graph.hours == pytest.approx(10 * 100**2 * 100 / 3600)
    assert graph.core_hours == pytest.approx(2 * graph.hours)
    assert graph.usd == pytest.approx(graph.core_hours * CORE_HOUR_USD)


def test_vectors_are_planned_with_the_bundled_model_and_divide(document: dict[str, Any]) -> None:
    vectors = next(s for s in plan_stages(document, 10_000_000) if s.name == "memory_vectors")
    assert vectors.core_hours == pytest.approx(120 * 1_000 / 3600)
    assert vectors.hours == pytest.approx(vectors.core_hours / (MACHINE_CORES * CORES_IN_USE))


def test_the_sums_are_those_of_the_stages(document: dict[str, Any]) -> None:
    stages = plan_stages(document, 100_000_000)
    assert totals(stages).hours == pytest.approx(sum(stage.hours for stage in stages))


def test_the_page_names_measured_and_extrapolated_figures(
    document: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "scale.json").write_text(json.dumps(document), encoding="utf-8")
    page = render("scale", tmp_path)
    assert "| 1,000,000 | 166.7 |" in page
    assert "Extrapolated, nothing of it was run" in page
    assert "12.0 ms each" in page
