"""What a night's report is made of.

What belongs here: plain data that the night hands over. What does not: words, numbers as text
(page.py and what it uses), computing anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from noctuary.evaluate.abstention import Abstention
from noctuary.evaluate.comparison import Comparison
from noctuary.evaluate.report import Report
from noctuary.evaluate.resampling import Resampling
from noctuary.evaluate.scores import Scores
from noctuary.snapshot.drops import Drop

EXACT = "exact"
"""Group and stratum of the queries that are built from the corpus itself."""

HEADLINE_METRICS = ("recall@10", "ndcg@10")
"""What the page opens with: whether the answer is there, and where it stands."""


@dataclass(frozen=True, slots=True)
class QueryCount:
    """How many queries of one stratum were asked.

    Attributes:
        group: Where they come from: "labelled", "generated", "exact", "unanswerable".
        stratum: The kind of question.
        n: How many.
        note: What to know about them, or "".
    """

    group: str
    stratum: str
    n: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class PerQuery:
    """Two arms query by query.

    Attributes:
        ours: The arm that is judged.
        baseline: What it is judged against; the same queries in the same order.
        relevant_ids: Per query id, the memories that answer it; a query may be missing.
    """

    ours: Scores
    baseline: Scores
    relevant_ids: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])

    def __post_init__(self) -> None:
        if (self.ours.query_ids, self.ours.metrics) != (
            self.baseline.query_ids,
            self.baseline.metrics,
        ):
            raise ValueError(
                f"losers and winners need the same queries and metrics in the same order; "
                f"{self.ours.name!r} and {self.baseline.name!r} differ"
            )


@dataclass(frozen=True, slots=True)
class QueryGroup:
    """Everything about queries of one origin; groups are never averaged with each other.

    Attributes:
        name: "labelled", "generated", "exact" or another.
        reports: Means of every arm; the served one among them.
        comparisons: Every other arm (`ours`) against the served one (`baseline`).
        against_serving: Tonight's candidate against the snapshot that serves, or None.
        per_query: Where losers and winners come from, or None.
        note: What to know about these queries, or ""; the exact group's bias is always stated.
    """

    name: str
    reports: Sequence[Report] = ()
    comparisons: Sequence[Comparison] = ()
    against_serving: Comparison | None = None
    per_query: PerQuery | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class RankingDecision:
    """Which ranking the snapshot serves with.

    Attributes:
        adopted: The challenger that replaces the configured ranking, or None.
        reason: Why, in a sentence.
        tested: One row per challenger; the keys are the table's columns, values are plain.
    """

    adopted: str | None
    reason: str
    tested: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class GateOutcome:
    """What the gate made of the comparison with the serving snapshot.

    Attributes:
        passed: Whether the candidate may serve; None if the gate has not spoken.
        sentence: The outcome in a plain sentence.
        drops: The significant losses that it rests on.
    """

    passed: bool | None
    sentence: str
    drops: Sequence[Drop] = ()


@dataclass(frozen=True, slots=True)
class NightReport:
    """One night, ready to be shown. Holds no text of a memory.

    Attributes:
        title: The store's name.
        night: Its date as text; passed in, so that equal nights make equal pages.
        candidate_digest: Digest of tonight's candidate, or None if there is none.
        serving_snapshot: Id of the snapshot that serves and was compared with, or None.
        encoder_model: Model of the dense leg, or None.
        counts: Sizes to show, for example memories and edges.
        query_counts: Queries by group and stratum.
        groups: Results by origin of the queries, in the order of the page.
        decision: Which ranking was chosen, or None if that was not asked.
        gate: The gate's outcome, or None before it.
        abstention: Of the served arm, or None without unanswerable queries.
        query_texts: Texts by query id to show beside losers and winners; None shows ids only.
        notes: What was left out, one sentence each.
        metrics: Metrics that are shown first, drawn, and ranked by for losers and winners.
        resampling: Settings that the intervals and tests were made with.
    """

    title: str
    night: str
    candidate_digest: str | None = None
    serving_snapshot: str | None = None
    encoder_model: str | None = None
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    query_counts: Sequence[QueryCount] = ()
    groups: Sequence[QueryGroup] = ()
    decision: RankingDecision | None = None
    gate: GateOutcome | None = None
    abstention: Abstention | None = None
    query_texts: Mapping[str, str] | None = None
    notes: Sequence[str] = ()
    metrics: Sequence[str] = HEADLINE_METRICS
    resampling: Resampling = Resampling()  # noqa: RUF009 (frozen)

    def __post_init__(self) -> None:
        names = [group.name for group in self.groups]
        if len(set(names)) < len(names):
            raise ValueError(f"groups need different names, their plots are named by them: {names}")
