"""What is proven: a better ranking than the configured one, a loss, and when to stay silent."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import FAULTS_SHOWN
from noctuary.core.files import hash_json, hash_text
from noctuary.evaluate.metrics import RiskCoverage, auroc, risk_coverage
from noctuary.evaluate.questions import EXACT, GENERATED, LABELLED
from noctuary.evaluate.run import Run
from noctuary.evaluate.scores import HEADLINE_METRIC, Comparison, Difference, Scores, compare
from noctuary.evaluate.statistics import (
    MIN_VALUES,
    STANDARD,
    Floats,
    Interval,
    Resampling,
    Result,
    chunks,
    draw_counts,
    holm,
    interval_from_json,
)
from noctuary.recall.profile import RetrievalProfile
from noctuary.snapshot.checks import Drop

# Whether the score of the best result tells that there is an answer, for one arm.


@dataclass(frozen=True, slots=True)
class Abstention(Result):
    """How well an arm's top score separates what it can answer from what it cannot.

    Attributes:
        name: The arm's.
        metric: Its value above 0 counts as a correct answer (for recall: something was found).
        auroc: In [0, 1]; None if there is no unanswerable query.
        interval: Its percentile bootstrap interval, both kinds of query resampled apart; None where
            one kind has fewer than two. It has no width where the kinds separate completely, which
            is no proof that they always do.
        n_answerable: Queries with labels.
        n_unanswerable: Queries that nothing in the corpus answers; answering one is an error.
        curve: Over both kinds. The last threshold is -inf if some query found nothing.
    """

    name: str
    metric: str
    auroc: float | None
    interval: Interval | None
    n_answerable: int
    n_unanswerable: int
    curve: RiskCoverage

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Read back what `to_json` returned; KeyError if a key is missing."""
        found, curve = raw["auroc"], raw["curve"]
        n_known, n_unknown = raw["n_answerable"], raw["n_unanswerable"]
        return cls(
            name=raw["name"],
            metric=raw["metric"],
            auroc=found,
            interval=interval_from_json(found or 0.0, n_known + n_unknown, raw["low"], raw["high"]),
            n_answerable=n_known,
            n_unanswerable=n_unknown,
            curve=RiskCoverage(
                thresholds=tuple(-math.inf if t is None else t for t in curve["thresholds"]),
                coverage=tuple(curve["coverage"]),
                risk=tuple(curve["risk"]),
                area=curve["area"],
            ),
        )


def judge_abstention(
    answerable: Run,
    unanswerable: Run | None,
    scores: Scores,
    metric: str = HEADLINE_METRIC,
    resampling: Resampling = STANDARD,
) -> Abstention | None:
    """Judge an arm's top score as a sign that there is an answer.

    A query that found nothing has the lowest confidence of all (-inf): the arm abstained by itself.

    Args:
        answerable: The arm on labelled queries.
        unanswerable: The same arm on queries without an answer; None or empty leaves only the
            curve over the answerable ones.
        scores: The scores of `answerable`; may be over some of its queries.
        metric: Which of its values above 0 counts as a correct answer.
        resampling: Draws, seed and confidence of the AUROC's interval.

    Returns:
        The result, or None if the arm's scores are unknown (a non-empty ranking without a score).

    Raises:
        ValueError: If `scores` lack the metric, hold no query, or name queries that the run lacks.
    """
    correct = scores.column(metric) > 0.0
    known = _confidences(answerable, scores.query_ids)
    unknown = np.empty(0)
    if unanswerable is not None:
        unknown = _confidences(unanswerable, unanswerable.query_ids)
    if known is None or unknown is None:
        return None
    return judge_confidences(answerable.name, metric, known, unknown, correct, resampling)


