"""The real outside: stores, servers, files and processes."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.agents import hooks
from noctuary.agents.client import LIFETIME_S, Refusal, ask_hook, ping
from noctuary.agents.hooks import (
    CAPTURE,
    MAX_CANDIDATES,
    MAX_DEADLINE_S,
    MAX_FIELD_CHARS,
    MAX_MESSAGE_CHARS,
    MAX_QUERY_CHARS,
    TOO_SLOW,
    Failure,
    HookEvent,
    HookProcess,
    capture,
    capture_journalled,
    environment_home,
    fetch_memories,
    handle,
    parse_event,
    query_of,
)
from noctuary.agents.state import (
    COUNTERS,
    JOURNAL,
    EventCounters,
    SessionState,
    read_counters,
    read_journal,
)
from noctuary.context.render import Line, render_block
from noctuary.core.settings import TranscriptSettings
from noctuary.recall.engine import Recaller
from noctuary.sources.ingest import TurnsFile
from noctuary.sources.injected import cut_blocks
from noctuary.text.marks import estimate_tokens
from tests.support.hook_shapes import AGENTS, shape_faults
from tests.support.hook_worlds import MemoryWorld, answer, memory
from tests.support.store import Store

KEY = memory(17, "The spare key hangs in the pantry.", 0.9, wing="home", room="kitchen")
BOILER = memory("t9", "Mira: The boiler shows error F22.", 0.4, session_id="old")
DOG = memory(3, "The dog is called Pixel.", 0.6)
MARKS = ("[0]", "[1]", "[2]", "[3]", "[17]", "[18]", "[t9]")


def prompt(text: str = "where is the spare key?", **fields: Any) -> dict[str, Any]:
    return {
        "hook_event_name": "UserPromptSubmit", "session_id": "s", "cwd": "/srv/ana/atlas",
        "transcript_path": "/t.jsonl", "prompt": text, **fields,
    }  # fmt: skip


def start(source: str, **fields: Any) -> dict[str, Any]:
    return {"hook_event_name": "SessionStart", "session_id": "s", "source": source, **fields}


def context_of(output: dict[str, Any]) -> str:
    return output.get("hookSpecificOutput", {}).get("additionalContext", "")


def ask(world: MemoryWorld, event: object) -> str:
    return context_of(handle(event, world))


@pytest.mark.parametrize("agent", AGENTS)
def test_a_prompt_gets_its_memories_tagged_with_id_and_provenance(agent: str) -> None:
    world = MemoryWorld(agent)
    world.result = answer(KEY, BOILER)
    output = handle(prompt(), world)
    assert shape_faults(agent, "UserPromptSubmit", output) == []
    block = context_of(output)
    assert "- [17] 2026-03-01 (home/kitchen): The spare key hangs in the pantry." in block
    assert "- [t9] 2026-03-01: Mira: The boiler shows error F22." in block
    assert cut_blocks(block) == ("", 1)
    assert world.counted == [("UserPromptSubmit", None)]
    asked = {"query": "where is the spare key?", "k": 3, "user": None, "wing": None}
    assert world.asked == [{**asked, "session_id": "s"}]


def test_settings_say_whose_memories_of_where_and_how_many() -> None:
    world = MemoryWorld(user="ana", scope="project", memories=3)
    ask(world, prompt())
    (asked,) = world.asked
    assert (asked["user"], asked["wing"], asked["k"]) == ("ana", "atlas", 3)
    for cwd in ("", "/", None, 7):
        assert ask(world, prompt(cwd=cwd)) == ""
    assert len(world.asked) == 1, "no project is no recall where the scope is the project"
    world = MemoryWorld(user="ana", scope="person")
    ask(world, prompt())
    ask(world, prompt(cwd=""))
    assert [(a["user"], a["wing"], a["person"]) for a in world.asked] == [
        ("ana", "atlas", True), ("ana", "", True),
    ]  # fmt: skip


def test_a_named_wing_is_that_of_the_prompt_too(tmp_path: Path) -> None:
    (tmp_path / "noctuary.toml").write_text('transcripts.wings = ["/srv/code=house"]')
    process = HookProcess("claude", None, tmp_path, 0.0)
    process.settings()
    world = MemoryWorld(scope="project")
    world.wings = process.wings
    ask(world, prompt(cwd="/srv/code/atlas"))
    assert world.asked[0]["wing"] == "house"


def test_the_wing_of_a_prompt_is_the_one_that_turns_of_its_project_have(
    plain_store: Store, tmp_path: Path
) -> None:
    folders = [tmp_path / owner / "mill" for owner in ("mona", "ben")]
    with closing(TurnsFile(plain_store.paths.turns, wait_s=1.0)) as turns:
        kept = [turns.wing_of(str(folder)) for folder in folders]
    process = HookProcess("claude", str(plain_store.root), None, 0.0)
    assert [process.wing_of(str(folder)) for folder in folders] == kept == ["mill", "ben/mill"]
    process.wings = (f"{folders[1]}=wheel",)
    assert process.wing_of(f"{folders[1]}/src") == "wheel"
    assert HookProcess("claude", str(tmp_path), None, 0.0).wing_of("/srv/mill") == "mill"


def test_a_memory_is_injected_once_per_session_until_its_text_changes() -> None:
    world = MemoryWorld()
    lost = {**KEY, "content": "The spare key is lost."}
    turns: list[tuple[list[dict[str, Any]], str, set[str]]] = [
        ([KEY, DOG], "s", {"[17]", "[3]"}), ([KEY, DOG], "s", set()),
        ([KEY, BOILER], "s", {"[t9]"}), ([lost], "s", {"[17]"}), ([KEY], "another", {"[17]"}),
    ]  # fmt: skip
    for number, (found, session, shown) in enumerate(turns):
        world.result = answer(*found)
        text = ask(world, prompt(f"question {number}?", session_id=session))
        assert {mark for mark in ("[17]", "[3]", "[t9]") if mark in text} == shown


def test_memories_that_say_the_same_take_one_place_and_the_next_ones_move_up() -> None:
    world = MemoryWorld()
    asked = "asked when the lease of the boat house in the north bay ends."
    notes = [
        memory(n, f"{how} the lease: the user {asked}", 0.9 - n / 100)
        for n, how in enumerate(("Question on", "Inquiry about", "Asked about", "Query on"))
    ]
    lease = memory(17, "The lease of the boat house in the north bay ends on 3 June 2031.", 0.3)
    other = memory(18, "The lease of the boat house in the south bay ends on 3 June 2031.", 0.2)
    world.result = answer(*notes, lease, other, BOILER, DOG)
    block = ask(world, prompt("when does the lease of the boat house end?"))
    assert [mark for mark in MARKS if mark in block] == ["[0]", "[17]", "[18]"]
    assert [(a["k"], a.get("dry_run")) for a in world.asked] == [(3, None), (MAX_CANDIDATES, True)]
    # What is before the model already stands for its likes too.
    assert ask(world, prompt("when does that lease end?")) == ""
    world.result = answer(KEY, DOG)
    ask(world, prompt(session_id="another"))
    assert len(world.asked) == 5, "where all differ one recall is enough"
    world.result = answer(KEY, {**KEY, "id": 18})
    world.has_time = lambda: False
    assert "[18]" not in ask(world, prompt(session_id="a third"))
    assert len(world.asked) == 6, "behind the deadline nothing more is asked"


def test_what_was_said_in_the_session_itself_is_not_repeated_until_it_compacts() -> None:
    world = MemoryWorld()
    world.result = answer({**BOILER, "session_id": "s"}, DOG)
    assert "[t9]" not in ask(world, prompt())
    ask(world, start("compact"))
    assert "[t9]" in ask(world, prompt("what did the boiler show?"))


@pytest.mark.parametrize(("agent", "limit"), [("claude", 5_000), ("codex", 2_400)])
def test_the_budget_is_kept_and_no_larger_than_the_agent_takes(agent: str, limit: int) -> None:
    world = MemoryWorld(agent, memories=50, budget_tokens=5_000)
    world.result = answer(*(memory(i, f"钥匙 {i} " * 60) for i in range(50)))
    block = ask(world, prompt())
    assert 0.5 * min(limit, 4_600) < estimate_tokens(block) <= limit
    assert len(block) < 8_000
    for budget in (0, 10, 39):
        small = MemoryWorld(agent, budget_tokens=budget)
        small.result = answer(KEY)
        assert ask(small, prompt()) == ""
    world = MemoryWorld(agent, budget_tokens=120)
    world.result = answer(KEY, memory(5, "word " * 200))
    first = ask(world, prompt())
    assert "[17]" in first
    assert "[5]" not in first
    told = [i.memory_id for i in world.sessions["s"].injected]
    assert told == ["17"], "what did not fit may come later"


@pytest.mark.parametrize("abstain", [True, False])
def test_below_the_calibrated_score_or_its_bar_nothing_is_injected(abstain: bool) -> None:
    world = MemoryWorld(abstain=abstain)
    judged = {"score": 0.1, "threshold": 0.3, "abstain": True}
    world.result = answer(KEY, answerability=judged)
    assert bool(ask(world, prompt())) is not abstain
    assert world.counted == [("UserPromptSubmit", None)], "abstaining is no failure"
    world = MemoryWorld(abstain=abstain)
    judged = {"score": 0.6, "threshold": 0.3, "abstain": False, "bar": 0.5}
    world.result = answer({**KEY, "support": 0.2}, {**DOG, "support": 0.6}, answerability=judged)
    text = ask(world, prompt())
    assert "[3]" in text
    assert ("[17]" in text) is not abstain
    (state,) = world.sessions.values()
    assert state.knows(KEY) is not abstain, "nor taken for known"
    assert state.knows(DOG)


@pytest.mark.parametrize("name", ["UserPromptSubmit", "SessionStart"])
@pytest.mark.parametrize("allowed", [True, False])
def test_subagents_get_nothing_unless_the_settings_say_so(name: str, allowed: bool) -> None:
    world = MemoryWorld(in_subagents=allowed)
    world.result = answer(KEY)
    got = ask(world, {**prompt(), "hook_event_name": name, "agent_id": "sub", "source": "user"})
    assert bool(got) is (allowed and name == "UserPromptSubmit")


def test_nothing_is_asked_for_what_is_no_question() -> None:
    world = MemoryWorld()
    world.result = answer(KEY)
    for text in ("", "  \n", "ok", "yes", "/compact", "/mcp__x:y now", "??? !"):
        assert ask(world, prompt(text)) == ""
    assert world.asked == []
    assert world.counted == [], "a skipped prompt must not end an outage"


def test_a_start_that_is_no_compaction_injects_nothing() -> None:
    world = MemoryWorld()
    world.known = answer(KEY)
    ask(world, prompt())
    for source in ("startup", "resume", "clear", "fork", "", "tomorrow"):
        assert ask(world, start(source)) == ""
    assert "prepare" in world.calls


def test_after_a_compaction_the_best_of_what_was_injected_comes_back() -> None:
    world = MemoryWorld()
    world.known = answer(DOG, KEY, BOILER)
    for found, text in (((BOILER, DOG), "first question"), ((KEY,), "second question")):
        world.result = answer(*found)
        ask(world, prompt(text))
    restored = ask(world, start("compact"))
    places = [restored.index(f"[{i}]") for i in ("17", "3", "t9")]
    assert places == sorted(places)
    world.result = answer(KEY, DOG)
    assert ask(world, prompt("third question")) == "", "restored memories are before the model"


def test_a_compaction_takes_away_what_was_not_restored() -> None:
    world = MemoryWorld(restore_tokens=60)
    world.known = world.result = answer(DOG, KEY)
    ask(world, prompt())
    restored = ask(world, start("compact"))
    assert ("[17]" in restored, "[3]" in restored) == (True, False)
    assert estimate_tokens(restored) <= 60
    again = ask(world, prompt("and the dog?"))
    assert ("[17]" in again, "[3]" in again) == (False, True)


def test_what_is_gone_or_was_edited_is_not_restored() -> None:
    world = MemoryWorld()
    assert ask(world, start("compact")) == ""
    assert "fetch" not in world.calls, "nothing injected is nothing to restore"
    world.result = answer(KEY, DOG)
    ask(world, prompt())
    world.known = answer({**KEY, "content": "Another text under this id."})
    assert ask(world, start("compact")) == ""


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize(
    ("name", "fields", "detail"),
    [
        ("PreCompact", {"trigger": "auto"}, "auto"),
        ("PostCompact", {"trigger": "manual", "compact_summary": "x"}, "manual"),
        ("SessionEnd", {"reason": "logout"}, "logout"),
        ("Stop", {}, ""),
    ],
)
def test_what_happens_to_a_session_is_journalled_and_answered_with_nothing(
    agent: str, name: str, fields: dict[str, str], detail: str
) -> None:
    world = MemoryWorld(agent)
    event = {"hook_event_name": name, "session_id": "s", "transcript_path": "/t.jsonl", **fields}
    assert handle(event, world) == {}
    (entry,) = world.entries
    assert (entry.name, entry.session_id, entry.trigger or entry.reason) == (name, "s", detail)
    assert entry.transcript_path == "/t.jsonl"
    assert world.captured == (["/t.jsonl"] if name in ("Stop", "SessionEnd") else [])


def test_a_compaction_is_journalled_and_nothing_else() -> None:
    """Not even the settings are read: it has 200 ms."""
    world = MemoryWorld()
    handle({"hook_event_name": "PreCompact", "transcript_path": "/t"}, world)
    assert set(world.calls) == {"journal", "count"}


def test_capture_is_off_where_the_settings_say_so_or_there_is_no_transcript() -> None:
    for world, path in ((MemoryWorld(capture=False), "/t"), (MemoryWorld(), None)):
        handle({"hook_event_name": "Stop", "transcript_path": path}, world)
        assert (world.captured, len(world.entries)) == ([], 1)


@pytest.mark.parametrize("code", ["no_snapshot", "store_unreadable", "snapshot_damaged"])
def test_a_recall_without_a_snapshot_is_a_failure_that_is_told(code: str) -> None:
    world = MemoryWorld()
    world.result = answer(warnings=[{"code": code, "message": "run `noctuary nightly`"}])
    output = handle(prompt(), world)
    assert world.counted == [("UserPromptSubmit", code)]
    assert output == {
        "systemMessage": "noctuary could not recall: run `noctuary nightly`. This is said once; "
        "`noctuary doctor` says more."
    }
    assert shape_faults("codex", "UserPromptSubmit", output) == []
    world.tells = False
    assert handle(prompt(), world) == {}


def test_other_warnings_are_no_failure_and_a_message_is_one_bounded_line() -> None:
    world = MemoryWorld()
    world.result = answer(KEY, warnings=[{"code": "deadline_dense", "message": "late"}])
    assert "[17]" in ask(world, prompt())
    assert world.counted == [("UserPromptSubmit", None)]
    world.result = Failure("store_unreadable", "a\nlong " * 500)
    message = handle(prompt(), world)["systemMessage"]
    assert "\n" not in message
    assert len(message) < MAX_MESSAGE_CHARS + 100


@pytest.mark.parametrize(
    ("until_s", "cut"), [(0.0, 1), (60.0, 0)], ids=["at-the-deadline", "in-time"]
)
def test_an_answer_that_the_deadline_cut_short_is_counted(
    dense_store: Store, home: Path, monkeypatch: pytest.MonkeyPatch, until_s: float, cut: int
) -> None:
    monkeypatch.setenv("NOCTUARY_HOOK_SCOPE", "store")
    process = Until(str(dense_store.root), time.monotonic() + until_s, home)
    # More than words alone may answer: the whole recall is asked.
    monkeypatch.setenv("NOCTUARY_RECALL_EXACT_MATCH_BONUS", "0.1")
    event = prompt(text="where is the spare key kept", cwd=str(home))
    handle(event, process)
    (counted,) = read_counters(home / COUNTERS).events
    assert (counted.calls, counted.failures, counted.cut_short) == (1, 0, cut)


def test_bad_settings_inject_nothing_as_nobody_knows_whose_memories_are_meant() -> None:
    world = MemoryWorld()
    world.result = answer(KEY)
    world.hook_settings = Failure("bad_settings", "hook.user: a fault")
    assert ask(world, prompt()) == ""
    assert world.asked == []
    assert world.counted == [("UserPromptSubmit", "bad_settings")]


def test_what_nobody_expected_is_counted_as_internal(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    world = MemoryWorld()
    monkeypatch.setattr(world, "recall", fail)
    output = handle(prompt(), world)
    assert world.counted == [("UserPromptSubmit", "internal")]
    assert "ZeroDivisionError" in output["systemMessage"]


@pytest.mark.parametrize(
    "event",
    [None, 1, [], "UserPromptSubmit", {}, {"hook_event_name": "PreToolUse"},
     {"hook_event_name": 3}, {"hook_event_name": "stop"}],
)  # fmt: skip
def test_what_is_no_event_of_ours_has_no_name_and_touches_nothing(event: object) -> None:
    world = MemoryWorld()
    assert handle(event, world) == {}
    assert world.calls == []
    assert parse_event(event) == HookEvent("")


BLOCK = render_block([Line("1", "undated", "The spare key hangs in the pantry.")])


@pytest.mark.parametrize(
    ("text", "source", "query"),
    [
        *((text, "", text) for text in (
            "where is it?", "/etc/hosts is broken", "go on", "钥匙", "Ключ?", "a b c d",
            "what is 42")),
        ("  where is it?\n", "", "where is it?"),
        *((text, "", None) for text in (
            "", " ", "ok", "yes", "y?", "…", "/clear", "/plugin:do it now", "/x\n/y", "匙")),
        *(("the task has ended", source, "the task has ended") for source in (
            "user", "sdk", "loop_wakeup", "schedule_wakeup", "new")),
        ("the task has ended", "system", None), ("the task has ended", "poll_event", None),
        # What noctuary injected is not asked again.
        (f"{BLOCK}\nand the dog?", "", "and the dog?"), (BLOCK, "", None),
    ],
)  # fmt: skip
def test_only_questions_of_people_are_asked(text: str, source: str, query: str | None) -> None:
    assert query_of(text, source) == query


@given(st.text(min_size=4).map(lambda t: t * 700))
def test_a_query_is_bounded_and_keeps_both_ends(prompt: str) -> None:
    found = query_of(f"begin {prompt} end")
    assert found is not None
    assert len(found) <= MAX_QUERY_CHARS
    assert found.startswith("begin ")
    assert found.endswith(" end")


def test_an_event_is_read_with_its_fields() -> None:
    raw = {
        "hook_event_name": "UserPromptSubmit", "session_id": "s", "transcript_path": "/t",
        "cwd": "/c", "prompt": "hello\ud800", "source": "user", "agent_id": "a", "new": 1,
    }  # fmt: skip
    assert parse_event(raw) == HookEvent(
        "UserPromptSubmit", "s", "/t", "/c", "hello?", "user", is_subagent=True
    )
    for absent in (None, ""):
        assert not parse_event({**raw, "agent_id": absent}).is_subagent
    names = ("session_id", "transcript_path", "cwd", "source", "trigger", "reason")
    for unusable in (None, 3, ["x"], {}, "x" * (MAX_FIELD_CHARS + 1), "a\0b"):
        fields = dict.fromkeys(names, unusable)
        assert parse_event({"hook_event_name": "Stop", **fields}) == HookEvent("Stop")


ASKED = {"k": 3, "user": None, "wing": None, "session_id": None}


def soon(condition: Callable[[], bool], seconds: float = 15.0) -> bool:
    """Wait for what another process brings about."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def world_of(home: Path | None, store: str | None = None) -> HookProcess:
    return HookProcess("claude", store, home, time.monotonic())


