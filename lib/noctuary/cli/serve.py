"""`noctuary serve`: keep snapshot and encoder open for clients on a unix socket."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from noctuary.cli.common import fail, limit_threads, open_paths, print_json, store_options
from noctuary.errors import NoctuaryError, SnapshotMissingError, StoreLockedError

if TYPE_CHECKING:
    from noctuary.serve.server import Server

EXIT_RUNNING = 4
"""As `python -m pipelines.nightly` leaves when another night is running."""

_WHY = {
    "idle": "nobody asked for a while",
    "stopped": "stopped",
    "socket_gone": "its socket was removed",
}


@click.command()
@click.option(
    "--idle-minutes",
    default=30.0,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Stop after this long without a request; 0 never stops.",
)
@click.option(
    "--clients",
    default=8,
    show_default=True,
    type=click.IntRange(min=1, max=64),
    help="Requests answered at once; others wait a moment and then recall themselves.",
)
@store_options
def serve(idle_minutes: float, clients: int, store: str | None, as_json: bool) -> None:
    """Answer recalls of one store from a warm process, for this user only.

    `noctuary recall` uses it where it runs and recalls itself where it does not. Ctrl-C or SIGTERM
    stops it after the requests that have arrived.

    Exit code 0 when it was stopped or idle, 1 when it cannot run, 4 when the store has a server.
    """
    limit_threads()
    from noctuary.serve.answer import (
        answer_recall,
        describe_encoder,
        release_after_swaps,
        warm_up,
    )
    from noctuary.serve.server import Server

    try:
        directory = open_paths(store).root
        if not directory.is_dir():
            raise SnapshotMissingError(f"no store at {directory}: run `make nightly` first")
        answer = release_after_swaps(answer_recall)
        server = Server(
            directory,
            answer,
            describe=describe_encoder,
            idle_s=idle_minutes * 60,
            clients=clients,
        )
        with _stopping_on_signals(server):
            reason = server.run(
                lambda: _ready(directory, server, as_json), lambda: warm_up(directory)
            )
    except StoreLockedError as error:
        _fail_for_another(error, as_json)
    except (NoctuaryError, OSError) as error:
        fail(error, as_json)
    if not as_json:
        click.echo(f"noctuary serve: ended, {_WHY[reason]}", err=True)


def _fail_for_another(error: StoreLockedError, as_json: bool) -> NoReturn:
    try:
        fail(error, as_json)
    except SystemExit:
        sys.exit(EXIT_RUNNING)


def _ready(directory: Path, server: Server, as_json: bool) -> None:
    if as_json:
        value = {"store": str(directory), "pid": os.getpid(), "socket": str(server.place.socket)}
        print_json(value)
    else:
        click.echo(f"noctuary serve: answers for {directory} (process {os.getpid()})")
    sys.stdout.flush()


@contextmanager
def _stopping_on_signals(server: Server) -> Generator[None]:
    """Let SIGTERM and SIGINT stop the server; what was set before comes back."""

    def wake(*_: object) -> None:
        server.stop()

    before = {number: signal.signal(number, wake) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