def judge_confidences(
    name: str,
    metric: str,
    known: Floats,
    unknown: Floats,
    correct: NDArray[np.bool_],
    resampling: Resampling = STANDARD,
) -> Abstention:
    """Judge any confidence as a sign that there is an answer.

    Args:
        name: What the confidence is called.
        metric: What said which answers are correct.
        known: Confidence of every answerable query, shape (n,), n at least 1; no NaN.
        unknown: Of every unanswerable one, shape (m,); may be empty.
        correct: Whether each answerable query is answered correctly, shape (n,).
        resampling: Draws, seed and confidence of the AUROC's interval.
    """
    return Abstention(
        name=name,
        metric=metric,
        auroc=auroc(known, unknown) if unknown.size else None,
        interval=_auroc_interval(known, unknown, resampling),
        n_answerable=known.size,
        n_unanswerable=unknown.size,
        curve=risk_coverage(
            np.concatenate([known, unknown]),
            np.concatenate([correct, np.zeros(unknown.size, dtype=np.bool_)]),
        ),
    )


def _confidences(run: Run, query_ids: Sequence[str]) -> Floats | None:
    """Return the top score per query, -inf where nothing was found; None if one is unknown."""
    found: dict[str, float | None] = {}
    for query_id, ranking, score in zip(run.query_ids, run.rankings, run.top_scores, strict=True):
        found[query_id] = score if ranking else -math.inf
    missing = [query_id for query_id in query_ids if query_id not in found]
    if missing:
        raise ValueError(
            f"run {run.name!r} lacks {len(missing)} of the scored queries, the first: "
            f"{missing[:FAULTS_SHOWN]}"
        )
    chosen = [found[query_id] for query_id in query_ids]
    return None if None in chosen else np.array(chosen, dtype=np.float64)


def _auroc_interval(known: Floats, unknown: Floats, resampling: Resampling) -> Interval | None:
    """Return the percentile interval of the AUROC without sorting each of its resamples.

    The unanswerable scores are sorted once; a resample only counts how often each is drawn. How
    many of them lie below an answerable score is then a difference of running counts.
    """
    n, m = known.size, unknown.size
    if min(n, m) < MIN_VALUES:
        return None
    ordered = np.sort(unknown)
    below = np.searchsorted(ordered, known, side="left")
    not_above = np.searchsorted(ordered, known, side="right")
    rng = np.random.default_rng(resampling.seed)
    drawn: list[Floats] = []
    for rows in chunks(resampling.draws, n + m):
        picked = rng.integers(0, n, size=(rows, n))
        running = np.zeros((rows, m + 1), dtype=np.int64)
        np.cumsum(draw_counts(rng, rows, m), axis=1, out=running[:, 1:])
        # Ties count half: the mean of those strictly below and those not above.
        twice = np.take_along_axis(running, below[picked], axis=1)
        twice += np.take_along_axis(running, not_above[picked], axis=1)
        drawn.append(twice.sum(axis=1) / (2.0 * n * m))
    low, high = np.quantile(np.concatenate(drawn), resampling.tails)
    return Interval(auroc(known, unknown), float(low), float(high), n + m)


# Below which score nothing is an answer: the threshold that queries and prompts lead to.


MAX_RECALL_LOSS = 0.05
"""Share of the answerable queries' recall that abstaining may cost: more keeps more pollution out
of prompts, less loses fewer memories that were wanted."""

MIN_ANSWERABLE = 20
"""Fewest answerable queries to choose by: with fewer the first one lost already costs more than
MAX_RECALL_LOSS allows."""

SCORE_DIGITS = 5
"""Decimals of a score that count, rounded down: equal nights choose equal thresholds, and what was
asked in the night is not below its own score the next day."""

CURVE_POINTS = 40
"""Points kept of a risk-coverage curve: a snapshot carries them, and a plot shows no more."""


