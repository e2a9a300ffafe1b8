"""Below which score nothing is an answer: by everyday prompts, own questions and labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.embed.documents import put_vectors, read_vectors, text_key
from noctuary.evaluate.arms import PLAN, WORDS_ARM, scope_of, words_only
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
from noctuary.evaluate.questions import LABELLED, Questions, make_questions, read_everyday
from noctuary.evaluate.run import Run
from noctuary.evaluate.scores import HEADLINE_METRIC, score_run
from noctuary.recall.answerability import Features, combine, find_supports, read_features
from noctuary.recall.engine import Recaller, rank_alone
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Mask, Scope, build_mask
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
from noctuary.work.content import ContentStore

Floats = NDArray[np.float64]


Vectors = NDArray[np.float32]


# What prompts come to that nobody's memory answers: what is usual for them, by signal.


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
            ranking = rank_alone(reader, graph, profile, mask, encode, prompt, depth)
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


# The prompts' vectors, encoded once per encoder.


Fetch = Callable[[Sequence[str]], object]
"""Asks a provider for the vectors of many queries, so that the recalls that follow find them."""


def everyday_kind(encoder_digest: str) -> str:
    """Return the kind of the vectors of everyday prompts, as recall encodes them."""
    return f"everyday:{encoder_digest}"


def everyday_keys() -> list[bytes]:
    """Return the keys of everyday prompts, in their order."""
    return [text_key(prompt) for prompt in read_everyday()]


def everyday_vectors(
    recaller: Recaller, open_store: Callable[[str], ContentStore], fetch: Fetch
) -> Vectors | None:
    """Return the vectors of everyday prompts, shape (prompts, d); None without an encoder.

    Args:
        recaller: The pack.
        open_store: Opens what is kept of a kind.
        fetch: Called with those that are not kept.
    """
    own, digest = recaller.reader.vectors, recaller.reader.manifest.encoder_digest
    if own is None or digest is None:
        return None
    prompts, keys, store = read_everyday(), everyday_keys(), open_store(everyday_kind(digest))
    vectors = read_vectors(store, keys, own.shape[1])
    lacking = np.flatnonzero(~np.isfinite(vectors).all(axis=1)).tolist()
    fetch([prompts[at] for at in lacking])
    inputs = recaller.inputs_now()
    for at in lacking:
        vectors[at] = inputs.query_vector(prompts[at])
    put_vectors(store, {keys[at]: vectors[at] for at in lacking})
    return vectors


# The thresholds that a snapshot carries.


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


def calibrate_signals(
    recaller: Recaller,
    profile: RetrievalProfile,
    questions: Questions,
    labelled: Mapping[str, Run],
    arm: str,
    open_store: Callable[[str], ContentStore],
    fetch: Fetch,
) -> dict[str, Any]:
    """Choose the thresholds of a pack.

    Args:
        recaller: The pack.
        profile: How the snapshot will rank.
        questions: Of the night; its labelled and unanswerable queries count.
        labelled: What every arm found for the labelled ones.
        arm: Which of them ranks as the profile does.
        open_store: Opens what is kept of a kind.
        fetch: Called with all texts before they are asked.

    Returns:
        `sealed` (what the snapshot carries by signal, or None) and `said` (a sentence for each).
    """
    if not recaller.reader.count:
        return {"sealed": None, "said": ["nothing abstains: the store is empty"]}
    profiles = {WORDS_AND_VECTORS: profile, WORDS: words_only(profile)}
    asker = find_asker(recaller.reader)
    vectors = everyday_vectors(recaller, open_store, fetch)
    asked = ask_prompts(recaller, profiles, asker, vectors, PLAN.depth)
    # Of both signals: a query that another one answers must show it.
    recaller.calibration = Calibration.observing({s: p.measure for s, p in asked.items()})
    signals: dict[str, dict[str, Any]] = {}
    said: list[str] = []
    for signal, prompted in asked.items():
        as_ranked = WORDS_ARM if signal == WORDS and WORDS_ARM in labelled else arm
        run = labelled.get(as_ranked)
        by_labels = _by_labels(recaller, profiles[signal], questions, run, prompted)
        by_own: Calibrated | str | None = None
        if isinstance(by_labels, str) and signal == WORDS_AND_VECTORS:
            by_own = _by_own(recaller, profile, asker, prompted, fetch)
        signals[signal], sentence = _seal(prompted, by_labels, by_own)
        said.append(sentence)
    rule = {"max_recall_loss": MAX_RECALL_LOSS, "let_through": LET_THROUGH}
    return {"sealed": {"rule": rule, "signals": signals} if signals else None, "said": said}


def judged_signals(calibrated: Mapping[str, Any]) -> dict[str, Abstention]:
    """Return AUROC and risk-coverage of every signal that queries calibrated."""
    signals = calibrated["sealed"]["signals"] if calibrated["sealed"] else {}
    return {name: Abstention.from_json(raw) for name, raw in signals.items() if "auroc" in raw}


def _seal(
    prompted: Prompted, by_labels: Calibrated | str, by_own: Calibrated | str | None
) -> tuple[dict[str, Any], str]:
    """Return what the snapshot carries of a signal, and why in words.

    The labels' threshold counts before that of own questions (None where those have no say), and
    the prompts' where both say only why they have none.
    """
    scores = prompted.scores
    chosen = next((found for found in (by_labels, by_own) if isinstance(found, Calibrated)), None)
    threshold = chosen.threshold if chosen else reached_by(scores, LET_THROUGH)
    if isinstance(by_labels, Calibrated):
        told = [by_labels.describe(), by_labels.describe_unanswerable()]
    elif isinstance(by_own, Calibrated):
        told = [by_own.describe("questions that the night made"), by_labels]
    else:
        told = [f"{prompted.signal}: below {threshold:.3f} nothing is an answer", by_labels]
        told += [f"by its own questions: {by_own}"] if by_own else []
    let = sum(score >= threshold for score in scores)
    told.append(f"{let} of {len(scores)} everyday prompts reach it")
    sealed = {
        **(chosen.to_json() if chosen else {}),
        "threshold": threshold,
        "bar": reached_by(scores, BAR_SHARE),
        "measure": prompted.measure.to_json(),
        "prompts": len(scores),
        "prompts_let_through": let,
    }
    return sealed, "; ".join(told)


def _by_labels(
    recaller: Recaller,
    profile: RetrievalProfile,
    questions: Questions,
    run: Run | None,
    prompted: Prompted,
) -> Calibrated | str:
    """Return the threshold that the owner's labels lead to, or why none."""
    labelled = questions.groups.get(LABELLED, ())
    if run is None or len(labelled) < MIN_ANSWERABLE:
        return f"there are {len(labelled)} labelled queries, and {MIN_ANSWERABLE} are needed"
    signal = prompted.signal
    known = _scores(recaller, profile, labelled, signal)
    unknown = _scores(recaller, profile, questions.unanswerable, signal)
    if known is None or unknown is None:
        return "some labelled queries are answered by another signal"
    recalls = score_run(run, labelled).column(HEADLINE_METRIC).tolist()
    within = (reached_by(prompted.scores, MOST_LET_THROUGH[signal]), 1.0)
    return calibrate(signal, HEADLINE_METRIC, known, recalls, unknown, within=within)


