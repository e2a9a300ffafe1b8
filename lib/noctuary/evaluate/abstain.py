"""What prompts come to that nobody's memory answers: what is usual for them, by signal."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.evaluate.decide import (
    floor_score,
)
from noctuary.evaluate.questions import read_everyday
from noctuary.recall.answerability import Features, combine, find_supports, read_features
from noctuary.recall.engine import Recaller
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Mask, RecallRun, Scope, build_mask
from noctuary.recall.ranking import BaseRanker
from noctuary.recall.reader import SnapshotGraph, SnapshotReader
from noctuary.recall.result import (
    ANY_SCRIPT,
    COSINE,
    COVERAGE,
    FEATURES,
    KNOWN,
    LIKENESS,
    WORDS,
    Measure,
)

Floats = NDArray[np.float64]


Vectors = NDArray[np.float32]


RIDGE = 0.0125
"""Pull of the direction towards nought, per unit of weight: less fits single prompts."""


MOST_ROWS = 5_000
"""Memories that the direction is fitted on, evenly spread: more cost seconds and turn it little."""


FOLDS = 5
"""A prompt's own likeness comes from a direction that was fitted without its fold."""


LEAST_DEVIATION = 0.02
"""Of any feature: prompts of a script that the store lacks all come to nearly the same."""


POOLED_SHARE = 0.5
"""Least deviation of a script, as a share of the pooled one: few prompts tell it roughly."""


DIRECTION_DIGITS = 5
"""Decimals kept of the direction, so that equal nights seal equal files."""


@dataclass(frozen=True, slots=True)
class Prompted:
    """What everyday prompts came to by one signal.

    Attributes:
        signal: One of `answerability.SIGNALS`.
        measure: What is usual for them.
        scores: Of each by that measure, in [0, 1], floored as thresholds are.
    """

    signal: str
    measure: Measure
    scores: list[float]


def find_asker(reader: SnapshotReader) -> str | None:
    """Return on whose behalf a store is asked: of whom it has most memories, None for nobody."""
    owners = reader.facets["user"]
    most = int(np.bincount(owners.codes + 1).argmax())
    return owners.values[most - 1] if most else None


def scope_mask(reader: SnapshotReader, user: str | None) -> Mask | None:
    """Return what a user may see; None for everything."""
    return build_mask(Scope(user=user), reader.facets, reader.created_at_us)[0]


def ask_prompts(
    recaller: Recaller,
    profiles: Mapping[str, RetrievalProfile],
    asker: str | None,
    vectors: Vectors | None,
    depth: int,
) -> dict[str, Prompted]:
    """Return what everyday prompts come to, by signal; only signals that the pack has.

    Args:
        recaller: The pack.
        profiles: How to rank, by signal.
        asker: On whose behalf.
        vectors: Of the prompts, shape (prompts, d); None without an encoder.
        depth: How many candidates are ranked.
    """
    reader, prompts = recaller.reader, read_everyday()
    mask, graph = scope_mask(reader, asker), SnapshotGraph(reader)
    both = None if vectors is None else (_own_vectors(reader, mask), vectors)
    found: dict[str, Prompted] = {}
    for signal, profile in profiles.items():
        if signal != WORDS and vectors is None:
            continue
        rows: list[Features] = []
        for place, prompt in enumerate(prompts):
            encode = None if vectors is None else partial(_known, vectors[place])
            ranker = BaseRanker(reader, graph, profile, mask, encode)
            ranking = ranker.rank(RecallRun(time.perf_counter(), None), prompt, depth)
            rows.append(read_features(reader, prompt, mask, ranking))
        if all(row.signal == signal for row in rows):
            found[signal] = _measured(signal, rows, None if signal == WORDS else both)
    return found


def _measured(
    signal: str, rows: Sequence[Features], both: tuple[Vectors, Vectors] | None
) -> Prompted:
    likeness, direction = np.zeros(len(rows)), ()
    if both is not None and both[0].size:
        stored, vectors = moments(both[0]), both[1]
        fitted = fit_direction(stored, moments(vectors))
        direction = tuple(round(float(value), DIRECTION_DIGITS) for value in fitted)
        for fold in range(FOLDS):
            inside = np.arange(len(vectors)) % FOLDS == fold
            apart = fit_direction(stored, moments(vectors[~inside]))
            likeness[inside] = vectors[inside] @ apart[:-1] + apart[-1]
    values = {
        COSINE: np.array([row.cosines.max(initial=0.0) for row in rows]),
        COVERAGE: np.array([row.coverage.max(initial=0.0) for row in rows]),
        KNOWN: np.array([row.known for row in rows]),
        LIKENESS: likeness,
    }
    measure = Measure(find_usual([row.script for row in rows], values), direction)
    scores = [
        floor_score(combine(float(supports.max(initial=-np.inf)), 0.0))
        for row, alike in zip(rows, likeness.tolist(), strict=True)
        for supports in [find_supports(row, measure, alike if direction else None)]
    ]
    return Prompted(signal, measure, scores)


def find_usual(
    scripts: Sequence[str], values: Mapping[str, Floats]
) -> dict[str, dict[str, tuple[float, float]]]:
    """Return mean and deviation of every feature by script, and over all prompts."""
    of = np.array(scripts)
    groups = {script: of == script for script in sorted(set(scripts))}
    found: dict[str, dict[str, tuple[float, float]]] = {name: {} for name in (*groups, ANY_SCRIPT)}
    for feature in FEATURES:
        column = values[feature]
        pooled = np.sqrt(np.mean([column[inside].var() for inside in groups.values()]))
        least = max(POOLED_SHARE * float(pooled), LEAST_DEVIATION)
        for name, inside in (*groups.items(), (ANY_SCRIPT, np.ones(of.size, dtype=np.bool_))):
            deviation = max(float(column[inside].std()), least)
            found[name][feature] = (round(float(column[inside].mean()), 6), round(deviation, 6))
    return found


def moments(vectors: Vectors) -> tuple[Floats, Floats]:
    """Return mean products, shape (d + 1, d + 1), and mean, (d + 1,), of vectors and a 1 each."""
    # In doubles: what is left of rounding is less than DIRECTION_DIGITS, whoever multiplies.
    wide = np.column_stack([vectors, np.ones(len(vectors))])
    return wide.T @ wide / len(vectors), wide.mean(axis=0)


def fit_direction(own: tuple[Floats, Floats], prompts: tuple[Floats, Floats]) -> Floats:
    """Return the ridge regression that tells memories (1) from prompts (-1), shape (d + 1,).

    Both kinds weigh the same, however many there are of each; the intercept stands last.

    Args:
        own: `moments` of memories.
        prompts: Of prompts.
    """
    left, right = (own[0] + prompts[0]) / 2, (own[1] - prompts[1]) / 2
    return np.linalg.solve(left + RIDGE * np.eye(right.size), right).astype(np.float64)


def _own_vectors(reader: SnapshotReader, mask: Mask | None) -> Vectors:
    """Return vectors of what may be seen, at most MOST_ROWS."""
    seen = np.arange(reader.count) if mask is None else np.flatnonzero(mask)
    if reader.vectors is None or not seen.size:
        return np.empty((0, 0), dtype=np.float32)
    places = np.unique(np.linspace(0, seen.size - 1, min(seen.size, MOST_ROWS)).astype(np.int64))
    return np.asarray(reader.vectors[seen[places]], dtype=np.float32)


def _known(vector: Vectors, _: Any) -> Vectors:
    return vector
