from __future__ import annotations

from pathlib import Path

import pytest

from bench.graph_growth.__main__ import growth, main
from bench.graph_growth.corpus import make_records
from bench.results import read_result


def test_memories_depend_on_nothing_but_size_and_seed() -> None:
    assert make_records(40, 1) == make_records(40, 1)
    assert make_records(40, 1) != make_records(40, 2)
    assert [r.position for r in make_records(3)] == [0, 1, 2]


def test_growth_is_one_where_all_doubles() -> None:
    def build(size: int, seconds: float, peak: int) -> dict[str, float]:
        return {
            "memories": size,
            "build_cpu_s": seconds,
            "peak_rss_bytes": peak,
            "memories_rss_bytes": 100,
        }

    found = growth([build(10, 1.0, 200), build(20, 2.0, 300)])
    assert found == {"build_cpu_s": 1.0, "own_rss_bytes": 1.0}
    assert growth([build(10, 1.0, 200)]) == {}
    assert growth([build(10, 1.0, 200), build(20, 4.0, 200)])["build_cpu_s"] == pytest.approx(2)


def test_small_sizes_are_built_each_in_its_own_process(tmp_path: Path) -> None:
    out, plot = tmp_path / "growth.json", tmp_path / "growth.png"
    assert main(["--sizes", "240", "60", "--out", str(out), "--plot", str(plot)]) == 0
    builds = read_result(out)["builds"]
    assert [build["memories"] for build in builds] == [60, 240]
    for build in builds:
        assert build["rows"]["edges"] > 0
        assert build["rows"]["concept_edges"] > 0
        assert build["peak_rss_bytes"] >= build["memories_rss_bytes"] > 0
    assert plot.read_bytes().startswith(b"\x89PNG")
