"""`noctuary review`: look again at memories that nobody has checked for long."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from noctuary.cli import main as cli
from noctuary.core.errors import MemoryRefusedError
from noctuary.core.store import OWN_FILE, find_home
from noctuary.curate import reviews
from noctuary.curate.reviews import Aged
from noctuary.snapshot.forget import apply_forget
from noctuary.snapshot.forget_plan import plan_forget
from noctuary.sources.own_store import remember
from noctuary.text.marks import memories, visible_line

_SHOWN_CHARS = 200
_CHOICES = "keep, replace, no longer true, forget, skip, quit"


@click.command()
@click.argument("ids", nargs=-1, type=int)
@cli.flag("--keep", "is_kept", "Note that the memories IDS still hold.")
@cli.option("--until DATE", "Let the memories IDS end: the last day on which they hold.")
@cli.option("--user", "Also memories of this user.")
@cli.option("--limit", "Memories to show; --json shows all.", default=20, type=cli.AT_LEAST_0)
@cli.flag("--list", "is_list", "Show them and ask nothing.")
@cli.json_option
def review(
    ids: tuple[int, ...],
    is_kept: bool,
    until: str | None,
    user: str | None,
    limit: int,
    is_list: bool,
) -> None:
    """Go through memories of your own store that nobody has checked for long.

    A memory is checked when it is written, said again, recalled or confirmed. It is shown after 90
    days if it is about a system (a version, a path, a server), else after a year, and two weeks
    before its end. On a terminal you are asked about each: keep it, replace it, end it because it
    is no longer true, or forget it. What has ended, only `recall --as-of` finds.

    \b
    noctuary review                        go through them
    noctuary review --list                 show them
    noctuary review 12 17 --keep           both still hold
    noctuary review 12 --until 2026-11-30  it held until then

    Exit code 1 if an id names no memory, 3 if a new text is refused, 4 while others write.
    """  # noqa: D301 (click wants the control character)
    path, now = find_home() / OWN_FILE, datetime.now(UTC)
    if bool(ids) != (is_kept or until is not None) or (is_kept and until is not None):
        raise click.UsageError("give IDS with either --keep or --until, or neither")
    if ids:
        _mark(path, ids, until, now)
        return
    try:
        aged = reviews.find_aged(*reviews.find_reviewed(), now=now, user=user)
    except sqlite3.Error as error:
        raise click.ClickException(f"{path} cannot be read: {error}") from None
    is_asking = sys.stdin.isatty() and not (is_list or cli.is_json())
    if is_asking and aged:
        _go_through(path, aged[:limit], now)
        return
    cli.tell({"memories": [one.to_json() for one in aged]}, _lines(aged, limit))


def _mark(path: Path, ids: Sequence[int], until: str | None, now: datetime) -> None:
    if until is None:
        done, what = reviews.confirm(path, ids, now), "confirmed"
    else:
        done, what = reviews.end(path, ids, cli.read_end(until), now), f"ends after {until}"
    lost = len(set(ids)) - done
    unknown = [f"your own store lacks {lost} of these ids"] if lost else []
    cli.tell({"marked": done, "unknown": lost}, [f"{memories(done)} {what}"], unknown)
    if lost:
        sys.exit(cli.EXIT_FAILED)


def _lines(aged: Sequence[Aged], limit: int) -> Iterator[str]:
    for one in aged[:limit]:
        yield _line(one)
    if len(aged) > limit:
        yield f"... and {len(aged) - limit:,} more (--json shows all)"
    if not aged:
        yield "nothing to review: every memory was checked lately"


def _line(one: Aged) -> str:
    day = "at an unknown time" if one.checked_at is None else f"{one.checked_at:%Y-%m-%d}"
    ends = f", ends {one.valid_until[:10]}" if one.valid_until else ""
    where = f"  {one.wing}" if one.wing else ""
    text = " ".join(one.content.split())[:_SHOWN_CHARS]
    return visible_line(f"[{one.id}]  {one.checked_by} {day}{ends}{where}: {text}")


def _go_through(path: Path, aged: Sequence[Aged], now: datetime) -> None:
    for place, one in enumerate(aged, start=1):
        click.echo(f"{place} of {len(aged)}  {_line(one)}")
        answer = click.prompt(
            _CHOICES, type=click.Choice(["k", "r", "n", "f", "s", "q"]), default="s"
        )
        if answer == "q":
            return
        if answer == "k":
            reviews.confirm(path, [one.id], now)
        elif answer == "n":
            reviews.end(path, [one.id], now, now)
        elif answer == "r":
            text = click.prompt("What holds now", default="", show_default=False)
            try:
                kept = remember(text, supersedes=one.id) if text else None
            except MemoryRefusedError as error:
                cli.fail(error, cli.EXIT_REFUSED)
            click.echo("skipped" if kept is None else f"remembered {kept.id}")
        elif answer == "f" and click.confirm("Forget it for good?"):
            store, before = reviews.find_reviewed()
            click.echo(apply_forget(plan_forget(store, ids=[f"{before}{one.id}"])).message)
