"""`noctuary status` and `noctuary stores`: what serves, how old it is, what it holds; and where."""

from __future__ import annotations

import click

from noctuary.cli.common import fail, open_paths, print_json, store_options
from noctuary.diagnosis.status import describe_stores, read_status
from noctuary.errors import NoctuaryError
from noctuary.locate import find_home


@click.command()
@store_options
def status(store: str | None, as_json: bool) -> None:
    """Show the serving snapshot: identity, age, source, encoder and counts."""
    try:
        found = read_status(open_paths(store))
    except (NoctuaryError, OSError) as error:
        fail(error, as_json)
    if as_json:
        print_json(found)
        return
    click.echo(f"store      {found['store']}")
    click.echo(
        f"snapshot   {found['snapshot_id']}  ({found['reason']}, {found['age_hours']:.1f} h ago)"
    )
    click.echo(f"source     {found['source']['location']}  ({found['source']['kind']})")
    encoder = found["encoder"]
    shown = (
        f"{encoder['model']}, {encoder['dimension']} dimensions"
        if encoder
        else "none: lexical and graph only"
    )
    click.echo(f"encoder    {shown}")
    click.echo(
        f"on disk    {found['snapshot_bytes'] / 1e6:.1f} MB snapshot, "
        f"{found['store_bytes'] / 1e6:.1f} MB store"
    )
    click.echo(
        "holds      " + ", ".join(f"{count:,} {name}" for name, count in found["counts"].items())
    )
    if found["archived"] is None:
        click.echo("archived   unknown: archive.sqlite cannot be read; run `noctuary doctor`")
    elif found["archived"]:
        click.echo(f"archived   {found['archived']:,} of them, out of default recall")
    for wing, count in found["wings"].items():
        click.echo(f"  {count:>8,}  {wing}")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def stores(as_json: bool) -> None:
    """List the stores that have published a snapshot; * marks the one that commands use by default.

    Pass such a name to --store. Its beginning is enough if no other name begins like it.
    """
    try:
        home = find_home()
        found = describe_stores(home)
    except (NoctuaryError, OSError) as error:
        fail(error, as_json)
    if as_json:
        print_json({"home": str(home), "stores": found})
        return
    for row in found:
        held = row["fault"] or (
            f"{row['memories']:>9,} memories  published {row['published_at']}  {row['source']}"
        )
        click.echo(f"{'*' if row['default'] else ' '} {row['name']}  {held}")
    if not found:
        click.echo(f"no store below {home} has published yet: run `make nightly`")
