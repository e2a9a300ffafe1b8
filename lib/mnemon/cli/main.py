"""The `mnemon` command and its sub-commands."""

from __future__ import annotations

from typing import Any

import click

from mnemon import __version__
from mnemon.cli.common import ExtraMissingError, fail
from mnemon.cli.compact import compact
from mnemon.cli.context import context
from mnemon.cli.curate import curate
from mnemon.cli.doctor import doctor
from mnemon.cli.evaluate.group import evaluate
from mnemon.cli.expand import expand
from mnemon.cli.export import export
from mnemon.cli.graph import graph
from mnemon.cli.hook import hook
from mnemon.cli.hooks import hooks
from mnemon.cli.import_store import import_store
from mnemon.cli.mcp import mcp
from mnemon.cli.profile import profile
from mnemon.cli.promotions import promotions
from mnemon.cli.recall import recall
from mnemon.cli.replay import replay
from mnemon.cli.sensitive import sensitive
from mnemon.cli.serve import serve
from mnemon.cli.snapshots import rollback, snapshots
from mnemon.cli.sql import sql
from mnemon.cli.status import status, stores
from mnemon.cli.why import why

_BUILD = (
    "dagster", "duckdb", "jinja2", "lance", "lancedb", "matplotlib", "onnx", "onnxruntime",
    "polars", "pyarrow", "rich", "scipy", "sentence_transformers", "sknetwork", "torch",
    "transformers",
)  # fmt: skip
_EXTRAS = {
    **dict.fromkeys(_BUILD, "pipelines"),
    "httpx": "hosted", "mcp": "mcp", "psycopg": "postgres", "ray": "ray",
}  # fmt: skip
"""Which extra brings a module that a plain install leaves out."""


class _Commands(click.Group):
    """The commands; where one needs a library that is not installed, what to install."""

    def invoke(self, ctx: click.Context) -> Any:
        as_json = "--json" in ctx.args
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            module = (error.name or "").partition(".")[0]
            if module not in _EXTRAS:
                raise
            install = f"pip install 'mnemon[{_EXTRAS[module]}]'"
            fail(
                ExtraMissingError(f"this needs {module}, which is not installed: {install}"),
                as_json,
            )


# In "color", click leaves a memory's escape sequences to the marks; else it drops them from a pipe.
@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "color": True})
@click.version_option(__version__, prog_name="mnemon")
def main() -> None:
    """Recall memories from the snapshot that the nightly pipeline published.

    \b
    make nightly                      build and publish a snapshot of the bundled sample store
    make nightly STORE=memory.db      the same for your own memory store
    mnemon recall "spare key"         ask the published snapshot
    mnemon why "spare key" ID         why a memory did not come back
    mnemon context "key" --budget N   a prompt's rules, last turns and memories, in N tokens
    mnemon expand ID                  every memory that a summary stands for
    mnemon replay                     kept recalls, run again against their snapshot
    mnemon serve                      keep a warm server for `mnemon recall`
    mnemon hooks install --agent A    memories in the prompts of a coding agent; status, uninstall
    mnemon hook --agent A             what the agent then runs; see docs/agents.md
    mnemon mcp                        the same memory for agents that speak MCP
    mnemon status                     what serves, how old it is, what it holds
    mnemon stores                     which stores there are
    mnemon doctor                     what is wrong and what to do about it
    mnemon profile show               how it ranks, and which layer says so
    mnemon graph show CONCEPT         what memories say about a concept, as text or a page
    mnemon compact                    what could be archived, and why; --apply, --undo
    mnemon curate                     what could be tidied in your memory store; --apply, --undo
    mnemon promotions                 what was said that should be remembered for good
    mnemon sql "select ..."           a read-only query on memories, concepts, edges, use
    mnemon sensitive "alarm code"     rows that never leave the store, asked in the store itself
    mnemon export DIR                 what serves, as JSON lines and Parquet; import DIR
    mnemon evaluate run SET           how well it recalls, measured on labelled queries

    Every command that reads a store takes --store (its directory, the beginning of its name, or
    the source it was built from); all take --json.
    """  # noqa: D301 (click wants the control character)


for command in (
    recall, why, context, expand, replay, serve, status, stores, doctor, snapshots, rollback,
    profile, graph, compact, curate, promotions, evaluate, mcp, hooks, hook, sql, export,
    import_store, sensitive,
):  # fmt: skip
    main.add_command(command)

if __name__ == "__main__":
    from mnemon.cli.entry import main as enter

    enter()
