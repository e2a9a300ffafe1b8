"""How `noctuary compact` prints plans, and how it tells of a long scan."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from noctuary.compact.archive_apply import Applied, PlanHistory
from noctuary.compact.archive_plan import Plan
from noctuary.core.types import from_micros
from noctuary.text.marks import clean

_LEFT = {
    "archived": "archived already",
    "unsure": "whose successor is not sure enough",
    "pinned": "pinned",
    "used": "still used",
    "recent": "accessed too recently, or without a date",
    "tail": "turns of a protected tail",
}
"""Reasons why a superseded memory is no candidate, in the order of being asked."""


class ScanProgress:
    """Tells how far a scan is, on a terminal only and on the standard error stream."""

    def update(self, task: str, done: int, total: int) -> None:
        """Overwrite the line of the last report."""
        if sys.stderr.isatty():
            # Past the marks: the carriage return is ours.
            click.echo(f"\r{task}: {done:,} of {total:,}", sys.__stderr__, nl=done >= total)


def plan_lines(plan: Plan, limit: int, *, texts: bool) -> Iterator[str]:
    """Yield what a plan would do and why, at most `limit` memories."""
    if plan.warning is not None:
        yield f"! {plan.warning}"
    yield _headline(plan)
    traces = plan.traces()
    for trace in traces[:limit]:
        yield f"  {clean(trace['memory_id']):>8}  {trace['action']:<7}  {clean(trace['reason'])}"
    if len(traces) > limit:
        yield f"  ... and {len(traces) - limit:,} more; --json shows all"
    yield from _summary_lines(plan, texts=texts)
    yield _left_line(plan)
    yield _timing_line(plan)
    if plan.archived:
        yield f"nothing was written; `noctuary compact --apply {plan.plan_id}` archives this plan"


def summaries_json(plan: Plan, *, texts: bool) -> list[dict[str, Any]]:
    """Return the summaries of a plan, with their texts only where asked for."""
    return [
        {
            "summary_id": summary.summary_id,
            "method": summary.method,
            "source_ids": list(summary.source_ids),
            "source_tokens": summary.source_tokens,
            "summary_tokens": summary.summary_tokens,
            "confidence": None if summary.report is None else summary.report.confidence,
            **({"text": summary.text} if texts else {}),
        }
        for summary in plan.summaries
    ]


def applied_lines(applied: Applied) -> Iterator[str]:
    """Yield what was archived, and how to take it back."""
    plan = applied.plan
    if plan.warning is not None:
        yield f"! {plan.warning}"
    if applied.applied_at_us is None:
        yield "nothing to archive; nothing was written"
        return
    yield f"plan {plan.plan_id} archived {len(plan.archived):,} memories; nothing was deleted"
    if plan.summaries:
        yield f"its {len(plan.summaries):,} summaries are found after the next night"
    yield f"`noctuary compact --undo {plan.plan_id}` takes it back"


def history_lines(plans: Sequence[PlanHistory], limit: int) -> Iterator[str]:
    """Yield the plans that were applied, with at most `limit` memories of each that holds."""
    if not plans:
        yield "no plan was applied yet"
    for plan in plans:
        state = "in force" if plan.in_force else "undone"
        yield f"plan {plan.plan_id}  {state}, {len(plan.traces):,} memories{_summaries_of(plan)}"
        for application in plan.applications:
            ended = application.undone_at_us
            until = "" if ended is None else f", undone {_moment(ended)}"
            yield f"  applied {_moment(application.applied_at_us)}{until}"
        for trace in plan.traces[: limit if plan.in_force else 0]:
            yield f"  {clean(trace['memory_id']):>8}  {clean(trace['reason'])}"


def _headline(plan: Plan) -> str:
    if not plan.archived:
        return f"nothing to archive in {plan.snapshot_id}"
    counted = _moment(plan.as_of_us)
    return (
        f"plan {plan.plan_id}: {len(plan.archived):,} memories would be archived, "
        f"{len(plan.summaries):,} summaries created (use counted {counted})"
    )


def _summary_lines(plan: Plan, *, texts: bool) -> Iterator[str]:
    for summary in plan.summaries:
        confidence = 0.0 if summary.report is None else summary.report.confidence
        yield (
            f"  summary {summary.summary_id} of {', '.join(map(clean, summary.source_ids))}: "
            f"{summary.source_tokens} -> {summary.summary_tokens} tokens, "
            f"confidence {confidence:.2f}"
        )
        if texts:
            yield f"    {clean(summary.text)}"


def _left_line(plan: Plan) -> str:
    left = [f"{plan.scan.left[name]:,} {said}" for name, said in _LEFT.items()
            if plan.scan.left[name]]  # fmt: skip
    others = f"; no candidates: {', '.join(left)}" if left else ""
    return f"{plan.scan.scanned:,} of {plan.scan.total:,} superseded memories looked at{others}"


def _timing_line(plan: Plan) -> str:
    times = {name.removesuffix("_ms"): ms for name, ms in plan.timings_ms.items()}
    return "time in ms: " + ", ".join(f"{name} {ms:.1f}" for name, ms in times.items())


def _summaries_of(plan: PlanHistory) -> str:
    if not plan.summary_ids:
        return ""
    forgotten = f", {plan.forgotten} of them forgotten" if plan.forgotten else ""
    return f", {len(plan.summary_ids):,} summaries{forgotten}"


def _moment(micros: int) -> str:
    moment = from_micros(micros) or datetime.fromtimestamp(0, UTC)
    return moment.isoformat(sep=" ", timespec="seconds")
