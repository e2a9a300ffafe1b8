"""The `noctuary` command: what its sub-commands share, which there are; `nightly` and `ui`."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from noctuary import __version__
from noctuary.core.errors import NoctuaryError, StoreLockedError
from noctuary.core.store import StorePaths, find_home, find_store
from noctuary.text.marks import visible

EXIT_FAILED, EXIT_NOT_INSTALLED, EXIT_LOCKED = 1, 2, 4
EXIT_REFUSED = 3  # what is there does not fit: a changed plan, an unknown name, a small budget
EXIT_STOPPED = 130  # as a shell shows a process that Ctrl-C ended

# Options, each declared once.

F = TypeVar("F", bound=Callable[..., Any])
AT_LEAST_0, AT_LEAST_1 = click.IntRange(min=0), click.IntRange(min=1)
_JSON = "noctuary.json"


def option(named: str, *told: str, **how: Any) -> Callable[[F], F]:
    """Return an option: its name with its argument, further names, and its --help text."""
    name, _, metavar = named.partition(" ")
    return click.option(name, *told[:-1], help=told[-1], metavar=metavar or None, **how)


def flag(*told: str, **how: Any) -> Callable[[F], F]:
    """Return an option without a value."""
    return option(*told, is_flag=True, **how)


def add_options(*options: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return a decorator that adds options, listed by --help in this order."""
    return lambda command: reduce(lambda made, add: add(made), reversed(options), command)


def _remember_json(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    context.meta[_JSON] = value


json_option = flag("--json", "Print one JSON object.", expose_value=False, callback=_remember_json)
store_options = add_options(
    option(
        "--store STORE",
        "The store: its directory, the beginning of its name, or its source; `noctuary stores` "
        "lists them [default: NOCTUARY_STORE, else the only one].",
    ),
    json_option,
)
user_option = option("--user", "Whose memories; you never see those of other named users.")


class NamedGroup(click.Group):
    """A group whose help text names every command, with its arguments and what it is for."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write no second list."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of the first word; of a mistyped one, name those like it."""
        if not args or args[0][:1] in ("-", "") or self.get_command(ctx, args[0]) is not None:
            return super().resolve_command(ctx, args)
        import difflib  # most calls name what there is

        near = difflib.get_close_matches(args[0].lower(), self.list_commands(ctx), 3, 0.6)
        hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise click.UsageError(f"No such command {args[0]!r}.{hint}", ctx)


def is_json() -> bool:
    """Say whether the command that runs was given --json."""
    return bool(click.get_current_context().meta.get(_JSON))


def open_paths(store: str | None) -> StorePaths:
    """Return the paths of the store that is meant."""
    directory, guessed = find_store(store, home=find_home())
    if guessed:
        told = f"several stores exist; {directory.name} published last"
        warn(f"store_guessed: {told}. Pass --store or set NOCTUARY_STORE")
    return StorePaths(directory)


def read_moment(text: str, hint: str | None = None) -> datetime:
    """Read an option's date or time; without a zone it is UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        wanted = "ISO-8601 date or time, e.g. 2026-03-01 or 2026-03-01T08:00:00Z"
        raise click.BadParameter(f"{text!r} is not an {wanted}", param_hint=hint) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def read_end(text: str) -> date | datetime:
    """Read the day or moment when a memory ends; a day is whole."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        return read_moment(text, "--until")


# Printing, and failing.


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
    """Print the warnings of an answer."""
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


@contextmanager
def handling(handler: Any, *numbers: signal.Signals) -> Generator[None]:
    """Let a handler have signals for the block, as far as this thread may say so."""
    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, handler) for number in numbers if is_main}
    try:
        yield
    finally:
        for number, known in before.items():
            signal.signal(number, known)


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


# Modules that a plain install lacks, and the extra that brings them.

_BUILD = (
    "dagster", "dagster_webserver", "duckdb", "jinja2", "lance", "lancedb", "onnx", "onnxruntime",
    "polars", "pyarrow", "rich", "sentence_transformers", "torch", "transformers",
)  # fmt: skip
EXTRAS = {
    **dict.fromkeys(_BUILD, "pipelines"),
    "httpx": "hosted", "mcp": "mcp", "pydantic": "mcp", "psycopg": "postgres", "ray": "ray",
}  # fmt: skip
"""Which extra brings a module."""

