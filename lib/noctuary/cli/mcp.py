"""`noctuary mcp`: recall for agents that speak the Model Context Protocol."""

from __future__ import annotations

import click

from noctuary.cli.common import (
    ExtraMissingError,
    fail,
    limit_threads,
    print_json,
    store_options,
)


@click.command()
@click.option("--user", help="Whose memories, besides those of nobody; no call can change it.")
@click.option("--wing", help="Only this wing; no call can ask for another.")
@click.option(
    "--timeout-s",
    default=10.0,
    show_default=True,
    type=click.FloatRange(min=0.1, max=600),
    help="Longest time of one call; then the client is told to try again.",
)
@store_options
def mcp(
    user: str | None, wing: str | None, timeout_s: float, store: str | None, as_json: bool
) -> None:
    """Serve recall, get, related and status to one agent, over standard input and output.

    An agent starts this command itself; in its configuration:

    \b
    {"mcpServers": {"noctuary": {"command": "noctuary", "args": ["mcp", "--store", "NAME"]}}}

    It only reads, and shows what --user and --wing allow: without --user, memories that belong to
    nobody. --json prints what it would answer for, and leaves.

    Exit code 0 when the client has left, 1 when it cannot run (the extra `mcp` is missing).
    """  # noqa: D301 (click wants the control character)
    limit_threads()
    from noctuary.mcp_server.extra import find_sdk_fault

    fault = find_sdk_fault()
    if fault is not None:
        fail(ExtraMissingError(fault), as_json)
    from noctuary.mcp_server.view import View

    view = View(store, user=user, wing=wing)
    if as_json:
        from noctuary.mcp_server.schemas import plain
        from noctuary.mcp_server.state import read_state

        print_json(plain(read_state(view)))
        return
    from noctuary.mcp_server.stdio import run_stdio

    run_stdio(view, timeout_s)
