"""What a line of a Codex rollout comes to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.sources.transcripts import FileContext, Message, Part, Skip, is_codex, read_codex
from tests.support.transcripts import JSON_VALUES, ClaudeSession, CodexSession


def read_all(session: CodexSession, context: FileContext | None = None) -> list[Message]:
    context = context or FileContext()
    found = [r for line in session.lines for r in read_codex(line, context)]
    return [r for r in found if isinstance(r, Message)]


def test_what_is_said_twice_is_one_turn_each() -> None:
    session = CodexSession()
    session.user("Which depot?")
    session.assistant("D17.")
    messages = read_all(session)
    assert [(m.role, m.parts[0].texts) for m in messages] == [
        ("user", ("Which depot?",)),
        ("assistant", ("D17.",)),
    ]
    assert {(m.agent, m.session, m.project) for m in messages} == {
        ("codex", "01990000-aaaa-7bbb-8ccc-dddddddddddd", "depot")
    }


def test_calls_belong_to_the_answer_before_them_until_a_result() -> None:
    session = CodexSession()
    session.user("Which depot?")
    session.assistant("I look.")
    session.called("c1", "shell", command=["ls"])
    session.called("c2", "shell", command=["pwd"])
    session.returned("c1", "a")
    session.returned("c2", {"content": "/srv", "success": False})
    session.called("c3", "shell", command=["id"])
    said, answer, one, two, out, failed, three = read_all(session)
    assert answer.native_id == one.native_id == two.native_id
    assert len({said.native_id, answer.native_id, three.native_id}) == 3
    assert out.native_id == failed.native_id == ""
    assert out.parts == (Part("result:c1", "result", "", ("a",)),)
    assert failed.parts == (Part("result:c2", "result", "", ("/srv",), is_error=True),)


@pytest.mark.parametrize(
    ("item", "part"),
    [
        (
            {
                "type": "custom_tool_call",
                "call_id": "c",
                "name": "apply_patch",
                "input": "*** Begin",
            },
            Part("call:c", "call", "apply_patch", ("*** Begin",)),
        ),
        (
            {"type": "local_shell_call", "call_id": "c", "action": {"command": ["ls", "-a"]}},
            Part("call:c", "call", "shell", ('["ls", "-a"]',)),
        ),
        (
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": "x"}'},
            Part("call:c", "call", "f", ("x",)),
        ),
        (
            {"type": "custom_tool_call_output", "call_id": "c", "output": [{"text": "a"}, 3]},
            Part("result:c", "result", "", ("a",)),
        ),
    ],
)
def test_every_kind_of_call_is_read(item: dict[str, Any], part: Part) -> None:
    session = CodexSession()
    session.add("response_item", item)
    assert read_all(session)[0].parts == (part,)


@pytest.mark.parametrize(
    ("kind", "payload", "reason"),
    [
        ("compacted", {"message": "so far"}, Skip.COMPACT_SUMMARY),
        ("event_msg", {"type": "context_compacted"}, Skip.COMPACT_BOUNDARY),
        ("event_msg", {"type": "token_count"}, Skip.OTHER_TYPE),
        ("event_msg", {"type": "agent_message", "message": "again"}, Skip.OTHER_TYPE),
        ("event_msg", {"type": "user_message", "message": " "}, Skip.NO_CONTENT),
        ("turn_context", {"cwd": "/x"}, Skip.OTHER_TYPE),
        ("response_item", {"type": "message", "role": "user", "content": []}, Skip.META),
        ("response_item", {"type": "message", "role": "developer"}, Skip.META),
        ("response_item", {"type": "reasoning", "summary": []}, Skip.OTHER_TYPE),
        ("response_item", {"type": "function_call", "name": "f"}, Skip.NO_CONTENT),
    ],
)
def test_what_nobody_said_is_no_turn(kind: str, payload: dict[str, Any], reason: Skip) -> None:
    line = CodexSession().add(kind, payload)
    assert read_codex(line, FileContext()) == [reason]


def test_a_fork_repeats_its_parents_turns_under_its_own_session() -> None:
    parent = CodexSession()
    parent.user("Which depot?")
    fork = CodexSession(session="fork", cwd="/home/me/other")
    fork.lines += parent.lines
    (original,), (copied,) = read_all(parent), read_all(fork)
    assert copied.native_id == original.native_id
    assert (copied.session, copied.project) == ("fork", "other")


@pytest.mark.parametrize("source", [{"subagent": {"thread_spawn": {}}}, "subagent"])
def test_a_subagents_rollout_is_a_sidechain(source: object) -> None:
    session = CodexSession(source=source)
    session.user("look at the tests")
    assert [m.is_sidechain for m in read_all(session)] == [True]


def test_the_shapes_are_told_apart() -> None:
    assert is_codex(CodexSession().lines[0])
    assert not is_codex(ClaudeSession().user("words"))
    assert not is_codex({"type": "event_msg", "payload": "words"})


_TYPES = st.sampled_from(["session_meta", "response_item", "event_msg", "compacted"])
_INNER = st.sampled_from(
    ["message", "function_call", "function_call_output", "local_shell_call", "user_message"]
)


_KEYS = st.sampled_from(
    ["id", "call_id", "message", "output", "content", "action", "arguments", "source", "cwd"]
)


@given(_TYPES, _INNER, st.dictionaries(_KEYS, JSON_VALUES))
def test_any_object_is_read_without_an_error(
    kind: str, inner: str, payload: dict[str, Any]
) -> None:
    line = {"type": kind, "payload": {**payload, "type": inner, "role": "assistant"}}
    assert read_codex(line, FileContext())
