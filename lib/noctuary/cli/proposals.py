"""Commands that propose and tidy: compact, curate, promotions."""

from __future__ import annotations

import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from noctuary.cli.common import fail, limit_threads, open_paths, print_json, store_options
from noctuary.core.errors import NoctuaryError, StoreLockedError
from noctuary.core.store import StorePaths
from noctuary.text.marks import visible_line

if TYPE_CHECKING:
    from noctuary.compact.archive_plan import ArchiveRules
    from noctuary.curate.apply import AppliedProposals, Proposed, Undone
    from noctuary.curate.promotions import PromotionRow, Promotions
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
    as_json: bool,
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
    limit_threads()
    try:
        paths = open_paths(store)
        if is_list:
            _list(paths, limit, as_json)
        elif undo_id is not None:
            _undo(paths, undo_id, as_json)
        elif apply_id is not None:
            wanted = None if apply_id == _CURRENT else apply_id
            _apply(paths, _rules(paths, profile), wanted, as_json)
        else:
            _plan(paths, _rules(paths, profile), limit, texts, as_json)
    except (NoctuaryError, OSError) as error:
        _fail(error, as_json)


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
    for warning in (*warnings, *stored.warnings, *resolved.warnings):
        click.echo(f"! {warning.code}: {warning.message}", err=True)
    return archive_rules(resolved.profile.to_json(), settings.compaction)


def _plan(paths: StorePaths, rules: ArchiveRules, limit: int, texts: bool, as_json: bool) -> None:
    from noctuary.cli.plans import ScanProgress, plan_lines, summaries_json
    from noctuary.compact.archive_plan import plan_store

    plan = plan_store(paths, rules, ScanProgress())
    if as_json:
        print_json({**plan.to_json(), "summaries": summaries_json(plan, texts=texts)})
        return
    for line in plan_lines(plan, limit, texts=texts):
        click.echo(line)


def _apply(paths: StorePaths, rules: ArchiveRules, plan_id: str | None, as_json: bool) -> None:
    from noctuary.cli.plans import ScanProgress, applied_lines
    from noctuary.compact.archive_apply import apply_in_store

    applied = apply_in_store(
        paths, rules, plan_id, now_us=time.time_ns() // 1000, progress=ScanProgress()
    )
    if as_json:
        print_json({**applied.plan.to_json(), "applied_at_us": applied.applied_at_us})
        return
    for line in applied_lines(applied):
        click.echo(line)


