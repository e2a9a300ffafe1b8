"""The SDK's own client against the server, in memory and over stdio; a store of several owners."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult, TextContent, TextResourceContents

from noctuary.agents.mcp import build_server
from noctuary.agents.mcp_view import View
from noctuary.core.types import MemoryRecord
from tests.support.archive import Replaced
from tests.support.archive import publish as publish_replaced
from tests.support.store import Store, day_us, memory, renumber, turns

T = TypeVar("T")

TIMEOUT_S = 30.0
"""Of servers in tests: a busy machine is no failure."""


def with_client(
    view: View, use: Callable[[Client], Awaitable[T]], mode: Any = "auto", **options: Any
) -> T:
    """Connect the SDK's client to a server in this process, and use it."""

    async def run() -> T:
        server = build_server(view, options.get("timeout_s", TIMEOUT_S))
        failure: Exception
        async with Client(server, mode=mode) as client:
            try:
                return await use(client)
            except Exception as error:
                failure = error  # outside: the client's task groups would wrap it, twice
        raise failure

    return asyncio.run(run())


def stdio(store: Path | str | None, *options: str, shell: str | None = None) -> Any:
    """Return how to start `noctuary mcp` as an agent does, with the environment of this process.

    Args:
        store: The value of --store, or None to leave it out.
        options: Further options.
        shell: A shell line that ends in "exec "$@""; what it does happens before.
    """
    command = [sys.executable, "-m", "noctuary.cli.main", "mcp"]
    command += [] if store is None else ["--store", str(store)]
    command += options
    if shell is not None:
        command = ["/bin/sh", "-c", shell, "sh", *command]
    environ = {n: v for n, v in os.environ.items() if not n.startswith("PYTEST")}
    return StdioServerParameters(command=command[0], args=command[1:], env=environ)


def values(result: CallToolResult) -> dict[str, Any]:
    """Return an answer; both of its forms must say the same."""
    assert not result.is_error, text(result)
    assert result.structured_content is not None
    assert json.loads(text(result)) == result.structured_content
    return result.structured_content


def text(result: CallToolResult) -> str:
    """Return the text of a result."""
    (content,) = result.content
    assert isinstance(content, TextContent)
    return content.text


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool that must answer."""
    return values(await client.call_tool(tool, arguments))


async def refusal(client: Client, tool: str, **arguments: Any) -> str:
    """Call a tool that must refuse; what it says."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    return text(result)


async def read(client: Client, uri: str) -> dict[str, Any]:
    """Read a resource that must be there."""
    (content,) = (await client.read_resource(uri)).contents
    assert isinstance(content, TextResourceContents)
    assert content.mime_type == "application/json"
    return json.loads(content.text)


def owned(owner: str, user: str | None, wing: str) -> list[MemoryRecord]:
    """Return memories in which every text of their own holds the owner's name."""
    place: dict[str, Any] = {"user": user, "wing": wing, "room": f"{owner}room"}
    talk = [
        f"{owner.title()}: we need a flight to Lisbon in June.",
        f"{owner}bot: the morning flight is cheaper.",
        f"{owner.title()}: then book the morning flight.",
        f"{owner}bot: the flight is booked for the ninth.",
        f"{owner.title()}: put the invoice into the shared folder.",
        f"{owner}bot: done.",
    ]
    return [
        memory(
            f"The {owner} spare key of Atlas hangs behind the {owner} door.",
            tags=f"key, atlas, {owner}tag", category=f"{owner}kind", created_at_us=day_us(3),
            **place,
        ),
        memory(
            f"Atlas migration: {owner} leads it, Nina helps {owner}.",
            tags="atlas", created_at_us=day_us(4), **place,
        ),
        memory(
            f"Atlas migration is now led by Nina {owner}smith.",
            tags="atlas", created_at_us=day_us(9), **place,
        ),
        *turns(f"{owner}session", *talk, wing=wing, user=user),
    ]  # fmt: skip


OWNERS = {"zana": "ana", "zben": "ben", "zany": None}
"""Marks in texts, and the user that they belong to; "zany" marks what belongs to nobody."""


def publish_owned(store: Store) -> str:
    """Publish memories of two users and of nobody, in a wing each; the snapshot's id.

    Of each owner: a key with a tag of their own, a decision that another one replaces (positions 1
    and 2 of the nine), a conversation of which the first turns have a summary.
    """
    records = renumber(
        [r for owner, user in OWNERS.items() for r in owned(owner, user, f"{owner}wing")]
    )
    size = len(records) // len(OWNERS)
    links = [Replaced(i * size + 1, i * size + 2) for i in range(len(OWNERS))]
    # A successor of another owner: whoever may not see it must not hear of it.
    links += [Replaced(0, size)]
    return publish_replaced(store, records, links)
