"""Stage abstention_calibration: below which score tonight's snapshot has no answer."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import EncoderError
from noctuary.core.files import hash_text, write_text
from noctuary.evaluate.decide import (
    MAX_RECALL_LOSS,
    MIN_ANSWERABLE,
    Abstention,
    Calibrated,
    calibrate,
    floor_score,
    reached_by,
)
from noctuary.evaluate.labels import Query
from noctuary.evaluate.run import Run
from noctuary.evaluate.scores import score_run
from noctuary.night.context import ABSTENTION, Night
from noctuary.night.evaluation import (
    FUSION_DECISION,
    HEADLINE_METRIC,
    PLAN,
    RECALL_EVALUATION,
    SERVED,
    read_runs,
    served_profile,
    words_only,
)
from noctuary.night.questions import (
    LABELLED,
    USER_KEY,
    Questions,
    fetch_everyday_vectors,
    fetch_query_vectors,
    make_questions,
    read_everyday,
    read_questions,
)
from noctuary.night.serving import SERVING_PACK, pack_path
from noctuary.recall.answerability import Features, combine, find_supports, read_features
from noctuary.recall.engine import Recaller
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Mask, RecallRun, Scope, build_mask
from noctuary.recall.query_encoder import warm_up
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
    WORDS_AND_VECTORS,
    Calibration,
    Measure,
)
from noctuary.work.stage import Stage, StageResult

# What prompts that are nobody's memory come to on tonight's pack, and so what is usual for them.


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
    night: Night, recaller: Recaller, profiles: Mapping[str, RetrievalProfile], asker: str | None
) -> dict[str, Prompted]:
    """Return what everyday prompts come to, by signal; only signals that the pack has.

    Args:
        night: The night.
        recaller: The pack.
        profiles: How to rank, by signal.
        asker: On whose behalf.
    """
    reader, prompts = recaller.reader, read_everyday()
    vectors = fetch_everyday_vectors(night, recaller)
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
            ranking = ranker.rank(RecallRun(time.perf_counter(), None), prompt, PLAN.depth)
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


# Stage abstention_calibration: below which score tonight's snapshot has no answer.


ABSTENTION_CALIBRATION = Stage("abstention_calibration", "3", (ABSTENTION,))

LET_THROUGH = 0.015
"""Share of everyday prompts that may reach the threshold: more injects noise, less loses answers.
"""

LENIENT = 0.02
"""The same for the sake of questions that the night made itself. Those repeat words, so for words
alone, which are weaker evidence, they have no say."""

MOST_LET_THROUGH = {WORDS_AND_VECTORS: 0.1, WORDS: 0.05}
"""The same for the sake of the owner's labels, which weigh more."""

BAR_SHARE = 0.5
"""Share of everyday prompts whose best memory reaches the bar of a single memory."""

OWN_METRIC = "recall@3 of its own questions"
"""What is kept of the questions that a night makes: as many memories as a hook injects."""

_OWN_K = 3

_WORDS_ARM = "lexical"
"""The evaluation's arm that answers as a recall without a dense leg does."""


def calibrate_abstention(night: Night) -> StageResult:
    """Choose tonight's thresholds: by everyday prompts, own questions and labels if there are."""
    decision = night.result_of(FUSION_DECISION)
    inputs = {
        "pack": night.result_of(SERVING_PACK).facts["digest"],
        "evaluation": night.result_of(RECALL_EVALUATION).digest,
        "decision": decision.digest,
        "profile": served_profile(night).to_json(),
        "prompts": hash_text(*read_everyday()),
    }

    def body() -> tuple[int, dict[str, Any]]:
        ranking = decision.facts["ranking"]
        profile = served_profile(night, ranking["adopted"] if ranking else None)
        with closing(SnapshotReader.open(pack_path(night))) as reader:
            # Some 600 texts: loaded now and for good, so that no clock decides who encodes them.
            with suppress(EncoderError):
                warm_up(night.paths, reader.manifest)
            recaller = Recaller(night.paths, reader, "candidate", may_warm=True)
            if not reader.count:
                return _write_calibration(night, {}, ["nothing abstains: the store is empty"])
            return _write_calibration(night, *_calibrate(night, recaller, profile, decision.facts))

    return night.finish(night.run(ABSTENTION_CALIBRATION, inputs, body))


def read_judged(night: Night) -> Mapping[str, Abstention]:
    """Return AUROC and risk-coverage of every signal that queries calibrated."""
    document = read_calibration(night)
    signals = document["sealed"]["signals"] if document["sealed"] else {}
    return {name: Abstention.from_json(raw) for name, raw in signals.items() if "auroc" in raw}


def read_calibration(night: Night) -> dict[str, Any]:
    """Return `sealed` (what the snapshot carries, or None) and `said` (one sentence per signal)."""
    document: dict[str, Any] = json.loads(night.work(ABSTENTION).read_text(encoding="utf-8"))
    return document


def _write_calibration(
    night: Night, signals: Mapping[str, Mapping[str, Any]], said: Sequence[str]
) -> tuple[int, dict[str, Any]]:
    rule = {"max_recall_loss": MAX_RECALL_LOSS, "let_through": LET_THROUGH}
    sealed = {"rule": rule, "signals": dict(signals)} if signals else None
    document = {"sealed": sealed, "said": list(said)}
    write_text(night.work(ABSTENTION), json.dumps(document, indent=1, sort_keys=True) + "\n")
    facts = {f"threshold {name}": found["threshold"] for name, found in signals.items()}
    return len(signals), {**facts, "reason": "; ".join(said)}


