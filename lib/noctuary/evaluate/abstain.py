"""Below which score nothing is an answer: by everyday prompts, own questions and labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import FAULTS_SHOWN
from noctuary.embed.documents import text_key
from noctuary.evaluate.decide import PLAN, SERVED, WORDS_ARM, Runs, scope_of, words_only
from noctuary.evaluate.labels import Query
from noctuary.evaluate.metrics import (
    HEADLINE_METRIC,
    RiskCoverage,
    Scores,
    auroc,
    risk_coverage,
    score_run,
)
from noctuary.evaluate.queries import (
    LABELLED,
    UNANSWERABLE,
    Questions,
    make_questions,
    read_everyday,
)
from noctuary.evaluate.run import Run
from noctuary.evaluate.statistics import (
    MIN_VALUES,
    STANDARD,
    Floats,
    Interval,
    Resampling,
    Result,
    chunks,
    draw_counts,
    to_plain,
)
from noctuary.recall.answerability import Features, find_supports, read_features
from noctuary.recall.engine import Recaller
from noctuary.recall.legs import SnapshotGraph
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Mask, Scope, build_mask
from noctuary.recall.ranking import rank_alone
from noctuary.recall.reader import SnapshotReader
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
from noctuary.recall.support import combine

# Whether the score of the best result shows that there is an answer, for one arm.


@dataclass(frozen=True, slots=True)
class Abstention(Result):
    """How well an arm's top score separates answerable from unanswerable queries."""

    name: str  # the arm's
    metric: str  # above 0 counts as a correct answer
    auroc: float | None  # in [0, 1]; None if there is no unanswerable query
    # None where a kind has fewer than two queries; one without width is no proof of a separation.
    interval: Interval | None
    n_answerable: int
    n_unanswerable: int  # answering one is an error
    curve: RiskCoverage  # over both kinds; the last threshold is -inf if some query found nothing


def judge_abstention(
    answerable: Run,
    unanswerable: Run | None,
    scores: Scores,
    metric: str = HEADLINE_METRIC,
    resampling: Resampling = STANDARD,
) -> Abstention | None:
    """Judge an arm's top score as a sign that there is an answer; None if scores are unknown."""
    # A query that found nothing has the lowest confidence (-inf): the arm abstained by itself.
    correct = scores.column(metric) > 0.0
    known = _confidences(answerable, scores.query_ids)
    unknown = _confidences(unanswerable, unanswerable.query_ids) if unanswerable else []
    if None in known or None in unknown:
        return None
    sure, unsure = np.array(known, dtype=np.float64), np.array(unknown, dtype=np.float64)
    return judge_confidences(answerable.name, metric, sure, unsure, correct, resampling)


def judge_confidences(
    name: str,
    metric: str,
    known: Floats,
    unknown: Floats,
    correct: NDArray[np.bool_],
    resampling: Resampling = STANDARD,
) -> Abstention:
    """Judge any confidence, shapes (n,) and (m,), as a sign that there is an answer."""
    is_right = np.concatenate([correct, np.zeros(unknown.size, dtype=np.bool_)])
    return Abstention(
        name=name,
        metric=metric,
        auroc=auroc(known, unknown) if unknown.size else None,
        interval=_auroc_interval(known, unknown, resampling),
        n_answerable=known.size,
        n_unanswerable=unknown.size,
        curve=risk_coverage(np.concatenate([known, unknown]), is_right),
    )


def _confidences(run: Run, query_ids: Sequence[str]) -> list[float | None]:
    """Return the top score per query, -inf where nothing was found, None where it is unknown."""
    rows = zip(run.query_ids, run.rankings, run.top_scores, strict=True)
    found = {query_id: score if ranking else -math.inf for query_id, ranking, score in rows}
    if missing := [query_id for query_id in query_ids if query_id not in found]:
        raise ValueError(
            f"run {run.name!r} lacks {len(missing)} of the scored queries, the first: "
            f"{missing[:FAULTS_SHOWN]}"
        )
    return [found[query_id] for query_id in query_ids]