@dataclass(frozen=True, slots=True)
class Calibrated(Result):
    """A threshold, with what it does to the queries that it was chosen on.

    Attributes:
        threshold: In [0, 1]; a query is abstained from where its score is below.
        recall: Mean recall of the answerable queries when every one is answered, in (0, 1].
        recall_kept: The same when those below the threshold find nothing.
        answerable_abstained: Share of the answerable queries below the threshold.
        unanswerable_abstained: Share of the unanswerable ones; None where there is none.
        judged: AUROC and risk-coverage of the score.
    """

    threshold: float
    recall: float
    recall_kept: float
    answerable_abstained: float
    unanswerable_abstained: float | None
    judged: Abstention

    def to_json(self) -> dict[str, Any]:
        """Return plain values in one row; the curve with at most CURVE_POINTS points."""
        thin = replace(self.judged, curve=thin_curve(self.judged.curve))
        own = Result.to_json(replace(self, judged=thin))
        judged = own.pop("judged")
        return {**own, **judged}

    def describe(self, asked: str = "answerable queries") -> str:
        """Return in words what the threshold costs; `asked` says what was asked."""
        known = round(self.answerable_abstained * self.judged.n_answerable)
        return (
            f"{self.judged.name}: below {self.threshold:.3f} nothing is an answer, which drops "
            f"{known} of {self.judged.n_answerable} {asked} and keeps "
            f"{self.recall_kept / self.recall:.1%} of their recall"
        )

    def describe_unanswerable(self) -> str:
        """Return in words what it saves."""
        judged = self.judged
        if self.unanswerable_abstained is None or judged.auroc is None:
            return "no unanswerable query tells what that is good for"
        caught = round(self.unanswerable_abstained * judged.n_unanswerable)
        return (
            f"{caught} of {judged.n_unanswerable} unanswerable queries are dropped "
            f"(AUROC {judged.auroc:.3f})"
        )


def calibrate(
    signal: str,
    metric: str,
    answerable: Sequence[float],
    recalls: Sequence[float],
    unanswerable: Sequence[float] = (),
    resampling: Resampling = STANDARD,
    within: tuple[float, float] = (0.0, 1.0),
) -> Calibrated | str:
    """Choose the threshold of a signal, or say why there is none.

    The largest one that keeps at least 1 - MAX_RECALL_LOSS of the recall of the answerable queries,
    as far as the bounds allow: an unanswerable query has no say in it, so that a handful of them
    cannot move it. They have a veto: a signal whose AUROC on them is not above .5 tells nothing and
    gets no threshold.

    Args:
        signal: What the score is called.
        metric: What `recalls` are, for example "recall@10".
        answerable: Score of every answerable query, in [0, 1], shape (n,).
        recalls: What recall found for each, in [0, 1], same shape.
        unanswerable: Score of every query that nothing answers.
        resampling: For the AUROC's interval.
        within: Least and largest threshold, what everyday prompts ask for (`reached_by`).

    Raises:
        ValueError: If shapes differ, or a score lies outside [0, 1].
    """
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
    return Calibrated(
        threshold=threshold,
        recall=float(found.mean()),
        recall_kept=float((found * kept).mean()),
        answerable_abstained=float(np.mean(~kept)),
        unanswerable_abstained=float(np.mean(unknown < threshold)) if unknown.size else None,
        judged=judged,
    )


def choose_threshold(
    scores: Floats, recalls: Floats, max_recall_loss: float = MAX_RECALL_LOSS
) -> float:
    """Return the largest score of a query such that those below it hold little of the recall.

    Args:
        scores: Shape (n,), n at least 1.
        recalls: In [0, 1], shape (n,), not all 0.
        max_recall_loss: Largest share of the summed recall that may lie below, in [0, 1].
    """
    order = np.argsort(scores, kind="stable")
    ranked = scores[order]
    before = np.concatenate([[0.0], np.cumsum(recalls[order])])
    below = before[np.searchsorted(ranked, ranked, side="left")]
    # The sum of many recalls is not exact: 1 of 20 is 5 %.
    allowed = max_recall_loss * before[-1] + 1e-9
    return float(ranked[below <= allowed][-1])


def reached_by(scores: Sequence[float], share: float) -> float:
    """Return the least score that at most a share of these reach, in [0, 1].

    Args:
        scores: Of everyday prompts, in [0, 1], at least one.
        share: In [0, 1).
    """
    ranked = np.sort(_checked(scores))[::-1]
    return min(floor_score(float(ranked[int(share * ranked.size)]) + 1.5 / 10**SCORE_DIGITS), 1.0)


