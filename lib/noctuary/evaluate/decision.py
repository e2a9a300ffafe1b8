"""Whether another ranking than the configured one is proven to be better.

What belongs here: the challengers and the rule. What does not: running them, the statistics
(comparison.py), what a snapshot carries of the result.

The rule. The queries are cut in two halves by a hash of their id.

1. Selection half: the challenger with the largest mean gain is chosen, among those that do not lose
   significantly on a guard. The winner of a grid is optimistic: its gain here is not believed.
2. Confirmation half, which the choice has not seen: the 95 % BCa interval of its paired difference
   lies above zero and its permutation p is below alpha. This alone bounds false adoptions by
   alpha / 2, and the gain that is reported is the one of this half.
3. All queries: its interval lies above zero, and its permutation p is below alpha after Holm's
   correction across all challengers.

What the halves cost is power: a difference that n queries would show needs about 2 n of them. What
they buy is a gain that is not overstated by having been chosen for its size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from noctuary.evaluate.comparison import Difference, compare
from noctuary.evaluate.resampling import DIGITS, Resampling
from noctuary.evaluate.scores import Scores
from noctuary.evaluate.statistics.holm import holm
from noctuary.hashing import JsonValue, hash_text

DECISION_METRIC = "ndcg@10"
"""Looks at the order of the first ten, so it also sees what a changed weight does inside them;
recall@10 would move only where a memory crosses rank ten, and needs more queries for it."""

MIN_HALF = 25
"""Queries per half below which nothing is adopted: the floor of Voorhees and Buckley (2002). Lower
would adopt on the strength of a few queries, higher leaves small label files without a decision."""


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
class Tested:
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

    def to_json(self) -> dict[str, JsonValue]:
        """Return plain values, numbers rounded."""
        return {
            "name": self.name,
            "difference": self.difference.to_json(),
            "selection_gain": round(self.selection_gain, DIGITS),
            "confirmation": self.confirmation.to_json() if self.confirmation else None,
            "vetoes": list(self.vetoes),
        }


@dataclass(frozen=True, slots=True)
class Decision:
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

    def to_json(self) -> dict[str, JsonValue]:
        """Return plain values, numbers rounded."""
        return {
            "adopted": self.adopted,
            "reason": self.reason,
            "tested": [found.to_json() for found in self.tested],
            "n": self.n,
            "metric": self.metric,
        }


def decide(
    default: Scores | None,
    challengers: Mapping[str, Scores],
    guards: Sequence[Guard] = (),
    resampling: Resampling = Resampling(),  # noqa: B008 (frozen)
    metric: str = DECISION_METRIC,
) -> Decision:
    """Choose at most one challenger by the rule at the head of this module.

    Args:
        default: The configured ranking's scores on the deciding queries; None or no row where the
            corpus has no such queries.
        challengers: Scores on the same queries in the same order, by challenger.
        guards: Queries that can only veto. A guard rejects a challenger whose interval on it lies
            below zero with p below alpha, uncorrected: a veto should come too often rather than too
            late. It also rejects one that it has no scores of.
        resampling: Draws, seed, confidence and alpha.
        metric: A column of all scores.

    Returns:
        The decision; the same scores give the same one.

    Raises:
        ValueError: If scores are not over the same queries, or lack the metric.
    """
    n = 0 if default is None else len(default.query_ids)
    if default is None or n < 2 * MIN_HALF:
        reason = (
            f"the configured ranking stays: {n} queries can decide and {2 * MIN_HALF} are needed, "
            f"{MIN_HALF} to choose a challenger and {MIN_HALF} to confirm it"
        )
        return Decision(None, reason, (), n, metric)
    if not challengers:
        reason = f"the configured ranking stays: there is no challenger to test on {n} queries"
        return Decision(None, reason, (), n, metric)
    tested = _test(default, challengers, guards, resampling, metric)
    adopted, reason = _judge(tested, resampling, metric)
    return Decision(adopted, reason, tested, n, metric)


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
            vetoes=vetoes[name],
        )
        for (name, scores), p_holm in zip(challengers.items(), adjusted, strict=True)
    ]
    place = _choose(found)
    if place is not None:
        name = found[place].name
        others = {name: challengers[name].select(~selecting)}
        confirmed = _compare(default.select(~selecting), others, resampling, metric)
        found[place] = replace(found[place], confirmation=confirmed[name])
    return tuple(found)


def _compare(
    default: Scores, challengers: Mapping[str, Scores], resampling: Resampling, metric: str
) -> dict[str, Difference]:
    """Return challenger minus default per challenger; all share one resampling."""
    baseline = _only(default, metric)
    pairs = [(_only(scores, metric), baseline) for scores in challengers.values()]
    found = compare(pairs, resampling)
    return {
        name: comparison.overall[metric]
        for name, comparison in zip(challengers, found, strict=True)
    }


def _only(scores: Scores, metric: str) -> Scores:
    """Return the scores with one metric and one stratum: nothing else is looked at here."""
    values = scores.column(metric)[:, None]
    strata = ("all",) * len(scores.query_ids)
    return replace(scores, metrics=(metric,), values=values, strata=strata)


def _vetoes(
    names: Mapping[str, Scores], guards: Sequence[Guard], resampling: Resampling, metric: str
) -> dict[str, tuple[str, ...]]:
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
    return {name: tuple(reasons) for name, reasons in vetoes.items()}


def _choose(found: Sequence[Tested]) -> int | None:
    """Return the place of the largest gain above zero without a veto; the first on a tie."""
    eligible = [i for i, one in enumerate(found) if not one.vetoes and one.selection_gain > 0.0]
    return max(eligible, key=lambda i: found[i].selection_gain) if eligible else None


def _judge(tested: Sequence[Tested], resampling: Resampling, metric: str) -> tuple[str | None, str]:
    """Return the adopted challenger, if any, and the sentence that says why."""
    chosen = next((one for one in tested if one.confirmation is not None), None)
    if chosen is None or chosen.confirmation is None:
        return None, f"the configured ranking stays: {_why_none(tested, metric)}"
    shown = f"{metric} {_numbers(chosen.confirmation)}"
    if not _gains(chosen.confirmation):
        return None, (
            f"the configured ranking stays: {chosen.name} was best on the queries that choose "
            f"({chosen.selection_gain:+.3f}) and is not proven on the others: {shown}"
        )
    if not _gains(chosen.difference):
        return None, (
            f"the configured ranking stays: {chosen.name} gains on the confirming queries "
            f"({shown}), yet over all queries p after Holm across {len(tested)} challengers is "
            f"{chosen.difference.p_holm:.3f}, expected below {resampling.alpha:g} "
            f"({_numbers(chosen.difference)})"
        )
    return chosen.name, (
        f"{chosen.name} is adopted: on queries that it was not chosen on {shown}; over all queries "
        f"p after Holm across {len(tested)} challengers is {chosen.difference.p_holm:.4f}"
    )


def _gains(difference: Difference) -> bool:
    return difference.significant and difference.mean > 0.0


def _why_none(tested: Sequence[Tested], metric: str) -> str:
    """Say why no challenger was chosen at all."""
    best = max(tested, key=lambda one: one.selection_gain)
    if best.selection_gain <= 0.0:
        return (
            f"none of {len(tested)} challengers gains on the queries that choose, the best is "
            f"{best.name} with {metric} {best.selection_gain:+.3f}"
        )
    return (
        f"every challenger that gains is vetoed, the best is {best.name} with {metric} "
        f"{best.selection_gain:+.3f} on the queries that choose: {best.vetoes[0]}"
    )


def _numbers(difference: Difference) -> str:
    """Return the difference in the form in which a sentence quotes it."""
    found = difference.interval
    between = f" [{found.low:+.3f}, {found.high:+.3f}]" if found else ""
    return f"{difference.mean:+.3f}{between}, p = {difference.p_value:.4f}, n = {difference.n}"
