"""Commands that propose and tidy: compact, curate, promotions."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from noctuary.cli.common import (
    ScanProgress,
    fail,
    limit_threads,
    open_paths,
    store_options,
    tell,
    warn,
)
from noctuary.core.errors import StoreLockedError
from noctuary.core.store import StorePaths
from noctuary.core.types import from_micros
from noctuary.text.marks import clean, visible_line

if TYPE_CHECKING:
    from noctuary.compact.archive_apply import Applied, PlanHistory
    from noctuary.compact.archive_plan import ArchiveRules, Plan
    from noctuary.curate.apply import AppliedProposals, Proposed
    from noctuary.curate.promotions import Promotions
    from noctuary.curate.proposals import Proposal
    from noctuary.curate.stores import Store


# `noctuary compact`: what could be archived and why; archiving it; taking that back.


EXIT_REFUSED = 3
"""The named plan does not fit any more, or is not in force."""

EXIT_LOCKED = 4
"""A night, or another command, is at work on the store: as `noctuary nightly` says it."""

_CURRENT = "\0current"
"""Stands for `--apply` without a plan id; no id holds it."""


@click.command()
@click.option("--plan", "is_plan", is_flag=True, help="Show the plan, write nothing [default].")
@click.option(
    "--apply",
    "apply_id",
    metavar="[PLAN_ID]",
    is_flag=False,
    flag_value=_CURRENT,
    help="Archive what the plan names; with an id only if the plan is still that one.",
)
@click.option("--undo", "undo_id", metavar="PLAN_ID", help="Take an applied plan back.")
@click.option("--list", "is_list", is_flag=True, help="List the plans that were applied.")
@click.option("--profile", metavar="NAME", help="Profile whose compaction flags decide.")
@click.option(
    "--limit",
    default=20,
    show_default=True,
    type=click.IntRange(min=0),
    help="Most memories shown, by plan; totals are counted whole, --json shows all.",
)
@click.option("--texts", is_flag=True, help="Also show the texts of the summaries.")
@store_options
def compact(
    is_plan: bool,
    apply_id: str | None,
    undo_id: str | None,
    is_list: bool,
    profile: str | None,
    limit: int,
    texts: bool,
    store: str | None,
) -> None:
    """Archive memories that were replaced and are no longer used; nothing is ever deleted.

    A memory is a candidate if a newer one surely replaced it, its score by use is below
    compaction_threshold and it was not recalled for compaction_age_days. What is archived is left
    out of recalls that can see its successor; profiles with include_archived still find it.

    \b
    noctuary compact                    what would be archived, and why; writes nothing
    noctuary compact --apply 1f0c...    archive exactly that plan, or nothing if it changed
    noctuary compact --list             plans that were applied, and when
    noctuary compact --undo 1f0c...     as if it had never been applied

    Exit code 3 when a plan no longer fits or is not in force, 4 while a night is running, 1 when
    the store could not answer.
    """  # noqa: D301 (click wants the control character)
    chosen = [is_plan, apply_id is not None, undo_id is not None, is_list]
    if sum(chosen) > 1:
        raise click.UsageError("give one of --plan, --apply, --undo and --list")
    from noctuary.compact.archive_apply import PlanRefusedError

    limit_threads()
    try:
        paths = open_paths(store)
        if is_list:
            _list(paths, limit)
        elif undo_id is not None:
            _undo(paths, undo_id)
        elif apply_id is not None:
            _apply(paths, _rules(paths, profile), None if apply_id == _CURRENT else apply_id)
        else:
            _plan(paths, _rules(paths, profile), limit, texts)
    except PlanRefusedError as error:
        fail(error, EXIT_REFUSED)
    except StoreLockedError as error:
        fail(error, EXIT_LOCKED)


def _rules(paths: StorePaths, profile: str | None) -> ArchiveRules:
    """Return the rules of a profile; what is wrong with it is said and left out, as in a recall."""
    from noctuary.compact.archive_plan import archive_rules
    from noctuary.recall.profile import (
        current_settings,
        read_store_profiles,
        resolve_for_recall,
    )

    settings, warnings = current_settings()
    stored = read_store_profiles(paths.profiles)
    resolved = resolve_for_recall(settings, {}, stored.tables, profile)
    told = (*warnings, *stored.warnings, *resolved.warnings)
    warn(*(f"{warning.code}: {warning.message}" for warning in told))
    return archive_rules(resolved.profile.to_json(), settings.compaction)


def _plan(paths: StorePaths, rules: ArchiveRules, limit: int, texts: bool) -> None:
    from noctuary.compact.archive_plan import plan_store

    plan = plan_store(paths, rules, ScanProgress())
    found = {**plan.to_json(), "summaries": _summaries_json(plan, texts=texts)}
    tell(found, _plan_lines(plan, limit, texts=texts))


def _apply(paths: StorePaths, rules: ArchiveRules, plan_id: str | None) -> None:
    from noctuary.compact.archive_apply import apply_in_store

    applied = apply_in_store(
        paths, rules, plan_id, now_us=time.time_ns() // 1000, progress=ScanProgress()
    )
    found = {**applied.plan.to_json(), "applied_at_us": applied.applied_at_us}
    tell(found, _applied_lines(applied))


def _undo(paths: StorePaths, plan_id: str) -> None:
    from noctuary.compact.archive_apply import undo_in_store

    at_us = undo_in_store(paths, plan_id, now_us=time.time_ns() // 1000)
    said = f"plan {plan_id} is undone: what it archived is found again from now on"
    tell({"plan_id": plan_id, "undone_at_us": at_us}, [said])


def _list(paths: StorePaths, limit: int) -> None:
    from noctuary.compact.archive_apply import list_plans

    plans = list_plans(paths.archive)
    tell({"plans": [plan.to_json() for plan in plans]}, _history_lines(plans, limit))


_LEFT = {
    "archived": "archived already",
    "unsure": "whose successor is not sure enough",
    "pinned": "pinned",
    "used": "still used",
    "recent": "accessed too recently, or without a date",
    "tail": "turns of a protected tail",
}
"""Reasons why a superseded memory is no candidate, in the order of being asked."""


def _plan_lines(plan: Plan, limit: int, *, texts: bool) -> Iterator[str]:
    """Yield what a plan would do and why, at most `limit` memories."""
    if plan.warning is not None:
        yield f"! {plan.warning}"
    yield _plan_headline(plan)
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


def _summaries_json(plan: Plan, *, texts: bool) -> list[dict[str, Any]]:
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


def _applied_lines(applied: Applied) -> Iterator[str]:
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


def _history_lines(plans: Sequence[PlanHistory], limit: int) -> Iterator[str]:
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


def _plan_headline(plan: Plan) -> str:
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


# `noctuary curate`: what could be tidied in the memory store itself, doing it, taking it back.


_SHOWN_CHARS = 100
"""Of a memory's text, in a list: about a line beside its id and role."""