def _auroc_interval(known: Floats, unknown: Floats, resampling: Resampling) -> Interval | None:
    """Return the percentile interval of the AUROC; both kinds of queries are resampled."""
    n, m = known.size, unknown.size
    if min(n, m) < MIN_VALUES:
        return None
    others = np.sort(unknown)
    wins = (known[:, None] > others) + 0.5 * (known[:, None] == others)
    rng = np.random.default_rng(resampling.seed)
    drawn: list[Floats] = []
    for rows in chunks(resampling.draws, n + m):
        won = draw_counts(rng, rows, n).astype(np.float64) @ wins
        drawn.append((won * draw_counts(rng, rows, m)).sum(axis=1) / (n * m))
    low, high = np.quantile(np.concatenate(drawn), resampling.tails)
    return Interval(auroc(known, unknown), float(low), float(high), n + m)


# Below which score nothing is an answer: the threshold that queries and prompts lead to.

MAX_RECALL_LOSS = 0.05  # of recall, by abstaining: more pollutes prompts, less loses memories
MIN_ANSWERABLE = 20  # with fewer the first one lost costs more than MAX_RECALL_LOSS allows
SCORE_DIGITS = 5  # decimals that count, rounded down: equal nights choose equal thresholds
CURVE_POINTS = 40  # points kept of a curve: a snapshot carries them, and a plot shows no more


Calibrated = dict[str, Any]
"""A threshold as a snapshot seals it: `threshold`, in [0, 1], below which a query is abstained
from; `recall` of the answerable queries when every one is answered and `recall_kept` by the others;
the shares `answerable_abstained` and `unanswerable_abstained` (None where there is none); and the
values of an `Abstention`, its curve with at most CURVE_POINTS points."""


def calibrate(
    signal: str,
    metric: str,
    answerable: Sequence[float],
    recalls: Sequence[float],
    unanswerable: Sequence[float] = (),
    resampling: Resampling = STANDARD,
    within: tuple[float, float] = (0.0, 1.0),
) -> Calibrated | str:
    """Choose the threshold of a signal, or return why there is none."""
    # The largest one within the bounds that keeps 1 - MAX_RECALL_LOSS of the answerable queries'
    # recall. Unanswerable queries do not move it, so that a handful cannot, but can veto it:
    # a signal whose AUROC on them is not above .5 does not separate anything.
    if len(answerable) < MIN_ANSWERABLE:
        return f"{len(answerable)} queries are too few to calibrate by, {MIN_ANSWERABLE} are needed"
    known, unknown = _checked(answerable), _checked(unanswerable)
    found = np.asarray(recalls, dtype=np.float64)
    if found.shape != known.shape:
        raise ValueError(f"one recall per score is needed, got {found.shape} and {known.shape}")
    if not found.sum() > 0.0:
        return "no query found anything: there is no recall to keep"
    judged = judge_confidences(signal, metric, known, unknown, found > 0.0, resampling)
    if judged.auroc is not None and judged.auroc <= 0.5:
        return f"{signal} tells nothing here: its AUROC is {judged.auroc:.3f}"
    threshold = min(max(choose_threshold(known, found), within[0]), within[1])
    kept = known >= threshold
    costs = {
        "threshold": threshold,
        "recall": float(found.mean()),
        "recall_kept": float((found * kept).mean()),
        "answerable_abstained": float(np.mean(~kept)),
        "unanswerable_abstained": float(np.mean(unknown < threshold)) if unknown.size else None,
    }
    told = replace(judged, curve=thin_curve(judged.curve)).to_json()
    return {name: to_plain(value) for name, value in costs.items()} | told


def describe(found: Calibrated, asked: str = "answerable queries") -> str:
    """Describe the cost of a threshold; `asked` is the noun for the queries."""
    known = round(found["answerable_abstained"] * found["n_answerable"])
    return (
        f"{found['name']}: below {found['threshold']:.3f} nothing is an answer, which drops "
        f"{known} of {found['n_answerable']} {asked} and keeps "
        f"{found['recall_kept'] / found['recall']:.1%} of their recall"
    )


