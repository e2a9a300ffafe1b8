"""`mnemon snapshots` and `mnemon rollback`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from mnemon.cli.common import fail, open_paths, print_json, store_options
from mnemon.diagnosis.status import describe_snapshots
from mnemon.errors import MnemonError
from mnemon.snapshot.publish import rollback as roll_back


@click.command()
@store_options
def snapshots(store: str | None, as_json: bool) -> None:
    """List the published snapshots, oldest first; * marks the one that serves."""
    try:
        found = describe_snapshots(open_paths(store))
    except (MnemonError, OSError) as error:
        fail(error, as_json)
    if as_json:
        print_json({"snapshots": found})
        return
    for row in found:
        mark = "*" if row["serving"] else " "
        click.echo(f"{mark} {row['snapshot_id']}  {_state(row)}")
    if not found:
        click.echo("nothing has been published yet: run `make nightly`")


def _state(row: dict[str, Any]) -> str:
    if row["outdated"]:
        return "made by another version of mnemon: run the night (`make nightly`)"
    if not row["intact"]:
        return "DAMAGED"
    size = f"{row['memories']:>9,} memories  {row['bytes'] / 1e6:8.1f} MB"
    return f"{size}  built {row['built_at']}"


@click.command()
@click.argument("snapshot_id", required=False)
@store_options
def rollback(snapshot_id: str | None, store: str | None, as_json: bool) -> None:
    """Serve an older snapshot: SNAPSHOT_ID, or the newest one older than the serving one.

    Every byte of it is verified first. The next night publishes again if the source differs from
    it.
    """
    try:
        pointer = roll_back(open_paths(store), snapshot_id)
    except (MnemonError, OSError) as error:
        fail(error, as_json)
    if as_json:
        print_json(asdict(pointer))
        return
    click.echo(f"serving {pointer.snapshot_id} (before: {pointer.previous_id or 'nothing'})")
