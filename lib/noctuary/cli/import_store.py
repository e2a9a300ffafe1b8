"""`noctuary import`: a new store that serves what an export holds."""

from __future__ import annotations

from pathlib import Path

import click

from noctuary.cli.common import fail, limit_threads, print_json
from noctuary.errors import NoctuaryError


@click.command("import")
@click.argument("export", type=click.Path(path_type=Path))
@click.option(
    "--store",
    metavar="STORE",
    required=True,
    help="The new store: a directory, or a name below noctuary's home. It must not exist yet.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def import_store(export: Path, store: str, as_json: bool) -> None:
    """Make a new store that serves the snapshot in the directory EXPORT.

    Every byte of the export is checked first; a damaged or foreign one, or one of another version,
    is refused and nothing is left behind. What was built is judged as a night judges it, compared
    with the export's own lines, and answers as the exported store did.

    \b
    noctuary import ~/memories-2026-03 --store copy
    noctuary recall "spare key" --store copy

    Exit code 1 when no store was made.
    """  # noqa: D301 (click wants the control character)
    limit_threads()
    try:
        from noctuary.cli.compacting import ScanProgress
        from noctuary.exchange.importing import import_snapshot
        from noctuary.locate import expand_user, find_home
        from noctuary.snapshot.layout import StorePaths

        named = expand_user(store)
        root = find_home() / named if len(named.parts) == 1 else named.absolute()
        found = import_snapshot(export, StorePaths(root), ScanProgress())
    except (NoctuaryError, OSError) as error:
        fail(error, as_json)
    if as_json:
        print_json(
            {
                "store": str(found.store),
                "snapshot_id": found.snapshot_id,
                "memories": found.memories,
                "has_encoder": found.has_encoder,
            }
        )
        return
    click.echo(f"store {found.store} serves {found.memories:,} memories ({found.snapshot_id})")
    if not found.has_encoder:
        click.echo("! no encoder came with the export: recalls go by words until a night runs")
    click.echo(f'\nask it:  noctuary recall "..." --store {store}')
