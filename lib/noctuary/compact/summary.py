"""The outcome of one cluster: a summary that may serve, or why there is none.

What belongs here: the noun and its id. What does not: how a text is made (summarizers), judged
(gate, facts) or stored (tables).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from noctuary.compact.facts.report import FactReport
from noctuary.compact.gate import GateReport

Status = Literal["accepted", "declined", "trivial"]

METHOD_TRIVIAL = "trivial"
METHOD_NONE = "none"


@dataclass(frozen=True, slots=True)
class Summary:
    """One cluster's outcome; only an accepted one may reach a snapshot.

    Attributes:
        summary_id: 16 hex characters of cluster, method and text.
        cluster_id: The cluster it stands for.
        session_id: The session of the cluster.
        text: The summary; of a declined one the last rejected candidate ("" where none was smaller
            or where it reads like a secret); of a trivial one the turn itself.
        status: "accepted", "declined" or "trivial".
        method: How the text was made.
        source_ids: Memory ids of all turns it covers, chronological.
        source_positions: Their corpus positions.
        first_us: Time of the earliest source, not of the night that made the summary.
        last_us: Time of the latest source.
        source_tokens: Estimated tokens of the sources.
        summary_tokens: Estimated tokens of `text`, by the same estimator.
        report: The gate's verdict; None where there was nothing to judge.
        reason: Why it is not accepted; "" where it is.
        user: Whose turns they are, or None.
        wing: The wing that all turns belong to, or None.
        parent_ids: Earlier summaries of the same session that the summarizer was shown, oldest
            first; empty for an extractive one.
        facts: What the text says beside its sources; None where nothing was checked.
        fallback: Why the configured summarizer's text is not used, a code of
            noctuary.compact.attempts.Outcome; "" where it is, or where it is extractive anyway.
    """

    summary_id: str
    cluster_id: str
    session_id: str
    text: str
    status: Status
    method: str
    source_ids: tuple[str, ...]
    source_positions: tuple[int, ...]
    first_us: int
    last_us: int
    source_tokens: int
    summary_tokens: int
    report: GateReport | None
    reason: str
    user: str | None = None
    wing: str | None = None
    parent_ids: tuple[str, ...] = ()
    facts: FactReport | None = None
    fallback: str = ""
