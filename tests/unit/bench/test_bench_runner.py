from __future__ import annotations

from pathlib import Path

from bench.__main__ import plan_speed, plan_steps


def test_a_set_is_built_before_it_is_measured() -> None:
    steps = plan_steps("locomo", Path("/data/locomo"), Path("/store"), Path("/out"))
    assert [step[1] for step in steps] == [
        "noctuary.cli.entry",
        "bench.cost",
        "bench.latency",
    ]
    assert steps[0][2:] == ["nightly", "/data/locomo", "--store", "/store"]
    assert all(step[-2:] == ["--out", "/out"] for step in steps[1:])


def test_speed_is_measured_on_the_store_that_was_built() -> None:
    step = plan_speed(Path("/data/locomo"), Path("/stores"))
    assert step[:2] == ["-m", "bench.speed"]
    assert step[step.index("--locomo") + 1] == "/stores/locomo"
    assert step[step.index("--dataset") + 1] == "/data/locomo"
