"""`noctuary forget`: a plan, and carrying it out with a receipt."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import click

from noctuary.cli import main as cli
from noctuary.snapshot.forget_plan import Plan, plan_forget
from noctuary.text.marks import visible_line

_SHOWN = 50  # memories in a plan that a person reads; --json has all
_SHOWN_CHARS = 200
_HITS = 10  # memories that a question may select; what it abstains from selects none


@click.command()
@click.argument("ids", nargs=-1)
@cli.option("--query TEXT", "query", "Memories that a recall of this question shows.")
@cli.option("--wing", "Only memories of this wing.")
@cli.option("--source SOURCE", "Only memories that were read from this source.")
@cli.option("--user", "Only memories of this user.")
@cli.option("--before DATE", "Only memories created before this date.")
@cli.option("--after DATE", "Only memories created at or after this date.")
@cli.option("--pattern REGEX", "Only memories whose text contains this regular expression.")
@cli.flag("--apply", "do_apply", "Forget what the plan shows; asks first.")
@cli.flag("--yes", "is_sure", "With --apply: do not ask.")
@cli.flag("--from-source", "With --apply: also delete the rows in the memory store itself.")
@cli.store_options
def forget(
    ids: tuple[str, ...],
    query: str | None,
    wing: str | None,
    source: str | None,
    user: str | None,
    before: str | None,
    after: str | None,
    pattern: str | None,
    do_apply: bool,
    is_sure: bool,
    from_source: bool,
    store: str | None,
) -> None:
    """Forget memories for good: the plan with their texts, then --apply.

    \b
    noctuary forget 17 42                     the texts that would go, and where they live
    noctuary forget 17 42 --apply             hide them at once, purge them, write a receipt
    noctuary forget --pattern "(?i)acme"      what a pattern selects
    noctuary forget --wing acme --before 2025-01-01 --apply --yes
    noctuary forget --apply                   complete what was interrupted

    IDS and options narrow each other. --apply hides the memories from every recall, deletes them
    from noctuary's own store, runs a night, removes older snapshots and searches every file for
    what is left. It cannot be undone. A source of somebody else keeps its rows unless you pass
    --from-source; no later night reads them.

    Exit code 1 if nothing is selected, an id names no memory, something is left or the night
    failed: then the memories stay hidden, and the next night goes on. 4 while another process
    forgets.
    """  # noqa: D301 (click wants the control character)
    chosen = None if not ids and query is None else [*ids, *_asked(query, user, wing, store)]
    plan = plan_forget(
        source if store is None else store,
        ids=chosen,
        wing=wing,
        user=user,
        before=None if before is None else cli.read_moment(before, "--before"),
        after=None if after is None else cli.read_moment(after, "--after"),
        pattern=pattern,
        source=source,
    )
    if not do_apply:
        cli.tell(plan.to_json(), _plan_lines(plan), plan.notes)
        if not plan.memories or plan.unknown:
            sys.exit(cli.EXIT_FAILED)
        return
    from noctuary.snapshot.forget import apply_forget

    _confirm(plan, is_sure=is_sure)
    done = apply_forget(plan, from_source=from_source, night=night_for(plan))
    warnings = [*done.warnings, *_unknown_lines(plan)]
    cli.tell({**done.to_json(), "unknown": list(plan.unknown)}, [done.message], warnings)
    if not done.is_gone or plan.unknown:
        sys.exit(cli.EXIT_FAILED)


def _asked(query: str | None, user: str | None, wing: str | None, store: str | None) -> list[str]:
    """Return ids of what a question finds: nothing where it abstains."""
    if query is None:
        return []
    from noctuary.context.render import worth_injecting
    from noctuary.recall.api import recall

    found = recall(query, _HITS, user=user, wing=wing, store=store, dry_run=True)
    cli.warn(*cli.coded(found.warnings))
    return [str(one["id"]) for one in worth_injecting(found.to_json()) if one["kind"] == "memory"]


def _plan_lines(plan: Plan) -> Iterator[str]:
    for memory in plan.memories[:_SHOWN]:
        told: dict[str, Any] = memory.to_json()
        day = (told["created_at"] or "undated")[:10]
        place = f"({told['wing']})  " if told["wing"] else ""
        text = " ".join(told["content"].split())
        shown = text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"
        yield visible_line(f"[{told['memory_id']}]  {day}  {place}{shown}")
        snapshots = [p for p in memory.places if p[:1].isdigit()]
        homes = [p for p in memory.places if p not in snapshots]
        yield f"    {', '.join([*homes, f'{len(snapshots)} snapshots'])}"
    if len(plan.memories) > _SHOWN:
        yield f"... and {len(plan.memories) - _SHOWN:,} more (--json shows all)"
    yield from _unknown_lines(plan)
    yield (
        f"{len(plan.memories):,} memories of {plan.store.name} would be forgotten, and "
        f"{plan.summaries:,} summaries made again without them. Nothing is changed before --apply."
    )


def _unknown_lines(plan: Plan) -> Iterator[str]:
    if plan.unknown:
        yield visible_line(f"no memory has the id {', '.join(plan.unknown)}")


def _confirm(plan: Plan, *, is_sure: bool) -> None:
    if is_sure or not plan.memories:
        return
    if cli.is_json():
        raise click.UsageError("--apply with --json needs --yes: nobody could answer")
    for line in _plan_lines(plan):
        click.echo(line)
    click.confirm("Forget them for good?", abort=True)


def night_for(plan: Plan) -> Any:
    """Return what runs a night in a process of its own; None where nights cannot run here."""
    if not cli.is_installed("dagster") or plan.source is None:
        return None

    def run() -> str | None:
        words = [sys.executable, "-m", "noctuary.cli.entry", "nightly", str(plan.source)]
        words += ["--store", str(plan.store), "--json"]
        ran = subprocess.run(words, capture_output=True, env=os.environ, check=False)
        if ran.returncode == 0:
            return None
        return f"the night did not go through (exit code {ran.returncode}): `noctuary nightly` says"

    return run