def _undo(paths: StorePaths, plan_id: str, as_json: bool) -> None:
    from noctuary.compact.archive_apply import undo_in_store

    at_us = undo_in_store(paths, plan_id, now_us=time.time_ns() // 1000)
    if as_json:
        print_json({"plan_id": plan_id, "undone_at_us": at_us})
        return
    click.echo(f"plan {plan_id} is undone: what it archived is found again from now on")


def _list(paths: StorePaths, limit: int, as_json: bool) -> None:
    from noctuary.cli.plans import history_lines
    from noctuary.compact.archive_apply import list_plans

    plans = list_plans(paths.archive)
    if as_json:
        print_json({"plans": [plan.to_json() for plan in plans]})
        return
    for line in history_lines(plans, limit):
        click.echo(line)


def _fail(error: NoctuaryError | OSError, as_json: bool) -> NoReturn:
    """Leave with the exit code of the error; `fail` knows only one."""
    from noctuary.compact.archive_apply import PlanRefusedError

    try:
        fail(error, as_json)
    except SystemExit:
        if isinstance(error, PlanRefusedError):
            sys.exit(EXIT_REFUSED)
        if isinstance(error, StoreLockedError):
            sys.exit(EXIT_LOCKED)
        raise


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
    as_json: bool,
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
    try:
        if sum(asked) > 1:
            raise click.UsageError("--list, --apply, --undo and --journal exclude each other")
        work = open_paths(store).work
        if do_apply:
            _apply_proposals(work, ids, min_confidence, source, as_json)
        elif undo is not None:
            _undo_proposals(work, undo, source, as_json)
        elif journal:
            _journal(work, source, as_json)
        else:
            _list_proposals(work, ids, with_noop, as_json)
    except (NoctuaryError, OSError) as error:
        fail(error, as_json)


def _list_proposals(work: Path, ids: tuple[str, ...], with_noop: bool, as_json: bool) -> None:
    from noctuary.curate.apply import chosen, read_proposed, replacement_text

    found = read_proposed(work)
    proposals = chosen(found.proposals, ids, 0.0) if ids or not with_noop else found.proposals
    if as_json:
        rows = [
            {**p.to_json(), "replacement_text": replacement_text(p, found.text_of)}
            for p in proposals
        ]
        counts = Counter(f"{p.kind} {p.action}" for p in found.proposals)
        by_kind = dict(sorted(counts.items()))
        print_json(
            {
                "enabled": found.is_on,
                "source": found.source,
                "counts": by_kind,
                "proposals": rows,
            }
        )
        return
    for proposal in proposals:
        _print_proposal(proposal, found)
    click.echo(_account(found, len(proposals)))


def _print_proposal(proposal: Proposal, found: Proposed) -> None:
    from noctuary.curate.apply import replacement_text

    click.echo(
        f"{proposal.proposal_id}  {proposal.action:<9} {proposal.kind:<15} "
        f"{proposal.confidence:.2f}  {proposal.evidence.reason}"
    )
    for target in proposal.targets:
        text = " ".join(found.text_of.get(target.memory_id, "(changed since)").split())
        shown = text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"
        click.echo(visible_line(f"    {target.role:<10} [{target.memory_id}] {shown}"))
    added = replacement_text(proposal, found.text_of)
    if added is not None:
        click.echo(visible_line(f"    new row    {' '.join(added.split())}"))


def _account(found: Proposed, shown: int) -> str:
    if not found.is_on:
        return (
            "curation is off: set curation.enabled (NOCTUARY_CURATION_ENABLED=true), run the night"
        )
    left = sum(p.action == "NOOP" for p in found.proposals)
    return (
        f"{shown} of {len(found.proposals)} proposals for {found.source}; {left} looked at and "
        "left alone (--all). Nothing is written before --apply."
    )


def _apply_proposals(
    work: Path, ids: tuple[str, ...], least: float, source: str | None, as_json: bool
) -> None:
    from noctuary.curate.apply import Where, apply_proposals, chosen, read_proposed

    found = read_proposed(work)
    proposals = chosen(found.proposals, ids, least)
    with closing(_open(source or found.source)) as opened:
        _tell_notes(opened)
        where = Where(_is_same(opened.display, found.source), found.text_of)
        applied = apply_proposals(opened, proposals, where)
    _print_applied(applied, opened.display, as_json)


def _print_applied(applied: AppliedProposals, display: str, as_json: bool) -> None:
    if as_json:
        print_json({"source": display, **applied._asdict()})
        return
    for proposal_id, journal_id in applied.held.items():
        click.echo(f"{proposal_id} holds already (journal {journal_id})")
    if applied.journal_id is None:
        click.echo("nothing to do")
        return
    click.echo(
        f"journal {applied.journal_id}: {len(applied.written)} proposals written to {display}: "
        f"{len(applied.tombstones)} rows marked, {len(applied.updated)} filled up, "
        f"{len(applied.added)} added. Take it back: noctuary curate --undo {applied.journal_id}"
    )


def _undo_proposals(work: Path, journal_id: int, source: str | None, as_json: bool) -> None:
    from noctuary.curate.apply import undo

    with closing(_open(source or _night_source(work))) as opened:
        undone: Undone = undo(opened, journal_id)
    if as_json:
        print_json({"source": opened.display, **undone._asdict()})
        return
    click.echo(
        f"journal {journal_id} is undone: {len(undone.restored)} rows as they were, "
        f"{len(undone.taken_back)} added rows taken back"
    )


def _journal(work: Path, source: str | None, as_json: bool) -> None:
    with closing(_open(source or _night_source(work))) as opened:
        found = opened.applications()
    if as_json:
        print_json({"source": opened.display, "journal": [a._asdict() for a in found]})
        return
    for a in found:
        state = f"undone {a.undone_at}" if a.undone_at else "holds"
        state += "" if a.undoable or a.undone_at else ", cannot be undone any more"
        click.echo(
            f"{a.journal_id:>4}  {a.applied_at}  {a.proposals} proposals, {a.rows} rows  {state}"
        )
    if not found:
        click.echo("nothing was ever applied to this source")


def _open(source: str) -> Store:
    from noctuary.core.settings import Settings
    from noctuary.core.store import find_home
    from noctuary.curate.stores import open_writable

    return open_writable(source, Settings.load(home=find_home()).corpus)


def _night_source(work: Path) -> str:
    from noctuary.sources.export import read_report

    return read_report(work / "corpus").identity.location


def _is_same(display: str, source: str) -> bool:
    return Path(display).resolve() == Path(source).resolve()


def _tell_notes(opened: Store) -> None:
    for note in opened.notes:
        click.echo(f"! {note}", err=True)


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
def promotions(
    limit: int, with_left: bool, user: str | None, store: str | None, as_json: bool
) -> None:
    """Show which turns the last night proposes to remember for good, and why.

    \b
    noctuary promotions                 the best proposals, highest score first
    noctuary promotions -n 100 --all    the rest as well, with what kept it below
    noctuary promotions --json          every number of the gate, for a program

    A score G mixes two branches by how technical a turn is: novelty, repetition and what it states
    (conversation), or how specific, actionable and structured it is (code). Nothing is written to
    the source: what you want to keep, save it there. Exit code 1 only if there is no table.
    """  # noqa: D301 (click wants the control character)
    from noctuary.curate.promotions import list_promotions

    try:
        work = open_paths(store).work
        found = list_promotions(work, user=user, with_left=with_left, limit=limit)
    except (NoctuaryError, OSError) as error:
        fail(error, as_json)
    if as_json:
        print_json(_to_json(found))
        return
    for row in found.rows:
        _print_row(row, found)
    click.echo(_account_of_promotions(found))


def _to_json(found: Promotions) -> dict[str, object]:
    from noctuary.curate.promotions import row_json

    rows = [{**row_json(row), "text": found.text_of.get(row.turn_id)} for row in found.rows]
    return {
        "enabled": found.is_on,
        "threshold": found.threshold,
        "counts": dict(found.counts),
        "promotions": rows,
    }


def _print_row(row: PromotionRow, found: Promotions) -> None:
    text = " ".join(found.text_of.get(row.turn_id, "(changed since)").split())
    shown = text if len(text) <= _TURN_CHARS else text[: _TURN_CHARS - 1] + "…"
    said = row.scores
    click.echo(
        visible_line(
            f"[{row.turn_id}]  {row.decision}  G {said['g']:.2f}  {_date(row)}"
            f"{f'({row.wing})  ' if row.wing else ''}{', '.join(row.marks) or '-'}"
        )
    )
    click.echo(visible_line(f"    {shown}"))
    click.echo(
        f"    technical {said['t']:.2f}; "
        f"conversation {said['gconv']:.2f} (novelty {said['h']:.2f}, "
        f"repetition {said['r']:.2f}, statements {said['d']:.2f}); "
        f"code {said['gtech']:.2f} (specific {said['p']:.2f}, "
        f"action {said['a']:.2f}, structure {said['dtech']:.2f})"
    )


def _date(row: PromotionRow) -> str:
    from noctuary.core.types import from_micros

    moment = from_micros(row.created_at_us)
    return "" if moment is None else f"{moment:%Y-%m-%d}  "


def _account_of_promotions(found: Promotions) -> str:
    if not found.is_on:
        return (
            "promotion is off: set promotion.enabled (NOCTUARY_PROMOTION_ENABLED=true), "
            "run the night"
        )
    judged = sum(found.counts.values())
    proposed = found.counts.get("proposed", 0)
    return (
        f"{proposed} of {judged} turns are proposed (G of {found.threshold:g} and more); "
        f"{len(found.rows)} shown. Nothing is written to your memory store."
    )
