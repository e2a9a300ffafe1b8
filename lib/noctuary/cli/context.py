"""`noctuary context`: assemble a prompt's context under a token budget."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from noctuary.cli.common import (
    EXIT_FAILED,
    fail,
    limit_threads,
    print_json,
    read_moment,
    store_options,
)
from noctuary.errors import NoctuaryError
from noctuary.text.visible import visible_line

EXIT_DEGRADED = 3
"""What must be there exceeds the budget; it was printed whole."""

_FATAL = frozenset({"no_snapshot", "store_unreadable", "snapshot_damaged"})
"""Warnings after which no memory could be looked up; a failure only where nothing else is there."""


@click.command()
@click.argument("query")
@click.option(
    "--budget",
    "budget_tokens",
    required=True,
    type=click.IntRange(min=0),
    metavar="TOKENS",
    help="Tokens of the whole text, tags included.",
)
@click.option(
    "--document",
    "documents",
    multiple=True,
    metavar="FILE",
    help="Markdown for the agent (AGENTS.md); may be repeated, the order counts.",
)
@click.option(
    "--session",
    "session_file",
    metavar="FILE",
    help="JSON lines, one turn each, oldest first: role, text and, if known, id, at, bundle.",
)
@click.option(
    "--profile",
    default="default",
    show_default=True,
    metavar="NAME",
    help='Constants of the assembly: "default" or "reference".',
)
@click.option("--wing", help="Only memories of this wing.")
@click.option("--user", help="Whose memories; those of other named users are never shown.")
@click.option("--as-of", metavar="ISO", help="Only memories that existed at this moment.")
@click.option("--deadline-ms", type=float, help="Look up nothing more after this long.")
@click.option("--parts", is_flag=True, help="Show what each part costs and why it is there.")
@click.option("--dry-run", is_flag=True, help="Write nothing: no access log, no injection record.")
@store_options
def context(
    query: str,
    budget_tokens: int,
    documents: tuple[str, ...],
    session_file: str | None,
    as_of: str | None,
    parts: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Print what belongs into a prompt about QUERY, within a budget of tokens.

    First the rules of the documents (list items, front matter) and the last four turns, whole; then
    guidance, more turns, and what QUERY finds in documents, earlier turns and memories.

    Exit code 0 when it fits, 3 when rules and last turns alone exceed the budget (they are printed
    uncut), 1 when a file cannot be read or there is no store and nothing else to print.
    """
    limit_threads()
    from noctuary.context.api import assemble
    from noctuary.context.session_file import read_session

    try:
        made = assemble(
            query,
            budget_tokens,
            session=() if session_file is None else read_session(Path(session_file)),
            documents=[Path(name) for name in documents],
            as_of=None if as_of is None else read_moment(as_of, "--as-of"),
            **options,
        )
    except (NoctuaryError, OSError) as error:
        fail(error, as_json)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    shown = made.to_json()
    if as_json:
        print_json(shown)
    else:
        _print(shown, parts=parts)
    if made.degraded:
        sys.exit(EXIT_DEGRADED)
    if not made.parts and any(warning.code in _FATAL for warning in made.warnings):
        sys.exit(EXIT_FAILED)


def _print(shown: dict[str, Any], *, parts: bool) -> None:
    """Print the text, or its parts; what was missing goes to stderr."""
    for reason in (*shown["degraded"], *shown["warnings"]):
        click.echo(visible_line(f"! {reason['code']}: {reason['message']}"), err=True)
    if not parts:
        # Without a line break of its own: this is what was counted.
        click.echo(shown["text"], nl=False)
        return
    for part in shown["parts"]:
        click.echo(visible_line(_part_line(part)))
    click.echo(
        f"{shown['tokens']} of {shown['budget_tokens']} tokens ({shown['frame_tokens']} for tags), "
        f"counted by {shown['token_counter']}"
    )


def _part_line(part: dict[str, Any]) -> str:
    score = "     " if part["score"] is None else f"{part['score']:.3f}"
    why = " ".join(f"{name}={value}" for name, value in part["why"].items())
    return f"{part['kind']:<7} {part['tokens']:>6} {score}  [{part['id']}]  {why}"