def floor_score(score: float) -> float:
    """Return a score with SCORE_DIGITS decimals, rounded down."""
    scale = 10**SCORE_DIGITS
    return math.floor(score * scale) / scale


def thin_curve(curve: RiskCoverage, points: int = CURVE_POINTS) -> RiskCoverage:
    """Return at most `points` (2 or more) of a curve's points, evenly chosen, both ends kept."""
    size = len(curve.thresholds)
    if size <= points:
        return curve
    places = [round(i * (size - 1) / (points - 1)) for i in range(points)]
    return replace(
        curve,
        thresholds=tuple(curve.thresholds[i] for i in places),
        coverage=tuple(curve.coverage[i] for i in places),
        risk=tuple(curve.risk[i] for i in places),
    )


def _checked(scores: Sequence[float]) -> Floats:
    found = np.array([floor_score(score) for score in scores], dtype=np.float64)
    if found.size and not (found.min() >= 0.0 and found.max() <= 1.0):
        raise ValueError(f"scores lie in [0, 1], got {found.min()} to {found.max()}")
    return found


# Whether another ranking than the configured one is proven to be better.
#
# The rule. The queries are cut in two halves by a hash of their id.
#
# 1. Selection half: the challenger with the largest mean gain is chosen, among those that do not
#    lose significantly on a guard. The winner of a grid is optimistic: its gain here is not
#    believed.
# 2. Confirmation half, which the choice has not seen: the 95 % BCa interval of its paired
#    difference lies above zero and its permutation p is below alpha. This alone bounds false
#    adoptions by alpha / 2, and the gain that is reported is the one of this half.
# 3. All queries: its interval lies above zero, and its permutation p is below alpha after Holm's
#    correction across all challengers.
#
# What the halves cost is power: a difference that n queries would show needs about 2 n of them.
# What they buy is a gain that is not overstated by having been chosen for its size.


DECISION_METRIC = "ndcg@10"
"""Looks at the order of the first ten, so it also sees what a changed weight does inside them;
recall@10 would move only where a memory crosses rank ten, and needs more queries for it."""

MIN_HALF = 25
"""Queries per half below which nothing is adopted: the floor of Voorhees and Buckley (2002). Lower
would adopt on the strength of a few queries, higher leaves small label files without a decision."""


SERVED = "served"
"""What the configured ranking is called among the arms."""


@dataclass(frozen=True, slots=True)
class Challenger:
    """A ranking that differs from the configured one in the fields that are not None.

    Attributes:
        name: Short and stable: reports and kept runs are joined by it.
        fusion: "cc" or "rrf".
        dense_share: Share of the dense leg in the sum of both legs' weights, in [0, 1].
        graph_weight: Factor on what the graph adds, at least 0.
        session_weight: Further factor on what sessions lend, at least 0.
    """

    name: str
    fusion: str | None = None
    dense_share: float | None = None
    graph_weight: float | None = None
    session_weight: float | None = None

    def changes(self, served: RetrievalProfile) -> dict[str, Any]:
        """Return the fields of a profile that it replaces."""
        found = {
            name: value
            for name in ("fusion", "graph_weight", "session_weight")
            if (value := getattr(self, name)) is not None
        }
        if self.dense_share is not None:
            total = (served.lexical_weight + served.dense_weight) or 1.0
            found["dense_weight"] = round(total * self.dense_share, 6)
            found["lexical_weight"] = round(total * (1.0 - self.dense_share), 6)
        return found

    def apply(self, served: RetrievalProfile) -> RetrievalProfile:
        """Return the configured profile with what it changes."""
        return replace(served, **self.changes(served))