@click.command()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--list", "as_list", is_flag=True, help="Show the proposals. The default.")
@click.option("--all", "with_noop", is_flag=True, help="List what was left alone as well (NOOP).")
@click.option("--apply", "do_apply", is_flag=True, help="Write the named ones, or all, to SOURCE.")
@click.option("--undo", type=int, metavar="JOURNAL_ID", help="Take one application back, exactly.")
@click.option("--journal", is_flag=True, help="Show what was applied, and what was undone.")
@click.option(
    "--min-confidence", type=float, default=0.0, help="With --apply and no ID: at least this sure."
)
@click.option(
    "--source",
    metavar="SOURCE",
    help="SQLite file, postgresql://..., or env:NAME (a variable that holds that address, so that "
    "no password is on the command line) [default: what the night read].",
)
@store_options
def curate(
    ids: tuple[str, ...],
    as_list: bool,
    with_noop: bool,
    do_apply: bool,
    undo: int | None,
    journal: bool,
    min_confidence: float,
    source: str | None,
    store: str | None,
) -> None:
    """Show what the last night would tidy in the memory store, apply it, or undo that.

    \b
    noctuary curate                     duplicates, fragments, superseded facts, contradictions
    noctuary curate --apply 3f2a 91bc   write two of them
    noctuary curate --apply             write all that would change something
    noctuary curate --journal           what was written, by journal id
    noctuary curate --undo 1            every touched row as it was

    The night proposes where curation.enabled is set, and writes nothing. --apply marks rows with
    [SUPERSEDED] and importance 0.3, in one transaction; nothing is deleted. It refuses, as a whole,
    if a row changed since that night.
    """  # noqa: D301 (click wants the control character)
    asked = [do_apply, undo is not None, journal, as_list]
    if sum(asked) > 1:
        raise click.UsageError("--list, --apply, --undo and --journal exclude each other")
    work = open_paths(store).work
    if do_apply:
        _apply_proposals(work, ids, min_confidence, source)
    elif undo is not None:
        _undo_proposals(work, undo, source)
    elif journal:
        _journal(work, source)
    else:
        _list_proposals(work, ids, with_noop)


