"""The page's sentences about a night: the verdict, notes on queries.

What belongs here: words that depend on results. What does not: explanations (glossary.py), tables,
HTML.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from noctuary.evaluate.comparison import Comparison, Difference
from noctuary.evaluate.resampling import Resampling
from noctuary.reports.glossary import EXACT_BIAS
from noctuary.reports.model import EXACT, NightReport, RankingDecision
from noctuary.reports.numbers import as_count, as_interval, as_mean, as_p, as_percent, as_signed
from noctuary.reports.plots import shown_metrics

GOOD, BAD, OPEN = "good", "bad", "open"


@dataclass(frozen=True, slots=True)
class Verdict:
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
    kind, word, sentence = _outcome(report)
    details = [
        f"{group.name}, {metric}: {difference_sentence(found, report.resampling)}"
        for group in report.groups
        if group.against_serving is not None
        for metric in shown_metrics(report, group)[:1]
        if (found := group.against_serving.overall.get(metric)) is not None
    ]
    if report.decision is not None:
        details.append(f"Ranking: {decision_sentence(report.decision)}")
    return Verdict(kind, word, sentence, details)


def difference_sentence(found: Difference, resampling: Resampling) -> str:
    """Say what a difference between the candidate and what serves means."""
    queries = f"n = {as_count(found.n)}"
    if found.interval is None:
        return f"too few queries to say anything ({as_signed(found.mean)}, {queries})."
    ends = as_interval(found.interval, signed=True)
    numbers = f"{as_percent(resampling.confidence)} interval {ends}, {queries}"
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


def group_notes(report: NightReport, name: str) -> list[str]:
    """Return what has to be known about a group or stratum of queries; the bias comes first."""
    given = [group.note for group in report.groups if group.name == name and group.note]
    return [EXACT_BIAS, *given] if name == EXACT else given


def count_note(group: str, stratum: str, note: str) -> str:
    """Return a row's note in the table of queries, with the bias where it applies."""
    biased = EXACT in (group, stratum)
    return " ".join(part for part in (EXACT_BIAS if biased else "", note) if part)


def _outcome(report: NightReport) -> tuple[str, str, str]:
    gate = report.gate
    if gate is not None:
        if gate.passed is None:
            return OPEN, "Open", gate.sentence
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
