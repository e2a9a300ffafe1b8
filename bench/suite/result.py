"""The result file of a set: what was measured, what follows from it, and on what."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from bench.manifest import describe_run
from bench.results import read_result, write_result
from bench.suite.evaluation import EvaluatedSet
from bench.suite.kept import KeptRankings, cut, read_kept
from bench.suite.keys import SCORING_CODE, code_digest
from bench.suite.loading import LoadedSet
from bench.suite.plan import DEPTH, PLAN, SuitePaths
from bench.suite.scoring import COMPUTED, score_set
from noctuary.core.errors import SourceFormatError
from noctuary.core.files import hash_file, hash_json
from noctuary.evaluate.run import Run
from noctuary.evaluate.statistics import Resampling
from noctuary.recall.engine import Recaller

SPLIT = "dev"
"""The queries at hand; the other part of each set is kept away from this repository."""

AGREEMENT = 1e-6
"""Largest difference between a committed number and one computed again: files hold six decimals."""


def keep(loaded: LoadedSet, evaluated: EvaluatedSet) -> KeptRankings:
    """Return what is kept of a set's runs."""
    scopes = {
        part: {arm: cut(finished.run) for arm, finished in runs.items()}
        for part, runs in evaluated.runs.items()
        if runs
    }
    return KeptRankings(loaded.name, loaded.queries_digest(), scopes)


def describe_result(
    loaded: LoadedSet, store: Path, evaluated: EvaluatedSet, night: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the part of a result file that a later reader cannot compute: the measuring."""
    recaller = Recaller.open(store)
    return {
        "kind": "quality",
        "dataset": loaded.name,
        "split": SPLIT,
        "made_of": made_of(evaluated),
        "manifest": {
            **describe_run(),
            **_describe_snapshot(recaller),
            **_describe_set(loaded, recaller),
            **_describe_plan(),
        },
        "measured": {
            "night": dict(night),
            "evaluate_seconds": round(evaluated.seconds, 2),
            "arms": _describe_runs(evaluated),
        },
        "arms": {
            name: {
                "group": arm.group,
                "description": arm.description,
                "against": list(arm.against),
                "settings": arm.settings,
            }
            for name, arm in evaluated.catalogue.items()
            if name in evaluated.runs["all"]
        },
    }


def made_of(evaluated: EvaluatedSet) -> str:
    """Return a digest over every run and the code that scores them: equal means up to date."""
    return hash_json({"runs": evaluated.keys, "code": code_digest(SCORING_CODE)})


def is_current(path: Path, evaluated: EvaluatedSet) -> bool:
    """Whether a result file was made of exactly these runs."""
    try:
        return read_result(path).get("made_of") == made_of(evaluated)
    except SourceFormatError:
        return False


def _describe_snapshot(recaller: Recaller) -> dict[str, Any]:
    manifest = recaller.reader.manifest
    return {
        "snapshot_digest": manifest.digest,
        "corpus_digest": manifest.corpus_digest,
        "counts": manifest.counts,
        "encoder": manifest.encoder,
        "encoder_digest": manifest.encoder_digest,
    }


def _describe_set(loaded: LoadedSet, recaller: Recaller) -> dict[str, Any]:
    labels = {label for query in loaded.queries for label in query.relevant_ids}
    ids = recaller.reader.public_ids(range(recaller.reader.count)).values()
    return {
        "corpus_file_sha256": hash_file(loaded.dataset.corpus),
        "queries_digest": loaded.queries_digest(),
        "n_queries": len(loaded.queries),
        "n_unanswerable": len(loaded.unanswerable),
        # Rows that the export quarantined or held back: no arm of noctuary finds them, and they
        # count as misses.
        "labels_missing_from_snapshot": len(labels - {str(found) for found in ids}),
    }


def _describe_plan() -> dict[str, Any]:
    resampling = Resampling()
    return {
        "k": PLAN.k,
        "depth": DEPTH,
        "warm_up": PLAN.warm_up,
        "draws": resampling.draws,
        "seed": resampling.seed,
        "confidence": resampling.confidence,
        "power": resampling.power,
        "alpha": resampling.alpha,
    }


def _describe_runs(evaluated: EvaluatedSet) -> dict[str, Any]:
    return {
        part: {
            arm: {
                "seconds": round(finished.seconds, 2),
                "latency": _latency(finished.run),
                "build_ms": None if finished.run.build_ms is None else round(finished.run.build_ms),
                "index_bytes": finished.run.index_bytes,
                "warnings": dict(finished.warnings),
            }
            for arm, finished in runs.items()
        }
        for part, runs in evaluated.runs.items()
    }


def _latency(run: Run) -> dict[str, float] | None:
    if not run.latency_ms:
        return None
    p50, p95 = np.percentile(np.array(run.latency_ms), [50.0, 95.0])
    return {"p50_ms": round(float(p50), 3), "p95_ms": round(float(p95), 3)}


def rescore(loaded: LoadedSet, paths: SuitePaths, *, write: bool = False) -> list[str]:
    """Compute a set's numbers again from its kept rankings and compare them with its result file.

    Args:
        loaded: The set.
        paths: Where result and rankings lie.
        write: Put the new numbers in the place of those that differ.

    Returns:
        One line per number that differs; empty if all agree.

    Raises:
        SourceFormatError: If a file cannot be read.
    """
    kept = read_kept(paths.kept(loaded.name))
    if kept.queries_digest != loaded.queries_digest():
        return [f"{loaded.name}: the queries are not those that the kept rankings answered"]
    document = read_result(paths.result(loaded.name))
    computed = score_set(kept, loaded, document["arms"])
    before = {key: document.get(key) for key in COMPUTED}
    differences = [f"{loaded.name}: {line}" for line in differ(before, computed)]
    if differences and write:
        write_result(paths.result(loaded.name), {**document, **computed})
    return differences


def differ(old: object, new: object, name: str = "") -> Iterator[str]:
    """Yield every place where two documents differ, numbers by more than AGREEMENT."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        left, right = cast("Mapping[str, Any]", old), cast("Mapping[str, Any]", new)
        for key in dict.fromkeys((*left, *right)):
            yield from differ(left.get(key), right.get(key), f"{name}.{key}" if name else key)
    elif isinstance(old, list | tuple) and isinstance(new, list | tuple):
        first, second = cast("list[Any]", old), cast("list[Any]", new)
        if len(first) != len(second):
            yield f"{name} has {len(first)} entries in the file, {len(second)} computed again"
        else:
            for place, (a, b) in enumerate(zip(first, second, strict=True)):
                yield from differ(a, b, f"{name}[{place}]")
    elif not _agree(old, new):
        yield f"{name} is {old!r} in the file, {new!r} computed again"


def _agree(old: object, new: object) -> bool:
    if isinstance(old, float | int) and isinstance(new, float | int):
        return math.isclose(old, new, rel_tol=0.0, abs_tol=AGREEMENT)
    return old == new
