from __future__ import annotations

from typing import Any

import pytest

from noctuary.agents.hooks import MAX_MESSAGE_CHARS, Failure, handle
from noctuary.sources.injected import cut_blocks
from noctuary.text.marks import estimate_tokens
from tests.support.hook_shapes import AGENTS, shape_faults
from tests.support.hook_worlds import MemoryWorld, answer, memory

KEY = memory(17, "The spare key hangs in the pantry.", 0.9, wing="home", room="kitchen")
BOILER = memory("t9", "Mira: The boiler shows error F22.", 0.4, session_id="old")
DOG = memory(3, "The dog is called Pixel.", 0.6)


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
    assert world.asked == [
        {"query": "where is the spare key?", "k": 3, "user": None, "wing": None, "session_id": "s"}
    ]


def test_settings_say_whose_memories_of_where_and_how_many() -> None:
    world = MemoryWorld(user="ana", scope="project", memories=3)
    ask(world, prompt())
    (asked,) = world.asked
    assert (asked["user"], asked["wing"], asked["k"]) == ("ana", "atlas", 3)


@pytest.mark.parametrize("cwd", ["", "/", None, 7])
def test_no_project_is_no_recall_where_the_scope_is_the_project(cwd: Any) -> None:
    world = MemoryWorld(scope="project")
    world.result = answer(KEY)
    assert ask(world, prompt(cwd=cwd)) == ""
    assert world.asked == []


def test_a_memory_is_injected_once_per_session_until_its_text_changes() -> None:
    world = MemoryWorld()
    world.result = answer(KEY, DOG)
    assert "[17]" in ask(world, prompt())
    assert ask(world, prompt("and again?")) == ""
    world.result = answer(KEY, BOILER)
    second = ask(world, prompt("what else?"))
    assert "[17]" not in second
    assert "[t9]" in second
    world.result = answer({**KEY, "content": "The spare key is lost."})
    assert "is lost" in ask(world, prompt("really?"))
    world.result = answer(KEY)
    assert "[17]" in ask(world, prompt(session_id="another"))


def test_what_was_said_in_the_session_itself_is_not_repeated_until_it_compacts() -> None:
    world = MemoryWorld()
    world.result = answer({**BOILER, "session_id": "s"}, DOG)
    assert "[t9]" not in ask(world, prompt())
    ask(world, start("compact"))
    assert "[t9]" in ask(world, prompt("what did the boiler show?"))


def test_what_did_not_fit_may_come_later() -> None:
    long = memory(5, "word " * 200)
    world = MemoryWorld(budget_tokens=120)
    world.result = answer(KEY, long)
    first = ask(world, prompt())
    assert "[17]" in first
    assert "[5]" not in first
    assert [i.memory_id for i in world.sessions["s"].injected] == ["17"]


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


@pytest.mark.parametrize("abstain", [True, False])
def test_below_the_calibrated_score_nothing_is_injected(abstain: bool) -> None:
    world = MemoryWorld(abstain=abstain)
    world.result = answer(KEY, answerability={"score": 0.1, "threshold": 0.3, "abstain": True})
    assert bool(ask(world, prompt())) is not abstain
    assert world.counted == [("UserPromptSubmit", None)], "abstaining is no failure"
    world.result = answer(DOG, answerability={"score": 0.5, "threshold": 0.3, "abstain": False})
    assert "[3]" in ask(world, prompt())


@pytest.mark.parametrize("abstain", [True, False])
def test_a_memory_below_its_bar_is_neither_injected_nor_taken_for_known(abstain: bool) -> None:
    world = MemoryWorld(abstain=abstain)
    world.result = answer(
        {**KEY, "support": 0.2}, {**DOG, "support": 0.6},
        answerability={"score": 0.6, "threshold": 0.3, "abstain": False, "bar": 0.5},
    )  # fmt: skip
    text = ask(world, prompt())
    assert f"[{DOG['id']}]" in text
    assert (f"[{KEY['id']}]" in text) is not abstain
    (state,) = world.sessions.values()
    assert state.knows(KEY) is not abstain
    assert state.knows(DOG)


@pytest.mark.parametrize("name", ["UserPromptSubmit", "SessionStart"])
@pytest.mark.parametrize("allowed", [True, False])
def test_subagents_get_nothing_unless_the_settings_say_so(name: str, allowed: bool) -> None:
    world = MemoryWorld(in_subagents=allowed)
    world.result = answer(KEY)
    got = ask(world, {**prompt(), "hook_event_name": name, "agent_id": "sub", "source": "user"})
    assert bool(got) is (allowed and name == "UserPromptSubmit")


