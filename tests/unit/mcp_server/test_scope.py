"""Nothing of another owner shows in anything that a server says, whoever asks for it and how."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError

from noctuary.agents.mcp_view import View, cluster_uri, concept_uri, item_uri, read_state
from tests.support.lean import write_encoder
from tests.support.mcp import OWNERS, owned, refusal, with_client
from tests.support.store import Store, new_store, renumber

VIEWS = [
    (None, None, {"zany"}),
    ("ana", None, {"zana", "zany"}),
    ("nobody-of-this-name", None, {"zany"}),
    ("ana", "zanawing", {"zana"}),
    ("ana", "zanywing", {"zany"}),
    ("ana", "zbenwing", set[str]()),
]
QUERIES = ("spare key door", "Who leads the Atlas migration?", "flight to Lisbon", "Nina", "")
IDS = [str(i) for i in range(101, 101 + 27, 2)]
"""Every other one: of each owner keys, decisions and turns."""


def facts_of(store: Store) -> tuple[list[str], list[str]]:
    """Ids of all summaries and clusters, and every name of a concept."""
    with View(store.root, user="ana").open() as seen:
        reader = seen.recaller.reader
        ids = [i for row in reader.look_up("clusters", "trivial", "cluster_id", ["0"]) for i in row]
        with seen.graph() as (source, _):
            rows = source.query("SELECT canonical_name, aliases FROM concepts")
    names = [name for row in rows for name in (row[0], *json.loads(row[1]))]
    return [*reader.summaries.ids, *ids], names


def calls(store: Store) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every tool, asked for everything that the store holds."""
    clusters, names = facts_of(store)
    for query in QUERIES:
        yield "recall", {"query": query, "k": 50, "explain": True}
    for owner in OWNERS:
        yield "recall", {"query": f"{owner} spare key", "k": 50}
        for facet in ("wing", "room", "category"):
            for value in (f"{owner}{facet}", f"{owner}{facet}s"):
                yield "recall", {"query": "key", facet: value}
    yield "recall", {"query": "key", "as_of": "2026-01-05", "explain": True}
    for item in (*IDS, *clusters, "999"):
        yield "get", {"id": item}
        yield "related", {"id": item, "limit": 50}
    for name in (*names, "zan", "zbe"):
        yield "related", {"concept": name, "limit": 50}
    yield "status", {}


def addresses(store: Store) -> Iterator[tuple[str, str]]:
    clusters, names = facts_of(store)
    for item in IDS:
        yield item_uri(item), item
    for item in clusters:
        yield item_uri(item), item
        yield cluster_uri(item), item
    for name in names:
        yield concept_uri(name), name


async def everything_said(client: Client, store: Store) -> str:
    """All that a server says, without what the caller said first."""
    said: list[str] = []
    for tool, arguments in calls(store):
        answer = (await client.call_tool(tool, arguments)).model_dump_json()
        asked = [v for v in arguments.values() if isinstance(v, str) and v]
        for word in asked:
            answer = answer.replace(word, "")
        said.append(answer)
    for uri, asked in addresses(store):
        try:
            answer = (await client.read_resource(uri)).model_dump_json()
        except MCPError as error:
            answer = f"{error.message} {error.data}"
        said.append(answer.replace(uri, "").replace(asked, ""))
    return "\n".join(said).casefold()


@pytest.mark.parametrize(("user", "wing", "visible"), VIEWS)
def test_a_server_says_nothing_of_other_owners(
    owned_store: Store, user: str | None, wing: str | None, visible: set[str]
) -> None:
    view = View(owned_store.root, user=user, wing=wing)
    said = with_client(view, lambda client: everything_said(client, owned_store))
    heard = {owner for owner in OWNERS if owner in said.replace(f"{wing}", "")}
    assert heard == visible, "what may be seen is heard, and nothing else"


@pytest.mark.parametrize("wing", [None, "zanywing"])
def test_what_is_hidden_is_refused_in_the_words_for_what_is_not_there(
    owned_store: Store, wing: str | None
) -> None:
    view = View(owned_store.root, user="ana", wing=wing)
    clusters, _ = facts_of(owned_store)
    hidden = ["110", next(i for i in clusters if not seen_by(view, i))]

    async def ask(client: Client) -> None:
        for tool in ("get", "related"):
            unknown = await refusal(client, tool, id="nope")
            for item in hidden:
                assert await refusal(client, tool, id=item) == unknown.replace("nope", item)

    with_client(view, ask)


def seen_by(view: View, item: str) -> bool:
    with view.open() as seen:
        return seen.position_of(item) is not None


def test_no_argument_changes_whose_memories_are_seen(owned_store: Store) -> None:
    """A tool has no such argument; one that is passed all the same has no effect."""
    view = View(owned_store.root, user="ana")

    async def ask(client: Client) -> None:
        for tool in (await client.list_tools()).tools:
            assert not {"user", "store", "scope"} & set(tool.input_schema["properties"])
        arguments = {"query": "spare key", "k": 50, "user": "ben", "store": "/", "wing": None}
        result = await client.call_tool("recall", arguments)
        assert "zana" in result.model_dump_json()
        assert "zben" not in result.model_dump_json()

    with_client(view, ask)


def test_another_wing_than_the_server_s_is_refused_in_words(owned_store: Store) -> None:
    view = View(owned_store.root, user="ana", wing="zanawing")

    async def ask(client: Client) -> None:
        said = await refusal(client, "recall", query="key", wing="zanywing")
        assert "answers for the wing 'zanawing' only" in said
        assert "leave wing out" in said
        same = await client.call_tool("recall", {"query": "key", "wing": "zanawing"})
        assert not same.is_error

    with_client(view, ask)


@pytest.mark.parametrize(("user", "wing", "visible"), [VIEWS[1], VIEWS[3], VIEWS[5]])
def test_counts_are_those_of_a_store_with_nothing_else_in_it(
    home: Path, owned_store: Store, user: str | None, wing: str | None, visible: set[str]
) -> None:
    view = View(owned_store.root, user=user, wing=wing)
    found = read_state(view)
    if not visible:
        assert set(found.counts.values()) == {0}
        assert [w.code for w in found.warnings if w.code == "nothing_visible"]
        return
    root = home / "alone"
    alone = new_store(root, encoder=write_encoder(root / "encoders"))
    alone.publish(
        renumber([r for o, u in OWNERS.items() if o in visible for r in owned(o, u, f"{o}wing")])
    )
    expected = read_state(View(root, user=user, wing=wing))
    assert found.wings == expected.wings
    # Which concepts there are is decided by the whole corpus; here only which of them show.
    assert found.counts == {**expected.counts, "concepts": concepts_held(view)}
    assert found.counts["memories"] == 9 * len(visible)


def concepts_held(view: View) -> int:
    """Count the concepts that a visible memory holds, one by one."""
    with view.open() as seen:
        held = seen.recaller.reader.mentions
        return sum(
            any(seen.allowed[p] for p in held.positions[start:stop])
            for start, stop in pairwise(held.indptr.tolist())
        )
