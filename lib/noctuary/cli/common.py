"""What the commands share: options, moments, printing, failing."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from noctuary.core.errors import NoctuaryError
from noctuary.core.store import StorePaths, find_home, find_store
from noctuary.text.marks import visible

EXIT_FAILED = 1

F = TypeVar("F", bound=Callable[..., Any])

_JSON = "noctuary.json"


def add_options(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return a decorator that adds options, listed by --help in this order."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


class NamedGroup(click.Group):
    """A group whose help text names every command, with its arguments and what it is for."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write no second list."""


def _remember_json(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    context.meta[_JSON] = value


json_option = click.option(
    "--json", is_flag=True, expose_value=False, callback=_remember_json,
    help="Print one JSON object."
)  # fmt: skip
store_options = add_options(
    click.option(
        "--store",
        metavar="STORE",
        help="The store: its directory, the beginning of its name, or the source it was built "
        "from; `noctuary stores` lists them [default: NOCTUARY_STORE, else the only one].",
    ),
    json_option,
)
user_option = click.option(
    "--user", help="Whose memories; those of other named users are never shown."
)


def limit_option(default: int, told: str) -> Callable[[F], F]:
    """Return --limit, which says what it bounds."""
    least = click.IntRange(min=0)
    return click.option("--limit", default=default, type=least, help=told)


def is_json() -> bool:
    """Say whether the command that runs was given --json."""
    return bool(click.get_current_context().meta.get(_JSON))


def open_paths(store: str | None) -> StorePaths:
    """Return the paths of the store that is meant."""
    directory, guessed = find_store(store, home=find_home())
    if guessed:
        click.echo(
            f"! store_guessed: several stores exist; {directory.name} published last. "
            "Pass --store or set NOCTUARY_STORE",
            err=True,
        )
    return StorePaths(directory)


def read_moment(text: str, option: str | None = None) -> datetime:
    """Read an option's date or time; without a zone it is UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is no ISO-8601 date or time, e.g. 2026-03-01 or 2026-03-01T08:00:00Z",
            param_hint=option,
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def limit_threads() -> None:
    """Keep numpy's BLAS to one thread unless the user decided; call before numpy is imported.

    On a busy machine a second thread makes a query take up to five times as long (decision 0005).
    """
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")


def print_json(value: Any) -> None:
    """Print one JSON object; what a terminal would obey comes out escaped."""
    click.echo(visible(json.dumps(value, indent=1, ensure_ascii=False)))


def tell(found: Any, lines: Iterable[str], warnings: Iterable[str] = ()) -> None:
    """Print an answer: one JSON object where --json was given, else its lines and warnings."""
    if is_json():
        print_json(found)
        return
    warn(*warnings)
    for line in lines:
        click.echo(line)


def warn(*warnings: str) -> None:
    """Print what a person should know beside the answer."""
    for warning in warnings:
        click.echo(f"! {as_called(warning)}", err=True)


def as_called(message: str) -> str:
    """Return a message whose commands exist: by their full path where the PATH has no noctuary."""
    if "`noctuary " not in message:
        return message
    from shutil import which  # nothing that a recall otherwise loads

    if which("noctuary") is not None:
        return message
    script = Path(sys.executable).with_name("noctuary")
    called = str(script) if script.is_file() else f"{sys.executable} -m noctuary.cli.entry"
    return message.replace("`noctuary ", f"`{called} ")


def coded(warnings: Iterable[Any]) -> Iterator[str]:
    """Yield warnings of a recall as a person reads them; plain ones will do."""
    for warning in warnings:
        found: Mapping[str, str] = warning if isinstance(warning, dict) else warning.to_json()
        yield f"{found['code']}: {found['message']}"


def columns(rows: Sequence[Sequence[str]], sides: str = "<", indent: str = "") -> Iterator[str]:
    """Yield rows of equal length as lines; `sides` is < or > by column, the last for the rest."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = sides.ljust(len(widths), sides[-1])
    for row in rows:
        cells = (f"{c:{side}{width}}" for c, side, width in zip(row, sides, widths, strict=True))
        yield (indent + "  ".join(cells)).rstrip()


class ScanProgress:
    """Tells how far a scan is, on a terminal only and on the standard error stream."""

    def update(self, task: str, done: int, total: int) -> None:
        """Overwrite the line of the last report."""
        if sys.stderr.isatty():
            # Past the marks: the carriage return is ours.
            click.echo(f"\r{task}: {done:,} of {total:,}", sys.__stderr__, nl=done >= total)


def fail(error: NoctuaryError | OSError, code: int = EXIT_FAILED) -> NoReturn:
    """Print what is wrong and leave with an exit code; a command that raises it fails so."""
    if isinstance(error, BrokenPipeError):
        raise error  # whoever read this has read enough; click leaves quietly
    if is_json():
        print_json({"error": type(error).__name__, "message": str(error)})
    else:
        click.echo(f"noctuary: {as_called(str(error))}", err=True)
    sys.exit(code)


# What a plain install leaves out, and what to install for it.


class ExtraMissingError(NoctuaryError):
    """An optional package that a command needs is not installed, or in another version."""


_BUILD = (
    "dagster", "dagster_webserver", "duckdb", "jinja2", "lance", "lancedb", "matplotlib", "onnx",
    "onnxruntime", "polars", "pyarrow", "rich", "sentence_transformers", "torch", "transformers",
)  # fmt: skip
EXTRAS = {
    **dict.fromkeys(_BUILD, "pipelines"),
    "httpx": "hosted", "mcp": "mcp", "psycopg": "postgres", "ray": "ray",
}  # fmt: skip
"""Which extra brings a module."""


def extra_missing(module: str) -> ExtraMissingError:
    """Return the error that says what to install for one of `EXTRAS`."""
    install = f"pip install 'noctuary[{EXTRAS[module]}]'"
    return ExtraMissingError(f"this needs {module}, which is not installed: {install}")


WANTED = "mcp>=2.1,<3"
"""As the extra `mcp` has it (pyproject.toml)."""

_LEAST = (2, 1)
_BELOW_MAJOR = 3
_INSTALL = f"pip install 'noctuary[mcp]' installs {WANTED}"


def find_sdk_fault() -> str | None:
    """Return why the MCP server cannot run here, and what to do; None where it can."""
    from importlib import metadata, util

    try:
        missing = util.find_spec("mcp") is None
    except (ValueError, ModuleNotFoundError):  # a placeholder stands in sys.modules
        missing = True
    if missing:
        return f"the MCP server needs the package mcp, which is not installed: {_INSTALL}"
    try:
        found = metadata.version("mcp")
    except metadata.PackageNotFoundError:
        return None  # importable without being installed: it may well run
    if not is_supported(found):
        return f"the MCP server needs {WANTED}, found mcp {found}: {_INSTALL}"
    return None


def is_supported(version: str) -> bool:
    """Say whether the server runs on this version of the SDK, e.g. "2.3.0"."""
    parts = version.split(".")
    try:
        major, minor = int(parts[0]), int(parts[1])
    except (IndexError, ValueError):
        return True  # no release number: whoever installed it knows
    return _LEAST <= (major, minor) < (_BELOW_MAJOR, 0)
