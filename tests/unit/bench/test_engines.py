from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench import engines
from bench.engines import compare, make_clustered, make_unclustered, measure, run
from bench.results import read_result


@pytest.fixture(autouse=True)
def few_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "QUERIES", 12)


def test_synthetic_vectors_are_unit_and_the_same_every_time() -> None:
    made = make_clustered(50)
    assert made.shape == (50, engines.DIM)
    np.testing.assert_allclose(np.linalg.norm(made, axis=1), 1.0, atol=1e-5)
    assert np.array_equal(made, make_clustered(50))


def test_unclustered_vectors_have_the_covariance_of_the_real_ones() -> None:
    real = make_clustered(2_000)[:, :8]
    real = real / np.linalg.norm(real, axis=1, keepdims=True)
    made = make_unclustered(4_000, real)
    assert made.shape == (4_000, 8)
    np.testing.assert_allclose(np.cov(made.T), np.cov(real.T), atol=0.05)


def test_recall_is_the_share_of_the_exact_answer() -> None:
    queries = np.zeros((engines.QUERIES, 4), dtype=np.float32)
    found = compare({"exact": lambda _: range(10), "half": lambda _: range(5, 15)}, queries)
    assert (found["exact"]["recall@10"], found["half"]["recall@10"]) == (1.0, 0.5)
    assert all(engine["p50_ms"] <= engine["p95_ms"] for engine in found.values())


def test_every_engine_is_measured_and_written_after_each_set(tmp_path: Path) -> None:
    path = tmp_path / "engines.json"
    run([300, 600], None, path, lance_rows=0)
    document = read_result(path)
    assert document["kind"] == "engines"
    assert [found["rows"] for found in document["sets"]] == [300, 600]
    for found in document["sets"]:
        assert set(found["engines"]) == {"exact", "funnel", "funnel_whole_tier"}
        assert found["engines"]["funnel"]["recall@10"] == 1.0
        assert found["funnel_resident_mb"] > 1


def test_the_index_is_the_one_that_a_night_builds() -> None:
    made = make_clustered(612)
    found = measure("clustered", made[:600], made[600:].copy(), lance=True)
    assert found["engines"]["lancedb"]["recall@10"] > 0.9
    assert "lancedb" in found["build_s"]