def describe_unanswerable(found: Calibrated) -> str:
    """Describe the benefit of a threshold."""
    share, n = found["unanswerable_abstained"], found["n_unanswerable"]
    if share is None:
        return "no unanswerable query tells what that is good for"
    dropped = f"{round(share * n)} of {n} unanswerable queries are dropped"
    return f"{dropped} (AUROC {found['auroc']:.3f})"


def choose_threshold(
    scores: Floats, recalls: Floats, max_recall_loss: float = MAX_RECALL_LOSS
) -> float:
    """Return the largest score below which at most such a share of the summed recall lies."""
    order = np.argsort(scores, kind="stable")
    ranked = scores[order]
    before = np.concatenate([[0.0], np.cumsum(recalls[order])])
    below = before[np.searchsorted(ranked, ranked, side="left")]
    # The sum of many recalls is not exact: 1 of 20 is 5 %.
    allowed = max_recall_loss * before[-1] + 1e-9
    return float(ranked[below <= allowed][-1])


def reached_by(scores: Sequence[float], share: float) -> float:
    """Return the least score that at most a share, in [0, 1), of some scores reach, in [0, 1]."""
    ranked = np.sort(_checked(scores))[::-1]
    return min(floor_score(float(ranked[int(share * ranked.size)]) + 1.5 / 10**SCORE_DIGITS), 1.0)


def floor_score(score: float) -> float:
    """Return a score with SCORE_DIGITS decimals, rounded down."""
    scale = 10**SCORE_DIGITS
    return math.floor(score * scale) / scale


def thin_curve(curve: RiskCoverage, points: int = CURVE_POINTS) -> RiskCoverage:
    """Return at most `points` (2 or more) of a curve's points, evenly chosen, both ends kept."""
    size = len(curve.thresholds)
    places = range(size)
    if size > points:
        places = [round(i * (size - 1) / (points - 1)) for i in range(points)]
    lists = curve.thresholds, curve.coverage, curve.risk
    thresholds, coverage, risk = (tuple(values[i] for i in places) for values in lists)
    return RiskCoverage(thresholds, coverage, risk, curve.area)


def _checked(scores: Sequence[float]) -> Floats:
    found = np.array([floor_score(score) for score in scores], dtype=np.float64)
    if found.size and not (found.min() >= 0.0 and found.max() <= 1.0):
        raise ValueError(f"scores lie in [0, 1], got {found.min()} to {found.max()}")
    return found


def measure_abstention(questions: Questions, runs: Runs) -> Abstention | None:
    """Measure how the top score separates answerable from unanswerable queries, if both exist."""
    group = next(iter(questions.groups), None)
    if group is None or UNANSWERABLE not in runs:
        return None
    answerable = runs[group][SERVED]
    scores = score_run(answerable, questions.groups[group])
    return judge_abstention(answerable, runs[UNANSWERABLE][SERVED], scores)


Vectors = NDArray[np.float32]

# Baseline signals for prompts that no memory answers.

RIDGE = 0.0125  # pull of the direction towards zero, per unit of weight: less fits single prompts
MOST_ROWS = 5_000  # memories that the direction is fitted on: more cost seconds and turn it little
FOLDS = 5  # a prompt's own likeness comes from a direction that was fitted without its fold
LEAST_DEVIATION = 0.02  # of any feature: prompts of a script that the store lacks are nearly equal
POOLED_SHARE = 0.5  # least deviation of a script by the pooled one: few prompts estimate it roughly
DIRECTION_DIGITS = 5  # decimals kept of the direction, so that equal nights seal equal files


@dataclass(frozen=True, slots=True)
class Prompted:
    """Results of everyday prompts for one signal."""

    signal: str  # one of `answerability.SIGNALS`
    measure: Measure  # the baseline
    scores: list[float]  # by that measure, in [0, 1], floored as thresholds are


def find_asker(reader: SnapshotReader) -> str | None:
    """Return the user with most memories in a store, whose view is used; None for no user."""
    owners = reader.facets["user"]
    most = int(np.bincount(owners.codes + 1).argmax())
    return owners.values[most - 1] if most else None


def scope_mask(reader: SnapshotReader, user: str | None) -> Mask | None:
    """Return the memories visible to a user; None for all."""
    return build_mask(Scope(user=user), reader.facets, reader.created_at_us)[0]


