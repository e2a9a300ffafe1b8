"""Files that OpenCode, Gemini CLI, Qwen Code and pi wrote when they were driven for real."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.core.errors import SourceFormatError
from noctuary.core.settings import Settings, TranscriptSettings
from noctuary.sources.histories import is_transcripts, read_line
from noctuary.sources.ingest import ingest_transcripts
from noctuary.sources.open import open_source, read_marker
from noctuary.sources.transcripts import FileContext, IngestReport, Skip
from noctuary.sources.turns import TranscriptSource
from tests.support.agents import GOLDEN, fill_opencode, place
from tests.support.transcripts import JSON_VALUES

Said = Sequence[str]
"""Turns by time: "U " and the user's words, "A " and an answer's; tool calls as [name]."""

_BEGUN = (
    "U PROMPTONE Which valve feeds the fountain? See @notes.md",
    "A I look at it. ANSWERONE [run_shell_command] =TOOLWORD",
    "A The valve is V7. ANSWERTWO",
)
_EARLY = (_BEGUN[0], "A I look at it. ANSWERONE", _BEGUN[2])  # keeps no tool calls
_RESUMED = (
    *_BEGUN,
    "U PROMPTTWO It is Mondays that we clean.",
    "A Noted: Mondays. ANSWERTHREE",
    "U PROMPTTHREE What is in this picture? @a.png",
    "A A picture of a fountain. ANSWERFOUR",
)
_FORKED = (*_RESUMED, "U PROMPTFORK in the fork", "A ANSWERFORK")
_HELD = ("A Slow. ANSWERHOLD [run_shell_command] =HELDTOOL",)
_ASKED = ("U PROMPTASK ask me", "U [Which colour?] Blue", "A Painted. ANSWERPAINT")
_GEMINI_SCREEN = (
    "U PROMPTONE Where is the valve", "A ANSWERONE the valve is V7.", "U PROMPTHOLD go slowly",
    *_HELD, "A ANSWERHELD", "U QUEUEDWORD the buoy belongs to Nils", "A Seen. ANSWERQUEUE",
    "U PROMPTSUB find the pump", "A I ask a helper. [invoke_agent]", *_ASKED,
    "U PROMPTTWO after it", "A ANSWERTWO",
    "U PROMPTUNDO wrong thingPROMPTAFTER right thing", "A ANSWERAFTER",
)  # fmt: skip
# Gemini CLI halts an answer that repeats itself, and says so in its user's place.
_LOOPED = (
    "U PROMPTONE Where is the valve", "U PROMPTTHREE after it", "A ANSWERTHREE",
    "U PROMPTFOUR resumed", "A SUMMARYWORD of it all: valves",
)  # fmt: skip
_QWEN_SCREEN = (
    "U PROMPTONE Where is the valve?", "A ANSWERONE the valve is V7.", "U PROMPTHOLD go slowly",
    *_HELD, "U QUEUEDWORD the buoy belongs to Nils", "A Seen. ANSWERQUEUE",
    "U PROMPTSUB find the pump", "A I ask a helper. [agent]", *_ASKED, "U PROMPTTWO after it",
    "A ANSWERTWO",
)  # fmt: skip
_PI = (
    "U PROMPTONE Where is the pump?",
    "A [9610 characters that the tool wrote itself, left out]", "U PROMPTHOLD slowly",
    "A Slow. ANSWERHOLD [bash] =HELDTOOL", "U STEERWORD the buoy is Nils", "A Seen. ANSWERSTEER",
    "U FOLLOWWORD and paint it", "A ANSWERFOLLOW", "U PROMPTTWO After compaction.", "A ANSWERTWO",
)  # fmt: skip
_PI_FILES = (
    "U PROMPTONE Which valve feeds the fountain?",
    "A I look at it. ANSWERONE [bash] =TOOLWORD",
    "A The valve is V7. ANSWERTWO",
    "U PROMPTTWO It is Mondays that we clean.",
    "A Noted: Mondays. ANSWERTHREE",
    "U PROMPTTHREE What is in this picture?",
    "A A picture of a fountain. ANSWERFOUR",
)
_HELPED = (
    "U PROMPTONE Where is the pump?", "A I ask a helper. ANSWERONE [task]",
    "A The pump is P3. ANSWERTWO", "U PROMPTHOLD Go slowly.",
    "A Slow answer. ANSWERHOLD [bash] =HELDTOOL", "U QUEUEDWORD the buoy belongs to Nils.",
    "A Seen both. ANSWERQUEUE",
)  # fmt: skip
_SERVED = (
    *_HELPED, "U PROMPTAFTER The right thing.", "A ANSWERAFTER", "U PROMPTASK Ask me.",
    "A I ask you. ANSWERASK [question]",
    "U [Which colour?] Blue, ANSWEREDWORD like the sea of Nils", "A Painted. ANSWERPAINT",
    "U PROMPTREJECT Delete the notes.", "A I delete it. ANSWERDEL [bash] =rejected by the user",
    "U REJECTWORD keep it, Nils needs it", "A I keep it. ANSWERKEEP", "A [bash] =SHELLWORD",
    "U PROMPTLAST After compaction.", "A ANSWERLAST", "U PROMPTFORK In the fork.", "A ANSWERFORK",
)  # fmt: skip
# `opencode run` puts a prompt with spaces into quotes before it keeps it.
_STORED = (
    'U "PROMPTONE Which valve feeds the fountain? See @notes.md"',
    "A I look at it. ANSWERONE [bash] =TOOLWORD",
    "A The valve is V7. ANSWERTWO",
    'U "PROMPTTWO It is Mondays that we clean."',
    "A Noted: Mondays. ANSWERTHREE",
    'U "PROMPTTHREE What is in this picture?"',
    "A A picture of a fountain. ANSWERFOUR",
)

RUNS = [
    pytest.param(("gemini-0.61.0-resumed.jsonl",), "fountain", _RESUMED, id="gemini-resumed"),
    pytest.param(
        ("gemini-0.61.0-terminal.jsonl", "gemini-0.61.0-subagent.jsonl"), "fountain",
        _GEMINI_SCREEN, id="gemini-terminal",
    ),
    pytest.param(("gemini-0.61.0-loop.jsonl",), "fountain", _LOOPED, id="gemini-loop"),
    pytest.param(("gemini-0.24.0.json",), "gemini", _RESUMED, id="gemini-json"),
    pytest.param(("qwen-0.1.4.json",), "qwen", _EARLY, id="qwen-json"),
    pytest.param(
        ("qwen-0.24.4-terminal.jsonl", "qwen-0.24.4-subagent.jsonl"), "fountain", _QWEN_SCREEN,
        id="qwen-terminal",
    ),
    pytest.param(
        ("qwen-0.24.4-resumed.jsonl", "qwen-0.24.4-forked.jsonl"), "fountain", _FORKED,
        id="qwen-forked",
    ),
    pytest.param(("pi-0.73.1-files.jsonl",), "fountain", _PI_FILES, id="pi-files"),
    pytest.param(
        ("pi-0.73.1-steered.jsonl", "pi-0.73.1-forked.jsonl"), "fountain",
        (*_PI, "U PROMPTFORK edited", "A ANSWERFORK"), id="pi-forked",
    ),
    pytest.param(("opencode-1.18.33.json",), "fountain", _SERVED, id="opencode-served"),
    pytest.param(("opencode-1.18.33-undone.json",), "fountain", _HELPED, id="opencode-undone"),
    pytest.param(("opencode-1.1.65.json",), "fountain", _STORED, id="opencode-storage"),
]  # fmt: skip


@pytest.mark.parametrize(("names", "wing", "said"), RUNS)
def test_every_turn_of_a_real_run_is_kept_once(
    names: tuple[str, ...], wing: str, said: Said, tmp_path: Path
) -> None:
    root = place(tmp_path / "agent", *names)
    assert is_transcripts(root)
    report = _ingest(root, tmp_path)
    assert (report.faults, report.skipped[Skip.UNKNOWN_TYPE], report.is_complete) == ([], 0, True)
    kept = _kept(tmp_path)
    missing = [one for one in said if one not in kept]
    order = [kept.index(one) for one in said if one in kept]
    assert (missing, order) == ([], sorted(order)), kept
    # Of a terminal's run the table leaves out what helpers and the tool's suggestions added.
    rest = [one for one in kept if "terminal" not in names[0] or one in said]
    assert rest == list(said)
    assert {row["wing"] for row in _rows(tmp_path)} == {wing}
    assert all(row["created_at"] and row["session_id"] for row in _rows(tmp_path))
    again = _ingest(root, tmp_path)
    assert (again.turns, again.parts, again.unchanged) == (0, 0, again.files)


_MACHINES = (
    "session_context", "task-notification", "Content from", "Resume the prior", "valve of the",
    "Potential loop", "following tool was executed", "<file", "one final chance",
    "SUMMARYWORD of it all\n",
)  # fmt: skip


@pytest.mark.parametrize("names", [pytest.param(run.values[0], id=str(run.id)) for run in RUNS])
def test_machines_words_are_nobodys(names: tuple[str, ...], tmp_path: Path) -> None:
    _ingest(place(tmp_path / "agent", *names), tmp_path, sidechains=True)
    said = [one for one in _kept(tmp_path) if one.startswith("U ")]
    assert [(word, one) for word in _MACHINES for one in said if word in one] == []


def test_subagents_are_sidechains(tmp_path: Path) -> None:
    names = ("gemini-0.61.0-subagent.jsonl", "qwen-0.24.4-subagent.jsonl", "opencode-1.18.33.json")
    root = place(tmp_path / "agent", *names)
    _ingest(root, tmp_path)
    assert not [one for one in _kept(tmp_path) if "SUBANSWER" in one or "SUBTASK" in one[:12]]
    _ingest(root, tmp_path, sidechains=True)
    with TranscriptSource(tmp_path / "turns.sqlite", include_sidechains=True) as source:
        found = {
            row.fields["session_id"] for row in source.rows() if "SUBANSWER" in str(row.fields)
        }
    assert len(found) == 3, found
    assert all("/" in str(session) for session in found)


def _lines_of(name: str) -> list[bytes]:
    return (GOLDEN / name).read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize(
    "name",
    ["gemini-0.61.0-resumed.jsonl", "qwen-0.24.4-forked.jsonl", "pi-0.73.1-steered.jsonl"],
)
def test_a_chat_that_grows_line_by_line_is_as_one_that_is_read_whole(
    name: str, tmp_path: Path
) -> None:
    whole, grown = tmp_path / "whole", tmp_path / "grown"
    root = place(whole / "agent", name)
    _ingest(root, whole)
    file = next(path for path in root.rglob("*.jsonl"))
    target = grown / "agent" / file.relative_to(root)
    target.parent.mkdir(parents=True)
    for line in _lines_of(name):
        with target.open("ab") as handle:
            handle.write(line)
        _ingest(grown / "agent", grown)
    assert _kept(grown) == _kept(whole)


def test_what_gemini_rewinds_is_taken_back_although_it_was_kept(tmp_path: Path) -> None:
    lines = _lines_of("gemini-0.61.0-terminal.jsonl")
    at = next(place for place, line in enumerate(lines) if b"$rewindTo" in line)
    file = tmp_path / "agent" / "session-1.jsonl"
    file.parent.mkdir()
    file.write_bytes(b"".join(lines[:at]))
    _ingest(file.parent, tmp_path)
    assert "U PROMPTUNDO wrong thing" in _kept(tmp_path)
    file.write_bytes(b"".join(lines))
    _ingest(file.parent, tmp_path)
    assert not any(
        one.endswith(("PROMPTUNDO wrong thing", "ANSWERUNDO")) for one in _kept(tmp_path)
    )


def test_what_gemini_makes_of_earlier_turns_is_nobodys(tmp_path: Path) -> None:
    """`/compress` puts a summary into the user's place, and an answer to it behind it."""
    lines = _lines_of("gemini-0.61.0-resumed.jsonl")
    at = "2026-11-28T18:00:00.000Z"
    summary = "SUMMARYWORD of it all"
    said = [("user", summary), ("gemini", "Got it. Thanks for the additional context!"),
            ("user", "And who cleans it?")]  # fmt: skip
    messages = [
        {"id": f"m{n}", "timestamp": at, "type": role, "content": [{"text": text}]}
        for n, (role, text) in enumerate(said)
    ]
    file = tmp_path / "agent" / "session-1.jsonl"
    file.parent.mkdir()
    file.write_bytes(b"".join(lines) + json.dumps({"$set": {"messages": messages}}).encode())
    _ingest(file.parent, tmp_path)
    assert _kept(tmp_path) == [*_RESUMED, "U And who cleans it?"]