CHALLENGERS = (
    Challenger("rrf", fusion="rrf"),
    Challenger("cc_dense_0.3", fusion="cc", dense_share=0.3),
    Challenger("cc_dense_0.5", fusion="cc", dense_share=0.5),
    Challenger("cc_dense_0.7", fusion="cc", dense_share=0.7),
    Challenger("cc_dense_0.9", fusion="cc", dense_share=0.9),
    Challenger("graph_0", graph_weight=0.0),
    Challenger("graph_0.5", graph_weight=0.5),
    Challenger("graph_1", graph_weight=1.0),
    Challenger("graph_2", graph_weight=2.0),
    Challenger("sessions_0", session_weight=0.0),
)
"""One step each way from the configured ranking, whichever of these that is, and one long one
towards the dense leg, for stores whose questions share no words with their answers (prefeval and
locomo_plus gain most there). The one that equals the configured ranking is not to be passed to
`decide`. More challengers cost power (Holm) and time."""


@dataclass(frozen=True, eq=False, slots=True)
class Guard:
    """Queries that may veto a challenger but never adopt one.

    Attributes:
        name: The stratum, as the reason names it.
        default: The configured ranking's scores on the guard's queries.
        challengers: Scores of every challenger on the same queries, by name.
    """

    name: str
    default: Scores
    challengers: Mapping[str, Scores] = field(default_factory=dict[str, Scores])


@dataclass(frozen=True, slots=True)
class Tested(Result):
    """What was found about one challenger.

    Attributes:
        name: The challenger's.
        difference: Challenger minus default over all queries; `p_holm` is over all challengers.
        selection_gain: Mean difference on the selection half, in [-1, 1].
        confirmation: The difference on the other half (`p_holm` is its raw p); only of the
            challenger that was chosen.
        vetoes: Why guards reject it, one phrase each; empty where none does.
    """

    name: str
    difference: Difference
    selection_gain: float
    confirmation: Difference | None = None
    vetoes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision(Result):
    """What the night decided and why.

    Attributes:
        adopted: Name of the challenger to serve with, or None to keep the configured ranking.
        reason: One plain sentence with the numbers.
        tested: Every challenger in the order given; empty where there was nothing to test on.
        n: Queries that could decide (guards apart).
        metric: What the differences are of.
    """

    adopted: str | None
    reason: str
    tested: tuple[Tested, ...]
    n: int
    metric: str


def decide(
    default: Scores | None,
    challengers: Mapping[str, Scores],
    guards: Sequence[Guard] = (),
    resampling: Resampling = STANDARD,
    metric: str = DECISION_METRIC,
) -> Decision:
    """Choose at most one challenger by the rule above.

    Args:
        default: The configured ranking's scores on the deciding queries; None or no row where the
            corpus has no such queries.
        challengers: Scores on the same queries in the same order, by challenger.
        guards: A guard rejects a challenger whose interval on it lies below zero with p below
            alpha, uncorrected: a veto should come too often rather than too late. It also rejects
            one that it has no scores of.
        resampling: Draws, seed, confidence and alpha.
        metric: A column of all scores.

    Raises:
        ValueError: If scores are not over the same queries, or lack the metric.
    """
    n = 0 if default is None else len(default.query_ids)
    tested: tuple[Tested, ...] = ()
    adopted = None
    if default is None or n < 2 * MIN_HALF:
        reason = (
            f"{n} queries can decide and {2 * MIN_HALF} are needed, "
            f"{MIN_HALF} to choose a challenger and {MIN_HALF} to confirm it"
        )
    elif not challengers:
        reason = f"there is no challenger to test on {n} queries"
    else:
        tested = _test(default, challengers, guards, resampling, metric)
        adopted, reason = _judge(tested, resampling, metric)
    if adopted is None:
        reason = f"the configured ranking stays: {reason}"
    return Decision(adopted, reason, tested, n, metric)


DECIDING_GROUPS = (LABELLED, GENERATED)
"""Groups that can adopt; the exact one is built from the corpus's own words and can only veto."""