def ask_prompts(
    recaller: Recaller,
    profiles: Mapping[str, RetrievalProfile],
    asker: str | None,
    vectors: Vectors | None,
    depth: int,
) -> dict[str, Prompted]:
    """Return the results of everyday prompts for the asker, by the signals that a pack has."""
    reader, prompts = recaller.reader, read_everyday()
    mask, graph = scope_mask(reader, asker), SnapshotGraph(reader)
    both = None if vectors is None else (_own_vectors(reader, mask), vectors)
    rows: dict[str, list[Features]] = {signal: [] for signal in profiles}
    for place, prompt in enumerate(prompts):
        encode = None if vectors is None else partial(_known, vectors[place])
        shared: dict[Any, Any] = {}
        for signal, profile in profiles.items():
            if signal == WORDS or both:
                ranking = rank_alone(reader, graph, profile, mask, encode, prompt, depth, shared)
                rows[signal].append(read_features(reader, prompt, mask, ranking))
    return {
        signal: _measured(signal, found, None if signal == WORDS else both)
        for signal, found in rows.items()
        if found and all(row.signal == signal for row in found)
    }


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
    # In doubles: rounding stays below DIRECTION_DIGITS on every machine.
    wide = np.column_stack([vectors, np.ones(len(vectors))])
    return wide.T @ wide / len(vectors), wide.mean(axis=0)


def fit_direction(own: tuple[Floats, Floats], prompts: tuple[Floats, Floats]) -> Floats:
    """Return the ridge regression, (d + 1,), from `moments` of memories (1) and prompts (-1)."""
    left, right = (own[0] + prompts[0]) / 2, (own[1] - prompts[1]) / 2
    return np.linalg.solve(left + RIDGE * np.eye(right.size), right).astype(np.float64)


def _own_vectors(reader: SnapshotReader, mask: Mask | None) -> Vectors:
    """Return vectors of visible memories, at most MOST_ROWS."""
    seen = np.arange(reader.count) if mask is None else np.flatnonzero(mask)
    if reader.vectors is None or not seen.size:
        return np.empty((0, 0), dtype=np.float32)
    places = np.unique(np.linspace(0, seen.size - 1, min(seen.size, MOST_ROWS)).astype(np.int64))
    return np.asarray(reader.vectors[seen[places]], dtype=np.float32)


def _known(vector: Vectors, _: Any) -> Vectors:
    return vector


Embed = Callable[[Sequence[str]], Vectors | None]
"""Encodes many queries at once, so that the recalls that follow find the vectors, (n, d)."""


# The thresholds that a snapshot carries.

LET_THROUGH = 0.015  # share of everyday prompts let through: more injects noise, less loses answers
LENIENT = 0.02  # by its own questions: they repeat words, so words alone are not judged by them
MOST_LET_THROUGH = {WORDS_AND_VECTORS: 0.1, WORDS: 0.05}  # by the owner's labels
BAR_SHARE = 0.5  # share of everyday prompts whose best memory reaches the bar of a single memory
OWN_METRIC = "recall@3 of its own questions"  # as many memories as a hook injects

_OWN_K = 3