@pytest.mark.parametrize("agent", ["pi", "qwen"])
def test_a_line_that_follows_an_earlier_one_undoes_what_lay_between(
    agent: str, tmp_path: Path
) -> None:
    def line(number: int, parent: int | None, role: str, said: str) -> dict[str, Any]:
        at = f"2026-11-28T10:00:{number:02}.000Z"
        ids = {"id": f"e{number}", "parentId": None if parent is None else f"e{parent}"}
        if agent == "pi":
            blocks = [{"type": "text", "text": said}]
            message = {"role": role, "content": blocks, "timestamp": number}
            return {"type": "message", **ids, "timestamp": at, "message": message}
        message = {"role": role, "parts": [{"text": said}]}
        named = {"uuid": ids["id"], "parentUuid": ids["parentId"], "sessionId": "s1"}
        return {**named, "type": role, "timestamp": at, "cwd": "/home/me/depot", "message": message}

    said = [
        (0, None, "user", "Where?"), (1, 0, "assistant", "Here."), (2, 1, "user", "Wrong."),
        (3, 2, "assistant", "No."), (4, 1, "user", "Right."), (5, 4, "assistant", "Yes."),
    ]  # fmt: skip
    file = tmp_path / "agent" / "s1.jsonl"
    file.parent.mkdir()
    file.write_text("\n".join(json.dumps(line(*one)) for one in said), encoding="utf-8")
    _ingest(file.parent, tmp_path)
    assert _kept(tmp_path) == ["U Where?", "A Here.", "U Right.", "A Yes."]


