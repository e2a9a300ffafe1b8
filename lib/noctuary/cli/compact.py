"""`noctuary compact`: what could be archived and why; archiving it; taking that back."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, NoReturn

import click

from noctuary.cli.common import fail, limit_threads, open_paths, print_json, store_options
from noctuary.errors import NoctuaryError, StoreLockedError
from noctuary.snapshot.layout import StorePaths

if TYPE_CHECKING:
    from noctuary.archive.rules import ArchiveRules

EXIT_REFUSED = 3
"""The named plan does not fit any more, or is not in force."""

EXIT_LOCKED = 4
"""A night, or another command, is at work on the store: as `make nightly` says it."""

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
    from noctuary.archive.rules import archive_rules
    from noctuary.recall.current_settings import current_settings
    from noctuary.recall.profile import read_store_profiles
    from noctuary.recall.profile.configured import resolve_for_recall

    settings, warnings = current_settings()
    stored = read_store_profiles(paths.profiles)
    resolved = resolve_for_recall(settings, {}, stored.tables, profile)
    for warning in (*warnings, *stored.warnings, *resolved.warnings):
        click.echo(f"! {warning.code}: {warning.message}", err=True)
    return archive_rules(resolved.profile.to_json(), settings.compaction)


def _plan(paths: StorePaths, rules: ArchiveRules, limit: int, texts: bool, as_json: bool) -> None:
    from noctuary.archive.planning import plan_store
    from noctuary.cli.compacting import ScanProgress, plan_lines, summaries_json

    plan = plan_store(paths, rules, ScanProgress())
    if as_json:
        print_json({**plan.to_json(), "summaries": summaries_json(plan, texts=texts)})
        return
    for line in plan_lines(plan, limit, texts=texts):
        click.echo(line)


def _apply(paths: StorePaths, rules: ArchiveRules, plan_id: str | None, as_json: bool) -> None:
    from noctuary.archive.applying import apply_in_store
    from noctuary.cli.compacting import ScanProgress, applied_lines

    applied = apply_in_store(
        paths, rules, plan_id, now_us=time.time_ns() // 1000, progress=ScanProgress()
    )
    if as_json:
        print_json({**applied.plan.to_json(), "applied_at_us": applied.applied_at_us})
        return
    for line in applied_lines(applied):
        click.echo(line)


def _undo(paths: StorePaths, plan_id: str, as_json: bool) -> None:
    from noctuary.archive.applying import undo_in_store

    at_us = undo_in_store(paths, plan_id, now_us=time.time_ns() // 1000)
    if as_json:
        print_json({"plan_id": plan_id, "undone_at_us": at_us})
        return
    click.echo(f"plan {plan_id} is undone: what it archived is found again from now on")


def _list(paths: StorePaths, limit: int, as_json: bool) -> None:
    from noctuary.archive.history import list_plans
    from noctuary.cli.compacting import history_lines

    plans = list_plans(paths.archive)
    if as_json:
        print_json({"plans": [plan.to_json() for plan in plans]})
        return
    for line in history_lines(plans, limit):
        click.echo(line)


def _fail(error: NoctuaryError | OSError, as_json: bool) -> NoReturn:
    """Leave with the exit code of the error; `fail` knows only one."""
    from noctuary.archive.applying import PlanRefusedError

    try:
        fail(error, as_json)
    except SystemExit:
        if isinstance(error, PlanRefusedError):
            sys.exit(EXIT_REFUSED)
        if isinstance(error, StoreLockedError):
            sys.exit(EXIT_LOCKED)
        raise