def decide_by_groups(scored: Mapping[str, Mapping[str, Scores]]) -> Decision:
    """Choose at most one of CHALLENGERS by what every arm scored, by group and arm."""
    deciding = _join([scored[group] for group in DECIDING_GROUPS if group in scored])
    exact = scored.get(EXACT)
    guards = [Guard(EXACT, exact[SERVED], exact)] if exact else []
    challengers = {c.name: deciding[c.name] for c in CHALLENGERS if c.name in deciding}
    return decide(deciding.get(SERVED), challengers, guards)


def _join(groups: Sequence[Mapping[str, Scores]]) -> dict[str, Scores]:
    """Put the groups' queries one after the other, arm by arm."""
    return {
        name: replace(
            first,
            query_ids=tuple(i for group in groups for i in group[name].query_ids),
            strata=tuple(s for group in groups for s in group[name].strata),
            values=np.concatenate([group[name].values for group in groups]),
        )
        for name, first in (groups[0] if groups else {}).items()
    }


def adopted_ranking(decision: Decision, served: RetrievalProfile) -> dict[str, Any] | None:
    """Return what the snapshot carries: the adopted fields and the evidence; None for nothing."""
    for challenger in CHALLENGERS:
        if challenger.name == decision.adopted:
            return {
                "adopted": challenger.changes(served),
                "challenger": challenger.name,
                "reason": decision.reason,
                "evidence": hash_json(decision.to_json()),
            }
    return None