def test_opencode_is_polled_beside_its_writer_and_left_as_it_is(tmp_path: Path) -> None:
    root = place(tmp_path / "agent", "opencode-1.18.33-undone.json")
    settings = Settings(transcripts=TranscriptSettings(path=str(root)))
    path = root / "opencode.db"
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        _ingest(root, tmp_path)
        before = {file: file.read_bytes() for file in root.iterdir() if not file.match("*-shm")}
        marker = read_marker(tmp_path, settings) if tmp_path.exists() else ""
        assert _ingest(root, tmp_path).unchanged == 1
        assert {file: file.read_bytes() for file in before} == before
        session = writer.execute("SELECT id FROM session WHERE parent_id IS NULL").fetchone()[0]
        at_ms = 1_795_990_000_000
        message = json.dumps({"role": "user", "time": {"created": at_ms}})
        part = json.dumps({"type": "text", "text": "And who cleans it?"})
        with writer:
            writer.execute("INSERT INTO message VALUES ('msg_9', ?, 1, 1, ?)", (session, message))
            writer.execute(
                "INSERT INTO part VALUES ('prt_9', 'msg_9', ?, 1, 1, ?)", (session, part)
            )
            writer.execute("UPDATE session SET revert = NULL, time_updated = ?", (at_ms,))
        assert read_marker(tmp_path, settings) != marker
        report = _ingest(root, tmp_path)
    assert (report.turns, report.faults) == (3, []), "the two that were undone are back"
    assert "U And who cleans it?" in _kept(tmp_path)
    assert "U PROMPTUNDO A wrong thing." in _kept(tmp_path)


