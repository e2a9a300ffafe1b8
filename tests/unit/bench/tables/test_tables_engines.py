from __future__ import annotations

from typing import Any

from bench.tables.engines_table import render_engines

ENGINE = {"p50_ms": 1.234, "p95_ms": 2.0, "min_ms": 1.0, "recall@10": 0.97}


def document(**more: Any) -> dict[str, Any]:
    return {
        "kind": "engines",
        "manifest": {
            "commit": "0123456789abcdef", "dirty": False, "machine": "Linux x, 2 cores",
            "queries": 200, "depth": 50, "environment": {"OPENBLAS_NUM_THREADS": "1"},
        },
        "sets": [
            {
                "vectors": "clustered", "rows": 10_000, "build_s": {"funnel": 0.4},
                "engines": {"exact": ENGINE, "funnel": ENGINE},
                "funnel_resident_mb": 45.6, "load_average_1m": 3.2,
            }
        ],
        **more,
    }  # fmt: skip


def test_every_engine_of_every_set_has_its_row() -> None:
    page = render_engines(document())
    assert "| clustered | 10000 | exact | 1.23 | 2.00 | 1.00 | 0.970 |  |  | 3.2 |" in page
    assert "| clustered | 10000 | funnel | 1.23 | 2.00 | 1.00 | 0.970 | 0.4 | 46 | 3.2 |" in page
    assert "OPENBLAS_NUM_THREADS=1" in page
    assert "early exit" not in page


def test_a_threshold_that_was_not_reached_never_exits() -> None:
    exits = {
        "64": {"exit_at": None, "exits": 0.0, "precision": None, "auroc": 0.63,
               "reference_precision": 0.19},
        "256": {"exit_at": 0.42, "exits": 1.0, "precision": 0.99, "auroc": None,
                "reference_precision": 0.995},
    }  # fmt: skip
    page = render_engines(document(exits=exits))
    assert "| 64 dimensions | never | 0.000 |  | 0.630 | 0.190 |" in page
    assert "| 256 dimensions | 0.420 | 1.000 | 0.990 |  | 0.995 |" in page
