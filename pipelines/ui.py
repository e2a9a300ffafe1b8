"""The command behind `make ui`: the Dagster UI and its daemon on one store."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from mnemon.errors import MnemonError
from mnemon.locate import checkout_root
from pipelines.site import export_environment, prepare_instance, resolve_site


@click.command()
@click.argument("source", required=False)
@click.option(
    "--store",
    help="Directory to write, or its name below MNEMON_HOME [default: derived from SOURCE].",
)
@click.option("--port", default=3000, show_default=True, help="Port on 127.0.0.1.")
@click.option(
    "--webserver-only", is_flag=True, help="Without the daemon: lighter, but schedules do not tick."
)
def main(source: str | None, store: str | None, port: int, webserver_only: bool) -> None:
    """Serve the Dagster UI for SOURCE's store.

    A run started there works exactly like `make nightly`.

    The nightly schedule (03:00 local) is off until you switch it on under Automation.
    """
    try:
        site = resolve_site(source, store)
        prepare_instance(site.paths, queued=site.settings.shards.shown)
    except (MnemonError, OSError) as error:
        raise click.ClickException(str(error)) from error
    root = checkout_root() or Path.cwd()
    tool = "dagster-webserver" if webserver_only else "dagster"
    words = [str(Path(sys.executable).with_name(tool)), *([] if webserver_only else ["dev"])]
    words += ["-w", str(root / "workspace.yaml"), "-h", "127.0.0.1", "-p", str(port)]
    click.echo(
        f"source  {site.source}\nstore   {site.paths.root}\nui      "
        f"http://127.0.0.1:{port}/asset-groups"
    )
    if site.settings.shards.shown:
        # Imported here: the UI of a store without shards has no queue, and need not load Dagster.
        from pipelines.dead_runs import free_queue

        free_queue(site)
    if webserver_only and site.settings.shards.shown:
        click.echo("note    with shards.count set, runs are queued and only the daemon starts them")
    environment = {**os.environ, **export_environment(site)}
    os.chdir(root)
    sys.stdout.flush()
    # In this process's place: whoever ends the command ends the UI, and nothing holds the port.
    os.execve(words[0], words, environment)


if __name__ == "__main__":
    main()
