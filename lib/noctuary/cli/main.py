"""The `noctuary` command: its sub-commands, each loaded when it is called; `nightly` and `ui`."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import click

from noctuary import __version__
from noctuary.cli.common import (
    EXTRAS,
    NamedGroup,
    add_options,
    extra_missing,
    fail,
    is_json,
    json_option,
    limit_threads,
)
from noctuary.core.errors import NoctuaryError

FILES = {
    "recall": ("recall", "context", "sensitive"),
    "explain": ("why", "expand", "profile", "graph"),
    "agents": ("hooks", "hook", "mcp", "serve"),
    "store": ("status", "stores", "doctor", "snapshots", "rollback"),
    "sql": ("sql",),
    "exchange": ("export", "import"),
    "proposals": ("proposals",),
    "evaluate": ("evaluate",),
}
"""Commands by the file of this room that holds them."""

PIPELINES = "noctuary_pipelines"
"""Imported by name and only when a command runs: nothing of the library knows what it holds."""

EXIT_NOT_INSTALLED = 2
EXIT_STOPPED = 130
"""As a shell shows a process that Ctrl-C ended."""


class _Commands(NamedGroup):
    """The commands; one that fails says why, or what to install for it, in a sentence."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return every name."""
        return [*self.commands, *(name for names in FILES.values() for name in names)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; of the others nothing is loaded, which would make each start later."""
        for file, names in FILES.items():
            if cmd_name in names:
                limit_threads()
                found = vars(import_module(f"noctuary.cli.{file}")).values()
                return next(
                    one for one in found if isinstance(one, click.Command) and one.name == cmd_name
                )
        return super().get_command(ctx, cmd_name)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (NoctuaryError, OSError) as error:
            fail(error)
        except ModuleNotFoundError as error:
            module = (error.name or "").partition(".")[0]
            if module not in EXTRAS:
                raise
            fail(extra_missing(module))
        except KeyboardInterrupt:
            click.echo("noctuary: stopped", err=True)
            sys.exit(EXIT_STOPPED)


# In "color", click leaves a memory's escape sequences to the marks; else it drops them from a pipe.
_SETTINGS = {"help_option_names": ["-h", "--help"], "color": True, "show_default": True}


@click.group(cls=_Commands, context_settings=_SETTINGS)
@click.version_option(__version__, prog_name="noctuary")
def main() -> None:
    """Recall memories from the snapshot that the nightly pipeline published.

    \b
    noctuary nightly                    build and publish a snapshot of the bundled sample store
    noctuary nightly memory.db          the same for your own memory store
    noctuary recall "spare key"         ask the published snapshot
    noctuary why "spare key" ID         why a memory did not come back
    noctuary context "key" --budget N   a prompt's rules, last turns and memories, in N tokens
    noctuary status                     what serves, how old it is, what it holds
    noctuary doctor                     what is wrong and what to do about it
    noctuary hooks install --agent A    memories in the prompts of a coding agent; status, uninstall
    noctuary ui memory.db               lineage, runs and schedule in the Dagster UI

    \b
    Look closer:
      expand ID                every memory that a summary stands for
      why --replay             kept recalls, run again against their snapshot
      graph show CONCEPT       what memories say about a concept, as text or a chart
      sql "select ..."         a read-only query on memories, concepts, edges, use
      sensitive "alarm code"   rows that never leave the store, asked in the store itself

    \b
    For agents:
      mcp                      the same memory for agents that speak MCP
      serve                    keep a warm server for `noctuary recall`

    \b
    Tidy up:
      proposals compact        what could be archived, and why; --apply, --undo
      proposals curate         what could be tidied in your memory store; --apply, --undo
      proposals promotions     what was said that should be remembered for good

    \b
    Stores and snapshots:
      stores                   which stores there are
      snapshots                what was published, and what serves
      rollback                 serve an older snapshot
      export DIR               what serves, as files that other programs read
      import DIR               a new store that serves an export

    \b
    Tune and measure:
      profile show             how it ranks, what each flag means, which layer says so
      evaluate run SET         how well it recalls, measured on labelled queries

    `noctuary COMMAND --help` explains each. Those that read a store take --store: its directory,
    the beginning of its name, or the source it was built from. --json prints one JSON object.
    """  # noqa: D301 (click wants the control character)


# The build side, which a plain install leaves out.

_built_options = add_options(
    click.argument("source", required=False),
    click.option(
        "--store",
        help="Directory to write, or its name below NOCTUARY_HOME [default: derived from SOURCE].",
    ),
)


@main.command()
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


@main.command()
@_built_options
@click.option("--port", default=3000, type=click.IntRange(1, 65535), help="Port on 127.0.0.1.")
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


if __name__ == "__main__":
    from noctuary.cli.entry import main as enter

    enter()
