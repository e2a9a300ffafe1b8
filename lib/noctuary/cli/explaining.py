"""Explanations of a recall as a person reads them: running sums, legs, what was dropped.

What belongs here: lines of text made from the plain values of a result. What does not: printing
them, or working anything out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

SHOWN_PER_PHASE = 20
"""Dropped memories shown per phase; the rest is counted, and --json has them all."""

_INDENT = "    "

Row = Mapping[str, Any]


def explain_lines(memory: Row) -> Iterator[str]:
    """Yield how one returned memory came to its score."""
    legs = "; ".join(_legs(memory["legs"]))
    if legs:
        yield f"{_INDENT}{legs}"
    yield from step_lines(memory.get("score_events") or ())
    yield f"{_INDENT}= {memory['final_score']:.3f}  (importance {memory['importance']:.2f})"
    for name, value in memory.get("annotations", {}).items():
        yield f"{_INDENT}note: {name.replace('_', ' ')} {_short(value)}"


def step_lines(events: Sequence[Row]) -> Iterator[str]:
    """Yield one line per step: the sum so far, the change, the step, the reason."""
    if not events:
        return
    width = max(len("step"), *(len(event["phase"]) for event in events))
    yield f"{_INDENT}score  change  {'step':<{width}}  why"
    total = 0.0
    for event in events:
        total += event["delta"]
        step = f"{event['phase']:<{width}}  {event['reason']}"
        yield f"{_INDENT}{total:.3f}  {event['delta']:+.3f}  {step}".rstrip()


def beside_lines(steps: Sequence[Row], own: str, other: str) -> Iterator[str]:
    """Yield one line per step: what it gave one memory and what it gave the other."""
    width = max((len(step["phase"]) for step in steps), default=0)
    columns = [max(len(own), len("+0.000")), max(len(other), len("+0.000"))]
    yield f"{_INDENT}{'':<{width}}  {own:>{columns[0]}}  {other:>{columns[1]}}"
    for step in steps:
        mine, theirs = f"{step['delta']:+.3f}", f"{step['delta_of_last_returned']:+.3f}"
        numbers = f"{mine:>{columns[0]}}  {theirs:>{columns[1]}}"
        yield f"{_INDENT}{step['phase']:<{width}}  {numbers}  {step['reason']}".rstrip()


def trace_lines(trace: Sequence[Row]) -> Iterator[str]:
    """Yield what was dropped, by phase in order, each with its reason and its score."""
    groups: dict[str, list[Row]] = {}
    for row in trace:
        if "dropped_at" in row:
            groups.setdefault(row["dropped_at"], []).append(row)
        else:
            yield (
                f"model guard ({row['action']}): vectors by {row['ingest_model']}, queries by "
                f"{row['query_model']}"
            )
    if not groups:
        yield "dropped: nothing"
    for phase, rows in groups.items():
        yield f"dropped by {phase} ({len(rows)}):"
        for row in rows[:SHOWN_PER_PHASE]:
            yield f"{_INDENT}{row['score']:.3f}  [{row['memory_id']}]  {row['reason']}"
        if len(rows) > SHOWN_PER_PHASE:
            yield f"{_INDENT}... and {len(rows) - SHOWN_PER_PHASE} more (--json has them all)"


def candidate_lines(candidates: Sequence[Row]) -> Iterator[str]:
    """Yield every candidate with its parts: the ranked ones, then the dropped ones."""
    yield f"candidates ({len(candidates)}):"
    for row in candidates:
        if "place" in row:
            parts = {k: v for k, v in row["score_breakdown"].items() if k != "final_score"}
            head = f"{row['place']:>4}. {row['final_score']:.3f}  [{row['id']}]"
        else:
            parts = {k: v for k, v in row["score_at_drop"].items() if k != "partial_score"}
            head = (
                f"   -  {row['score']:.3f}  [{row['memory_id']}]  dropped by {row['dropped_at']}:"
            )
        yield f"{head}  {', '.join(f'{name} {part:+.3f}' for name, part in parts.items())}".rstrip()


def run_lines(result: Row) -> Iterator[str]:
    """Yield what is true of the recall as a whole."""
    pipeline = result["pipeline"]
    if pipeline:
        yield (
            f"profile {result['profile_used']}; model guard {pipeline['model_guard']}; "
            f"{pipeline['total_candidates_in']} candidates, "
            f"{pipeline['total_results_out']} returned"
        )
        if pipeline["phases_applied"]:
            yield f"phases applied: {', '.join(pipeline['phases_applied'])}"
        for phase, notes in pipeline["notes"].items():
            said = ", ".join(f"{name} {_short(value)}" for name, value in notes.items())
            yield f"{_INDENT}{phase}: {said}"
    times = ", ".join(f"{name} {ms:.1f}" for name, ms in result["phase_timing_ms"].items())
    yield f"snapshot {result['snapshot_id']}; ms: {times}"


def _legs(legs: Mapping[str, Row]) -> Iterator[str]:
    for name in ("lexical", "dense"):
        if name in legs:
            yield f"{name} rank {legs[name]['rank']} ({legs[name]['score']:.3f})"
    if "graph" in legs:
        hit = legs["graph"]
        origin = "the query" if hit["seed_id"] is None else f"[{hit['seed_id']}]"
        over = f" over {hit['concept']!r}" if hit["concept"] else ""
        yield f"graph {hit['score']:.3f} from {origin} by {hit['relation']}{over}"


def _short(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, Mapping):
        fields: Row = value
        return "{" + ", ".join(f"{k}: {_short(v)}" for k, v in fields.items()) + "}"
    if isinstance(value, list | tuple):
        items: Sequence[Any] = value
        return ", ".join(_short(item) for item in items) or "none"
    return str(value)