WANTED, _LEAST, _BELOW = "mcp>=2.1,<3", (2, 1), (3, 0)  # as the extra `mcp` has it (pyproject.toml)


class ExtraMissingError(NoctuaryError):
    """An optional package that a command needs is not installed, or in another version."""


def extra_missing(module: str) -> ExtraMissingError:
    """Return the message for a module of an extra that is not installed."""
    install = f"pip install 'noctuary[{EXTRAS[module]}]'"
    return ExtraMissingError(f"this needs {module}, which is not installed: {install}")


def is_installed(module: str) -> bool:
    """Say whether a module could be imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ValueError, ModuleNotFoundError):  # a placeholder stands in sys.modules
        return False


def find_sdk_fault() -> str | None:
    """Return why the MCP server cannot run here, and what to do; None where it can."""
    from importlib import metadata

    needs, install = "the MCP server needs", f"pip install 'noctuary[mcp]' installs {WANTED}"
    if not is_installed("mcp"):
        return f"{needs} the package mcp, which is not installed: {install}"
    try:
        found = metadata.version("mcp")
    except metadata.PackageNotFoundError:
        return None  # importable without being installed: it may well run
    return None if is_supported(found) else f"{needs} {WANTED}, found mcp {found}: {install}"


def is_supported(version: str) -> bool:
    """Say whether the server runs on this version of the SDK, e.g. "2.3.0"."""
    try:
        major, minor = map(int, version.split(".")[:2])
    except ValueError:
        return True  # no release number: whoever installed it knows
    return _LEAST <= (major, minor) < _BELOW


# The commands.

# Commands by the file of this room that holds them.
FILES = {
    "recall": ("recall", "context", "remember"),
    "explain": ("why", "expand", "profile", "graph"),
    "agents": ("hooks", "hook", "mcp", "serve", "browse"),
    "init": ("init",),
    "store": ("status", "stores", "snapshots", "rollback"),
    "doctor": ("doctor",),
    "sql": ("sql",),
    "schedule": ("schedule",),
    "exchange": ("export",),
    "backup": ("backup", "restore"),
    "merge": ("merge",),
    "proposals": ("proposals",),
    "forget": ("forget",),
    "review": ("review",),
    "evaluate": ("evaluate",),
}


class _Commands(NamedGroup):
    """The commands; a failure prints one sentence with the reason or the extra to install."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return every name."""
        return [*self.commands, *(name for names in FILES.values() for name in names)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; of the others nothing is loaded, which would make each start later."""
        for file, names in FILES.items():
            if cmd_name in names:
                _limit_threads()
                found = vars(import_module(f"noctuary.cli.{file}")).values()
                return next(
                    one for one in found if isinstance(one, click.Command) and one.name == cmd_name
                )
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (NoctuaryError, OSError) as error:
            fail(error, EXIT_LOCKED if isinstance(error, StoreLockedError) else EXIT_FAILED)
        except ModuleNotFoundError as error:
            module = (error.name or "").partition(".")[0]
            if module not in EXTRAS:
                raise
            fail(extra_missing(module))
        except KeyboardInterrupt:
            click.echo("noctuary: stopped", err=True)
            sys.exit(EXIT_STOPPED)


def _limit_threads() -> None:
    """Keep numpy's BLAS to one thread unless the user decided; call before numpy is imported.

    On a busy machine a second thread makes a query take up to five times as long (decision 0005).
    """
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")


# In "color", click leaves a memory's escape sequences to the marks; else it drops them from a pipe.
_SETTINGS = {"help_option_names": ["-h", "--help"], "color": True, "show_default": True}


@click.group(cls=_Commands, context_settings=_SETTINGS)
@click.version_option(__version__, prog_name="noctuary")
def main() -> None:
    """Recall memories from the snapshot that the nightly pipeline published.

    \b
    noctuary init                       find the memories on this machine, and connect your agents
    noctuary nightly                    build and publish a snapshot: of the bundled sample at first
    noctuary nightly memory.db          the same for your own memory store
    noctuary remember "the key is ..."  keep a memory in noctuary's own store
    noctuary recall "spare key"         search the snapshot
    noctuary why "spare key" ID         why a memory did not come back
    noctuary context "key" --budget N   a prompt's rules, last turns and memories, in N tokens
    noctuary status                     the current snapshot: its age and contents
    noctuary doctor                     faults and how to fix them
    noctuary browse                     look at all of it on a page in your browser
    noctuary hooks install --agent A    add memories to a coding agent's prompts; status, uninstall
    noctuary schedule install           run the night every day: systemd or launchd; status
    noctuary ui memory.db               lineage, runs and schedule in the Dagster UI

    \b
    Look closer:
      expand ID                every memory behind a summary
      why --replay             repeat kept recalls on their own snapshots
      graph show CONCEPT       what memories say about a concept
      sql "select ..."         a read-only query on memories, concepts, edges, usage
      profile show             how recall ranks, what each flag means, which layer sets it
      evaluate run SET         measure recall on labelled queries
    For agents:
      mcp install              the same memory for seven agents, over MCP; --undo
      mcp --http               serve MCP over HTTP on this machine
      serve                    keep a warm server for `noctuary recall`
    Tidy up:
      proposals compact        memories you could archive, and why; also curate, promotions
      forget 17                forget memories for good, with a receipt; --apply
      review                   memories that nobody has checked for long: keep, replace, end
    Stores and snapshots:
      stores, snapshots, rollback  list the stores, or the snapshots of one; go back to an older
      export DIR               write the current snapshot as files for other programs
      backup, restore, merge   keep what no night makes again, put it back, join two machines

    `noctuary COMMAND --help` explains each command. Those that read a store take --store: its
    directory, the beginning of its name, or its source. --json prints one JSON object.
    """  # noqa: D301 (click wants the control character)


# The build side, which a plain install leaves out.

_built_options = add_options(
    click.argument("source", required=False),
    option(
        "--store",
        "Directory to write, or its name below NOCTUARY_HOME [default: derived from SOURCE].",
    ),
)


@main.command()
@_built_options
@json_option
@flag("-v", "--verbose", "Show every stage's counts.")
def nightly(source: str | None, store: str | None, verbose: bool) -> None:
    """Run the whole night on SOURCE and publish a snapshot of it.

    SOURCE is a claude-memory SQLite file, a .jsonl or .jsonl.gz corpus, a folder with one of them,
    a MemPalace palace, a folder of Markdown notes, claude-mem's database, the memory.jsonl of the
    reference MCP server, a CSV file, an export of mem0, ChatGPT or Claude, or env:NAME, where the
    variable NAME holds postgresql://... A night never writes to it. The default is the configured
    source (source.path in noctuary.toml, or NOCTUARY_SOURCE_PATH), else the stores in its table
    [sources], else the own store that `noctuary remember` fills, else the bundled sample.

    \b
    noctuary nightly                       your stores, or the bundled sample if you have none
    noctuary nightly ~/notes/memory.db     your own memories
    0 3 * * *  noctuary nightly SOURCE     every night, by cron

    Exit codes: 0 published, or nothing to do; 1 failed; 2 wrong arguments, or the extra `pipelines`
    is missing; 3 the gate refused, and yesterday's snapshot keeps serving; 4 another night is
    running on this store; 130 stopped by Ctrl-C.
    """  # noqa: D301 (click wants the control character)
    _load("nightly", "dagster").run(source, store, as_json=is_json(), verbose=verbose)


@main.command()
@_built_options
@option("--port", "Port on 127.0.0.1.", default=3000, type=click.IntRange(1, 65535))
@flag("--webserver-only", "Without the daemon: lighter, but schedules do not run.")
def ui(source: str | None, store: str | None, port: int, webserver_only: bool) -> None:
    """Serve the Dagster UI for SOURCE's store: lineage, runs, checks, the schedule.

    A run started there works exactly like `noctuary nightly`.

    The nightly schedule (03:00 local) is off until you switch it on under Automation. The server
    answers only the UI's own pages, at 127.0.0.1 or localhost: no other page in your browser can
    start anything. Press Ctrl-C to stop it.
    """
    served = _load("ui", "dagster_webserver")
    served.serve_store(source, store, port=port, webserver_only=webserver_only)


def _load(module: str, needs: str) -> Any:
    """Return a module of noctuary_pipelines; exit with a message if a library is missing."""
    if not is_installed(needs):
        fail(extra_missing(needs), EXIT_NOT_INSTALLED)
    # numpy's alone: a night asks a thousand questions, and torch keeps all cores (decision 0005).
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # By its name, and only when a command runs: nothing of the library knows what it holds.
    return import_module(f"noctuary_pipelines.{module}")


if __name__ == "__main__":
    from noctuary.cli.entry import main as enter

    enter()
