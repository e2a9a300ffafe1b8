"""Synthetic stores: equal for equal seeds, of the sets' lengths, with names that grow."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.datasets import CHECKOUT
from bench.results import SCHEMA_VERSION
from bench.scale import reading_engines
from bench.scale.__main__ import fit_slopes
from bench.scale.asked import make_questions
from bench.scale.corpus import Chain, iter_rows, read_chain
from bench.scale.fit import exponent, extrapolate
from bench.scale.limit import entrance, limited_memory
from bench.scale.plan import CORE_HOUR_USD, CORES_IN_USE, MACHINE_CORES, plan_stages
from bench.scale.reading import drop_pages
from bench.scale.reading_warm import measure_warm
from bench.scale.side_by_side import Cost, code_of, compare
from bench.scale.tree import TreeWatch, sample_tree
from noctuary.recall.engine import Recaller
from tests.support.store import memory, new_store, renumber


@pytest.fixture(scope="module")
def chains(tmp_path_factory: pytest.TempPathFactory) -> list[Chain]:
    found: list[Chain] = []
    for name in ("one", "two"):
        folder = tmp_path_factory.mktemp(name)
        lines = [f"{name} Anna met Bert at the lake {i} times." for i in range(30)]
        lines += ["Bert said hello.", "so Anna left"]
        with gzip.open(folder / "corpus.jsonl.gz", "wt", encoding="utf-8") as file:
            file.writelines(json.dumps({"content": line}) + "\n" for line in lines)
        found.append(read_chain(folder))
    return found


def test_a_larger_store_begins_with_the_smaller_one(chains: list[Chain]) -> None:
    small, large = list(iter_rows(500, chains)), list(iter_rows(900, chains))
    assert large[:500] == small
    assert list(iter_rows(500, chains, seed=1)) != small


def test_names_are_other_ones_in_every_wing(chains: list[Chain]) -> None:
    rows = list(iter_rows(6_000, chains))
    texts = [str(row[1]) for row in rows]
    assert not any("Anna" in text or "Bert" in text for text in texts)
    speakers = {text.partition(":")[0] for text, row in zip(texts, rows, strict=True)
                if row[2] == "dialog_turn"}  # fmt: skip
    assert len(speakers) >= 4


@given(st.floats(0.1, 3.0), st.floats(0.01, 1e6))
def test_the_exponent_of_a_power_is_found_and_carries_on(slope: float, factor: float) -> None:
    sizes = [10_000, 100_000, 1_000_000]
    values = [factor * size**slope for size in sizes]
    found = exponent(sizes, values)
    assert found == pytest.approx(slope, rel=1e-6)
    assert extrapolate(sizes[0], values[0], slope, sizes[2]) == pytest.approx(values[2], rel=1e-6)


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


TEXTS = [
    f"note {i} about harbour {i % 7} and the crane that lifted crate {i * 3}" for i in range(40)
]


def test_equal_seeds_ask_equal_questions_and_recall_answers_them(tmp_path: Path) -> None:
    store = new_store(tmp_path / "house")
    store.publish(renumber([memory(text) for text in TEXTS]))
    reader = Recaller.open(store.root).reader
    asked = make_questions(reader, 20)
    assert asked == make_questions(reader, 20)
    assert asked != make_questions(reader, 20, seed=1)
    assert len(make_questions(reader, 1_000)) == len(TEXTS)
    found = measure_warm(store.root, 8)
    assert found["memories"] == len(TEXTS)
    assert found["recall"]["n"] == 8
    assert found["recall"]["p95_ms"] >= found["recall"]["p50_ms"] > 0
    assert found["steps"]["lexical"]["p50_ms"] > 0
    drop_pages(reader.directory)


def test_agreement_is_the_share_of_the_true_ten() -> None:
    truth, half = list(range(50)), [*range(5), *range(100, 145)]

    def find_true(_: object) -> list[int]:
        return truth

    def find_half(_: object) -> list[int]:
        return half

    engines = {"exact": find_true, "half": find_half}
    found = reading_engines.compare(engines, [np.zeros(2, dtype=np.float32)] * 6)
    assert found["exact"]["recall_at_10"] == 1.0
    assert found["half"]["recall_at_10"] == 0.5
    assert found["half"]["n"] == 6


def test_a_ratio_is_the_geometric_mean_and_lies_in_its_interval() -> None:
    before = [Cost(10.0, 10.0, "a")] * 4
    now = [Cost(10.0, cpu_s, "a") for cpu_s in (5.0, 20.0, 8.0, 12.5)]
    found = {
        "before": {"first": before, "unchanged": before},
        "now": {"first": now, "unchanged": before},
    }
    row = compare(found)["first"]
    assert row["cpu_ratio"] == 1.0
    assert 0.5 < row["cpu_ratio_low"] < 1.0 < row["cpu_ratio_high"] < 2.0


def test_a_checkout_runs_its_own_code_and_not_the_installed_one(tmp_path: Path) -> None:
    assert code_of(CHECKOUT) == CHECKOUT / "lib" / "noctuary"
    package = tmp_path / "lib" / "noctuary"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    assert code_of(tmp_path) == package


MB = 2**20
_HOLD = "import time; held = bytearray(60 * 2**20); print('held', flush=True); time.sleep(60)"
_PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {_HOLD!r}])"


def test_a_childs_memory_counts_for_its_parent() -> None:
    parent = subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE)
    try:
        assert parent.stdout is not None
        parent.stdout.readline()
        watch = TreeWatch(parent.pid, lambda: "now").start()
        time.sleep(0.7)
        watch.stop()
        pss, anonymous, processes = sample_tree(parent.pid)
        assert processes == 2
        assert 60 * MB < anonymous <= pss < 200 * MB
        assert watch.peaks["now"].anonymous > 60 * MB
    finally:
        for pid in _children(parent.pid):
            subprocess.run(["kill", "-9", str(pid)], check=False)
        parent.kill()
        parent.communicate()


def test_what_needs_more_than_the_limit_is_killed() -> None:
    with limited_memory(100 * MB) as group:
        if group is None:
            pytest.skip("no control group can be made here")
        word = "held = bytearray(200 * 2**20)"
        done = subprocess.run([sys.executable, "-c", word], preexec_fn=entrance(group), check=False)
        assert done.returncode == -9
        few = "held = bytearray(20 * 2**20)"
        fits = subprocess.run([sys.executable, "-c", few], preexec_fn=entrance(group), check=False)
        assert fits.returncode == 0
        assert (group.peak_bytes() or 0) > 20 * MB


def _children(pid: int) -> list[int]:
    said = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in said.stdout.split()]
