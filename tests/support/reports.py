"""Results for the report's tests: small ones by hand, large ones from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from noctuary.evaluate.abstain import Abstention
from noctuary.evaluate.metrics import (
    Comparison,
    Difference,
    Report,
    Scores,
    compare,
    risk_coverage,
    summarize,
)
from noctuary.evaluate.statistics import Interval, Resampling

METRICS = ("recall@10", "ndcg@10")
FEW_DRAWS = Resampling(draws=200)


def scores(
    name: str,
    values: Sequence[Sequence[float]],
    strata: Sequence[str] | None = None,
    query_ids: Sequence[str] | None = None,
) -> Scores:
    n = len(values)
    return Scores(
        name=name,
        metrics=METRICS,
        query_ids=tuple(query_ids or (f"q{i}" for i in range(n))),
        strata=tuple(strata or ["all"] * n),
        values=np.array(values, dtype=np.float64).reshape(n, len(METRICS)),
    )


def random_scores(name: str, n: int, seed: int, n_strata: int = 2) -> Scores:
    values = np.random.default_rng(seed).random((n, len(METRICS))).round(2)
    return scores(name, values.tolist(), [f"stratum {i % n_strata}" for i in range(n)])


def arms(n_arms: int, n: int = 40, n_strata: int = 2) -> tuple[list[Report], list[Comparison]]:
    """Return reports of "served" and of n_arms others, and the others against it."""
    served = random_scores("served", n, 0, n_strata)
    others = [random_scores(f"arm {i}", n, i, n_strata) for i in range(1, n_arms + 1)]
    return (
        summarize([served, *others], FEW_DRAWS),
        compare([(other, served) for other in others], FEW_DRAWS),
    )


def difference(
    mean: float, low: float | None = None, high: float | None = None, *, p: float = 0.5, n: int = 40
) -> Difference:
    interval = None if low is None or high is None else Interval(mean, low, high, n)
    return Difference(n, mean, interval, p, p, None if interval is None else 0.0625, 7, 5, n - 12)


def comparison(ours: str, found: Difference, baseline: str = "served") -> Comparison:
    return Comparison(ours, baseline, {"recall@10": found}, {"all": {"recall@10": found}})


def abstention(n: int = 300, seed: int = 5) -> Abstention:
    rng = np.random.default_rng(seed)
    confidence = rng.random(n)
    return Abstention(
        name="served",
        metric="recall@10",
        auroc=0.8125,
        interval=Interval(0.8125, 0.7, 0.9, n),
        n_answerable=n - 50,
        n_unanswerable=50,
        curve=risk_coverage(confidence, rng.random(n) < confidence),
    )


def decision(adopted: str | None, reason: str, **tested: float) -> dict[str, Any]:
    """Return a decision as the night writes it; what was tested, by name, with its gain."""
    rows = [
        {
            "name": name,
            "difference": {"mean": gain, "low": -0.01234, "high": None, "p_holm": 0.5},
            "selection_gain": gain,
            "confirmation": {"mean": 0.25} if gain > 0 else None,
            "vetoes": [],
        }
        for name, gain in tested.items()
    ]
    return {"reason": reason, "decision": {"adopted": adopted, "tested": rows}}
