"""`noctuary snapshots` and `noctuary rollback`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from noctuary.cli.common import fail, open_paths, print_json, store_options
from noctuary.diagnosis.status import describe_snapshots
from noctuary.errors import NoctuaryError
from noctuary.snapshot.publish import rollback as roll_back


@click.command()
@store_options
def snapshots(store: str | None, as_json: bool) -> None:
    """List the published snapshots, oldest first; * marks the one that serves."""
    try:
        found = describe_snapshots(open_paths(store))
    except (NoctuaryError, OSError) as error:
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
        return "made by another version of noctuary: run the night (`make nightly`)"
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
    except (NoctuaryError, OSError) as error:
        fail(error, as_json)
    if as_json:
        print_json(asdict(pointer))
        return
    click.echo(f"serving {pointer.snapshot_id} (before: {pointer.previous_id or 'nothing'})")
