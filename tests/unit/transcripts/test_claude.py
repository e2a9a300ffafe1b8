"""What a line of a Claude Code transcript comes to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.sources.transcripts import FileContext, Message, Part, Skip, read_claude
from tests.support.transcripts import JSON_VALUES, ClaudeSession, call, text, thinking


@pytest.fixture
def session() -> ClaudeSession:
    return ClaudeSession()


def read(line: dict[str, Any], context: FileContext | None = None) -> list[Message | Skip]:
    return read_claude(line, context or FileContext())


def only(line: dict[str, Any], context: FileContext | None = None) -> Message:
    (found,) = read(line, context)
    assert isinstance(found, Message)
    return found


def test_a_prompt_is_a_turn_of_its_user(session: ClaudeSession) -> None:
    line = session.user("Which carrier delivers on Saturday?")
    message = only(line)
    assert message.role == "user"
    assert message.native_id == line["uuid"]
    assert (message.session, message.project) == (session.session, "shop")
    assert message.at_us == 1_793_610_000_000_000
    assert message.parts == (
        Part(f"{line['uuid']}:0", "text", "", ("Which carrier delivers on Saturday?",)),
    )


def test_lines_of_one_answer_share_an_id_that_is_not_the_lines(session: ClaudeSession) -> None:
    one = only(session.assistant(text("I look."), message="msg_1"))
    two = only(session.assistant(call("Bash", "toolu_1", command="ls"), message="msg_1"))
    assert one.native_id == two.native_id == "msg_1"
    assert two.parts == (Part("call:toolu_1", "call", "Bash", ("ls",)),)


def test_without_a_message_id_the_request_names_the_answer(session: ClaudeSession) -> None:
    line = session.assistant(text("I look."), requestId="req_7")
    del line["message"]["id"]
    assert only(line).native_id == "req_7"
    del line["requestId"]
    assert only(line).native_id == line["uuid"]


def test_a_result_belongs_to_its_call(session: ClaudeSession) -> None:
    blocks = [text("3 files"), {"type": "image", "source": {}}, text("done")]
    message = only(session.result("toolu_1", blocks, is_error=True))
    assert message.native_id == ""
    assert message.parts == (
        Part("result:toolu_1", "result", "", ("3 files", "done"), is_error=True),
    )


def test_words_beside_a_result_are_a_turn_of_their_own(session: ClaudeSession) -> None:
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "3 files"}
    found = read(session.user([result, text("and now the tax code")]))
    assert [(m.native_id != "", m.parts[0].kind) for m in found if isinstance(m, Message)] == [
        (False, "result"),
        (True, "text"),
    ]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"isMeta": True}, Skip.META),
        ({"isVisibleInTranscriptOnly": True}, Skip.META),
        ({"isCompactSummary": True}, Skip.COMPACT_SUMMARY),
        ({"isCompactSummary": True, "isMeta": True}, Skip.COMPACT_SUMMARY),
        ({"isApiErrorMessage": True}, Skip.SYNTHETIC),
        ({"type": "summary"}, Skip.OTHER_TYPE),
        ({"type": "attachment"}, Skip.OTHER_TYPE),
        ({"type": "system", "subtype": "compact_boundary"}, Skip.COMPACT_BOUNDARY),
        ({"type": None}, Skip.OTHER_TYPE),
        ({"message": "words"}, Skip.NO_CONTENT),
        ({"message": {"content": None}}, Skip.NO_CONTENT),
        ({"message": {"content": [3, None, {"type": "new"}]}}, Skip.NO_CONTENT),
    ],
)
def test_what_nobody_said_is_no_turn(
    session: ClaudeSession, fields: dict[str, Any], reason: Skip
) -> None:
    assert read(session.user("words") | fields) == [reason]


def test_errors_in_an_answers_place_and_reasoning_are_no_turns(session: ClaudeSession) -> None:
    line = session.assistant(text("API Error: 529 Overloaded"))
    line["message"]["model"] = "<synthetic>"
    assert read(line) == [Skip.SYNTHETIC]
    assert read(session.assistant(thinking("perhaps"))) == [Skip.NO_CONTENT]


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"isSidechain": True}, "sidechain"),
        ({"isSidechain": True, "agentId": "a1"}, "a1"),
        ({"agentId": "a1"}, "a1"),
        ({"teamName": "reviewers"}, "sidechain"),
    ],
)
def test_subagents_are_sidechains_with_sessions_of_their_own(
    session: ClaudeSession, fields: dict[str, Any], name: str
) -> None:
    message = only(session.user("look at the tests") | fields)
    assert message.is_sidechain
    assert message.session == f"{session.session}/{name}"


def test_the_project_is_the_folder_that_the_session_began_in(session: ClaudeSession) -> None:
    context = FileContext()
    read(session.other("system"), context)
    assert only(session.user("words") | {"cwd": "/home/me/shop/src"}, context).project == "shop"


def test_a_copied_line_of_a_fork_is_the_turn_that_it_copies(session: ClaudeSession) -> None:
    line = session.user("words")
    copied = line | {"uuid": "new", "forkedFrom": {"sessionId": "s", "messageUuid": line["uuid"]}}
    assert only(copied).native_id == line["uuid"]


def test_lines_without_an_id_are_told_apart(session: ClaudeSession) -> None:
    lines = [session.user("one"), session.user("two")]
    for line in lines:
        del line["uuid"]
    first, second, again = only(lines[0]), only(lines[1]), only(dict(lines[0]))
    assert first.native_id == again.native_id != second.native_id
    assert first.parts[0].key != second.parts[0].key


_FIELDS = st.sampled_from(
    ["type", "message", "uuid", "timestamp", "sessionId", "cwd", "isSidechain", "forkedFrom",
     "content", "payload", "agentId"]
)  # fmt: skip


@given(st.sampled_from(["user", "assistant"]), st.dictionaries(_FIELDS, JSON_VALUES), JSON_VALUES)
def test_any_object_is_read_without_an_error(kind: str, line: dict[str, Any], inner: Any) -> None:
    found = read({"message": {"content": [inner, {"type": "text", "text": inner}]}, **line})
    assert found
    assert read({**line, "type": kind})
