"""Columns of the tables of summaries and attempts, and the way from a row to its noun and back.

What belongs here: schemas and conversion. What does not: files (tables). pyarrow is imported when a
schema is asked for.
"""

from __future__ import annotations

from typing import Any

from noctuary.compact.attempts import Attempt, Outcome
from noctuary.compact.facts.report import FactReport
from noctuary.compact.gate import GateReport
from noctuary.compact.summary import Summary

ArrowSchema = Any
# pyarrow ships no types.

Row = dict[str, Any]

_GATE_PREFIX = "gate_"
_JUDGED = frozenset({"report", "facts"})


def summary_row(summary: Summary) -> Row:
    """Return the row of a summary."""
    row = {name: getattr(summary, name) for name in Summary.__slots__ if name not in _JUDGED}
    return {**row, **_verdict_row(summary.report, summary.facts)}


def summary_of(row: Row) -> Summary:
    """Return the summary of a row.

    Raises:
        ValueError: Its fact report is no JSON of one.
    """
    report, facts = _verdicts_of(row)
    for name in ("source_ids", "source_positions", "parent_ids"):
        row[name] = tuple(row[name])
    return Summary(report=report, facts=facts, **row)


def attempt_row(attempt: Attempt) -> Row:
    """Return the row of an attempt."""
    row = {name: getattr(attempt, name) for name in Attempt.__slots__ if name not in _JUDGED}
    row["outcome"] = attempt.outcome.value
    return {**row, **_verdict_row(attempt.report, attempt.facts)}


def attempt_of(row: Row) -> Attempt:
    """Return the attempt of a row.

    Raises:
        ValueError: Its outcome is unknown, or its fact report is no JSON of one.
    """
    report, facts = _verdicts_of(row)
    row["parent_ids"] = tuple(row["parent_ids"])
    row["outcome"] = Outcome(row["outcome"])
    return Attempt(report=report, facts=facts, **row)


def summary_schema() -> ArrowSchema:
    """Return the columns of summaries.parquet."""
    import pyarrow as pa

    return pa.schema(
        [
            ("summary_id", pa.string()),
            ("cluster_id", pa.string()),
            ("session_id", pa.string()),
            ("text", pa.string()),
            ("status", pa.string()),
            ("method", pa.string()),
            ("source_ids", pa.list_(pa.string())),
            ("source_positions", pa.list_(pa.int64())),
            ("first_us", pa.int64()),
            ("last_us", pa.int64()),
            ("source_tokens", pa.int64()),
            ("summary_tokens", pa.int64()),
            ("reason", pa.string()),
            ("user", pa.string()),
            ("wing", pa.string()),
            ("parent_ids", pa.list_(pa.string())),
            ("fallback", pa.string()),
            *_verdict_columns(),
        ]
    )


def attempt_schema() -> ArrowSchema:
    """Return the columns of attempts.parquet."""
    import pyarrow as pa

    return pa.schema(
        [
            ("cluster_id", pa.string()),
            ("place", pa.int64()),
            ("method", pa.string()),
            ("text", pa.string()),
            ("source_tokens", pa.int64()),
            ("summary_tokens", pa.int64()),
            ("outcome", pa.string()),
            ("reason", pa.string()),
            ("parent_ids", pa.list_(pa.string())),
            *_verdict_columns(),
        ]
    )


def _verdict_columns() -> list[tuple[str, Any]]:
    import pyarrow as pa

    return [
        ("gate_align", pa.float64()),
        ("gate_cover", pa.float64()),
        ("gate_confidence", pa.float64()),
        ("gate_decay_rate", pa.float64()),
        ("gate_threshold", pa.float64()),
        ("gate_passed", pa.bool_()),
        ("gate_reasons", pa.list_(pa.string())),
        ("facts", pa.string()),
    ]


def _verdict_row(report: GateReport | None, facts: FactReport | None) -> Row:
    row: Row = {
        _GATE_PREFIX + name: None if report is None else getattr(report, name)
        for name in GateReport.__slots__
    }
    row["facts"] = None if facts is None else facts.to_json()
    return row


def _verdicts_of(row: Row) -> tuple[GateReport | None, FactReport | None]:
    """Take the columns of both verdicts out of a row."""
    gate = {name: row.pop(_GATE_PREFIX + name) for name in GateReport.__slots__}
    facts = row.pop("facts")
    report = None
    if gate["passed"] is not None:
        gate["reasons"] = tuple(gate["reasons"])
        report = GateReport(**gate)
    return report, None if facts is None else FactReport.from_json(facts)
