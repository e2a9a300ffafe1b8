"""`noctuary replay`: list the recalls that were kept, and run one of them again."""

from __future__ import annotations

import sys
from typing import Any

import click

from noctuary.cli.common import (
    EXIT_FAILED,
    fail,
    limit_threads,
    open_paths,
    print_json,
    store_options,
)
from noctuary.errors import NoctuaryError, SnapshotMissingError
from noctuary.snapshot.layout import StorePaths
from noctuary.text.visible import visible_line

_QUERY_CHARS = 48
_SECOND_CHARS = len("2026-03-01T08:00:00")


@click.command()
@click.argument("replay_id", metavar="[ID]", required=False)
@click.option(
    "--last",
    default=20,
    show_default=True,
    type=click.IntRange(min=1),
    help="Without ID: how many to list.",
)
@store_options
def replay(replay_id: str | None, last: int, store: str | None, as_json: bool) -> None:
    """Run a kept recall again, against its own snapshot; without ID list the kept ones.

    ID may be shortened. A recall is kept where its profile says replay_log. Exit code 0 when the
    re-run is identical, 1 when it differs or cannot be run.
    """
    limit_threads()
    try:
        paths = open_paths(store)
        if not paths.root.is_dir():
            raise SnapshotMissingError(f"there is no store {paths.root}: run `make nightly`")
        if replay_id is None:
            _list(paths, last, as_json)
            return
        identical = _run(paths, visible_line(replay_id), as_json)
    except (NoctuaryError, OSError) as error:
        fail(error, as_json)
    if not identical:
        sys.exit(EXIT_FAILED)


def _list(paths: StorePaths, last: int, as_json: bool) -> None:
    from noctuary.recall.replaying.log import list_packets

    found = list_packets(paths.replays, last)
    rows = [_summary(packet) for packet in found.packets]
    if as_json:
        print_json({"packets": rows, "unreadable": found.unreadable})
        return
    for row in rows:
        click.echo(
            f"{row['replay_id']}  {str(row['made_at'])[:_SECOND_CHARS]}  k {row['k']:<3}  "
            f"{row['results']:>3} found  {row['snapshot_id']}  {_shortened(row['query'])}"
        )
    if not rows:
        click.echo(
            "no recall was kept: set replay_log in a profile, or pass --set replay_log=true to "
            "`noctuary recall`"
        )
    if found.unreadable:
        click.echo(f"! {found.unreadable} of the last lines cannot be read", err=True)


def _run(paths: StorePaths, replay_id: str, as_json: bool) -> bool:
    from noctuary.recall.replaying.comparison import replay as run_again
    from noctuary.recall.replaying.log import find_packet

    packet = find_packet(paths.replays, replay_id)
    compared = run_again(paths, packet)
    if as_json:
        print_json({**_summary(packet), **compared.to_json()})
        return compared.identical
    for note in compared.notes:
        click.echo(f"! {note}", err=True)
    if compared.identical:
        click.echo(f"identical: {compared.memories} memories, same order, same scores")
    for difference in compared.differences:
        click.echo(difference)
    return compared.identical


def _summary(packet: dict[str, Any]) -> dict[str, Any]:
    kept = {n: packet.get(n) for n in ("replay_id", "made_at", "query", "k", "snapshot_id")}
    return {**kept, "results": len(packet.get("results", ()))}


def _shortened(query: Any) -> str:
    text = visible_line(" ".join(str(query).split()))
    return text if len(text) <= _QUERY_CHARS else f"{text[: _QUERY_CHARS - 4]} ..."