@pytest.mark.parametrize("text", ["", "  \n", "ok", "yes", "/compact", "/mcp__x:y now", "??? !"])
def test_nothing_is_asked_for_what_is_no_question(text: str) -> None:
    world = MemoryWorld()
    world.result = answer(KEY)
    assert ask(world, prompt(text)) == ""
    assert world.asked == []
    assert world.counted == [], "a skipped prompt must not end an outage"


@pytest.mark.parametrize("source", ["startup", "resume", "clear", "fork", "", "tomorrow"])
def test_a_start_that_is_no_compaction_injects_nothing(source: str) -> None:
    world = MemoryWorld()
    world.known = answer(KEY)
    ask(world, prompt())
    assert ask(world, start(source)) == ""
    assert "prepare" in world.calls


def test_after_a_compaction_the_best_of_what_was_injected_comes_back() -> None:
    world = MemoryWorld()
    world.known = answer(DOG, KEY, BOILER)
    world.result = answer(BOILER, DOG)
    ask(world, prompt())
    world.result = answer(KEY)
    ask(world, prompt("second question"))
    restored = ask(world, start("compact"))
    places = [restored.index(f"[{i}]") for i in ("17", "3", "t9")]
    assert places == sorted(places)
    world.result = answer(KEY, DOG)
    assert ask(world, prompt("third question")) == "", "restored memories are before the model"


def test_a_compaction_takes_away_what_was_not_restored() -> None:
    world = MemoryWorld(restore_tokens=60)
    world.known = answer(KEY, DOG)
    world.result = answer(DOG, KEY)
    ask(world, prompt())
    restored = ask(world, start("compact"))
    assert "[17]" in restored
    assert "[3]" not in restored
    assert estimate_tokens(restored) <= 60
    again = ask(world, prompt("and the dog?"))
    assert "[3]" in again
    assert "[17]" not in again


def test_what_is_gone_or_was_edited_is_not_restored() -> None:
    world = MemoryWorld()
    world.result = answer(KEY, DOG)
    ask(world, prompt())
    world.known = answer({**KEY, "content": "Another text under this id."})
    assert ask(world, start("compact")) == ""


def test_nothing_injected_is_nothing_to_restore() -> None:
    world = MemoryWorld()
    assert ask(world, start("compact")) == ""
    assert "fetch" not in world.calls


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
    assert world.captured == (["/t.jsonl"] if name == "Stop" else [])


def test_a_compaction_is_journalled_and_nothing_else() -> None:
    """Not even the settings are read: it has 200 ms."""
    world = MemoryWorld()
    handle({"hook_event_name": "PreCompact", "transcript_path": "/t"}, world)
    assert set(world.calls) == {"journal", "count"}


def test_capture_is_off_where_the_settings_say_so_or_there_is_no_transcript() -> None:
    off = MemoryWorld(capture=False)
    handle({"hook_event_name": "Stop", "transcript_path": "/t"}, off)
    none = MemoryWorld()
    handle({"hook_event_name": "Stop", "transcript_path": None}, none)
    assert off.captured == none.captured == []
    assert len(off.entries) == len(none.entries) == 1


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


def test_other_warnings_are_no_failure() -> None:
    world = MemoryWorld()
    world.result = answer(KEY, warnings=[{"code": "deadline_dense", "message": "late"}])
    assert "[17]" in ask(world, prompt())
    assert world.counted == [("UserPromptSubmit", None)]


def test_a_message_is_one_line_and_bounded() -> None:
    world = MemoryWorld()
    world.result = Failure("store_unreadable", "a\nlong " * 500)
    message = handle(prompt(), world)["systemMessage"]
    assert "\n" not in message
    assert len(message) < MAX_MESSAGE_CHARS + 100


def test_bad_settings_inject_nothing_as_nobody_knows_whose_memories_are_meant() -> None:
    world = MemoryWorld()
    world.result = answer(KEY)
    world.hook_settings = Failure("bad_settings", "hook.user: a fault")
    assert ask(world, prompt()) == ""
    assert world.asked == []
    assert world.counted == [("UserPromptSubmit", "bad_settings")]


def test_what_nobody_expected_is_counted_as_internal() -> None:
    class Raising(MemoryWorld):
        def recall(self, query: str, **asked: Any) -> dict[str, Any]:
            raise ZeroDivisionError

    world = Raising()
    output = handle(prompt(), world)
    assert world.counted == [("UserPromptSubmit", "internal")]
    assert "ZeroDivisionError" in output["systemMessage"]


@pytest.mark.parametrize(
    "event",
    [None, [], "UserPromptSubmit", {}, {"hook_event_name": "PreToolUse"}, {"hook_event_name": 3}],
)
def test_what_is_no_event_of_ours_touches_nothing(event: object) -> None:
    world = MemoryWorld()
    assert handle(event, world) == {}
    assert world.calls == []
