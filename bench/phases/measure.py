"""From a set and its store to the numbers of a result file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.manifest import describe_run
from bench.phases.asking import SAMPLE, SEED, Asking, K
from bench.phases.grid import Condition, Frame, baseline_profile, list_conditions
from bench.suite.loading import LoadedSet
from bench.suite.result import SPLIT
from noctuary.evaluate.metrics import Comparison, Scores, compare, score_run
from noctuary.evaluate.run import Run, RunPlan, run_retriever
from noctuary.evaluate.statistics import DIGITS, Resampling
from noctuary.recall.engine import Recaller

METRICS = ("recall@10", "ndcg@10")

_PLAN = RunPlan(k=K, depth=K, timed=False)

Log = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Asked:
    """One condition, asked and scored.

    Attributes:
        condition: Which.
        run: What it found.
        scores: Per query and metric.
        warnings: Codes of warnings met, with how often.
    """

    condition: Condition
    run: Run
    scores: Scores
    warnings: Mapping[str, int]


def measure_set(
    loaded: LoadedSet,
    store: Path,
    *,
    at_most: int = SAMPLE,
    resampling: Resampling | None = None,
    log: Log = print,
) -> dict[str, Any]:
    """Ask a set under every condition and return its result document.

    Args:
        loaded: The set.
        store: A store whose snapshot was built from it; nothing is written to it.
        at_most: Questions in the sample.
        resampling: Draws and seed; the library's defaults if not given.
        log: Gets one line per finished condition.

    Raises:
        StoreError: If the store has no snapshot that opens.
    """
    recaller = Recaller.open(store)
    chosen = resampling or Resampling()
    with tempfile.TemporaryDirectory(prefix="noctuary-phases-") as scratch:
        asking = Asking(loaded, recaller, Path(scratch), at_most)
        frames = asking.frames()
        conditions = list_conditions(frames, summaries=bool(recaller.reader.summaries.ids))
        baselines = {frame: _ask(asking, _baseline(frame)) for frame in sorted(frames)}
        found: list[Asked] = []
        for condition in conditions:
            found.append(_ask(asking, condition))
            log(f"{loaded.name}: {condition.name}")
    pairs = [(asked.scores, baselines[asked.condition.frame].scores) for asked in found]
    compared = compare(pairs, chosen)
    return {
        "kind": "phases",
        "dataset": loaded.name,
        "split": SPLIT,
        "manifest": {
            **describe_run(),
            "snapshot_digest": recaller.reader.manifest.digest,
            "encoder_digest": recaller.reader.manifest.encoder_digest,
            "queries_digest": loaded.queries_digest(),
            "memories": recaller.reader.count,
            "summaries": len(recaller.reader.summaries.ids),
            "n_queries": len(asking.queries),
            "k": K,
            "sample_seed": SEED,
            "draws": chosen.draws,
            "seed": chosen.seed,
        },
        "baseline": baseline_profile().to_json(),
        "baselines": {
            frame: {"means": _means(asked.scores), "warnings": dict(asked.warnings)}
            for frame, asked in baselines.items()
        },
        "conditions": [
            _describe(asked, baselines[asked.condition.frame], comparison)
            for asked, comparison in zip(found, compared, strict=True)
        ],
    }


def _baseline(frame: Frame) -> Condition:
    return Condition(f"baseline, {frame}", "use", baseline_profile(), frame=frame)


def _ask(asking: Asking, condition: Condition) -> Asked:
    retriever = asking.retriever(condition)
    run = run_retriever(retriever, asking.queries, _PLAN, name=condition.name)
    scores = score_run(run, asking.queries, METRICS)
    return Asked(condition, run, scores, dict(sorted(retriever.warnings.items())))


def _describe(asked: Asked, baseline: Asked, comparison: Comparison) -> dict[str, Any]:
    condition = asked.condition
    plain = baseline_profile().to_json()
    profile = condition.profile.to_json()
    return {
        "name": condition.name,
        "group": condition.group,
        "use": condition.use,
        "frame": condition.frame,
        "changes": {flag: value for flag, value in profile.items() if value != plain[flag]},
        "changed_rankings": _changed(asked.run.rankings, baseline.run.rankings),
        "means": _means(asked.scores),
        "differences": {m: d.to_json() for m, d in comparison.overall.items()},
        "warnings": dict(asked.warnings),
    }


def _changed(ours: Sequence[tuple[str, ...]], theirs: Sequence[tuple[str, ...]]) -> int:
    return sum(a != b for a, b in zip(ours, theirs, strict=True))


def _means(scores: Scores) -> dict[str, float]:
    return {m: round(float(scores.column(m).mean()), DIGITS) for m in scores.metrics}
