"""`noctuary nightly` and `noctuary ui`: the build side, which a plain install leaves out."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import click

from noctuary.cli.common import F, extra_missing, fail, is_json, json_option

EXIT_NOT_INSTALLED = 2

PIPELINES = "noctuary_pipelines"
"""Imported by name and only when a command runs: nothing of the library knows what it holds."""


def _built_options(command: F) -> F:
    """Add SOURCE and --store, as whoever writes a store names them."""
    command = click.option(
        "--store",
        help="Directory to write, or its name below NOCTUARY_HOME [default: derived from SOURCE].",
    )(command)
    return click.argument("source", required=False)(command)


@click.command()
@_built_options
@json_option
@click.option("-v", "--verbose", is_flag=True, help="Show what every stage counted.")
def nightly(source: str | None, store: str | None, verbose: bool) -> None:
    """Run the whole night on SOURCE and publish a snapshot of it.

    SOURCE is a claude-memory SQLite file, a .jsonl or .jsonl.gz corpus, a folder that holds one, a
    MemPalace palace, or env:NAME of a variable that holds postgresql://... It is only ever read.
    Without it the configured source is read (source.path in noctuary.toml, or
    NOCTUARY_SOURCE_PATH), else the bundled sample.

    \b
    noctuary nightly                       the bundled sample, to try things out
    noctuary nightly ~/notes/memory.db     your own memories
    0 3 * * *  noctuary nightly SOURCE     every night, by cron

    Exit codes: 0 published, or nothing to do; 1 failed; 2 wrong arguments, or the extra
    `pipelines` is missing; 3 the gate refused, yesterday's snapshot keeps serving; 4 another night
    is running on this store; 130 stopped by Ctrl-C.
    """  # noqa: D301 (click wants the control character)
    _load("nightly", "dagster").run(source, store, as_json=is_json(), verbose=verbose)


@click.command()
@_built_options
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
def ui(source: str | None, store: str | None, port: int, webserver_only: bool) -> None:
    """Serve the Dagster UI for SOURCE's store: lineage, runs, checks, the schedule.

    A run started there works exactly like `noctuary nightly`.

    The nightly schedule (03:00 local) is off until you switch it on under Automation. Only pages
    of the UI itself are answered, at 127.0.0.1 or localhost: no other page in your browser can
    start anything. Ctrl-C ends it.
    """
    served = _load("ui", "dagster_webserver")
    served.serve_store(source, store, port=port, webserver_only=webserver_only)


def _load(module: str, needs: str) -> Any:
    """Return a module of noctuary_pipelines; where what it needs is missing, say so and leave."""
    try:
        found = find_spec(needs)
    except ModuleNotFoundError:
        found = None
    if found is None:
        fail(extra_missing(needs), EXIT_NOT_INSTALLED)
    return import_module(f"{PIPELINES}.{module}")
