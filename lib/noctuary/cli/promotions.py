"""`noctuary promotions`: which turns of conversations the last night would remember for good."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from noctuary.cli.common import fail, open_paths, print_json, store_options
from noctuary.errors import NoctuaryError
from noctuary.text.visible import visible_line

if TYPE_CHECKING:
    from noctuary.promote.listing import Promotions
    from noctuary.promote.table import PromotionRow

_SHOWN_CHARS = 200
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
    from noctuary.promote.listing import list_promotions

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
    click.echo(_account(found))


def _to_json(found: Promotions) -> dict[str, object]:
    from noctuary.promote.table import row_json

    rows = [{**row_json(row), "text": found.text_of.get(row.turn_id)} for row in found.rows]
    return {
        "enabled": found.is_on,
        "threshold": found.threshold,
        "counts": dict(found.counts),
        "promotions": rows,
    }


def _print_row(row: PromotionRow, found: Promotions) -> None:
    text = " ".join(found.text_of.get(row.turn_id, "(changed since)").split())
    shown = text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 1] + "…"
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
    from noctuary.types import from_micros

    moment = from_micros(row.created_at_us)
    return "" if moment is None else f"{moment:%Y-%m-%d}  "


def _account(found: Promotions) -> str:
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