def test_each_session_of_one_database_has_its_own_wing(tmp_path: Path) -> None:
    message = json.dumps({"role": "user", "time": {"created": 1_795_990_000_000}})
    later = json.dumps({"role": "user", "time": {"created": 1_795_990_000_001}})
    part = json.dumps({"type": "text", "text": "Where?"})
    state = {"status": "completed", "output": "no tide", "metadata": {"exit": 1}}
    tool = json.dumps({"type": "tool", "tool": "bash", "state": state})
    fill_opencode(
        tmp_path / "agent" / "opencode.db",
        {
            "session": [["s1", None, "/home/me/depot", "", "1.18.33", None, 1, 1],
                        ["s2", None, "/home/me/shop", "", "1.18.33", None, 2, 2]],
            "message": [["m1", "s1", 1, 1, message], ["m2", "s2", 2, 2, later]],
            "part": [["p1", "m1", "s1", 1, 1, part], ["p2", "m2", "s2", 1, 1, part],
                     ["p3", "m2", "s2", 1, 1, tool]],
        },
    )  # fmt: skip
    settings = TranscriptSettings(wings=("/home/me/shop=front",))
    ingest_transcripts(tmp_path / "agent", tmp_path / "turns.sqlite", settings)
    assert {(row["session_id"], row["wing"]) for row in _rows(tmp_path)} == {
        ("s1", "depot"),
        ("s2", "front"),
    }
    assert any("[bash failed: no tide]" in row["content"] for row in _rows(tmp_path))


@pytest.mark.parametrize(
    ("schema", "found"),
    [
        ("CREATE TABLE session (id)", "session, message, part is missing"),
        ("", "session, message, part is missing"),
    ],
)
def test_a_database_of_another_schema_is_a_sentence(
    schema: str, found: str, tmp_path: Path
) -> None:
    path = tmp_path / "agent" / "opencode.db"
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as db:
        db.executescript(schema or "CREATE TABLE other (id)")
    assert not is_transcripts(path)
    report = _ingest(path.parent, tmp_path)
    assert len(report.faults) == 1
    assert found in report.faults[0]
    assert not report.is_complete