def _list_proposals(work: Path, ids: tuple[str, ...], with_noop: bool) -> None:
    from noctuary.curate.apply import chosen, read_proposed, replacement_text

    found = read_proposed(work)
    proposals = chosen(found.proposals, ids, 0.0) if ids or not with_noop else found.proposals
    new_text = {p.proposal_id: replacement_text(p, found.text_of) for p in proposals}
    counts = Counter(f"{p.kind} {p.action}" for p in found.proposals)
    shown = {
        "enabled": found.is_on,
        "source": found.source,
        "counts": dict(sorted(counts.items())),
        "proposals": [
            {**p.to_json(), "replacement_text": new_text[p.proposal_id]} for p in proposals
        ],
    }
    tell(shown, _proposal_lines(proposals, found, new_text))


def _proposal_lines(
    proposals: Sequence[Proposal], found: Proposed, new_text: Mapping[str, str | None]
) -> Iterator[str]:
    for proposal in proposals:
        yield (
            f"{proposal.proposal_id}  {proposal.action:<9} {proposal.kind:<15} "
            f"{proposal.confidence:.2f}  {proposal.evidence.reason}"
        )
        for target in proposal.targets:
            text = _shorten(found.text_of.get(target.memory_id), _SHOWN_CHARS)
            yield visible_line(f"    {target.role:<10} [{target.memory_id}] {text}")
        added = new_text[proposal.proposal_id]
        if added is not None:
            yield visible_line(f"    new row    {' '.join(added.split())}")
    if not found.is_on:
        yield (
            "curation is off: set curation.enabled (NOCTUARY_CURATION_ENABLED=true), run the night"
        )
        return
    left = sum(p.action == "NOOP" for p in found.proposals)
    yield (
        f"{len(proposals)} of {len(found.proposals)} proposals for {found.source}; {left} looked "
        "at and left alone (--all). Nothing is written before --apply."
    )


def _shorten(text: str | None, most: int) -> str:
    line = " ".join((text or "(changed since)").split())
    return line if len(line) <= most else line[: most - 1] + "…"


def _apply_proposals(work: Path, ids: tuple[str, ...], least: float, source: str | None) -> None:
    from noctuary.curate.apply import Where, apply_proposals, chosen, read_proposed

    found = read_proposed(work)
    proposals = chosen(found.proposals, ids, least)
    with closing(_open(source or found.source)) as opened:
        warn(*opened.notes)
        is_same = Path(opened.display).resolve() == Path(found.source).resolve()
        applied = apply_proposals(opened, proposals, Where(is_same, found.text_of))
    tell({"source": opened.display, **applied._asdict()}, _written_lines(applied, opened.display))


def _written_lines(applied: AppliedProposals, display: str) -> Iterator[str]:
    for proposal_id, journal_id in applied.held.items():
        yield f"{proposal_id} holds already (journal {journal_id})"
    if applied.journal_id is None:
        yield "nothing to do"
        return
    yield (
        f"journal {applied.journal_id}: {len(applied.written)} proposals written to {display}: "
        f"{len(applied.tombstones)} rows marked, {len(applied.updated)} filled up, "
        f"{len(applied.added)} added. Take it back: noctuary curate --undo {applied.journal_id}"
    )