class Until(HookProcess):
    """A process with a deadline of the test's own."""

    def __init__(self, store: str, until_s: float, home: Path | None = None) -> None:
        super().__init__("claude", store, home, time.monotonic())
        self._deadline_s = until_s

    def until_s(self) -> float:
        return self._deadline_s


def recall_in_time(query: str, *, store: str, until_s: float) -> Mapping[str, Any] | Failure:
    return Until(store, until_s).recall(query, **ASKED)


def test_behind_the_deadline_the_answer_is_the_lexical_one(dense_store: Store) -> None:
    found = recall_in_time("spare key", store=str(dense_store.root), until_s=time.monotonic())
    assert not isinstance(found, Failure)
    assert "deadline_dense" in {w["code"] for w in found["warnings"]}
    assert found["memories"][0]["id"] == 101
    assert all("dense" not in m["legs"] for m in found["memories"])


def test_work_that_takes_too_long_is_left_behind_and_work_that_fails_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ImportError("numpy is broken")

    def sleep(*_: Any, **__: Any) -> None:
        time.sleep(30)

    monkeypatch.setattr("noctuary.recall.api.recall", fail)
    found = recall_in_time("x", store="nowhere", until_s=time.monotonic())
    assert found == Failure("internal", "ImportError: numpy is broken")
    monkeypatch.setattr(hooks, "COLD_GRACE_S", 0.1)
    monkeypatch.setattr("noctuary.recall.api.recall", sleep)
    started = time.monotonic()
    assert recall_in_time("spare key", store="nowhere", until_s=started) == TOO_SLOW
    assert time.monotonic() - started < 2


