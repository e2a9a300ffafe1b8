"""Candidates that did not become a summary, each with what was found wrong with it.

What belongs here: the noun and the codes of its outcome. What does not: the table's file
(attempts_table), who tries what in which order (escalation).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from noctuary.compact.facts.report import FactReport
from noctuary.compact.gate import GateReport


class Outcome(StrEnum):
    """Why a candidate was not taken; also `Summary.fallback`."""

    NOT_SMALLER = "not_smaller"
    """It has as many tokens as its sources, or more."""
    GATE = "gate"
    """It does not point where its sources point."""
    FACTS = "facts"
    """It introduces or contradicts something."""
    SECRET = "secret"
    """It, or what would have been sent, reads like a secret; the text is not kept."""
    UNUSABLE = "unusable"
    """The model answered, and the answer is of no use: garbage, half an answer, nothing."""
    TOO_LONG = "too_long"
    """The sources do not fit into one request."""
    NAMED_USER = "named_user"
    """The turns belong to a named user, and the endpoint may not see those."""
    UNAVAILABLE = "unavailable"
    """No answer: unreachable, timed out, HTTP 500, no such model, no such key."""


TRIED_AGAIN = frozenset({Outcome.UNAVAILABLE})
"""Outcomes that another night may change though nothing else has; see `is_settled`."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One rejected candidate.

    Attributes:
        cluster_id: What it was to stand for.
        place: 0-based rank among the candidates of its cluster, in the order of trying.
        method: How its text was made, or was to be made.
        text: The candidate; "" where there is none or where it must not be kept.
        source_tokens: Estimated tokens of the sources.
        summary_tokens: Estimated tokens of `text`, by the same estimator.
        report: The gate's verdict; None where it came to none.
        facts: The fact check's verdict, likewise.
        outcome: Why it was rejected.
        reason: The same in words, with the numbers.
        parent_ids: Earlier summaries of the session that its summarizer was shown, oldest first.
    """

    cluster_id: str
    place: int
    method: str
    text: str
    source_tokens: int
    summary_tokens: int
    report: GateReport | None
    facts: FactReport | None
    outcome: Outcome
    reason: str
    parent_ids: tuple[str, ...] = ()