def _undo_proposals(work: Path, journal_id: int, source: str | None) -> None:
    from noctuary.curate.apply import undo

    with closing(_open(source or _night_source(work))) as opened:
        undone = undo(opened, journal_id)
    said = (
        f"journal {journal_id} is undone: {len(undone.restored)} rows as they were, "
        f"{len(undone.taken_back)} added rows taken back"
    )
    tell({"source": opened.display, **undone._asdict()}, [said])


def _journal(work: Path, source: str | None) -> None:
    with closing(_open(source or _night_source(work))) as opened:
        found = opened.applications()
    lines = [
        f"{a.journal_id:>4}  {a.applied_at}  {a.proposals} proposals, {a.rows} rows  "
        + (f"undone {a.undone_at}" if a.undone_at else "holds")
        + ("" if a.undoable or a.undone_at else ", cannot be undone any more")
        for a in found
    ]
    shown = {"source": opened.display, "journal": [a._asdict() for a in found]}
    tell(shown, lines or ["nothing was ever applied to this source"])


def _open(source: str) -> Store:
    from noctuary.core.settings import Settings
    from noctuary.core.store import find_home
    from noctuary.curate.stores import open_writable

    return open_writable(source, Settings.load(home=find_home()).corpus)


def _night_source(work: Path) -> str:
    from noctuary.sources.export import read_report

    return read_report(work / "corpus").identity.location


# `noctuary promotions`: which turns of conversations the last night would remember for good.


_TURN_CHARS = 200
"""Of a turn's text, in the list: two lines of a terminal."""


@click.command()
@click.option(
    "-n", "limit", default=20, show_default=True, type=click.IntRange(min=0), help="Rows."
)
@click.option("--all", "with_left", is_flag=True, help="List what was left alone as well.")
@click.option("--user", help="Whose turns [default: those of nobody in particular].")
@store_options
def promotions(limit: int, with_left: bool, user: str | None, store: str | None) -> None:
    """Show which turns the last night proposes to remember for good, and why.

    \b
    noctuary promotions                 the best proposals, highest score first
    noctuary promotions -n 100 --all    the rest as well, with what kept it below
    noctuary promotions --json          every number of the gate, for a program

    A score G mixes two branches by how technical a turn is: novelty, repetition and what it states
    (conversation), or how specific, actionable and structured it is (code). Nothing is written to
    the source: what you want to keep, save it there. Exit code 1 only if there is no table.
    """  # noqa: D301 (click wants the control character)
    from noctuary.curate.promotions import list_promotions, row_json

    work = open_paths(store).work
    found = list_promotions(work, user=user, with_left=with_left, limit=limit)
    rows = [{**row_json(row), "text": found.text_of.get(row.turn_id)} for row in found.rows]
    shown = {
        "enabled": found.is_on,
        "threshold": found.threshold,
        "counts": dict(found.counts),
        "promotions": rows,
    }
    tell(shown, _promotion_lines(found))


def _promotion_lines(found: Promotions) -> Iterator[str]:
    for row in found.rows:
        said, moment = row.scores, from_micros(row.created_at_us)
        day = "" if moment is None else f"{moment:%Y-%m-%d}  "
        yield visible_line(
            f"[{row.turn_id}]  {row.decision}  G {said['g']:.2f}  {day}"
            f"{f'({row.wing})  ' if row.wing else ''}{', '.join(row.marks) or '-'}"
        )
        yield visible_line(f"    {_shorten(found.text_of.get(row.turn_id), _TURN_CHARS)}")
        yield (
            f"    technical {said['t']:.2f}; "
            f"conversation {said['gconv']:.2f} (novelty {said['h']:.2f}, "
            f"repetition {said['r']:.2f}, statements {said['d']:.2f}); "
            f"code {said['gtech']:.2f} (specific {said['p']:.2f}, "
            f"action {said['a']:.2f}, structure {said['dtech']:.2f})"
        )
    if not found.is_on:
        yield (
            "promotion is off: set promotion.enabled (NOCTUARY_PROMOTION_ENABLED=true), "
            "run the night"
        )
        return
    yield (
        f"{found.counts.get('proposed', 0)} of {sum(found.counts.values())} turns are proposed (G "
        f"of {found.threshold:g} and more); {len(found.rows)} shown. Nothing is written to your "
        "memory store."
    )
