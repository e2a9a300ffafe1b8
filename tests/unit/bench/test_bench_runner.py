from __future__ import annotations

from pathlib import Path

from bench.__main__ import SETS, WING_SETS, plan_steps


def test_a_set_is_built_before_it_is_measured_and_wings_only_where_queries_name_them() -> None:
    steps = plan_steps("locomo", Path("/data/locomo"), Path("/store"), Path("/out"))
    modules = [step[1] for step in steps]
    assert modules == ["pipelines.nightly", *["bench.quality"] * 2, "bench.cost", "bench.latency"]
    assert steps[0][2:] == ["/data/locomo", "--store", "/store"]
    assert [step[-1] for step in steps[1:3]] == ["all", "wing"]
    plain = plan_steps("2wikimultihopqa", Path("/d"), Path("/s"), Path("/o"))
    assert [step[1] for step in plain].count("bench.quality") == 1
    assert set(WING_SETS) < set(SETS)
