"""The command behind `make ui`: the Dagster UI and its daemon on one store."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import click

from noctuary.core.errors import NoctuaryError
from noctuary.core.store import checkout_root
from noctuary.text.marks import show_hidden
from noctuary_pipelines.site import export_environment, prepare_instance, resolve_site

_HOST = "127.0.0.1"


@click.command(context_settings={"color": True})  # as noctuary.cli.main
@click.argument("source", required=False)
@click.option(
    "--store",
    help="Directory to write, or its name below NOCTUARY_HOME [default: derived from SOURCE].",
)
@click.option(
    "--port",
    default=3000,
    show_default=True,
    type=click.IntRange(1, 65535),
    help="Port on 127.0.0.1.",
)
@click.option(
    "--webserver-only", is_flag=True, help="Without the daemon: lighter, but schedules do not tick."
)
def main(source: str | None, store: str | None, port: int, webserver_only: bool) -> None:
    """Serve the Dagster UI for SOURCE's store.

    A run started there works exactly like `make nightly`.

    The nightly schedule (03:00 local) is off until you switch it on under Automation. Only pages
    of the UI itself are answered, at 127.0.0.1 or localhost: no other page in your browser can
    start anything.
    """
    _require_free(port)
    try:
        site = resolve_site(source, store)
        prepare_instance(site.paths, say=click.echo)
    except (NoctuaryError, OSError) as error:
        raise click.ClickException(str(error)) from error
    root = checkout_root() or Path.cwd()
    click.echo(
        f"source  {site.source}\nstore   {site.paths.root}\nui      "
        f"http://{_HOST}:{port}/asset-groups"
    )
    os.environ.update(export_environment(site))
    os.chdir(root)
    sys.stdout.flush()
    # Imported here: Dagster takes seconds, and the lines above need not wait for it.
    from noctuary_pipelines.dead_runs import close_left_runs
    from noctuary_pipelines.guard import serve, serve_with_daemon

    close_left_runs(site.paths)

    # In this process: whoever ends the command ends the UI, and nothing holds the port.
    words = ["-w", str(root / "workspace.yaml"), "-h", _HOST, "-p", str(port)]
    (serve if webserver_only else serve_with_daemon)(words)


def _require_free(port: int) -> None:
    """Fail where something listens already.

    Raises:
        click.ClickException: The port is not available.
    """
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind((_HOST, port))
        except OSError as error:
            raise click.ClickException(
                f"port {port} on {_HOST} is not available ({error.strerror}): stop what uses it, "
                f"perhaps another `make ui`, or choose another port: python -m "
                f"noctuary_pipelines.ui --port {port + 1}"
            ) from error


if __name__ == "__main__":
    os.umask(0o077)  # of the runs that start there as well
    show_hidden()
    main()
