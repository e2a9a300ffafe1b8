"""`noctuary expand`: everything that a summary stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from noctuary.cli.common import fail, limit_threads, print_json, store_options
from noctuary.errors import NoctuaryError
from noctuary.text.visible import visible_line

if TYPE_CHECKING:
    from noctuary.recall.expanding import Expansion, Source

_DAY_AND_MINUTE = "%Y-%m-%d %H:%M"


@click.command()
@click.argument("summary_id", metavar="ID")
@click.option("--user", help="Whose memories; those of other named users are never shown.")
@store_options
def expand(summary_id: str, user: str | None, store: str | None, as_json: bool) -> None:
    """Show every memory that summary ID stands for, in order of time.

    A recall with turn_view=summaries, or with consolidation_enabled, returns summaries; this shows
    what each was made of, how it was judged, and the plan that it belongs to, if any. Exit code 0
    when the summary was found, 1 when it was not.
    """
    limit_threads()
    from noctuary.recall.expanding import expand as expand_summary

    try:
        found = expand_summary(summary_id, user=user, store=store)
    except (NoctuaryError, OSError) as error:
        fail(error, as_json)
    if as_json:
        print_json(found.to_json())
        return
    for line in _lines(found):
        click.echo(visible_line(line))


def _lines(found: Expansion) -> list[str]:
    confidence = "not judged" if found.confidence is None else f"confidence {found.confidence:.3f}"
    origin = f", compaction plan {found.plan_id}" if found.plan_id else ""
    tokens = f"{found.gate['summary_tokens']:,} of {found.gate['source_tokens']:,} tokens"
    lines = [
        f"summary [{found.summary_id}]  {found.method}, {confidence}, {tokens}{origin}",
        f"    {found.text}",
        *(f"written after [{p.id}]" for p in found.parents),
        f"stands for {len(found.sources)}:",
    ]
    for source in found.sources:
        lines += [_headline(source), f"    {' '.join(source.content.split())}"]
    return lines


def _headline(source: Source) -> str:
    moment = "undated" if source.created_at is None else f"{source.created_at:{_DAY_AND_MINUTE}}"
    where = "/".join(part for part in (source.wing, source.room) if part) or "-"
    return f"  [{source.id}]  {moment}  {where}"
