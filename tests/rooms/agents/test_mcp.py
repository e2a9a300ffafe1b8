"""The server as a client sees it: names, shapes, errors, progress, in both protocol eras."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mcp import Client, MCPError
from mcp.types import CallToolResult

from noctuary import __version__, remember
from noctuary.agents import mcp as bounded
from noctuary.agents import mcp as server_module
from noctuary.agents.mcp import INSTRUCTIONS, OverdueError, Workers
from noctuary.agents.mcp_view import (
    CLUSTER_URI,
    CONCEPT_URI,
    ITEM_URI,
    View,
    cluster_uri,
    concept_uri,
    item_uri,
    read_state,
)
from noctuary.context.assemble import assemble
from noctuary.core.store import store_for_source
from noctuary.sources.injected import is_tool_answer
from noctuary.sources.own_store import OWN_FILE
from noctuary.text.marks import visible
from tests.rooms.sources.test_several import publish as publish_list
from tests.support.lean import write_encoder
from tests.support.live import Cache, make_cache, publish_from
from tests.support.mcp import OWNERS, call, owned, read, refusal, text, values, with_client
from tests.support.store import Store, memory, new_store, renumber
from tests.support.terminal import H

MODES = ["auto", "legacy"]


@pytest.mark.parametrize("mode", MODES)
def test_the_server_says_what_it_is_and_what_it_offers(owned_store: Store, mode: str) -> None:
    async def look(client: Client) -> None:
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.version) == ("noctuary", __version__)
        assert client.instructions == INSTRUCTIONS
        assert client.protocol_version == {"auto": "2026-07-28", "legacy": "2025-11-25"}[mode]
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        reading = {"recall", "get", "related", "why", "context", "status"}
        assert set(tools) == {*reading, "remember", "forget", "review"}
        for name, tool in tools.items():
            hints, only_reads = tool.annotations, name in reading
            assert hints is not None
            assert (hints.read_only_hint, hints.destructive_hint) == (only_reads, name == "forget")
            assert (hints.idempotent_hint, hints.open_world_hint) == (name != "remember", False)
            assert tool.title
            assert tool.description
            assert not {"user", "store", "scope"} & set(tool.input_schema["properties"])
        asked = tools["recall"].input_schema["properties"]
        assert set(asked) == {"query", "k", "wing", "room", "category", "as_of", "explain"}
        assert (asked["k"]["minimum"], asked["k"]["maximum"], asked["k"]["default"]) == (1, 50, 10)
        assert all(field.get("description") for field in asked.values())
        templates = (await client.list_resource_templates()).resource_templates
        assert {t.uri_template for t in templates} == {ITEM_URI, CLUSTER_URI, CONCEPT_URI}
        assert {t.mime_type for t in templates} == {"application/json"}

    with_client(View(owned_store.root, user="ana"), look, mode)


def test_what_an_agent_remembers_its_next_recall_finds(home: Path) -> None:
    path = remember("The boiler was mended in May.", user="ben").path
    store = new_store(store_for_source(home, path))
    publish_from(Cache(path), store)

    async def use(client: Client) -> None:
        first = await call(client, "remember", text="The spare key hangs in the hall.", wing="home")
        assert first == {"id": 2, "similar": [], "recallable": True}
        (found,) = (await call(client, "recall", query="spare key hall"))["memories"]
        assert (found["id"], found["wing"], found["user"]) == (2, "home", "ana")
        newer = await call(
            client, "remember", text="The spare key hangs in the shed.", supersedes=2
        )
        assert newer == {"id": 3, "supersedes": 2, "similar": [], "recallable": True}
        again = await call(client, "remember", text="the spare key hangs in the SHED", tags=["key"])
        assert again["similar"][0] == {"id": 3, "similarity": 1.0}
        told = {
            "password": {"text": "my password is hunter2horse"},
            "no memory 1 of this user": {"text": "It was in June.", "supersedes": 1},
            "validation error": {"text": "x", "importance": 2},
        }
        for said, arguments in told.items():
            refused = await refusal(client, "remember", **arguments)
            assert said in refused or "reads like a secret" in refused

    with_client(View(store.root, user="ana"), use)


@pytest.mark.parametrize("is_one_of_several", [True, False])
def test_remember_gives_the_id_that_all_others_take(
    home: Path, tmp_path: Path, is_one_of_several: bool
) -> None:
    cache = make_cache(tmp_path / "memory.db", [{"content": "The ferry leaves at noon."}])
    green, brown = (f"The bell of the old pier was cast in {c} bronze." for c in ("green", "brown"))
    file, shown = remember(green).path, 1
    if is_one_of_several:
        file, shown = home / "noctuary.toml", "own:1"
        file.write_text(f"[sources]\ncache = '{cache.path}'\n")
    store = new_store(store_for_source(home, file))
    if is_one_of_several:
        publish_list(file, store)
    else:
        publish_from(Cache(file), store)

    async def use(client: Client) -> None:
        kept = await call(client, "remember", text=brown)
        other = 2 if shown == 1 else "own:2"
        assert (kept["id"], kept["similar"][0]["id"]) == (other, shown)
        for spelled in (other, "own:2", 2, "2"):
            live = await call(client, "get", id=spelled)
            assert (live["id"], live["content"]) == (other, brown)
            assert (await call(client, "why", query="bell", id=spelled))["id"] == other
        for spelled in (1, "own:1"):
            if is_one_of_several and spelled == 1:  # the ferry's too
                assert "no memory '1'" in await refusal(client, "get", id=1)
                plan = await call(client, "forget", ids=[1])
                assert plan["warnings"] == ["1 may be cache:1 or own:1: say which"]
                continue
            assert (await call(client, "get", id=spelled))["id"] == shown
            plan = await call(client, "forget", ids=[spelled])
            assert [m["id"] for m in plan["memories"]] == [str(shown)]
        newer = await call(client, "remember", text="The bell is red.", supersedes="own:1")
        assert newer["supersedes"] == shown
        again = await call(client, "remember", text="The bell is blue.", supersedes=1)
        assert again["supersedes"] == shown
        for wrong in ("cache:1", "own:x", "9" * 400):
            assert "not an id of the own store" in await refusal(
                client, "remember", text="x", supersedes=wrong
            )

    with_client(View(store.root), use)


def test_blank_arguments_are_absent(owned_store: Store) -> None:
    async def ask(client: Client) -> None:
        named = ("wing", "room", "category", "as_of")
        plain = ids_of(await call(client, "recall", query="spare key"))
        assert plain
        for blank in ("", "  ", "null", "None", None):
            blanks = dict.fromkeys((*named, "k", "explain"), blank)
            answer = await call(client, "recall", query="spare key", **blanks)
            assert (ids_of(answer), answer["warnings"]) == (plain, [])
            (first, *_) = plain
            asked = {"query": "spare key", "id": first, **dict.fromkeys((*named[:3], "k"), blank)}
            assert (await call(client, "why", **asked))["stage"] == "returned"
            assert await call(client, "context", query="key", wing=blank, budget_tokens=blank)
            concept = "" if blank is not None else None
            assert await call(client, "related", id=first, concept=concept, limit=blank)
            plan = await call(client, "forget", ids=[first], token=blank)
            assert not plan["forgotten"]
            blanks = dict.fromkeys(("wing", "room", "tags", "importance", "supersedes"), blank)
            assert await call(client, "remember", text=f"Gull {blank!r} sat on the pier.", **blanks)
        assert await call(client, "remember", text="Gulls sleep on the pier.", tags=[])
        assert "give either" in await refusal(client, "related", id="", concept=" ")

    with_client(View(owned_store.root, user="ana"), ask)


def ids_of(answer: dict[str, Any]) -> list[int | str]:
    return [memory["id"] for memory in answer["memories"]]


def test_a_server_of_another_store_says_that_its_recall_will_not_find_it(
    owned_store: Store, home: Path
) -> None:
    async def use(client: Client) -> None:
        assert "after `noctuary nightly" in (await call(client, "remember", text="One."))["note"]
        path = home / OWN_FILE
        publish_from(Cache(path), new_store(store_for_source(home, path)))
        kept = await call(client, "remember", text="Two.")
        assert (kept["recallable"], "reads another store" in kept["note"]) == (False, True)
        assert "another wing" not in await refusal(client, "remember", text="x", supersedes=99)
        assert "'home' only" in await refusal(client, "remember", text="Three.", wing="work")

    with_client(View(owned_store.root, wing="home"), use)
    with closing(sqlite3.connect(home / OWN_FILE)) as db:
        found = db.execute("SELECT content, wing, user FROM memories").fetchall()
    assert found == [("One.", "home", None), ("Two.", "home", None)]


def test_every_answer_with_texts_is_known_again_in_a_transcript(owned_store: Store) -> None:
    async def look(client: Client) -> None:
        answers = [
            await client.call_tool("recall", {"query": "spare key", "explain": True}),
            await client.call_tool("get", {"id": 105}),
            await client.call_tool("related", {"id": 105}),
            await client.call_tool("related", {"concept": "atlas"}),
            await client.call_tool("context", {"query": "spare key", "budget_tokens": 500}),
            await client.call_tool("why", {"query": "spare key", "id": 105}),
        ]
        for result in answers:
            assert is_tool_answer(text(result))
            assert is_tool_answer(json.dumps(result.structured_content)), "also as sent beside it"
        summary = values(answers[1])["summarized_by"]
        for uri in (item_uri(105), cluster_uri(summary), concept_uri("atlas")):
            assert is_tool_answer(json.dumps(await read(client, uri)))
        assert not is_tool_answer(text(await client.call_tool("status", {})))

    with_client(View(owned_store.root, user="ana"), look)


@pytest.mark.parametrize("mode", MODES)
def test_what_goes_wrong_is_told_in_words(owned_store: Store, mode: str) -> None:
    told: list[tuple[str, str, dict[str, Any]]] = [
        ("there is no memory 'x' here", "get", {"id": "x"}),
        ("near:", "related", {"concept": "atlsa"}),
        ("either the id", "related", {}),
        ("not an ISO-8601", "recall", {"query": "key", "as_of": "soon"}),
        *(("validation error", "recall", wrong) for wrong in (
            {}, {"query": "key", "k": 0}, {"query": "key", "k": 51}, {"query": 7})),
    ]  # fmt: skip

    async def look(client: Client) -> None:
        for said, tool, arguments in told:
            assert said in await refusal(client, tool, **arguments)
        for uri in (item_uri("x"), cluster_uri("x"), concept_uri("qq"), "memory://item/", "x://y"):
            with pytest.raises(MCPError) as raised:
                await client.read_resource(uri)
            assert raised.value.code == -32602
        with pytest.raises(MCPError, match="there is no memory 'x' here"):
            await client.read_resource(item_uri("x"))

    with_client(View(owned_store.root, user="ana"), look, mode)


@pytest.mark.parametrize("mode", MODES)
def test_addresses_hold_ids_of_any_script(home: Path, mode: str) -> None:
    identifiers = ["ключ/№1", "日本 語", "a/../b", "/etc/x", "5%25", "é?#&", "{id}"]
    store = new_store(home / "texts")
    records = [memory(f"The spare key number {i}.", memory_id=i) for i in identifiers]
    store.publish(renumber(records), id_kind="text")

    async def look(client: Client) -> None:
        found = await call(client, "recall", query="spare key", k=50)
        assert {m["id"] for m in found["memories"]} == set(identifiers)
        for one in found["memories"]:
            assert (await read(client, one["uri"]))["id"] == one["id"]
            assert (await call(client, "get", id=one["id"]))["uri"] == one["uri"]

    with_client(View(store.root), look, mode)


def test_without_a_store_calls_say_what_to_run(home: Path) -> None:
    async def look(client: Client) -> None:
        assert "noctuary nightly" in await refusal(client, "get", id=1)
        assert "noctuary nightly" in (await call(client, "status"))["warnings"][0]["message"]
        found = await call(client, "recall", query="key")
        assert found["memories"] == []
        assert "noctuary nightly" in found["warnings"][0]["message"]
        with pytest.raises(MCPError, match="noctuary nightly") as raised:
            await client.read_resource(item_uri(1))
        assert raised.value.code == -32603, "not that it is not there, but that it cannot be read"

    with_client(View(), look)


class Blocked(View):
    """A view of a store on a disk that hangs."""

    def __init__(self, store: Path) -> None:
        super().__init__(store)
        self.go = threading.Event()

    def store(self) -> Path:
        self.go.wait(20)
        return super().store()


def test_a_call_that_takes_too_long_is_told_to_try_again_and_then_works(plain_store: Store) -> None:
    view = Blocked(plain_store.root)

    async def look(client: Client) -> None:
        started = time.monotonic()
        for tool, arguments in (("recall", {"query": "key"}), ("get", {"id": 101}), ("status", {})):
            said = await refusal(client, tool, **arguments)
            assert f"{tool} was given up after 0.2 s; nothing was changed" in said
            assert "call it again in a few seconds" in said
        with pytest.raises(MCPError, match="given up after 0"):
            await client.read_resource(item_uri(101))
        assert time.monotonic() - started < 10
        view.go.set()
        until = time.monotonic() + 10  # the calls that were left behind are over by then
        while (await client.call_tool("get", {"id": 101})).is_error:
            assert time.monotonic() < until
            await asyncio.sleep(0.05)

    with_client(view, look, timeout_s=0.2)


@pytest.mark.parametrize("mode", MODES)
def test_long_calls_report_progress_to_who_asks_for_it(
    plain_store: Store, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded, "PROGRESS_EVERY_S", 0.05)
    view = Blocked(plain_store.root)
    heard: list[tuple[float, float | None, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))
        if len(heard) == 2:
            view.go.set()

    async def look(client: Client) -> CallToolResult:
        return await client.call_tool("get", {"id": 101}, progress_callback=hear)

    assert not with_client(view, look, mode).is_error
    assert [done for done, _, _ in heard] == sorted({done for done, _, _ in heard})
    assert {(total, message) for _, total, message in heard} == {(30.0, "get is still working")}


def test_a_defect_is_not_told_to_the_client(
    plain_store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise LookupError("a secret of the implementation")

    monkeypatch.setattr(server_module, "read_state", fail)
    said = with_client(View(plain_store.root), lambda client: refusal(client, "status"))
    assert said == "Error executing tool status"
    assert "a secret of the implementation" in caplog.text


def logged(path: Path, table: str) -> int:
    if not path.exists():
        return 0
    with closing(sqlite3.connect(path)) as log:
        return log.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0]


def test_what_is_handed_out_is_on_record_and_the_source_is_not_touched(owned_store: Store) -> None:
    before = {p: p.stat().st_mtime_ns for p in owned_store.paths.snapshots.rglob("*")}

    def counts() -> tuple[int, int]:
        paths = owned_store.paths
        return logged(paths.access_log, "retrievals"), logged(paths.injections, "injected")

    async def look(client: Client) -> None:
        found = len((await call(client, "recall", query="spare key", k=1))["memories"])
        (retrieved, recorded) = counts()
        assert retrieved == found <= recorded
        await call(client, "status")
        assert counts() == (retrieved, recorded)
        await call(client, "get", id=102)
        turn = await call(client, "get", id=105)
        got = counts()[1]
        assert got > recorded
        await read(client, cluster_uri(turn["summarized_by"]))
        assert counts()[1] > got
        assert counts()[0] == retrieved, "only a recall is a retrieval"

    with_client(View(owned_store.root, user="ana"), look)
    assert {p: p.stat().st_mtime_ns for p in owned_store.paths.snapshots.rglob("*")} == before


def test_a_store_that_cannot_be_written_is_answered_from(
    plain_store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    for log in (plain_store.paths.injections, plain_store.paths.access_log):
        log.mkdir()  # nobody, root included, can write a file there

    async def look(client: Client) -> None:
        found = await call(client, "recall", query="spare key", k=1)
        assert found["memories"]
        assert "access_log" in {w["code"] for w in found["warnings"]}

    with_client(View(plain_store.root), look)
    assert "this injection was not logged" in caplog.text


def is_taken_as_json(name: str) -> bool:
    """Say whether the SDK hands on null, a list or an object in the place of this text."""
    try:
        return not isinstance(json.loads(name), str | int | float)
    except (ValueError, RecursionError):
        return False


NAMES = st.text(max_size=40).filter(lambda name: not is_taken_as_json(name))
QUESTIONS = st.tuples(st.text(max_size=60), st.integers(1, 50), st.booleans())


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    questions=st.lists(QUESTIONS, min_size=10, max_size=12),
    names=st.lists(NAMES | st.integers(), min_size=10, max_size=12),
)
def test_anything_asked_is_answered_or_refused_and_never_a_defect(
    plain_store: Store, questions: list[tuple[str, int, bool]], names: list[str | int]
) -> None:
    async def look(client: Client) -> None:
        for query, k, explain in questions:
            found = await call(client, "recall", query=query, k=k, explain=explain)
            assert found["query"] == visible(query)
            assert len(found["memories"]) <= k
        for name in names:
            for arguments in ({"id": name}, {"concept": str(name)}):
                result = await client.call_tool("related", arguments)
                asked = str(name).strip().casefold()
                said = "give either" if asked in ("", "null", "none", "undefined") else " here"
                assert not result.is_error or said in text(result) or " here" in text(result)
            result = await client.call_tool("get", {"id": name})
            assert not result.is_error or "there is no memory" in text(result)

    with_client(View(plain_store.root), look)


def test_no_answer_holds_what_a_terminal_obeys(owned_store: Store) -> None:
    hostile = f"key {H}"
    talk = memory(hostile, memory_id=f"x{hostile}", wing=hostile, room=hostile, category=hostile)
    owned_store.publish(renumber([talk]), id_kind="str")

    async def look(client: Client) -> list[str]:
        done = [
            await client.call_tool("recall", {"query": f"key {hostile}", "explain": True}),
            await client.call_tool("get", {"id": f"x{hostile}"}),
            await client.call_tool("get", {"id": hostile}),
            await client.call_tool("related", {"concept": hostile}),
        ]
        found = await read(client, item_uri(f"x{hostile}"))
        said = [str(json.loads(text(d))) if not d.is_error else text(d) for d in done]
        told = json.dumps([values(d) for d in done if not d.is_error] + [found], ensure_ascii=False)
        return [*said, told.replace("\\n", " ")]

    said = with_client(View(owned_store.root), look)
    assert [s for s in said if visible(s) != s] == []
    assert "\\\\u202e" in said[0]


PATIENT_S = 30.0


def threads_at_work() -> int:
    return sum(t.name == "AnyIO worker thread" for t in threading.enumerate())


def until_no_thread_is_left() -> None:
    """Behind the end of a loop: an idle thread ends with it, a busy one with its work."""
    end = time.monotonic() + 10
    while threads_at_work():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_work_is_done_in_another_thread_and_what_it_raises_is_raised_here() -> None:
    def fail() -> None:
        raise LookupError("gone")

    assert asyncio.run(Workers(PATIENT_S).run(threading.get_ident, "it")) != threading.get_ident()
    with pytest.raises(LookupError, match="gone"):
        asyncio.run(Workers(PATIENT_S).run(fail, "it"))


def test_overdue_work_ends_in_a_sentence_while_the_loop_goes_on() -> None:
    go, ticks = threading.Event(), list[float]()

    async def tick() -> None:
        while True:
            await asyncio.sleep(0.01)
            ticks.append(time.monotonic())

    async def run() -> str:
        ticking = asyncio.create_task(tick())
        with pytest.raises(OverdueError) as raised:
            await Workers(0.2).run(lambda: go.wait(10), "recall")
        ticking.cancel()
        return str(raised.value)

    started = time.monotonic()
    said = asyncio.run(run())
    assert 0.2 <= time.monotonic() - started < 5
    assert "recall was given up after 0.2 s; nothing was changed" in said
    assert "call it again in a few seconds" in said
    assert len(ticks) >= 3
    go.set()
    until_no_thread_is_left()  # work that outlives the loop ends quietly


def test_the_time_limit_holds_while_every_place_is_taken_and_places_come_back() -> None:
    go = threading.Event()
    workers = Workers(0.15, at_once=2)

    async def run() -> list[str]:
        waiting = [workers.run(lambda: go.wait(10), "get") for _ in range(5)]
        overdue = await asyncio.gather(*waiting, return_exceptions=True)
        assert threads_at_work() == 2, "what was given up keeps its place until it is over"
        assert workers.places.borrowed_tokens == 2
        go.set()
        while workers.places.borrowed_tokens:
            await asyncio.sleep(0.005)
        assert await workers.run(lambda: 7, "get") == 7
        return sorted(str(error) for error in overdue)

    said = asyncio.run(run())
    assert [s.split(" within")[0] for s in said[:3]] == ["get found no free place"] * 3
    assert all("2 earlier calls are still running" in s for s in said[:3])
    assert all("given up" in s for s in said[3:])


def test_more_calls_than_places_are_all_answered() -> None:
    def square(number: int) -> int:
        time.sleep(0.002)
        return number * number

    async def run() -> list[int]:
        workers = Workers(PATIENT_S, at_once=3)
        return await asyncio.gather(*(workers.run(partial(square, n), "it") for n in range(30)))

    assert asyncio.run(run()) == [n * n for n in range(30)]


def test_progress_grows_and_is_silent_about_fast_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "PROGRESS_EVERY_S", 0.1)
    reports: list[tuple[float, float]] = []

    async def report(waited_s: float, most_s: float) -> None:
        reports.append((waited_s, most_s))

    async def run() -> None:
        workers = Workers(PATIENT_S)
        await workers.run(lambda: None, "it", report)
        assert reports == []
        await workers.run(lambda: time.sleep(0.35), "it", report)

    asyncio.run(run())
    waited = [w for w, _ in reports]
    assert len(waited) >= 2
    assert waited == sorted(set(waited))
    assert all(0 < w < most == PATIENT_S for w, most in reports)


def test_a_caller_that_goes_away_leaves_nothing_behind() -> None:
    go = threading.Event()
    workers = Workers(PATIENT_S, at_once=1)

    def fail_late() -> None:
        go.wait(10)
        raise LookupError("nobody hears this")

    async def run() -> int:
        task = asyncio.create_task(workers.run(fail_late, "it"))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go.set()
        return await workers.run(lambda: 3, "it")

    assert asyncio.run(run()) == 3


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
    for query in QUERIES[:-1]:
        yield "context", {"query": query, "budget_tokens": 2_000}
        for item in (*IDS, *clusters, "999"):
            yield "why", {"query": query, "id": item, "k": 2}
    for owner in OWNERS:
        yield "why", {"query": "key", "id": "101", "wing": f"{owner}wing"}
        yield "context", {"query": "key", "wing": f"{owner}wings"}
    yield "forget", {"ids": [*IDS, "999"]}
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
        for tool, asked in (("get", {}), ("related", {}), ("why", {"query": "spare key"})):
            unknown = await refusal(client, tool, id="nope", **asked)
            for item in hidden:
                said = await refusal(client, tool, id=item, **asked)
                assert said == unknown.replace("nope", item)

    with_client(view, ask)


def seen_by(view: View, item: str) -> bool:
    with view.open() as seen:
        return seen.position_of(item) is not None


def test_no_argument_changes_whose_memories_are_seen(owned_store: Store) -> None:
    """A tool has no such argument; one that is passed all the same has no effect."""

    async def ask(client: Client) -> None:
        arguments = {"query": "spare key", "k": 50, "user": "ben", "store": "/", "wing": None}
        result = await client.call_tool("recall", arguments)
        assert "zana" in result.model_dump_json()
        assert "zben" not in result.model_dump_json()

    async def ask_in_a_wing(client: Client) -> None:
        said = await refusal(client, "recall", query="key", wing="zanywing")
        assert "answers for the wing 'zanawing' only" in said
        assert "leave wing out" in said
        same = await client.call_tool("recall", {"query": "key", "wing": "zanawing"})
        assert not same.is_error

    with_client(View(owned_store.root, user="ana"), ask)
    with_client(View(owned_store.root, user="ana", wing="zanawing"), ask_in_a_wing)


@pytest.mark.parametrize(("user", "wing", "visible"), [VIEWS[1], VIEWS[3], VIEWS[5]])
def test_counts_are_those_of_a_store_with_nothing_else_in_it(
    home: Path, owned_store: Store, user: str | None, wing: str | None, visible: set[str]
) -> None:
    view = View(owned_store.root, user=user, wing=wing)
    found = read_state(view)
    if not visible:
        assert set(found["counts"].values()) == {0}
        assert [w["code"] for w in found["warnings"] if w["code"] == "nothing_visible"]
        return
    root = home / "alone"
    alone = new_store(root, encoder=write_encoder(root / "encoders"))
    alone.publish(
        renumber([r for o, u in OWNERS.items() if o in visible for r in owned(o, u, f"{o}wing")])
    )
    expected = read_state(View(root, user=user, wing=wing))
    assert found["wings"] == expected["wings"]
    # Which concepts there are is decided by the whole corpus; here only which of them show.
    assert found["counts"] == {**expected["counts"], "concepts": concepts_held(view)}
    assert found["counts"]["memories"] == 9 * len(visible)


def concepts_held(view: View) -> int:
    """Count the concepts that a visible memory holds, one by one."""
    with view.open() as seen:
        held = seen.recaller.reader.mentions
        return sum(
            any(seen.allowed[p] for p in held.positions[start:stop])
            for start, stop in pairwise(held.indptr.tolist())
        )


def test_what_an_agent_forgets_was_shown_first_and_is_gone_at_once(home: Path) -> None:
    texts = ("The spare key hangs in the hall.", "The boiler was mended in May.")
    path = remember(texts[0], user="ana").path
    remember(texts[1], user="ben")
    store = new_store(store_for_source(home, path))
    publish_from(Cache(path), store)

    async def use(client: Client) -> None:
        plan = await call(client, "forget", ids=[1, "2", 7])
        assert (plan["forgotten"], plan["unknown"]) == (False, ["2", "7"])
        assert [m["content"] for m in plan["memories"]] == [texts[0]], "ben's is not there for ana"
        assert is_tool_answer(json.dumps(plan))
        assert (await call(client, "get", id=1))["content"] == texts[0], "nothing is changed yet"
        assert "another plan" in await refusal(client, "forget", ids=[1], token="x" * 16)
        theirs = await call(client, "forget", ids=[2])
        assert "token" not in theirs
        assert "validation error" in await refusal(client, "forget", ids=[])
        done = await call(client, "forget", ids=[1], token=plan["token"])
        assert done["forgotten"], done
        assert (await call(client, "recall", query="spare key"))["memories"] == []
        assert "no memory '1'" in await refusal(client, "get", id=1)

    with_client(View(store.root, user="ana"), use)
    with closing(sqlite3.connect(home / OWN_FILE)) as db:
        assert db.execute("SELECT id FROM memories").fetchall() == [(2,)]


def test_a_plan_is_for_the_texts_that_were_shown(home: Path) -> None:
    path = remember("The spare key hangs in the hall.").path
    publish_from(Cache(path), store := new_store(store_for_source(home, path)))

    async def use(client: Client) -> None:
        plan = await call(client, "forget", ids=[1])
        with closing(sqlite3.connect(path)) as db:
            db.execute("UPDATE memories SET content = 'The alarm is off at noon.'")
            db.commit()
        assert "has changed since" in await refusal(client, "forget", ids=[1], token=plan["token"])
        again = await call(client, "forget", ids=[1])
        assert again["memories"][0]["content"] == "The alarm is off at noon."

    with_client(View(store.root), use)


def test_what_the_user_has_checked_is_noted_and_nothing_else_changes(home: Path) -> None:
    remember("The staging server listens on 8443.", user="ana", wing="mill", tags=["net"])
    remember("Ben's server listens on 8080.", user="ben")
    remember("The build server is called otter.", wing="mill", importance=0.9)
    path = remember("The mail server listens on 25.", wing="home").path
    Cache(path).run("UPDATE memories SET created_at='2020-01-01', updated_at='2020-01-01'")
    publish_from(Cache(path), store := new_store(store_for_source(home, path)))

    def rows() -> dict[int, tuple[Any, ...]]:
        with closing(sqlite3.connect(path)) as db:
            sql = "SELECT id, confirmed_at IS NOT NULL, valid_until IS NOT NULL FROM memories"
            return {row[0]: row[1:] for row in db.execute(sql)}

    async def use(client: Client) -> None:
        listed = await client.call_tool("review", {})
        assert is_tool_answer(text(listed))
        assert {m["id"] for m in values(listed)["memories"]} == {"1", "3"}, "hers, of this wing"
        for wrong in ([1, 2], [1, 4], [1, 99]):
            assert "no memory" in await refusal(client, "review", ids=wrong)
        assert set(rows().values()) == {(0, 0)}, "all or none"
        assert await call(client, "review", ids=[1]) == {"confirmed": 1}
        assert await call(client, "review", ids=["3"], holds=False) == {"ended": 1}
        assert rows() == {1: (1, 0), 2: (0, 0), 3: (0, 1), 4: (0, 0)}
        assert (await call(client, "review"))["total"] == 0
        found = await call(client, "recall", query="build server otter")
        assert 3 not in [m["id"] for m in found["memories"]]

    with_client(View(store.root, user="ana", wing="mill"), use)


def test_why_and_context_say_what_their_commands_say(owned_store: Store) -> None:
    async def ask(client: Client) -> None:
        found = await call(client, "recall", query="spare key", k=2)
        returned = await call(client, "why", query="spare key", id=found["memories"][1]["id"], k=2)
        assert (returned["stage"], returned["facts"]["place"]) == ("returned", 2)
        assert sum(s["delta"] for s in returned["steps"]) == pytest.approx(
            found["memories"][1]["final_score"], abs=1e-5
        )
        lost = await call(client, "why", query="spare key", id=105, k=1)
        assert lost["stage"] in ("below_limit", "not_found")
        filtered = await call(client, "why", query="spare key", id=101, category="nothing")
        assert (filtered["stage"], filtered["id"]) == ("out_of_scope", 101)
        made = await call(client, "context", query="spare key", budget_tokens=400)
        expected = assemble("spare key", 400, user="ana", store=owned_store.root, dry_run=True)
        assert (made["text"], made["tokens"]) == (expected.text, expected.tokens)
        assert 0 < made["tokens"] <= 400
        assert [str(i) for i in made["memories"]] == [part.id for part in expected.parts]
        assert "budget_tokens" in await refusal(client, "context", query="key", budget_tokens=0)

    with_client(View(owned_store.root, user="ana"), ask)


@pytest.mark.parametrize("mode", MODES)
def test_every_tool_and_resource_answers_in_both_eras(owned_store: Store, mode: str) -> None:
    async def look(client: Client) -> None:
        found = await call(client, "recall", query="spare key", k=2, explain=True)
        assert [m["id"] for m in found["memories"]] == [101, 119]
        first = found["memories"][0]
        item = await read(client, first["uri"])
        for identifier in (first["id"], str(first["id"])):
            assert item == await call(client, "get", id=identifier)
        assert item["content"] == first["content"]
        turn = await call(client, "get", id=105)
        cluster = await read(client, cluster_uri(turn["summarized_by"]))
        assert [m["id"] for m in cluster["sources"]] == [104, 105, 106, 107]
        concept = await read(client, concept_uri("Atlas migration"))
        assert concept == await call(client, "related", concept="Atlas migration")
        assert (await call(client, "status"))["counts"]["memories"] == 18

    with_client(View(owned_store.root, user="ana"), look, mode)
