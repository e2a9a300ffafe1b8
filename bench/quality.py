"""Retrieval quality of every arm on one labelled set, over one published snapshot.

`python -m bench.quality --store STORE_DIR --dataset ../shared/data/locomo [--scope all|wing] [--out
DIR]`

recall@5, recall@10 and nDCG@10 are taken from a timed call at k = 10, the list that a user of k =
10 gets; MRR from a second, untimed call at depth 100. Every arm carries its paired difference to
`fts_plain` with a 95 % interval.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.arms import BASELINE, DESCRIPTIONS, Arm, SearchScope, fts_arms, mnemon_arms, snapshot_ids
from bench.datasets import Dataset, open_dataset, read_baseline, read_corpus
from bench.manifest import describe_run
from bench.results import RESULTS_DIR, write_result
from mnemon.errors import ConfigError
from mnemon.evaluate.labels.queries import Query, QuerySet, read_queries
from mnemon.evaluate.report import DIGITS, EvaluationReport, compare
from mnemon.evaluate.run import EvaluationPlan, evaluate
from mnemon.hashing import hash_file
from mnemon.recall.engine import Recaller

SPLIT = "dev"
"""The queries at hand; the other part of each set is kept away from this repository."""

README_SEARCH: dict[SearchScope, str] = {"all": "all wings", "wing": "own wing"}


@dataclass(frozen=True, slots=True)
class _Measured:
    """An arm and what it scored."""

    arm: Arm
    report: EvaluationReport


def measure_quality(
    store: Path, dataset: Dataset, scope: SearchScope = "all", plan: EvaluationPlan | None = None
) -> dict[str, Any]:
    """Run every arm on a set and return the result document.

    Args:
        store: A store whose serving snapshot was built from this set's corpus.
        dataset: The set.
        scope: Whole corpus, or the wing that each query names.
        plan: Cutoffs, depths and resampling.

    Raises:
        StoreError: If the store has no snapshot that opens.
        QueryFileError: If the set's queries have faults.
        ConfigError: If the scope is "wing" and queries name none.
    """
    chosen = plan or EvaluationPlan()
    rows = read_corpus(dataset)
    queries = read_queries(dataset.queries, {str(row["id"]) for row in rows})
    if scope == "wing":
        _require_wings(dataset, queries.ranked)
    recaller = Recaller.open(store)
    arms = [*fts_arms(rows, scope), *mnemon_arms(recaller, scope)]
    return {
        "kind": "quality",
        "dataset": dataset.name,
        "scope": scope,
        "split": SPLIT,
        "manifest": {
            **describe_run(),
            **_describe_snapshot(recaller),
            **_describe_set(dataset, queries, recaller),
            **_describe_plan(chosen),
        },
        "readme_baseline": read_baseline(dataset, README_SEARCH[scope]),
        "metrics": list(chosen.metrics),
        "query_ids": [query.query_id for query in queries.ranked],
        "arms": measure_arms(arms, queries.ranked, chosen),
    }


def measure_arms(
    arms: Sequence[Arm], queries: Sequence[Query], plan: EvaluationPlan
) -> dict[str, Any]:
    """Evaluate arms one after the other on the same queries.

    Args:
        arms: What to compare; the baseline must be among them.
        queries: Labelled queries.
        plan: Cutoffs, depths and resampling.

    Returns:
        By arm name: means per stratum and overall, latency, warnings, per-query values in the order
        of the queries, and (but for the baseline) the paired differences to the baseline.
    """
    measured = [_Measured(arm, evaluate(arm.retrieve, queries, plan=plan)) for arm in arms]
    baseline = next(entry.report for entry in measured if entry.arm.name == BASELINE)
    return {entry.arm.name: _describe_arm(entry, baseline, plan) for entry in measured}


def _require_wings(dataset: Dataset, queries: Sequence[Query]) -> None:
    without = [query.query_id for query in queries if query.wing is None]
    if without:
        raise ConfigError(
            f"--scope wing needs queries that name a wing; {len(without)} of {len(queries)} "
            f"of {dataset.name} name none (first: {without[0]}). Use --scope all"
        )


def _describe_snapshot(recaller: Recaller) -> dict[str, Any]:
    manifest = recaller.reader.manifest
    return {
        "snapshot_id": recaller.snapshot_id,
        "snapshot_digest": manifest.digest,
        "corpus_digest": manifest.corpus_digest,
        "counts": manifest.counts,
        "encoder": manifest.encoder,
        "encoder_digest": manifest.encoder_digest,
    }


def _describe_set(dataset: Dataset, queries: QuerySet, recaller: Recaller) -> dict[str, Any]:
    labels = {label for query in queries.ranked for label in query.relevant_ids}
    return {
        "corpus_file_sha256": hash_file(dataset.corpus),
        "queries_file_sha256": hash_file(dataset.queries),
        "n_queries": len(queries.ranked),
        "n_unanswerable": len(queries.unanswerable),
        # Rows that the export quarantined or held back: found by no arm of mnemon, counted as
        # misses.
        "labels_missing_from_snapshot": len(labels - snapshot_ids(recaller)),
    }


def _describe_plan(plan: EvaluationPlan) -> dict[str, Any]:
    return {
        "k": plan.k,
        "mrr_depth": plan.mrr_depth,
        "warm_up": plan.warm_up,
        "bootstrap_draws": plan.draws,
        "bootstrap_seed": plan.seed,
        "confidence": plan.confidence,
    }


def _describe_arm(
    entry: _Measured, baseline: EvaluationReport, plan: EvaluationPlan
) -> dict[str, Any]:
    report = entry.report.to_dict()
    document: dict[str, Any] = {
        "description": DESCRIPTIONS[entry.arm.name],
        "profile": entry.arm.profile,
        "warnings": dict(sorted(entry.arm.warnings.items())),
        **{key: report[key] for key in ("overall", "strata", "latency", "unstable_prefixes")},
    }
    if entry.arm.name != BASELINE:
        document["vs_baseline"] = _differences(entry.report, baseline, plan)
    return {**document, "per_query": _columns(entry.report)}


def _columns(report: EvaluationReport) -> dict[str, list[float]]:
    """Return per-query values by metric, whole numbers as integers: half the bytes of rows."""
    return {
        metric: [_shortest(row.values[place]) for row in report.per_query]
        for place, metric in enumerate(report.metrics)
    }


def _shortest(value: float) -> float:
    return int(value) if value.is_integer() else round(value, DIGITS)


def _differences(
    report: EvaluationReport, baseline: EvaluationReport, plan: EvaluationPlan
) -> dict[str, Any]:
    overall, strata = compare(
        plan.metrics,
        report.per_query,
        baseline.per_query,
        draws=plan.draws,
        seed=plan.seed,
        confidence=plan.confidence,
    )
    return {
        "baseline": BASELINE,
        "overall": overall.to_dict(),
        "strata": {name: part.to_dict() for name, part in strata.items()},
    }


def result_path(out: Path, dataset: str, scope: SearchScope) -> Path:
    """Return the result file of a set and scope."""
    return out / f"quality-{dataset}-{scope}.json"


def main(arguments: Sequence[str] | None = None) -> None:
    """Write quality-DATASET-SCOPE.json and print one line per arm."""
    parser = argparse.ArgumentParser(prog="python -m bench.quality", description=__doc__)
    parser.add_argument("--store", type=Path, required=True, help="a store with a snapshot")
    parser.add_argument("--dataset", type=Path, required=True, help="folder of a labelled set")
    parser.add_argument("--scope", choices=("all", "wing"), default="all")
    parser.add_argument("--out", type=Path, default=RESULTS_DIR)
    parser.add_argument("--draws", type=int, default=EvaluationPlan().draws)
    options = parser.parse_args(arguments)
    dataset = open_dataset(options.dataset)
    plan = replace(EvaluationPlan(), draws=options.draws)
    document = measure_quality(options.store, dataset, options.scope, plan)
    path = result_path(options.out, dataset.name, options.scope)
    write_result(path, document)
    for name, arm in document["arms"].items():
        means = "  ".join(f"{m} {arm['overall'][m]['mean']:.3f}" for m in document["metrics"])
        print(f"{name:16} {means}")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