def selection_half(query_ids: Sequence[str]) -> NDArray[np.bool_]:
    """Return which queries choose, shape (n,); the others confirm.

    The half with the smaller hashes chooses, so the halves differ by one query at most, do not
    depend on the order of the queries, and a query that is added moves at most one other across.
    """
    hashes = [hash_text(query_id) for query_id in query_ids]
    chosen = np.zeros(len(hashes), dtype=np.bool_)
    chosen[sorted(range(len(hashes)), key=hashes.__getitem__)[: len(hashes) // 2]] = True
    return chosen


def _test(
    default: Scores,
    challengers: Mapping[str, Scores],
    guards: Sequence[Guard],
    resampling: Resampling,
    metric: str,
) -> tuple[Tested, ...]:
    """Compare every challenger over all queries and the chosen one on the confirmation half."""
    selecting = selection_half(default.query_ids)
    overall = _compare(default, challengers, resampling, metric)
    adjusted = holm([difference.p_value for difference in overall.values()])
    vetoes = _vetoes(challengers, guards, resampling, metric)
    gains = default.column(metric)[selecting]
    found = [
        Tested(
            name=name,
            difference=replace(overall[name], p_holm=p_holm),
            selection_gain=float((scores.column(metric)[selecting] - gains).mean()),
            vetoes=tuple(vetoes[name]),
        )
        for (name, scores), p_holm in zip(challengers.items(), adjusted, strict=True)
    ]
    eligible = [i for i, one in enumerate(found) if not one.vetoes and one.selection_gain > 0.0]
    if eligible:
        place = max(eligible, key=lambda i: found[i].selection_gain)
        name = found[place].name
        others = {name: challengers[name].select(~selecting)}
        confirmed = _compare(default.select(~selecting), others, resampling, metric)
        found[place] = replace(found[place], confirmation=confirmed[name])
    return tuple(found)


def _compare(
    default: Scores, challengers: Mapping[str, Scores], resampling: Resampling, metric: str
) -> dict[str, Difference]:
    """Return challenger minus default per challenger; all share one resampling."""

    def only(scores: Scores) -> Scores:
        """One metric and one stratum: nothing else is looked at here."""
        values = scores.column(metric)[:, None]
        strata = ("all",) * len(scores.query_ids)
        return replace(scores, metrics=(metric,), values=values, strata=strata)

    baseline = only(default)
    found = compare([(only(scores), baseline) for scores in challengers.values()], resampling)
    return {name: c.overall[metric] for name, c in zip(challengers, found, strict=True)}


def _vetoes(
    names: Mapping[str, Scores], guards: Sequence[Guard], resampling: Resampling, metric: str
) -> dict[str, list[str]]:
    vetoes: dict[str, list[str]] = {name: [] for name in names}
    for guard in guards:
        if not guard.default.query_ids:
            continue
        present = {name: guard.challengers[name] for name in names if name in guard.challengers}
        found = _compare(guard.default, present, resampling, metric)
        for name, reasons in vetoes.items():
            difference = found.get(name)
            if difference is None:
                reasons.append(f"it was not measured on the {guard.name} queries")
            elif difference.significant and difference.mean < 0.0:
                reasons.append(f"it loses on the {guard.name} queries ({_numbers(difference)})")
    return vetoes


def _judge(tested: Sequence[Tested], resampling: Resampling, metric: str) -> tuple[str | None, str]:
    """Return the adopted challenger, if any, and why it is or none is."""
    best = max(tested, key=lambda one: one.selection_gain)
    if best.selection_gain <= 0.0:
        return None, (
            f"none of {len(tested)} challengers gains on the queries that choose, the best is "
            f"{best.name} with {metric} {best.selection_gain:+.3f}"
        )
    chosen = next((one for one in tested if one.confirmation is not None), None)
    if chosen is None or chosen.confirmation is None:
        return None, (
            f"every challenger that gains is vetoed, the best is {best.name} with {metric} "
            f"{best.selection_gain:+.3f} on the queries that choose: {best.vetoes[0]}"
        )
    shown = f"{metric} {_numbers(chosen.confirmation)}"
    if not (chosen.confirmation.significant and chosen.confirmation.mean > 0.0):
        return None, (
            f"{chosen.name} was best on the queries that choose "
            f"({chosen.selection_gain:+.3f}) and is not proven on the others: {shown}"
        )
    if not (chosen.difference.significant and chosen.difference.mean > 0.0):
        return None, (
            f"{chosen.name} gains on the confirming queries "
            f"({shown}), yet over all queries p after Holm across {len(tested)} challengers is "
            f"{chosen.difference.p_holm:.3f}, expected below {resampling.alpha:g} "
            f"({_numbers(chosen.difference)})"
        )
    return chosen.name, (
        f"{chosen.name} is adopted: on queries that it was not chosen on {shown}; over all queries "
        f"p after Holm across {len(tested)} challengers is {chosen.difference.p_holm:.4f}"
    )


def _numbers(difference: Difference) -> str:
    """Return the difference in the form in which a sentence quotes it."""
    found = difference.interval
    between = f" [{found.low:+.3f}, {found.high:+.3f}]" if found else ""
    return f"{difference.mean:+.3f}{between}, p = {difference.p_value:.4f}, n = {difference.n}"


# Whether a candidate has lost recall against what serves.


DROP_METRICS = (HEADLINE_METRIC, "ndcg@10")
"""What a drop is told by: whether the answer is there at all, and where it stands."""


def find_drops(
    comparisons: Sequence[tuple[str, Comparison]], resampling: Resampling = STANDARD
) -> tuple[list[Drop], int]:
    """Return the significant losses and how many pairs were tested.

    A loss is significant if its paired interval lies below zero and its permutation p, corrected
    over every group, stratum and metric together (Holm), is below alpha.

    Args:
        comparisons: Group name and candidate against serving snapshot.
        resampling: Where alpha comes from.
    """
    tested = [
        (name, metric, part[metric])
        for group, comparison in comparisons
        for name, part in _parts(group, comparison)
        for metric in DROP_METRICS
    ]
    corrected = holm([difference.p_value for _, _, difference in tested])
    drops = [
        Drop(name, metric, d.mean, d.interval.low, d.interval.high, d.n, p)
        for (name, metric, d), p in zip(tested, corrected, strict=True)
        if d.interval is not None and d.interval.high < 0.0 and p < resampling.alpha
    ]
    return drops, len(tested)


def _parts(group: str, comparison: Comparison) -> Iterator[tuple[str, Mapping[str, Difference]]]:
    """Yield all queries of a group and, where there are several strata, each of them."""
    yield group, comparison.overall
    if len(comparison.strata) > 1:
        for stratum, part in comparison.strata.items():
            yield f"{group}: {stratum}", part
