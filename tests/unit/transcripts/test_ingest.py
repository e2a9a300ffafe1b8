"""Files that grow, turn, shrink and vanish; what is kept of them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from noctuary.core.errors import StoreError
from noctuary.sources import ingest as reading
from noctuary.sources import transcripts as lines_module
from noctuary.sources.ingest import ingest_transcripts
from tests.support.transcripts import (
    SAID,
    ClaudeSession,
    CodexSession,
    Folder,
    call,
    dump,
    kept_rows,
    working_session,
    write_session,
)


def test_a_session_is_kept_as_turns(folder: Folder, session: ClaudeSession) -> None:
    write_session(folder.file, session.lines)
    report = folder.ingest()
    assert (report.turns, report.parts, report.lines) == (3, 5, 6)
    assert report.skipped == {"no_content": 1}
    assert folder.contents() == SAID
    row = next(r for r in kept_rows(folder.turns) if r.fields["content"] == SAID[0])
    assert row.fields == {
        "id": row.key,
        "content": SAID[0],
        "category": "turn",
        "importance": None,
        "created_at": "2026-11-02T09:00:00+00:00",
        "session_id": session.session,
        "wing": "shop",
    }


@pytest.mark.parametrize("after", range(1, 6))
def test_a_growing_file_is_read_on_from_where_it_was_left(
    folder: Folder, session: ClaudeSession, after: int
) -> None:
    """Also where an answer is cut between its lines, and a call from its result."""
    write_session(folder.file, session.lines[:after])
    first = folder.ingest()
    assert first.bytes_read == folder.file.stat().st_size
    rest = dump(session.lines[after:])
    with folder.file.open("ab") as handle:
        handle.write(rest)
    second = folder.ingest()
    assert (second.bytes_read, second.restarted) == (len(rest), 0)
    assert folder.contents() == SAID
    third = folder.ingest()
    assert (third.bytes_read, third.unchanged) == (0, 1)


def test_a_half_written_line_waits_for_its_rest(folder: Folder, session: ClaudeSession) -> None:
    data = dump(session.lines)
    cut = len(data) - 20
    folder.file.write_bytes(data[:cut])
    first = folder.ingest()
    assert first.bytes_read == data.rindex(b"\n", 0, cut) + 1
    assert first.skipped["bad_json"] == 0
    assert folder.contents() == SAID[:2]
    folder.file.write_bytes(data)
    assert folder.ingest().restarted == 0
    assert folder.contents() == SAID


def test_a_whole_last_line_without_its_end_is_read(folder: Folder, session: ClaudeSession) -> None:
    data = dump(session.lines)
    folder.file.write_bytes(data[:-1])
    assert folder.ingest().bytes_read == len(data) - 1
    assert folder.contents() == SAID
    with folder.file.open("ab") as handle:
        handle.write(b"\n" + dump([session.user("Thanks.")]))
    folder.ingest()
    assert folder.contents() == [*SAID, "User: Thanks."]


def test_a_truncated_file_is_read_again_and_keeps_what_it_held(
    folder: Folder, session: ClaudeSession
) -> None:
    write_session(folder.file, session.lines)
    folder.ingest()
    other = ClaudeSession(session="another")
    other.user("A new session.")
    write_session(folder.file, other.lines)
    report = folder.ingest()
    assert (report.restarted, report.turns) == (1, 1)
    assert sorted(folder.contents()) == sorted([*SAID, "User: A new session."])


def test_a_file_cut_to_its_head_and_grown_past_its_old_size_is_noticed(
    folder: Folder, session: ClaudeSession
) -> None:
    """Its first 4 KiB are what they were; only what lay before the offset is not."""
    while len(dump(session.lines)) < 6_000:
        session.user(f"old {len(session.lines)}")
    kept = len(session.lines)
    session.user("this will be rewritten")
    write_session(folder.file, session.lines)
    folder.ingest()
    other = ClaudeSession()
    other.lines = session.lines[:kept]
    while len(dump(other.lines)) <= len(dump(session.lines)):
        other.user(f"new {len(other.lines)}", uuid=f"new-{len(other.lines)}")
    write_session(folder.file, other.lines)
    assert folder.ingest().restarted == 1
    assert {f"User: new {i}" for i in range(kept, len(other.lines))} <= set(folder.contents())


def test_a_rotated_file_is_followed_and_its_successor_is_new(
    folder: Folder, session: ClaudeSession
) -> None:
    write_session(folder.file, session.lines[:4])
    folder.ingest()
    rotated = folder.file.with_name("session.1.jsonl")
    folder.file.rename(rotated)
    rest = dump(session.lines[4:])
    with rotated.open("ab") as handle:
        handle.write(rest)
    successor = ClaudeSession(session="another")
    successor.user("A new session.")
    write_session(folder.file, successor.lines)
    report = folder.ingest()
    assert report.bytes_read == len(rest) + folder.file.stat().st_size
    assert sorted(folder.contents()) == sorted([*SAID, "User: A new session."])


def test_a_file_replaced_by_an_equal_one_is_not_read_again(
    folder: Folder, session: ClaudeSession
) -> None:
    write_session(folder.file, session.lines)
    folder.ingest()
    copy = folder.file.with_name("copy")
    copy.write_bytes(folder.file.read_bytes())
    copy.replace(folder.file)
    report = folder.ingest()
    assert (report.bytes_read, report.restarted) == (0, 0)


def test_deleted_transcripts_keep_their_turns(folder: Folder, session: ClaudeSession) -> None:
    write_session(folder.file, session.lines)
    folder.ingest()
    folder.file.unlink()
    assert folder.ingest().files == 0
    assert folder.contents() == SAID


def test_a_copy_of_a_session_adds_nothing(folder: Folder, session: ClaudeSession) -> None:
    write_session(folder.file, session.lines)
    write_session(folder.file.with_name("copy.jsonl"), session.lines)
    report = folder.ingest()
    assert (report.files, report.turns) == (2, 3)
    assert folder.contents() == SAID


def test_parallel_calls_stay_one_turn(folder: Folder) -> None:
    session = ClaudeSession()
    session.assistant(call("Read", "t1", path="a.py"), message="m")
    session.result("t1", "alpha")
    session.assistant(call("Read", "t2", path="b.py"), message="m")
    session.result("t2", "missing", is_error=True)
    write_session(folder.file, session.lines)
    folder.ingest()
    assert folder.contents() == [
        "Assistant: [Read: a.py]\n[Read result: alpha]\n[Read: b.py]\n[Read failed: missing]"
    ]
    (row,) = kept_rows(folder.turns)
    assert row.fields["importance"] == 0.2, "nobody says anything in it"


def test_a_result_without_its_call_is_counted_and_dropped(folder: Folder) -> None:
    session = ClaudeSession()
    session.result("never seen", "3 files")
    write_session(folder.file, session.lines)
    assert folder.ingest().skipped == {"orphan": 1}
    assert folder.contents() == []


def test_compaction_leaves_the_turns_before_it(folder: Folder, session: ClaudeSession) -> None:
    session.boundary("This session continues an earlier one: the user asked about carriers.")
    session.user("And on Sunday?")
    write_session(folder.file, session.lines)
    report = folder.ingest()
    assert (report.skipped["compact_boundary"], report.skipped["compact_summary"]) == (1, 1)
    assert folder.contents() == [*SAID, "User: And on Sunday?"]


def test_bad_lines_are_counted_and_passed_over(
    folder: Folder, session: ClaudeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines_module, "MAX_LINE_BYTES", 10_000)
    data = dump(session.lines).splitlines(keepends=True)
    bad = [b"{broken\n", b"\n", b"[1, 2]\n", b'{"type": "user", "x": "' + b"y " * 9_000 + b'"}\n']
    folder.file.write_bytes(b"".join([data[0], *bad, b"\x00" * 500 + b"\n", *data[1:]]))
    report = folder.ingest()
    assert report.skipped == {"bad_json": 2, "too_long": 1, "no_content": 1}
    assert folder.contents() == SAID


def test_nul_and_lone_surrogates_are_replaced(folder: Folder) -> None:
    session = ClaudeSession()
    session.user("a\x00b")
    line = json.dumps(session.user("x")).replace('"x"', r'"c\ud83dd"')
    folder.file.write_text(json.dumps(session.lines[0]) + "\n" + line + "\n")
    folder.ingest()
    assert folder.contents() == ["User: a\ufffdb", "User: c\ufffdd"]


def test_turns_of_one_moment_keep_their_order(folder: Folder) -> None:
    session = ClaudeSession()
    stamps = ["2026-11-02T09:00:05Z", "2026-11-02T09:00:05Z", "2026-11-02T09:00:01Z", None]
    for number, stamp in enumerate(stamps):
        session.user(f"prompt {number}", timestamp=stamp)
    write_session(folder.file, session.lines[:2])
    folder.ingest()
    write_session(folder.file, session.lines)
    folder.ingest()
    assert folder.contents() == [f"User: prompt {n}" for n in range(4)]


def test_sidechains_are_kept_when_they_are_asked_for(
    folder: Folder, session: ClaudeSession
) -> None:
    session.user("look at the tests", isSidechain=True, agentId="a1")
    write_session(folder.file, session.lines)
    agent = ClaudeSession()
    agent.user("count the tests", isSidechain=True, agentId="a2", uuid="of the agent")
    write_session(folder.file.parent / "s" / "subagents" / "agent-a2.jsonl", agent.lines)
    assert folder.ingest().skipped["sidechain"] == 2
    assert folder.contents() == SAID
    report = folder.ingest(include_sidechains=True)
    assert (report.turns, report.unchanged) == (2, 0), "a new setting reads what is still there"
    assert folder.contents() == SAID
    everything = folder.contents(include_sidechains=True)
    assert set(everything) == {*SAID, "User: look at the tests", "User: count the tests"}


def test_tool_texts_are_bounded_and_follow_the_setting(
    folder: Folder, session: ClaudeSession
) -> None:
    write_session(folder.file, session.lines)
    folder.ingest(tool_chars=0)
    assert folder.contents()[1] == "Assistant: I look it up.\n[Bash]"
    folder.ingest()
    assert folder.contents() == SAID
    folder.ingest(tool_chars=10)
    assert folder.contents()[1] == (
        "Assistant: I look it up.\n[Bash: grep -r sa]\n[Bash result: carriers.p]"
    )


def test_both_agents_live_in_one_file(folder: Folder, session: ClaudeSession) -> None:
    codex = CodexSession()
    codex.user("Which depot?")
    codex.called("c1", "shell", command=["ls"])
    codex.returned("c1", "D17")
    write_session(folder.file, session.lines)
    write_session(folder.root / "2026" / "rollout-x.jsonl", codex.lines)
    folder.ingest()
    assert set(folder.contents()) == {
        *SAID,
        "User: Which depot?",
        'Assistant: [shell: ["ls"]]\n[shell result: D17]',
    }


def test_what_is_no_transcript_is_left_alone(folder: Folder, session: ClaudeSession) -> None:
    write_session(folder.file, session.lines)
    (folder.root / "history.jsonl").write_text('{"display": "hi", "project": "/x"}\n')
    (folder.root / "notes.txt").write_text("words")
    os.mkfifo(folder.root / "pipe.jsonl")
    (folder.root / "loop").symlink_to(folder.root)
    report = folder.ingest()
    assert report.files == 3
    assert folder.contents() == SAID


def test_a_missing_path_is_a_fault_and_no_error(tmp_path: Path) -> None:
    report = ingest_transcripts(tmp_path / "gone", tmp_path / "turns.sqlite")
    assert not report.is_complete
    assert report.faults == [f"{tmp_path / 'gone'} cannot be read: No such file or directory"]


def test_a_damaged_file_of_turns_says_what_to_do(folder: Folder) -> None:
    folder.turns.write_bytes(b"no database at all" * 100)
    with pytest.raises(StoreError, match=r"turns\.sqlite cannot be used .*backup.*move it away"):
        folder.ingest()


def test_small_batches_keep_the_same(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_session(folder.file, working_session(3, 12).lines)
    folder.ingest()
    monkeypatch.setattr(reading, "BATCH_BYTES", 700)
    other = tmp_path / "other.sqlite"
    ingest_transcripts(folder.root, other)
    assert kept_rows(other) == kept_rows(folder.turns)


def test_a_batch_that_is_broken_off_is_kept_not_at_all_or_whole(
    folder: Folder, session: ClaudeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    write_session(folder.file, session.lines)
    monkeypatch.setattr("noctuary.sources.ingest.TurnsFile.keep_state", killed)
    with pytest.raises(KeyboardInterrupt):
        folder.ingest()
    monkeypatch.undo()
    assert folder.contents() == []
    assert folder.ingest().bytes_read == folder.file.stat().st_size
    assert folder.contents() == SAID
