"""`noctuary export`: what serves, as JSON lines, Parquet and a graph."""

from __future__ import annotations

from pathlib import Path

import click

from noctuary.cli.common import fail, limit_threads, open_paths, print_json, store_options
from noctuary.errors import NoctuaryError


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--encoder/--no-encoder",
    "with_encoder",
    default=True,
    show_default=True,
    help="Also what an imported store needs to answer by meaning (90 MB).",
)
@store_options
def export(directory: Path, with_encoder: bool, store: str | None, as_json: bool) -> None:
    """Write the snapshot that serves into DIRECTORY, which must not exist or be empty.

    Everything is in formats that other programs read: memories.jsonl (also a source for `make
    nightly`), graph/nodes.jsonl and graph/edges.jsonl, summaries.jsonl, and Parquet files of every
    table and array, from which `noctuary import` makes a store that answers alike. Equal snapshots
    give equal bytes. Sensitive memories are in no snapshot; if a text looks sensitive by the rules
    of today, nothing is exported.

    \b
    noctuary export ~/memories-2026-03
    noctuary import ~/memories-2026-03 --store copy

    Exit code 1 when nothing was written.
    """  # noqa: D301 (click wants the control character)
    limit_threads()
    try:
        from noctuary.cli.compacting import ScanProgress
        from noctuary.exchange.exporting import export_snapshot

        found = export_snapshot(
            open_paths(store), directory, with_encoder=with_encoder, progress=ScanProgress()
        )
    except (NoctuaryError, OSError) as error:
        fail(error, as_json)
    if as_json:
        print_json(
            {
                "directory": str(found.directory.absolute()),
                "digest": found.digest,
                "memories": found.memories,
                "files": found.files,
                "bytes": found.bytes,
                "has_encoder": found.has_encoder,
            }
        )
        return
    click.echo(
        f"exported {found.memories:,} memories to {found.directory} ({found.files} files, "
        f"{found.bytes / 2**20:.1f} MiB)\ndigest {found.digest}"
    )
