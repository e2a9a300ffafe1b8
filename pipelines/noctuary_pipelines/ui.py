"""What `noctuary ui` does: the Dagster UI and its daemon on one store."""

from __future__ import annotations

import os
import signal
import socket
import sys

import click

from noctuary.core.errors import NoctuaryError
from noctuary_pipelines import TOP
from noctuary_pipelines.site import export_environment, prepare_instance, resolve_site

WORKSPACE = TOP / "workspace.yaml"
"""The one code location, `noctuary`: what Dagster keeps of the schedule goes by that name."""

_HOST = "127.0.0.1"


def serve_store(source: str | None, store: str | None, *, port: int, webserver_only: bool) -> None:
    """Serve the Dagster UI until it is stopped."""
    # A shell without a terminal starts its background jobs with SIGINT ignored, and Dagster answers
    # SIGTERM as it answers SIGINT: nothing but SIGKILL would end it, and leave what it started.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _require_free(port)
    try:
        site = resolve_site(source, store)
        prepare_instance(site.paths, say=click.echo)
    except (NoctuaryError, OSError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(
        f"home    {site.home}\nsource  {site.source}\nstore   {site.paths.root}\n"
        f"ui      http://{_HOST}:{port}/asset-groups"
    )
    os.environ.update(export_environment(site))
    os.chdir(site.paths.dagster_home)  # Dagster reads settings of the directory it starts in
    sys.stdout.flush()
    # Imported here: Dagster takes seconds, and the lines above need not wait for it.
    from noctuary_pipelines.guard import serve, serve_with_daemon
    from noctuary_pipelines.resources import close_left_runs

    close_left_runs(site)

    # In this process: whoever ends the command ends the UI, and nothing holds the port.
    words = ["-w", str(WORKSPACE), "-h", _HOST, "-p", str(port)]
    (serve if webserver_only else serve_with_daemon)(words)


def _require_free(port: int) -> None:
    """Fail where something listens already."""
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            server.bind((_HOST, port))
        except OSError as error:
            raise click.ClickException(
                f"port {port} on {_HOST} is not available ({error.strerror}): stop what uses it, "
                f"perhaps another `noctuary ui`, or choose another port: noctuary "
                f"ui --port {port + 1}"
            ) from error