def _calibrate(
    night: Night, recaller: Recaller, profile: RetrievalProfile, decision: Mapping[str, Any]
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return what the snapshot carries by signal, and one sentence for each."""
    questions = read_questions(night)
    profiles = {WORDS_AND_VECTORS: profile, WORDS: words_only(profile)}
    asker = find_asker(recaller.reader)
    asked = ask_prompts(night, recaller, profiles, asker)
    # Of both signals: a query that another one answers must show it.
    recaller.calibration = Calibration.observing({s: p.measure for s, p in asked.items()})
    sealed: dict[str, dict[str, Any]] = {}
    said: list[str] = []
    for signal, prompted in asked.items():
        profile, scores = profiles[signal], prompted.scores
        chosen = by_labels = _by_labels(night, recaller, profile, questions, decision, prompted)
        if isinstance(by_labels, str) and signal == WORDS_AND_VECTORS:
            chosen = _by_own(night, recaller, profile, asker, prompted)
        threshold = reached_by(scores, LET_THROUGH)
        if isinstance(by_labels, Calibrated):
            told = [by_labels.describe(), by_labels.describe_unanswerable()]
        elif isinstance(chosen, Calibrated):
            told = [chosen.describe("questions that the night made"), by_labels]
        else:
            told = [f"{signal}: below {threshold:.3f} nothing is an answer"]
            told += (
                [by_labels]
                if chosen is by_labels
                else [by_labels, f"by its own questions: {chosen}"]
            )
        if isinstance(chosen, Calibrated):
            threshold = chosen.threshold
        let = sum(score >= threshold for score in scores)
        said.append("; ".join([*told, f"{let} of {len(scores)} everyday prompts reach it"]))
        sealed[signal] = {
            **(chosen.to_json() if isinstance(chosen, Calibrated) else {}),
            "threshold": threshold,
            "bar": reached_by(scores, BAR_SHARE),
            "measure": prompted.measure.to_json(),
            "prompts": len(scores),
            "prompts_let_through": let,
        }
    return sealed, said


def _by_labels(
    night: Night,
    recaller: Recaller,
    profile: RetrievalProfile,
    questions: Questions,
    decision: Mapping[str, Any],
    prompted: Prompted,
) -> Calibrated | str:
    labelled = questions.groups.get(LABELLED, ())
    if len(labelled) < MIN_ANSWERABLE:
        return f"there are {len(labelled)} labelled queries, and {MIN_ANSWERABLE} are needed"
    signal, ranking = prompted.signal, decision["ranking"]
    runs = read_runs(night)[LABELLED]
    run = runs[str(ranking["challenger"]) if ranking else SERVED]
    if signal == WORDS:
        run = runs.get(_WORDS_ARM, run)
    known = _scores(recaller, profile, labelled, signal)
    unknown = _scores(recaller, profile, questions.unanswerable, signal)
    if known is None or unknown is None:
        return "some labelled queries are answered by another signal"
    within = (reached_by(prompted.scores, MOST_LET_THROUGH[signal]), 1.0)
    return calibrate(
        signal, HEADLINE_METRIC, known, _recalls(run, labelled), unknown, within=within
    )


def _by_own(
    night: Night,
    recaller: Recaller,
    profile: RetrievalProfile,
    asker: str | None,
    prompted: Prompted,
) -> Calibrated | str:
    """Return the threshold that questions of the store's own memories lead to, or why none."""
    reader, scope = recaller.reader, Scope(user=asker)
    own = list(make_questions(reader, scope_mask(reader, asker)))
    fetch_query_vectors(night, reader.manifest, [text for text, _ in own])
    scores, recalls = list[float](), list[float]()
    for text, memory_id in own:
        found = recaller.recall(text, _OWN_K, profile=profile, scope=scope)
        judged = found.answerability
        scores.append(floor_score(judged.score) if judged is not None else 0.0)
        recalls.append(float(memory_id in {str(m.id) for m in found.memories}))
    strict = reached_by(prompted.scores, LET_THROUGH)
    within = (reached_by(prompted.scores, LENIENT), strict)
    return calibrate(prompted.signal, OWN_METRIC, scores, recalls, prompted.scores, within=within)


def _recalls(run: Run, queries: Sequence[Query]) -> list[float]:
    scores = score_run(run, queries)
    by_query = dict(
        zip(scores.query_ids, scores.column(HEADLINE_METRIC).tolist(), strict=True)
    )  # fmt: skip
    return [by_query[query.query_id] for query in queries]


def _scores(
    recaller: Recaller, profile: RetrievalProfile, queries: Sequence[Query], signal: str
) -> list[float] | None:
    """Return every query's score, asked as the evaluation asks; None if one has another signal."""
    scores: list[float] = []
    for query in queries:
        scope = Scope(as_of=query.as_of, user=query.extras.get(USER_KEY))
        found = recaller.recall(query.text, PLAN.k, profile=profile, scope=scope).answerability
        if found is not None and found.signal != signal:
            return None
        # Nothing was searched: a blank query, or a scope that shows nothing.
        scores.append(0.0 if found is None else floor_score(found.score))
    return scores