def calibrate_signals(
    recaller: Recaller,
    profile: RetrievalProfile,
    questions: Questions,
    labelled: Mapping[str, Run],
    arm: str,
    embed: Embed,
) -> dict[str, Any]:
    """Choose a pack's thresholds: `sealed` by signal, and `said`; `arm` ranks as the profile does.

    `asked` are the keys of the texts of its own questions.
    """
    if not recaller.reader.count:
        return {"sealed": None, "said": ["nothing abstains: the store is empty"], "asked": []}
    profiles = {WORDS_AND_VECTORS: profile, WORDS: words_only(profile)}
    asker = find_asker(recaller.reader)
    vectors = _everyday_vectors(recaller, embed)
    prompted = ask_prompts(recaller, profiles, asker, vectors, PLAN.depth)
    # Of both signals: a query that another one answers must show it.
    recaller.calibration = Calibration.observing({s: p.measure for s, p in prompted.items()})
    signals: dict[str, dict[str, Any]] = {}
    said, own = list[str](), list[tuple[str, str]]()
    for signal, found in prompted.items():
        as_ranked = WORDS_ARM if signal == WORDS and WORDS_ARM in labelled else arm
        run = labelled.get(as_ranked)
        by_labels = _by_labels(recaller, profiles[signal], questions, run, found)
        by_own: Calibrated | str | None = None
        if isinstance(by_labels, str) and signal == WORDS_AND_VECTORS:
            own = list(make_questions(recaller.reader, scope_mask(recaller.reader, asker)))
            embed([text for text, _ in own])
            by_own = _by_own(recaller, profile, asker, found, own)
        signals[signal], sentence = _seal(found, by_labels, by_own)
        said.append(sentence)
    rule = {"max_recall_loss": MAX_RECALL_LOSS, "let_through": LET_THROUGH}
    return {
        "sealed": {"rule": rule, "signals": signals} if signals else None,
        "said": said,
        "asked": [text_key(text).hex() for text, _ in own],
    }


def _everyday_vectors(recaller: Recaller, embed: Embed) -> Vectors | None:
    """Return the vectors of everyday prompts, shape (prompts, d); None where a store has none."""
    if recaller.reader.vectors is None or recaller.reader.manifest.encoder is None:
        return None
    if (found := embed(read_everyday())) is not None:
        return found
    inputs = recaller.inputs_now()
    return np.array([inputs.query_vector(prompt) for prompt in read_everyday()])


def _seal(
    prompted: Prompted, by_labels: Calibrated | str, by_own: Calibrated | str | None
) -> tuple[dict[str, Any], str]:
    """Return the sealed values of a signal, and why: by labels, own questions or prompts."""
    scores = prompted.scores
    chosen: Calibrated = {}
    if not isinstance(by_labels, str):
        chosen, told = by_labels, [describe(by_labels), describe_unanswerable(by_labels)]
    elif by_own is not None and not isinstance(by_own, str):
        chosen, told = by_own, [describe(by_own, "questions that the night made"), by_labels]
    else:
        usual = reached_by(scores, LET_THROUGH)
        told = [f"{prompted.signal}: below {usual:.3f} nothing is an answer", by_labels]
        told += [f"by its own questions: {by_own}"] if by_own else []
    threshold = chosen["threshold"] if chosen else reached_by(scores, LET_THROUGH)
    let = sum(score >= threshold for score in scores)
    sealed = {
        **chosen,
        "threshold": threshold,
        "bar": reached_by(scores, BAR_SHARE),
        "measure": prompted.measure.to_json(),
        "prompts": len(scores),
        "prompts_let_through": let,
    }
    return sealed, "; ".join([*told, f"{let} of {len(scores)} everyday prompts reach it"])


def _by_labels(
    recaller: Recaller,
    profile: RetrievalProfile,
    questions: Questions,
    run: Run | None,
    prompted: Prompted,
) -> Calibrated | str:
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
    own: Sequence[tuple[str, str]],
) -> Calibrated | str:
    scope = Scope(user=asker)
    scores, recalls = list[float](), list[float]()
    for text, memory_id in own:
        found, judged = recaller.judge(text, _OWN_K, profile=profile, scope=scope)
        scores.append(floor_score(judged.score) if judged is not None else 0.0)
        recalls.append(float(memory_id in {name for name, _ in found}))
    strict = reached_by(prompted.scores, LET_THROUGH)
    within = (reached_by(prompted.scores, LENIENT), strict)
    return calibrate(prompted.signal, OWN_METRIC, scores, recalls, prompted.scores, within=within)


def _scores(
    recaller: Recaller, profile: RetrievalProfile, queries: Sequence[Query], signal: str
) -> list[float] | None:
    """Return every query's score, as the evaluation runs it; None if one has another signal."""
    scores: list[float] = []
    for query in queries:
        _, found = recaller.judge(query.text, PLAN.k, profile=profile, scope=scope_of(query))
        if found is not None and found.signal != signal:
            return None
        # Nothing was searched: a blank query, or a scope that shows nothing.
        scores.append(0.0 if found is None else floor_score(found.score))
    return scores