def test_memories_by_id_are_those_of_the_user_and_of_nobody(dense_store: Store) -> None:
    recaller = Recaller.open(dense_store.root)
    summary = recaller.reader.summaries.ids[0]
    asked = ["101", "106", "107", summary, "999", "no id"]
    for user, own in ((None, []), ("ana", [106]), ("ben", [107]), ("eve", [])):
        found = {m["id"]: m for m in fetch_memories(recaller.reader, asked, user)}
        assert set(found) == {101, summary, *own}
    recalled = recaller.recall("spare key", 1).memories[0].to_json()
    assert found[101] == {name: recalled[name] for name in found[101]}


@pytest.mark.parametrize("code", ["no_snapshot", "store_unreadable"])
def test_what_cannot_be_fetched_is_a_failure(plain_store: Store, code: str) -> None:
    if code == "no_snapshot":
        plain_store.paths.current.unlink()
        shutil.rmtree(plain_store.paths.snapshots)
    for path in plain_store.root.rglob("*"):
        if path.is_file():
            path.write_bytes(b"x")
    found = Until(str(plain_store.root), time.monotonic() + 10).fetch(["101"], user=None)
    assert isinstance(found, Failure)
    assert found.code == code


def test_without_a_home_nothing_is_counted_and_nothing_raises(plain_store: Store) -> None:
    world = HookProcess("claude", str(plain_store.root), None, time.monotonic())
    world.write_session("s", world.read_session("s"))
    world.prepare()
    assert not world.count("Stop", Failure("x", "y"))
    prompt = {"hook_event_name": "UserPromptSubmit", "prompt": "where is the spare key?"}
    output = handle(prompt, world)
    assert "spare key" in output["hookSpecificOutput"]["additionalContext"]


