"""What the commands share: the two options, moments, printing JSON, failing with a sentence."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NoReturn, TypeVar

import click

from noctuary.errors import NoctuaryError
from noctuary.locate import find_home, find_store
from noctuary.snapshot.layout import StorePaths
from noctuary.text.visible import visible

EXIT_FAILED = 1

F = TypeVar("F", bound=Callable[..., Any])


class ExtraMissingError(NoctuaryError):
    """An optional package that a command needs is not installed, or in another version."""


def store_options(command: F) -> F:
    """Add --store and --json."""
    command = click.option(
        "--store",
        metavar="STORE",
        help="The store: its directory, the beginning of its name, or the source it was built "
        "from; `noctuary stores` lists them [default: NOCTUARY_STORE, else the only one].",
    )(command)
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")(command)


def open_paths(store: str | None) -> StorePaths:
    """Return the paths of the store that is meant.

    Raises:
        NoctuaryError: If there is none.
    """
    directory, guessed = find_store(store, home=find_home())
    if guessed:
        click.echo(
            f"! store_guessed: several stores exist; {directory.name} published last. "
            "Pass --store or set NOCTUARY_STORE",
            err=True,
        )
    return StorePaths(directory)


def read_moment(text: str, option: str | None = None) -> datetime:
    """Read an option's date or time; without a zone it is UTC.

    Args:
        text: ISO-8601, e.g. 2026-03-01 or 2026-03-01T08:00:00Z.
        option: The option's name, where click does not know which one is being read.

    Raises:
        click.BadParameter: It is something else.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is no ISO-8601 date or time, e.g. 2026-03-01 or 2026-03-01T08:00:00Z",
            param_hint=option,
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def limit_threads() -> None:
    """Keep numpy's BLAS to one thread, unless the user decided; call before numpy is imported.

    One query is too little work to share: on a busy machine a second thread waits for the first
    and a recall takes up to five times as long (docs/decisions/0007).
    """
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")


def print_json(value: Any) -> None:
    """Print one JSON object; what a terminal would obey comes out escaped."""
    click.echo(visible(json.dumps(value, indent=1, ensure_ascii=False)))


def fail(error: NoctuaryError | OSError, as_json: bool) -> NoReturn:
    """Print what is wrong and leave with exit code 1."""
    if isinstance(error, BrokenPipeError):
        raise error  # whoever read this has read enough; click leaves quietly
    if as_json:
        print_json({"error": type(error).__name__, "message": str(error)})
    else:
        click.echo(f"noctuary: {error}", err=True)
    sys.exit(EXIT_FAILED)
