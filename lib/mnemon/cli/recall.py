"""`mnemon recall`: ask the serving snapshot."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from mnemon.cli.common import EXIT_FAILED, limit_threads, print_json, store_options
from mnemon.settings import FUSIONS

if TYPE_CHECKING:
    from mnemon.recall.profile import Profile

# Warnings after which there was nothing to answer from; everything else still answered.
_FATAL = frozenset({"no_snapshot", "store_unreadable", "snapshot_damaged"})
_SHOWN_CHARS = 400
_DAY_CHARS = len("2026-03-01")


@click.command()
@click.argument("query")
@click.option(
    "-k", default=10, show_default=True, type=click.IntRange(min=0), help="How many memories."
)
@click.option("--wing", help="Only this wing.")
@click.option("--room", help="Only this room.")
@click.option("--category", help="Only this category.")
@click.option("--user", help="Whose memories; those of other named users are never shown.")
@click.option(
    "--sort-by",
    type=click.Choice(["relevance", "importance", "recency"]),
    default="relevance",
    show_default=True,
)
@click.option("--as-of", metavar="ISO", help="Only what existed at this moment, e.g. 2026-03-01.")
@click.option(
    "--fusion", type=click.Choice(FUSIONS), help="How the legs are fused [default: configured]."
)
@click.option("--deadline-ms", type=float, help="Answer with what there is after this long.")
@click.option(
    "--explain", is_flag=True, help="Show what each leg said and how long each step took."
)
@click.option("--dry-run", is_flag=True, help="Do not write to the access log.")
@click.option("--no-server", is_flag=True, help="Recall in this process even if a server runs.")
@store_options
def recall(
    query: str,
    k: int,
    wing: str | None,
    room: str | None,
    category: str | None,
    user: str | None,
    sort_by: str,
    as_of: str | None,
    fusion: str | None,
    deadline_ms: float | None,
    explain: bool,
    dry_run: bool,
    no_server: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Return the memories that answer QUERY, best first.

    Exit code 0 when the store could answer (even with nothing), 1 when it could not.
    """
    asked: dict[str, Any] = {
        "query": query,
        "k": k,
        "wing": wing,
        "room": room,
        "category": category,
        "user": user,
        "sort_by": sort_by,
        "as_of": _moment(as_of),
        "deadline_ms": deadline_ms,
        "dry_run": dry_run,
        "store": store,
    }
    result = None if no_server else _ask_server(asked, fusion)
    served_by = "process" if result is None else "server"
    if result is None:
        result = _recall_here(asked, fusion)
    if as_json:
        print_json({**result, "served_by": served_by})
    else:
        _print(result, explain)
    if any(w["code"] in _FATAL for w in result["warnings"]):
        sys.exit(EXIT_FAILED)


def _ask_server(asked: dict[str, Any], fusion: str | None) -> dict[str, Any] | None:
    """Return what the store's warm server answers, or None where none does."""
    from mnemon.serve.client import ask

    return ask(**asked, profile=None if fusion is None else {"fusion": fusion})


def _recall_here(asked: dict[str, Any], fusion: str | None) -> dict[str, Any]:
    limit_threads()
    from mnemon.recall.api import recall as recall_memories

    return recall_memories(**asked, profile=_profile(fusion)).to_json()


def _profile(fusion: str | None) -> Profile | None:
    """Return the configured profile with another fusion, or None for the configured one."""
    if fusion is None:
        return None
    from mnemon.recall.api import configured_profile

    return replace(configured_profile(), fusion=fusion)


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is no ISO-8601 date or time, e.g. 2026-03-01 or 2026-03-01T08:00:00Z",
            param_hint="--as-of",
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _print(result: dict[str, Any], explain: bool) -> None:
    for warning in result["warnings"]:
        click.echo(f"! {warning['code']}: {warning['message']}", err=True)
    for place, memory in enumerate(result["memories"], start=1):
        click.echo(_headline(place, memory))
        text = " ".join(memory["content"].split())
        click.echo(f"    {text[:_SHOWN_CHARS]}{' ...' if len(text) > _SHOWN_CHARS else ''}")
        if explain:
            click.echo(f"    {_explain(memory)}")
    if not result["memories"] and not result["warnings"]:
        click.echo("nothing found")
    if explain:
        times = ", ".join(f"{name} {ms:.1f}" for name, ms in result["timings_ms"].items())
        click.echo(f"\nsnapshot {result['snapshot_id']}; ms: {times}")


def _headline(place: int, memory: dict[str, Any]) -> str:
    day = memory["created_at"][:_DAY_CHARS] if memory["created_at"] else "undated"
    where = "/".join(part for part in (memory["wing"], memory["room"]) if part) or "-"
    score = f"{memory['final_score']:.3f}"
    return f"{place:>2}. {score}  [{memory['id']}]  {day}  {where}  {memory['category']}"


def _explain(memory: dict[str, Any]) -> str:
    parts: list[str] = []
    legs = memory["legs"]
    for name in ("lexical", "dense"):
        if name in legs:
            parts.append(f"{name} rank {legs[name]['rank']} ({legs[name]['score']:.3f})")
    if "graph" in legs:
        hit = legs["graph"]
        over = f" over {hit['concept']!r}" if hit["concept"] else ""
        parts.append(
            f"graph +{hit['score']:.3f} from [{hit['seed_id']}] by {hit['relation']}{over}"
        )
    parts.append(f"relevance {memory['relevance']:.3f}, importance {memory['importance']:.2f}")
    return "; ".join(parts)