def test_a_copy_of_a_database_is_known_by_its_tables(tmp_path: Path) -> None:
    copy = place(tmp_path / "agent", "opencode-1.18.33-undone.json") / "opencode.db"
    copy = copy.rename(tmp_path / "conversations of May.db")
    assert is_transcripts(copy)
    assert _ingest(copy, tmp_path).turns == 7


def test_a_damaged_database_is_a_sentence(tmp_path: Path) -> None:
    path = place(tmp_path / "agent", "opencode-1.18.33-undone.json") / "opencode.db"
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)
    assert [*_ingest(path.parent, tmp_path).faults]


@pytest.mark.parametrize(
    "name",
    ["gemini-0.61.0-resumed.jsonl", "qwen-0.24.4-resumed.jsonl", "pi-0.73.1-files.jsonl"],
)
def test_a_chat_is_no_corpus_wherever_its_lines_begin(name: str, tmp_path: Path) -> None:
    """`nightly chat.jsonl` reads its turns; before, the answers of Gemini CLI were memories."""
    for start in (0, 2, 3):
        file = tmp_path / f"chat{start}.jsonl"
        file.write_bytes(b"".join(_lines_of(name)[start:]))
        assert is_transcripts(file), start


@pytest.mark.parametrize("key", ["role", "type", "sender"])
@pytest.mark.parametrize("answering", ["assistant", "model", "AI"])
def test_a_conversation_of_an_unknown_agent_is_refused_as_a_corpus(
    key: str, answering: str, tmp_path: Path
) -> None:
    file = tmp_path / "chat.jsonl"
    lines = [{"id": "a", key: "user", "content": "Where?"},
             {"id": "b", key: answering, "content": "Here."}]  # fmt: skip
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    with (
        pytest.raises(SourceFormatError, match=f"conversation and not a corpus.*{key!r}"),
        open_source(file) as source,
    ):
        source.count()


def test_a_corpus_whose_types_say_user_is_one(tmp_path: Path) -> None:
    file = tmp_path / "corpus.jsonl"
    lines = [{"id": "a", "type": "user", "timestamp": "1", "content": "Petersen mends the boiler."},
             {"id": "b", "type": "note", "content": "Labels are made on Mondays."}]  # fmt: skip
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    assert not is_transcripts(file)
    with open_source(file) as source:
        assert source.count() == 2


_KEYS = st.sampled_from(
    ["id", "type", "content", "message", "timestamp", "$set", "$rewindTo", "messages", "toolCalls",
     "projectHash", "sessionId", "uuid", "parentUuid", "parentId", "provenance", "systemPayload",
     "opencode.message", "session", "parts", "role", "displayContent", "toolCallResult"]
)  # fmt: skip


@given(line=st.dictionaries(_KEYS, JSON_VALUES | st.sampled_from(["user", "gemini", "message"])))
def test_any_object_is_read_without_an_error(line: dict[str, Any]) -> None:
    context = FileContext()
    read_line(line, context)
    read_line(line, FileContext.from_json(context.to_json()))


def _ingest(root: Path, store: Path, *, sidechains: bool = False) -> IngestReport:
    settings = TranscriptSettings(include_sidechains=sidechains)
    return ingest_transcripts(root, store / "turns.sqlite", settings)


def _rows(store: Path) -> list[dict[str, Any]]:
    with TranscriptSource(store / "turns.sqlite") as source:
        rows = [dict(row.fields) for row in source.rows()]
    return sorted(rows, key=lambda row: str(row["created_at"]))


def _kept(store: Path) -> list[str]:
    """Return the turns by time, on one line each; of calls the names, of results the last line."""
    return [_shown(str(row["content"])) for row in _rows(store)]


def _shown(content: str) -> str:
    role, _, text = content.partition(": ")
    words = list[str]()
    for line in text.split("\n"):
        name, is_tool, rest = line.removeprefix("[").partition(": ")
        tool, _, kind = name.partition(" ")
        if not line.startswith("[") or role == "User" or not is_tool:
            words.append(line)
        elif kind in ("result", "failed"):
            last = rest.removesuffix("]").removeprefix("Output: ")
            known = ("TOOLWORD", "HELDTOOL", "SHELLWORD", "rejected by the user")
            words += [f"={word}" for word in known if word in last]
        else:
            words.append(f"[{tool}]")
    return f"{role[0]} {' '.join(words)}"


def test_the_files_of_real_runs_are_small() -> None:
    assert max(path.stat().st_size for path in GOLDEN.iterdir() if path.is_file()) < 25_000