def test_bad_settings_are_a_failure_and_a_long_deadline_gets_its_time(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lifetimes: list[float] = []
    for deadline_ms in ("100", "4000", "4e9"):
        monkeypatch.setenv("NOCTUARY_HOOK_DEADLINE_MS", deadline_ms)
        world = world_of(home)
        world.settings()
        lifetimes.append(world.lifetime_s)
    assert lifetimes[0] == LIFETIME_S
    assert 4 < lifetimes[1] < 4 + LIFETIME_S
    assert MAX_DEADLINE_S < lifetimes[2] < MAX_DEADLINE_S + LIFETIME_S
    monkeypatch.setenv("NOCTUARY_HOOK_DEADLINE_MS", "soon")
    found = world_of(home).settings()
    assert isinstance(found, Failure)
    assert found.code == "bad_settings"
    assert "hook.deadline_ms" in found.message
    assert environment_home() == home
    monkeypatch.setenv("NOCTUARY_HOME", "~nobody-of-that-name/x")
    assert environment_home() is None, "a home that leads nowhere"


def test_a_transcript_is_measured_where_that_is_possible(tmp_path: Path, home: Path) -> None:
    (tmp_path / "t").write_bytes(b"12345")
    for path in (str(tmp_path / "t"), "/no/such/file", "a\0b", ""):
        event = HookEvent("PreCompact", transcript_path=path, trigger="auto")
        assert world_of(home).journal(event) is None
    entries = read_journal(home / JOURNAL)
    assert [entry.offset_bytes for entry in entries] == [5, None, None, None]
    assert {(entry.agent, entry.event, entry.detail) for entry in entries} == {
        ("claude", "PreCompact", "auto")
    }


def test_a_session_starts_one_server_which_the_first_prompt_meets(
    plain_store: Store, home: Path, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[str, ...]] = []
    told: list[str] = []
    real = hooks.start_detached

    def start(module: str, arguments: Sequence[str]) -> bool:
        assert told, "the agent has its answer"
        started.append((module, *arguments))
        return real(module, arguments) if len(started) == 1 else True

    def stay(_: HookProcess) -> None:
        """Do not end the process of the tests."""

    def happen(name: str, **fields: Any) -> None:
        raw = json.dumps({"hook_event_name": name, "session_id": "s", **fields}).encode()
        hooks.answer_in_time(
            "claude", store, raw, time.monotonic(), lambda line: told.append(line.decode())
        )
        told.clear()

    monkeypatch.setattr(hooks, "start_detached", start)
    monkeypatch.setattr(HookProcess, "end_in_time", stay)
    store, stamp = str(plain_store.root), home / hooks.STAMP
    monkeypatch.setenv("NOCTUARY_HOOK_START_SERVER", "false")
    happen("SessionStart", source="startup")
    assert not stamp.exists(), "not where the settings forbid it"
    monkeypatch.delenv("NOCTUARY_HOOK_START_SERVER")
    happen("PreCompact", trigger="auto")
    assert not started, "nothing would have been answered"
    for name, fields in (
        ("SessionStart", {"source": "startup"}),
        ("UserPromptSubmit", {"prompt": "where is the spare key?"}),
        ("SessionStart", {"source": "resume"}),
    ):
        happen(name, **fields)
    assert started == [("noctuary.cli.main", "serve", "--store", store)]
    assert soon(lambda: not isinstance(ping(store), Refusal))
    found = ping(store)
    assert not isinstance(found, Refusal)
    pid = found["pid"]
    assert os.getsid(pid) == pid, "a session of its own"
    asked = {"hook_event_name": "UserPromptSubmit", "prompt": "boiler valve", "session_id": "t"}
    line = ask_hook("claude", store, json.dumps(asked).encode(), time.monotonic())
    assert line is not None
    assert b"boiler" in line
    os.kill(pid, 15)
    assert soon(lambda: isinstance(ping(store), Refusal))
    old = time.time() - hooks.RETRY_S - 1
    os.utime(stamp, (old, old))
    happen("UserPromptSubmit", prompt="and the cat?")
    assert len(started) == 2


def test_no_server_is_started_for_a_store_that_is_not_there(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "start_detached", pytest.fail)
    process = HookProcess("claude", None, home, time.monotonic())
    process.prepare()
    process.start_server()
    assert not (home / hooks.STAMP).exists()


def transcript(folder: Path, *texts: str) -> Path:
    """A small transcript in Claude's shape."""
    path = folder / "11111111-2222-3333-4444-555555555555.jsonl"
    lines = [
        {
            "type": "user", "uuid": f"u{i}", "parentUuid": None, "sessionId": path.stem,
            "timestamp": f"2026-11-20T10:0{i}:00.000Z", "cwd": "/srv/ana/atlas",
            "isSidechain": False, "message": {"role": "user", "content": text},
        }
        for i, text in enumerate(texts)
    ]  # fmt: skip
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def captures(home: Path) -> list[EventCounters]:
    return [e for e in read_counters(home / COUNTERS).events if e.event == CAPTURE]


def test_a_stop_keeps_what_was_said_and_counts_what_it_cannot(
    plain_store: Store, home: Path, tmp_path: Path
) -> None:
    """The hook does not wait for it: another process does it."""
    path, store = transcript(tmp_path, "My locker code changed to the blue one."), plain_store
    stop = {"hook_event_name": "Stop", "session_id": path.stem, "transcript_path": str(path)}
    assert handle(stop, world_of(home, store=str(store.root))) == {}
    assert soon(lambda: bool(captures(home)))
    (counted,) = captures(home)
    assert (counted.calls, counted.failures, counted.last_error_code) == (1, 0, None)
    assert b"locker code changed" in store.paths.turns.read_bytes()
    store.paths.turns.unlink()
    store.paths.turns.mkdir()
    assert capture("codex", str(path), str(store.root)) is not None
    (failed,) = [event for event in captures(home) if event.outage_code is not None]
    assert (failed.agent, failed.outage_code) == ("codex", "capture")


def test_without_a_store_the_night_captures_from_the_journal(home: Path, tmp_path: Path) -> None:
    for store in (None, "nowhere", "/no/such/store"):
        assert capture("claude", str(transcript(tmp_path, "something")), store) is None
    assert not list(home.rglob("turns.sqlite"))


def test_the_night_keeps_what_the_journal_names_for_its_store(
    plain_store: Store, home: Path, tmp_path: Path
) -> None:
    path = transcript(tmp_path, "My locker code changed to the blue one.")
    compact = {"hook_event_name": "PreCompact", "transcript_path": str(path)}
    handle(compact, world_of(home))
    (tmp_path / "other").mkdir()
    for store, turns in ((tmp_path / "other", 0), (plain_store.root, 1), (plain_store.root, 0)):
        notes = capture_journalled(home, store, TranscriptSettings())
        assert notes == {"transcripts": int(store == plain_store.root), "turns": turns, "faults": 0}
    path.unlink()
    assert capture_journalled(home, plain_store.root, TranscriptSettings())["transcripts"] == 0


def test_no_process_is_started_for_what_is_no_transcript(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(module: str, arguments: Any) -> bool:
        raise AssertionError(module)

    monkeypatch.setattr(hooks, "start_detached", refuse)
    for path in ("/no/such/file", "/dev/zero", "/tmp", "a\0b"):
        assert world_of(None).capture(path) is None


# A fork's model has what its parent's was given: each version tells of it in another way.


def _session(folder: Path, name: str) -> dict[str, str]:
    return {"session_id": name, "transcript_path": str(folder / f"{name}.jsonl")}


@pytest.mark.parametrize("version", ["old_id_at_start", "fork_at_start", "other_folder", "new"])
def test_a_fork_is_not_given_again_what_its_parent_was(tmp_path: Path, version: str) -> None:
    folder = tmp_path / "projects"
    folder.mkdir()

    def process() -> HookProcess:
        return HookProcess("claude", None, tmp_path / "home", time.monotonic())

    def start(source: str, name: str, **fields: Any) -> None:
        event = {"hook_event_name": "SessionStart", "source": source, **_session(folder, name)}
        process().begin_session(parse_event(event | fields))

    start("startup", "parent")
    process().write_session("parent", SessionState().with_injected([KEY], 40))
    (folder / "parent.jsonl").write_text("{}\n", "utf-8")
    os.utime(folder / "parent.jsonl", (time.time() - 100, time.time() - 100))
    (folder / "another.jsonl").write_text("{}\n", "utf-8")
    asks, knows = _session(folder, "fork"), True
    if version == "fork_at_start":
        start("fork", "fork", seconds_since_last_response=101)
    elif version == "new":
        start("resume", "parent")
        start("startup", "fork")
        knows = False
    else:
        start("resume", "parent")
        if version == "other_folder":
            asks, knows = _session(tmp_path, "fork"), False
    event = parse_event({"hook_event_name": "UserPromptSubmit", "prompt": "key?", **asks})
    state = process().continue_session(event)
    assert (state.knows(KEY), state.spent) == (knows, ()), "its tokens were the parent's"


def test_tokens_are_counted_for_what_was_injected_and_restored_and_once_each() -> None:
    world = MemoryWorld()
    world.result = answer(KEY, DOG)
    first = ask(world, prompt())
    assert ask(world, prompt("where is the spare key kept?")) == "", "known already"
    ((_, tokens),) = world.sessions["s"].spent
    assert tokens == estimate_tokens(first)
    world.known = world.result
    again = ask(world, start("compact"))
    assert again
    ((day, tokens),) = world.sessions["s"].spent
    assert tokens == estimate_tokens(first) + estimate_tokens(again)
    assert day == time.strftime("%Y-%m-%d", time.gmtime())


@pytest.mark.parametrize("seconds", [None, "7", True, -1, float("nan"), 10**12])
def test_a_fork_whose_parent_is_not_told_knows_nothing(tmp_path: Path, seconds: object) -> None:
    event = {"hook_event_name": "SessionStart", "source": "fork", **_session(tmp_path, "f")}
    parsed = parse_event({**event, "seconds_since_last_response": seconds})
    assert parsed.idle_s is None
    HookProcess("claude", None, tmp_path / "home", 0.0).begin_session(parsed)


@pytest.mark.parametrize(
    "words",
    ["<task-notification><summary>key found</summary></task-notification>\nRead the file.",
     '<teammate-message teammate_id="b">where is the spare key?</teammate-message>'],
)  # fmt: skip
def test_a_machines_message_asks_nothing(words: str) -> None:
    world = MemoryWorld()
    assert handle(prompt(words), world) == {}
    assert not world.asked
