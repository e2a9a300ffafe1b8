"""The `noctuary` command and its sub-commands."""

from __future__ import annotations

from typing import Any

import click

from noctuary import __version__
from noctuary.cli.agents import hook, hooks, mcp, serve
from noctuary.cli.common import EXTRAS, extra_missing, fail
from noctuary.cli.evaluate import evaluate
from noctuary.cli.graph import graph
from noctuary.cli.night import nightly, ui
from noctuary.cli.proposals import compact, curate, promotions
from noctuary.cli.recall import context, expand, profile, recall, replay, sensitive, why
from noctuary.cli.store import (
    doctor,
    export,
    import_store,
    rollback,
    snapshots,
    sql,
    status,
    stores,
)
from noctuary.core.errors import NoctuaryError


class _Commands(click.Group):
    """The commands; one that fails says why, or what to install for it, in a sentence."""

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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write nothing: the help text names every command under what it is for."""


# In "color", click leaves a memory's escape sequences to the marks; else it drops them from a pipe.
@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "color": True})
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
      replay                   kept recalls, run again against their snapshot
      graph show CONCEPT       what memories say about a concept, as text or a chart
      sql "select ..."         a read-only query on memories, concepts, edges, use
      sensitive "alarm code"   rows that never leave the store, asked in the store itself

    \b
    For agents:
      hook --agent A           what an agent runs at its events; see docs/agents.md
      mcp                      the same memory for agents that speak MCP
      serve                    keep a warm server for `noctuary recall`

    \b
    Tidy up:
      compact                  what could be archived, and why; --apply, --undo
      curate                   what could be tidied in your memory store; --apply, --undo
      promotions               what was said that should be remembered for good

    \b
    Stores and snapshots:
      stores                   which stores there are
      snapshots                what was published, and what serves
      rollback                 serve an older snapshot
      export DIR               what serves, as files that other programs read
      import DIR               a new store that serves an export

    \b
    Tune and measure:
      profile show             how it ranks, and which layer says so
      evaluate run SET         how well it recalls, measured on labelled queries

    `noctuary COMMAND --help` explains each. Those that read a store take --store: its directory,
    the beginning of its name, or the source it was built from. --json prints one JSON object.
    """  # noqa: D301 (click wants the control character)


for command in (
    nightly, ui, recall, why, context, expand, replay, serve, status, stores, doctor, snapshots,
    rollback, profile, graph, compact, curate, promotions, evaluate, mcp, hooks, hook, sql, export,
    import_store, sensitive,
):  # fmt: skip
    main.add_command(command)


if __name__ == "__main__":
    from noctuary.cli.entry import main as enter

    enter()
