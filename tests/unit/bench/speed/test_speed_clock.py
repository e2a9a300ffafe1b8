from __future__ import annotations

from pathlib import Path

import pytest

from bench.speed.clock import Ask, percentiles, ratio_p50, spread, take_turns
from bench.speed.oneshot import child_environment, paired_ratio
from bench.speed.resident import resident_mb


def _recording(names: str, seen: list[tuple[str, int]]) -> dict[str, Ask]:
    def recorder(name: str) -> Ask:
        return lambda number: seen.append((name, number))

    return {name: recorder(name) for name in names}


def test_every_system_gets_its_questions_and_the_order_turns() -> None:
    seen: list[tuple[str, int]] = []
    times = take_turns(_recording("ab", seen), {"a": range(3), "b": [0, 2]})
    assert {name: sorted(found) for name, found in times.items()} == {"a": [0, 1, 2], "b": [0, 2]}
    assert seen == [("a", 0), ("b", 0), ("a", 1), ("a", 2), ("b", 2)]
    turned: list[tuple[str, int]] = []
    take_turns(_recording("abc", turned), dict.fromkeys("abc", range(3)))
    assert "".join(name for name, _ in turned) == "abcbcacab"


def test_a_ratio_compares_the_questions_that_both_were_asked() -> None:
    assert ratio_p50({0: 2.0, 1: 4.0, 2: 900.0}, {0: 1.0, 1: 1.0, 7: 500.0}) == 3.0
    with pytest.raises(ValueError, match="both"):
        ratio_p50({0: 1.0}, {1: 1.0})


def test_percentiles_and_spread() -> None:
    assert percentiles(dict(enumerate([1.0, 2.0, 3.0]))) == {"p50_ms": 2.0, "p95_ms": 2.9, "n": 3}
    assert spread([3.0, 1.0, 8.0]) == {"median_ms": 3.0, "min_ms": 1.0, "rounds": 3}


def test_rounds_are_compared_pair_by_pair() -> None:
    assert paired_ratio([2.0, 30.0, 8.0], [1.0, 10.0, 2.0, 99.0]) == 3.0


def test_measured_processes_have_compiled_modules_and_one_thread() -> None:
    found = child_environment(
        {"PYTHONDONTWRITEBYTECODE": "1", "OPENBLAS_NUM_THREADS": "8", "HOME": "/h"}, Path("/cache")
    )
    assert "PYTHONDONTWRITEBYTECODE" not in found
    assert found["OPENBLAS_NUM_THREADS"] == "1"
    assert (found["HOME"], found["PYTHONPYCACHEPREFIX"]) == ("/h", "/cache")


def test_memory_is_read_from_the_status_file() -> None:
    status = "Name:\tx\nVmHWM:\t 3000 kB\nVmRSS:\t 2000 kB\nRssAnon:\t 1500 kB\nRssFile:\t 500 kB\n"
    assert resident_mb(status) == {"VmRSS": 2.0, "RssAnon": 1.5, "RssFile": 0.5, "VmHWM": 3.0}