def _by_own(
    recaller: Recaller,
    profile: RetrievalProfile,
    asker: str | None,
    prompted: Prompted,
    fetch: Fetch,
) -> Calibrated | str:
    """Return the threshold that questions of the store's own memories lead to, or why none."""
    reader, scope = recaller.reader, Scope(user=asker)
    own = list(make_questions(reader, scope_mask(reader, asker)))
    fetch([text for text, _ in own])
    scores, recalls = list[float](), list[float]()
    for text, memory_id in own:
        found = recaller.recall(text, _OWN_K, profile=profile, scope=scope)
        judged = found.answerability
        scores.append(floor_score(judged.score) if judged is not None else 0.0)
        recalls.append(float(memory_id in {str(m.id) for m in found.memories}))
    strict = reached_by(prompted.scores, LET_THROUGH)
    within = (reached_by(prompted.scores, LENIENT), strict)
    return calibrate(prompted.signal, OWN_METRIC, scores, recalls, prompted.scores, within=within)


def _scores(
    recaller: Recaller, profile: RetrievalProfile, queries: Sequence[Query], signal: str
) -> list[float] | None:
    """Return every query's score, asked as the evaluation asks; None if one has another signal."""
    scores: list[float] = []
    for query in queries:
        asked = recaller.recall(query.text, PLAN.k, profile=profile, scope=scope_of(query))
        found = asked.answerability
        if found is not None and found.signal != signal:
            return None
        # Nothing was searched: a blank query, or a scope that shows nothing.
        scores.append(0.0 if found is None else floor_score(found.score))
    return scores
