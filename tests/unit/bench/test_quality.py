from __future__ import annotations

from typing import Any

import pytest

from bench.arms import Arm, fts_arms
from bench.quality import measure_arms
from mnemon.evaluate.labels.queries import Query
from mnemon.evaluate.run import EvaluationPlan

ROWS: list[dict[str, Any]] = [
    {"id": 1, "content": "red kettle"},
    {"id": 2, "content": "green lamp"},
    {"id": 3, "content": "blue door"},
]
QUERIES = [
    Query("q1", "kettle", "exact", ("1",)),
    Query("q2", "lantern", "paraphrase", ("2",)),
    Query("q3", "door", "exact", ("3",)),
]
PLAN = EvaluationPlan(draws=200)


def test_arms_are_scored_and_compared_with_the_baseline_query_by_query() -> None:
    oracle = Arm("mnemon", lambda query, k: [query.relevant_ids[0]])
    found = measure_arms([*fts_arms(ROWS, "all"), oracle], QUERIES, PLAN)
    assert list(found) == ["fts_plain", "fts_seed", "mnemon"]
    assert found["fts_plain"]["per_query"] == {name: [1, 0, 1] for name in PLAN.metrics}
    assert "vs_baseline" not in found["fts_plain"]
    gain = found["mnemon"]["vs_baseline"]
    assert gain["overall"]["recall@10"]["mean"] == pytest.approx(1 / 3, abs=1e-6)
    assert gain["strata"]["exact"]["recall@10"] == {"mean": 0.0, "low": 0.0, "high": 0.0}
    assert gain["strata"]["paraphrase"]["recall@10"] == {"mean": 1.0, "low": None, "high": None}
    assert found["fts_seed"]["vs_baseline"]["overall"]["mrr@100"]["mean"] == 0.0


def test_a_degraded_arm_says_so() -> None:
    arm = Arm("mnemon", lambda query, k: [], {"fusion": "cc"})
    arm.warnings.update(["dense_unavailable"] * 3)
    found = measure_arms([*fts_arms(ROWS, "all"), arm], QUERIES, PLAN)
    assert found["mnemon"]["warnings"] == {"dense_unavailable": 3}
    assert found["mnemon"]["profile"] == {"fusion": "cc"}
