"""What a night's report is made of: plain data that the night hands over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from noctuary.evaluate.abstention import Abstention
from noctuary.evaluate.comparison import Comparison
from noctuary.evaluate.report import Report
from noctuary.evaluate.scores import Scores
from noctuary.snapshot.drops import Drop

EXACT = "exact"
"""Group and stratum of the queries that are built from the corpus itself."""

HEADLINE_METRICS = ("recall@10", "ndcg@10")
"""What the page opens with: whether the answer is there, and where it stands."""


class QueryCount(NamedTuple):
    """How many queries of one group ("labelled", "exact", ...) and stratum were asked."""

    group: str
    stratum: str
    n: int


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
    """

    name: str
    reports: Sequence[Report] = ()
    comparisons: Sequence[Comparison] = ()
    against_serving: Comparison | None = None
    per_query: PerQuery | None = None

    def shown_metrics(self) -> list[str]:
        """Return the headline metrics that were measured, else the first that was."""
        parts = [
            *(arm.overall for arm in self.reports),
            *(found.overall for found in self.comparisons),
            *((self.against_serving.overall,) if self.against_serving else ()),
        ]
        measured = list(dict.fromkeys(metric for part in parts for metric in part))
        return [metric for metric in HEADLINE_METRICS if metric in measured] or measured[:1]


class RankingDecision(NamedTuple):
    """Which ranking the snapshot serves with.

    Attributes:
        adopted: The challenger that replaces the configured ranking, or None.
        reason: Why, in a sentence.
        tested: One row per challenger; the keys are the table's columns, the same in every row.
    """

    adopted: str | None
    reason: str
    tested: Sequence[Mapping[str, Any]] = ()


class GateOutcome(NamedTuple):
    """Whether the candidate may serve, why in a sentence, and the losses that this rests on."""

    passed: bool
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
        groups: Results by origin of the queries, in the order of the page; names differ.
        decision: Which ranking was chosen, or None if that was not asked.
        gate: The gate's outcome, or None before it.
        abstention: Of the served arm, or None without unanswerable queries.
        query_texts: Texts by query id to show beside losers and winners; None shows ids only.
        notes: What was left out, one sentence each.
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
