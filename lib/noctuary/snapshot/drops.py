"""What the gate is told about recall: where the candidate does worse than what serves.

What belongs here: the form of that report, plain numbers. What does not: retrieval, statistics.
"""

from __future__ import annotations

from dataclasses import dataclass

REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Drop:
    """One significant loss of the candidate against the serving snapshot.

    Attributes:
        group: "labelled", "generated" or "exact"; with the stratum behind a colon, if it is one.
        metric: For example "recall@10".
        mean: Mean paired difference, below 0.
        low: Lower end of its interval.
        high: Upper end, below 0.
        n: Queries that both snapshots can answer.
        p_holm: Permutation p, corrected over everything that was tested.
    """

    group: str
    metric: str
    mean: float
    low: float
    high: float
    n: int
    p_holm: float


@dataclass(frozen=True, slots=True)
class DropReport:
    """Everything that was compared.

    Attributes:
        drops: The significant losses.
        tested: How many (group or stratum, metric) pairs were tested.
        queries: How many queries they rest on.
        note: Why nothing was compared, or "".
        on_drop: "refuse" or "report" (setting evaluation.on_drop).
    """

    drops: tuple[Drop, ...] = ()
    tested: int = 0
    queries: int = 0
    note: str = ""
    on_drop: str = REFUSE
