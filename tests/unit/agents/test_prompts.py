from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.agents.hooks import MAX_FIELD_CHARS, MAX_QUERY_CHARS, HookEvent, parse_event, query_of
from noctuary.sources.injected import Line, render_block


@pytest.mark.parametrize(
    "prompt",
    ["where is it?", "/etc/hosts is broken", "go on", "钥匙", "Ключ?", "a b c d", "what is 42"],
)
def test_questions_are_asked_as_they_are(prompt: str) -> None:
    assert query_of(prompt) == prompt
    assert query_of(f"  {prompt}\n") == prompt


@pytest.mark.parametrize(
    "prompt", ["", " ", "ok", "yes", "y?", "…", "/clear", "/plugin:do it now", "/x\n/y", "匙"]
)
def test_what_is_too_short_or_a_command_is_not_asked(prompt: str) -> None:
    assert query_of(prompt) is None


@pytest.mark.parametrize(
    ("source", "asked"),
    [("", True), ("user", True), ("sdk", True), ("loop_wakeup", True), ("schedule_wakeup", True),
     ("new", True), ("system", False), ("poll_event", False)],
)  # fmt: skip
def test_machines_are_not_answered(source: str, asked: bool) -> None:
    assert (query_of("the task has ended", source) is not None) is asked


def test_what_noctuary_injected_is_not_asked_again() -> None:
    block = render_block([Line("1", "undated", "The spare key hangs in the pantry.")])
    assert query_of(f"{block}\nand the dog?") == "and the dog?"
    assert query_of(block) is None


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


@pytest.mark.parametrize("value", [None, 3, ["x"], {}, "x" * (MAX_FIELD_CHARS + 1), "a\0b"])
def test_a_field_that_cannot_be_used_counts_as_missing(value: object) -> None:
    names = ("session_id", "transcript_path", "cwd", "source", "trigger", "reason")
    raw = {"hook_event_name": "Stop", **dict.fromkeys(names, value)}
    assert parse_event(raw) == HookEvent("Stop")


@pytest.mark.parametrize("value", [None, 1, [], "Stop", {}, {"hook_event_name": "stop"}])
def test_what_is_no_event_has_no_name(value: object) -> None:
    assert parse_event(value) == HookEvent("")
