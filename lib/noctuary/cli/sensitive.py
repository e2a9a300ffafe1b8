"""`noctuary sensitive`: rows that never leave the store, recalled in the store itself."""

from __future__ import annotations

import sys

import click

from noctuary.cli.common import fail, limit_threads, print_json, store_options
from noctuary.errors import NoctuaryError
from noctuary.text.visible import visible_line

_FROM_STDIN = "-"


@click.command()
@click.argument("query")
@click.option(
    "-k", default=5, show_default=True, type=click.IntRange(min=0), help="At most so many."
)
@click.option("--user", metavar="NAME", help="Who asks; rows of other named users are never shown.")
@store_options
def sensitive(query: str, k: int, user: str | None, store: str | None, as_json: bool) -> None:
    """Recall rows that are marked sensitive or hold a secret, by their words.

    Off unless `sensitive.recall` is true. The memory store is read at this moment; neither the
    QUERY nor what it finds is kept or logged by noctuary. Your shell may keep the command line:
    QUERY `-` reads the question from standard input. What is printed is yours to keep safe.

    Exit code 0 when the store could answer, 1 when it could not or sensitive recall is off.
    """
    limit_threads()
    if query == _FROM_STDIN:
        query = sys.stdin.readline()
    from noctuary.sensitive.recall import recall_sensitive

    try:
        answer = recall_sensitive(query, k, user=user, store=store)
    except (NoctuaryError, OSError) as error:
        fail(error, as_json)
    if as_json:
        print_json(answer.reveal())
        return
    for memory in answer.memories:
        vault = f"  vault {memory.vault_path}" if memory.vault_path else ""
        click.echo(visible_line(f"[{memory.memory_id}] {memory.score:.3f}  {memory.reason}{vault}"))
        click.echo(memory.content)
    if not answer.memories:
        click.echo(f"none of {answer.searched} sensitive rows of {answer.source} fits", err=True)
