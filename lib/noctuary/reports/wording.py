"""The page's words: the verdict about a night, and what its terms mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from noctuary.evaluate.comparison import Comparison, Difference
from noctuary.evaluate.resampling import Resampling
from noctuary.reports.model import EXACT, NightReport, RankingDecision
from noctuary.reports.tables import as_count, as_interval, as_mean, as_p, as_signed

GOOD, BAD, OPEN = "good", "bad", "open"
_SETTINGS = Resampling()

EXACT_BIAS = (
    "Built from the corpus's own words: it favours lexical search. It shows that what is stored "
    "can be found again, not which ranking answers real questions better."
)
ABSTENTION = (
    "AUROC: chance that a query with an answer scores above one without; 0.5 says nothing. "
    "An answer counts as right where {metric} is above 0. Area: mean risk over all coverages, "
    "lower is better."
)
TERMS = {
    "difference": "Mean over queries of one arm's value minus the other's on the same query. Above "
    "zero the arm that is named first is better.",
    "interval": f"{_SETTINGS.confidence:.0%} bootstrap interval of the mean (BCa, "
    f"{as_count(_SETTINGS.draws)} draws, seeded). \u201cnone\u201d: fewer than two queries.",
    "p, Holm p": "Two-sided paired permutation test. Holm p is corrected for how many strata of "
    "the same metric were tested; in the gate's table, for everything that was tested.",
    "verdict": "better or worse only if the interval excludes zero and Holm p is below "
    f"{_SETTINGS.alpha:g}. Everything else is not significant, which is no proof of equality. Many "
    "arms are shown: a few look significant by chance, because nothing is corrected over arms.",
    "detectable": "Smallest true difference that so many queries would show "
    f"{_SETTINGS.power:.0%} of the time. A result that is not significant says nothing about "
    "smaller ones.",
    "better, worse, same": "How many queries changed in which direction.",
    "metrics": "recall@k: share of the relevant memories among the first k. all_relevant@k: 1 if "
    "all of them are there. precision@k: share of the k that is relevant. ndcg@k: credit falls "
    "with the rank. mrr@k: one over the rank of the first relevant one. map@k: mean precision at "
    "the relevant ones. Repeats never count twice.",
    "intervals of means": "Two arms answered the same queries, so overlapping intervals of their "
    "means do not make them equal. The differences decide.",
    "groups": "labelled: queries that the owner wrote and labelled. generated: written by a "
    f"language model. exact: {EXACT_BIAS[0].lower()}{EXACT_BIAS[1:]} Groups are never averaged "
    "with each other.",
}


class Verdict(NamedTuple):
    """What the page opens with.

    Attributes:
        kind: GOOD, BAD or OPEN.
        word: The kind in a word, because a colour alone says nothing to some.
        sentence: The outcome.
        details: One sentence per result that it rests on.
    """

    kind: str
    word: str
    sentence: str
    details: Sequence[str]


def word_verdict(report: NightReport) -> Verdict:
    """Return the night's outcome in plain sentences."""
    details = [
        f"{group.name}, {metric}: {difference_sentence(found)}"
        for group in report.groups
        if group.against_serving is not None
        for metric in group.shown_metrics()[:1]
        if (found := group.against_serving.overall.get(metric)) is not None
    ]
    if report.decision is not None:
        details.append(f"Ranking: {decision_sentence(report.decision)}")
    return Verdict(*_outcome(report), details)


def difference_sentence(found: Difference) -> str:
    """Say what a difference between the candidate and what serves means."""
    queries = f"n = {as_count(found.n)}"
    if found.interval is None:
        return f"too few queries to say anything ({as_signed(found.mean)}, {queries})."
    ends = as_interval(found.interval, signed=True)
    numbers = f"{_SETTINGS.confidence:.0%} interval {ends}, {queries}"
    if found.significant:
        side = "better" if found.mean > 0 else "worse"
        by = as_mean(abs(found.mean))
        return (
            f"significantly {side} than what serves, by {by} "
            f"({numbers}, Holm p {as_p(found.p_holm)})."
        )
    unseen = ""
    if found.minimum_detectable:
        unseen = f"; a true difference below {as_mean(found.minimum_detectable)} is easily missed"
    return f"no significant difference to what serves ({as_signed(found.mean)}, {numbers}){unseen}."


def decision_sentence(decision: RankingDecision) -> str:
    """Return the reason, which says by itself if the configured ranking stays."""
    if decision.adopted is None:
        return decision.reason
    return f"{decision.adopted} is adopted: {decision.reason}"


def bias_note(*names: str) -> str:
    """Return what has to be known about queries of a group or stratum, or ""."""
    return EXACT_BIAS if EXACT in names else ""


def _outcome(report: NightReport) -> tuple[str, str, str]:
    gate = report.gate
    if gate is not None:
        return (GOOD, "Passed", gate.sentence) if gate.passed else (BAD, "Refused", gate.sentence)
    comparisons = [g.against_serving for g in report.groups if g.against_serving is not None]
    if comparisons:
        return _compared(comparisons)
    if any(group.reports for group in report.groups):
        return OPEN, "Measured", "There is no serving snapshot that tonight was compared with."
    return OPEN, "Not measured", "Nothing was measured tonight: there was no query to ask."


def _compared(comparisons: Sequence[Comparison]) -> tuple[str, str, str]:
    worse = sorted(
        {
            metric
            for comparison in comparisons
            for part in (comparison.overall, *comparison.strata.values())
            for metric, found in part.items()
            if found.significant and found.mean < 0
        }
    )
    if worse:
        return BAD, "Worse", f"The candidate is significantly worse in {', '.join(worse)}."
    # Not GOOD: too few queries would end here as well, and only the gate may pass a candidate.
    return OPEN, "No loss shown", "The candidate is not significantly worse than what serves."
