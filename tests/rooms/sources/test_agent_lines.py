"""Lines of Claude Code and Codex in the mixes that versions write: who says what, and once."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from noctuary.core.settings import TranscriptSettings
from noctuary.sources.histories import find_transcripts
from noctuary.sources.ingest import IDLE_S, TurnsFile, find_unread_sessions, ingest_transcripts
from noctuary.sources.injected import TAG, is_machine_made
from noctuary.sources.turns import TranscriptSource
from tests.support.transcripts import ClaudeSession, CodexSession, call, text

Lines = Iterable[Mapping[str, Any]]
Keep = Callable[..., list[str]]


@pytest.fixture
def keep(tmp_path: Path) -> Keep:
    """Return a function that keeps the lines of a session and returns its turns, oldest first."""

    def kept(lines: Lines, name: str = "rollout-s.jsonl", age_s: float = 0.0) -> list[str]:
        path = tmp_path / "sessions" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")
        if age_s:
            then_s = path.stat().st_mtime - age_s
            os.utime(path, (then_s, then_s))
        ingest_transcripts(path.parent, tmp_path / "turns.sqlite")
        return turns(tmp_path)

    return kept


def turns(folder: Path) -> list[str]:
    with TranscriptSource(folder / "turns.sqlite") as source:
        rows = sorted(source.rows(), key=lambda row: str(row.fields["created_at"]))
        return [str(row.fields["content"]) for row in rows if row.fields["content"]]


# Codex: a prompt stands in one, two or three places.

MESSAGE, EVENT, ITEM = "message", "event", "item"
WORDS = "The ferry to Lund leaves at nine."


def codex_prompt(session: CodexSession, place: str, words: str = WORDS) -> None:
    if place == MESSAGE:
        content = [{"type": "input_text", "text": words}]
        session.add("response_item", {"type": "message", "role": "user", "content": content})
    elif place == EVENT:
        session.add("event_msg", {"type": "user_message", "message": words})
    else:
        item = {"type": "UserMessage", "id": "i", "content": [{"type": "text", "text": words}]}
        session.add("event_msg", {"type": "item_completed", "item": item})


@pytest.mark.parametrize(
    "places",
    [
        (MESSAGE,), (EVENT,), (ITEM,), (MESSAGE, EVENT), (MESSAGE, ITEM), (EVENT, MESSAGE),
        (ITEM, MESSAGE),
    ],
    ids="-".join,
)  # fmt: skip
def test_a_prompt_is_one_turn_wherever_it_stands(places: Sequence[str], keep: Keep) -> None:
    session = CodexSession()
    for _ in range(2):  # said twice, it is two turns
        session.add("event_msg", {"type": "task_started", "turn_id": "t"})
        for place in places:
            codex_prompt(session, place)
        session.said_once("I book it.")
    assert keep(session.lines) == [f"User: {WORDS}", "Assistant: I book it."] * 2


def test_versions_that_share_a_file_lose_nothing_and_a_last_prompt_is_kept(keep: Keep) -> None:
    session = CodexSession()
    codex_prompt(session, MESSAGE, "one")
    codex_prompt(session, EVENT, "one")
    session.said_once("first")
    codex_prompt(session, MESSAGE, "two")
    session.said_once("second")
    codex_prompt(session, MESSAGE, "three")
    codex_prompt(session, MESSAGE, "four")
    codex_prompt(session, ITEM, "three")
    codex_prompt(session, ITEM, "four")
    session.said_once("third")
    codex_prompt(session, MESSAGE, "five")
    said = ["User: one", "Assistant: first", "User: two", "Assistant: second", "User: three"]
    said += ["User: four", "Assistant: third", "User: five"]
    assert keep(session.lines) == said
    codex_prompt(session, ITEM, "five")
    assert keep(session.lines) == said


@pytest.mark.parametrize(
    "words",
    [
        "<environment_context>\n<cwd>/x</cwd>\n</environment_context>",
        "# AGENTS.md instructions for /x\n\n<INSTRUCTIONS>\nbe brief\n</INSTRUCTIONS>",
        "<turn_aborted>\nThe user interrupted.\n</turn_aborted>",
        '<subagent_notification>{"id": 1}</subagent_notification>',
        "<user_instructions>be brief</user_instructions>",
        "<a_tag_of_next_year>\nwords\n</a_tag_of_next_year>",
    ],
)
def test_what_codex_says_in_its_users_place_is_no_turn(words: str, keep: Keep) -> None:
    session = CodexSession()
    codex_prompt(session, MESSAGE, words)
    codex_prompt(session, MESSAGE)
    session.said_once("yes")
    assert keep(session.lines) == [f"User: {WORDS}", "Assistant: yes"]


def test_marks_of_newer_versions_decide_who_wrote_a_message(keep: Keep) -> None:
    session = CodexSession()
    for kinds, words in (
        (["hooks.additional_context"], "a memory"),
        (["user.text"], "<p>paste</p>"),
        (["agents_md.instructions", "user.text"], "rules"),
    ):
        blocks = [{"type": "input_text", "text": words} for _ in kinds]
        marks = {"content_item_kinds": kinds}
        session.add(
            "response_item",
            {"type": "message", "role": "user", "content": blocks,
             "internal_chat_message_metadata_passthrough": marks},
        )  # fmt: skip
    inherited = session.lines[-1] | {"metadata": {"inherited_user_message": True}}
    session.lines.append(inherited)
    session.said_once("yes")
    assert keep(session.lines) == ["User: <p>paste</p>", "User: rules", "Assistant: yes"]


def test_a_summary_is_no_turn_with_its_mark_without_it_and_where_only_compacted_tells(
    keep: Keep,
) -> None:
    found = list[str]()
    for index, style in enumerate(("marked", "silent", "alone")):
        session = CodexSession(session=f"0199000{index}")
        codex_prompt(session, EVENT, f"prompt {index}")
        if style != "alone":
            session.add("event_msg", {"type": "agent_message", "message": f"answer {index}"})
        session.said_once(f"answer {index}")
        session.said_once("SUMMARY of it")
        if style == "marked":
            session.lines[-1]["metadata"] = {"compaction_output": True}
        session.add("event_msg", {"type": "token_count"})
        session.add("compacted", {"message": "Another model began.\nSUMMARY of it"})
        found = keep(session.lines, f"rollout-{index}.jsonl")
        assert sorted(found)[index] == f"Assistant: answer {index}"
    assert not [turn for turn in found if "SUMMARY" in turn]


def test_a_fork_that_repeats_its_parents_lines_under_new_stamps_adds_its_own(keep: Keep) -> None:
    parent = CodexSession(session="01990000-aaaa")
    codex_prompt(parent, EVENT, "Which quay?")
    parent.said_once("Quay two.", id="msg_1")
    assert len(keep(parent.lines, "rollout-1.jsonl")) == 2
    fork = CodexSession(session="01990000-bbbb", forked_from_id="01990000-aaaa")
    fork.add("session_meta", parent.lines[0]["payload"])
    fork.add("event_msg", {"type": "task_started", "turn_id": "01990000-aaac"})
    codex_prompt(fork, EVENT, "Which quay?")
    fork.said_once("Quay two.", id="msg_1")
    fork.add("event_msg", {"type": "task_started", "turn_id": "01990000-bbbc"})
    codex_prompt(fork, EVENT, "Which quay?")
    fork.said_once("Still two.", id="msg_2")
    said = ["User: Which quay?", "Assistant: Quay two.", "User: Which quay?"]
    assert keep(fork.lines, "rollout-2.jsonl") == [*said, "Assistant: Still two."]


@pytest.mark.parametrize(
    ("output", "shown"),
    [
        (("Chunk ID: a1\nWall time: 0.1 seconds\nProcess exited with code 0\n"
         "Original token count: 3\nOutput:\nquay two\n"), "[sh result: quay two]"),
        ("Exit code: 2\nWall time: 1.5 seconds\nOutput:\nno quay", "[sh failed: no quay]"),
        ([{"type": "input_text", "text": "Wall time: 0.004 seconds\nOutput:"},
          {"type": "input_text", "text": "quay two"}], "[sh result: quay two]"),
        ('{"output": "no quay", "metadata": {"exit_code": 1}}', "[sh failed: no quay]"),
        ("The wall time: 3 seconds", "[sh result: The wall time: 3 seconds]"),
        (("Command: /bin/sh -lc 'ls quay |\ngrep two'\nChunk ID: a1\nWall time: 0.1 seconds\n"
         "Process exited with code 1\nOutput:\nno quay"), "[sh failed: no quay]"),
        ("Command: none", "[sh result: Command: none]"),
        ("apply_patch verification failed: no such line",
         "[sh failed: apply_patch verification failed: no such line]"),
    ],
    ids=["chunk", "exit-code", "list", "json", "words", "command", "word", "fault"],
)  # fmt: skip
def test_codex_frame_of_a_result_is_left_out(output: object, shown: str, keep: Keep) -> None:
    session = CodexSession()
    session.called("c", "sh", cmd="ls")
    session.add("response_item", {"type": "function_call_output", "call_id": "c", "output": output})
    assert keep(session.lines) == [f"Assistant: [sh: ls]\n{shown}"]


def test_compressed_rollouts_are_read_and_stay_the_same_turns(keep: Keep, tmp_path: Path) -> None:
    session = CodexSession()
    codex_prompt(session, ITEM)
    before = keep(session.lines)
    path = tmp_path / "sessions" / "rollout-s.jsonl"
    packed = path.with_name(f"{path.name}.zst")
    with pa.output_stream(str(packed), compression="zstd") as out:
        out.write(path.read_bytes())
    assert list(find_transcripts(path.parent)) == [path]
    path.unlink()
    report = ingest_transcripts(path.parent, tmp_path / "turns.sqlite")
    assert (report.files, report.turns, report.lines, report.faults) == (1, 0, 2, [])
    assert turns(tmp_path) == before
    packed.write_bytes(b"no zstandard at all")
    (fault,) = ingest_transcripts(path.parent, tmp_path / "turns.sqlite").faults
    assert fault.startswith(f"{packed} cannot be read")


# Claude Code: the queue, machines in the user's place, what the user says to a tool.


def queue(operation: str, stamp: str, words: str | None = None, **more: Any) -> dict[str, Any]:
    content = {} if words is None else {"content": words}
    return {
        "type": "queue-operation",
        "operation": operation,
        "timestamp": stamp,
        **content,
        **more,
    }


def queued_command(session: ClaudeSession, prompt: object, **more: Any) -> dict[str, Any]:
    attachment = {"type": "queued_command", "prompt": prompt, "commandMode": "prompt", **more}
    return session.other("attachment", attachment=attachment)


LATER = "2026-11-02T09:00:01Z"


@pytest.mark.parametrize("form", ["user", "attachment", "both", "removed", "absorbed", "blocks"])
def test_what_is_typed_while_claude_works_is_kept_once(form: str, keep: Keep) -> None:
    session = ClaudeSession()
    session.user("Port the tables.")
    session.assistant(text("I start."))
    session.lines.append(queue("enqueue", LATER, None if form == "blocks" else "Round to five."))
    reason = {"reason": "absorbed_mid_turn"} if form == "absorbed" else {}
    session.lines.append(queue("dequeue" if form == "user" else "remove", LATER, **reason))
    if form in ("attachment", "both"):
        queued_command(session, "Round to five.", origin={"kind": "human"})
    if form == "blocks":
        queued_command(session, [{"type": "text", "text": "Round to five."}])
    if form in ("user", "both"):
        session.user("Round to five.")
    session.assistant(text("Done."))
    assert sorted(keep(session.lines)) == [
        "Assistant: Done.", "Assistant: I start.", "User: Port the tables.",
        "User: Round to five.",
    ]  # fmt: skip


def test_a_prompt_that_went_back_to_its_box_is_none_and_one_that_waits_is_kept_when_idle(
    keep: Keep,
) -> None:
    session = ClaudeSession()
    session.user("Port the tables.")
    session.lines += [queue("enqueue", LATER, "Round to"), queue("popAll", LATER, "Round to")]
    session.lines += [queue("enqueue", LATER, "/compact keep the tables")]
    session.lines += [queue("enqueue", LATER, "Round to five.")]
    assert keep(session.lines) == ["User: Port the tables."]
    assert keep(session.lines, age_s=2 * IDLE_S)[1:] == ["User: Round to five."]


MACHINES = [
    "<task-notification><task-id>a</task-id></task-notification>\nRead the output file.",
    '<teammate-message teammate_id="b" color="blue">\nI decided it.\n</teammate-message>',
    '<cross-session-message from="x">I decided it.</cross-session-message>',
    "<agent-message>I decided it.</agent-message>",
    '<channel source="chat">buy it</channel>',
    "[SYSTEM NOTIFICATION - NOT USER INPUT]\nIt ended.",
]


@pytest.mark.parametrize("words", MACHINES)
def test_messages_of_machines_are_no_turns(words: str, keep: Keep) -> None:
    assert is_machine_made(words)
    session = ClaudeSession()
    session.user("Compare the timers.")
    session.user(words)
    session.user("anything", origin={"kind": "peer"})
    queued_command(session, words)
    queued_command(session, "anything", origin={"kind": "coordinator"})
    session.assistant(text("Noted."))
    assert keep(session.lines) == ["User: Compare the timers.", "Assistant: Noted."]


def test_people_who_write_about_such_messages_are_heard() -> None:
    for words in ("Why is there a <task-notification> here?", "<p>paste</p>", "tick <tick>"):
        assert not is_machine_made(words)


REJECTED = "The user doesn't want to proceed with this tool use. The tool use was rejected."


@pytest.mark.parametrize(
    ("content", "said", "shown"),
    [
        (f"{REJECTED} To tell you how to proceed, the user said:\nLeave the keel.\nIt is lead.",
         "Leave the keel.\nIt is lead.", "[Edit failed: rejected by the user]"),
        ((f"{REJECTED} The user said:\nLeave it.\n\nNote: The user's next message may contain a "
         "correction or preference."), "Leave it.", "[Edit failed: rejected by the user]"),
        (f"{REJECTED} STOP what you are doing.", None, "[Edit failed: rejected by the user]"),
        ("error: the user said:\nno", None, "[Edit failed: error: the user said: no]"),
    ],
    ids=["reason", "note", "no-reason", "tool-error"],
)  # fmt: skip
def test_the_reason_of_a_rejection_is_the_users(
    content: str, said: str | None, shown: str, keep: Keep, tmp_path: Path
) -> None:
    session = ClaudeSession()
    session.assistant(call("Edit", "t", path="keel"))
    session.result("t", content, is_error=True)
    wanted = [f"Assistant: [Edit: keel]\n{shown}", *([f"User: {said}"] if said else [])]
    assert keep(session.lines) == wanted
    with TranscriptSource(tmp_path / "turns.sqlite") as source:
        weight = {str(r.fields["content"])[:4]: r.fields["importance"] for r in source.rows()}
    assert weight.get("User") is None


@pytest.mark.parametrize(
    ("content", "result", "said"),
    [
        ('Your questions have been answered: "Which colour?"="Blue". You can now continue.',
         {"answers": {"Which colour?": "Blue, as in Oulu"}}, "[Which colour?] Blue, as in Oulu"),
        (('User has answered your questions: "Which?"="Blue", "Size?"="4 m". You can now continue '
         "with the user's answers in mind."), None, "[Which?] Blue\n[Size?] 4 m"),
    ],
)  # fmt: skip
def test_an_answer_to_a_question_is_the_users(
    content: str, result: object, said: str, keep: Keep
) -> None:
    session = ClaudeSession()
    session.assistant(call("AskUserQuestion", "q", questions=[]))
    session.result("q", content, toolUseResult=result)
    assert keep(session.lines)[1:] == [f"User: {said}"]


def test_arguments_of_own_commands_stay_out_and_those_of_custom_ones_are_the_users(
    keep: Keep,
) -> None:
    frame = "<command-name>/{0}</command-name>\n<command-message>{0}</command-message>\n"
    session = ClaudeSession()
    for name in ("compact", "model", "greet", "docs:review"):
        session.user(frame.format(name) + f"<command-args>keep {name}</command-args>")
    assert keep(session.lines) == ["User: keep greet", "User: keep docs:review"]


@pytest.mark.parametrize(
    "content",
    [
        ("The basin is 4 m.\nagentId: a1 (use SendMessage to go on)\n"
        "<usage>total_tokens: 5</usage>"),
        [{"type": "text", "text": "The basin is 4 m."},
         {"type": "text", "text": "agentId: a1\n<usage>tokens: 5</usage>"}],
        ("<tools-used-before-summary>Bash</tools-used-before-summary>\n"
        "[Subagent hand-back] The report follows:\n  The basin is 4 m.\nagentId: a1 (x)"),
    ],
    ids=["tail", "blocks", "hand-back"],
)  # fmt: skip
def test_a_subagents_report_is_kept_without_its_frame(content: object, keep: Keep) -> None:
    session = ClaudeSession()
    session.assistant(call("Agent", "a", prompt="measure"))
    session.result("a", content)
    assert keep(session.lines) == ["Assistant: [Agent: measure]\n[Agent result: The basin is 4 m.]"]


# Own traffic, older stores, and sessions that are not understood.


def test_noctuarys_own_tools_leave_their_name_alone_under_any_name(keep: Keep) -> None:
    answer = json.dumps({"origin": TAG, "memories": []})
    session = ClaudeSession()
    session.assistant(call("mcp__noctuary__remember", "1", text="the bell weighs 300 kilos"))
    session.result("1", "kept as own:1")
    session.assistant(call("mcp__store__remember", "2", text="the bell weighs 300 kilos"))
    session.result("2", answer)
    session.assistant(call("Bash", "3", command="noctuary recall 'the bell'"))
    session.result("3", "1. the bell weighs 300 kilos")
    assert keep(session.lines) == [
        "Assistant: [mcp__noctuary__remember]",
        "Assistant: [mcp__store__remember]",
        "Assistant: [Bash]",
    ]


def test_an_older_store_is_read_again_and_machine_made_turns_go(keep: Keep, tmp_path: Path) -> None:
    session = ClaudeSession()
    session.user("Compare the timers.")
    line = session.user("Both drift.")
    assert len(keep(session.lines)) == 2
    turns_path = tmp_path / "turns.sqlite"
    file = TurnsFile(turns_path, wait_s=1.0)
    with file.db:  # as a version before this one kept it
        file.keep_fact("settings", "False 400")
        file.db.execute(
            "UPDATE parts SET kind = 'call', label = 'mcp__noctuary__remember', "
            "text = '[mcp__noctuary__remember: text=Both drift.]' WHERE text = 'Both drift.'"
        )
    file.close()
    line["origin"] = {"kind": "task-notification"}
    assert keep(session.lines) == ["User: Compare the timers."]


def test_sessions_without_a_prompt_and_of_unknown_lines_are_named(
    keep: Keep, tmp_path: Path
) -> None:
    codex = CodexSession(session="0199-1", cli_version="0.200.0")
    codex.said_once("The valve is V7.")
    keep(codex.lines, "rollout-1.jsonl")
    claude = ClaudeSession()
    for _ in range(4):
        claude.user("words", version="9.0.0")
        claude.assistant(text("yes"), version="9.0.0")
        claude.other("prompt-of-next-year", version="9.0.0")
    keep(claude.lines, "claude.jsonl")
    understood = ClaudeSession(session="c")
    understood.user("words", version="9.0.1")
    understood.assistant(text("yes"), version="9.0.1")
    keep(understood.lines, "understood.jsonl")
    told = {"type": "abort", "data": {"content": "words"}, "id": "e", "parentId": None}
    keep([told] * 4, "events.jsonl")
    does_not = "this version writes lines that noctuary cannot read"
    assert find_unread_sessions(tmp_path / "turns.sqlite") == [
        "1 file with lines of an unknown agent",
        f"Claude Code 9.0.0: 1 session with many lines of unknown types; {does_not}",
        f"Codex 0.200.0: 1 session without a prompt of yours; {does_not}",
    ]


def test_a_subagents_session_has_no_prompt_and_is_no_alarm(tmp_path: Path) -> None:
    session = CodexSession(source={"subagent": {}})
    session.said_once("The basin is 4 m.")
    path = tmp_path / "rollout.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in session.lines), "utf-8")
    turns_path = tmp_path / "turns.sqlite"
    ingest_transcripts(path, turns_path, TranscriptSettings(include_sidechains=True))
    assert not find_unread_sessions(turns_path)
