"""Files that grow, turn, shrink and vanish; what is kept of them."""

from __future__ import annotations

import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as example_settings
from hypothesis import strategies as st

from noctuary.core.errors import StoreError
from noctuary.core.settings import TranscriptSettings
from noctuary.sources import ingest as reading
from noctuary.sources import transcripts as lines_module
from noctuary.sources.ingest import (
    NUMBER_BITS,
    capture_session,
    find_unread_sessions,
    first_number,
    forget_sensitive,
    forget_turns,
    ingest_transcripts,
    next_number,
)
from noctuary.sources.projects import wing_of
from noctuary.sources.turns import TranscriptSource, holds_turns
from tests.support.transcripts import (
    SAID,
    ClaudeSession,
    CodexSession,
    Folder,
    call,
    dump,
    kept_contents,
    kept_rows,
    text,
    working_session,
    write_session,
)


def test_a_session_is_kept_as_turns_once(folder: Folder, session: ClaudeSession) -> None:
    write_session(folder.file, session.lines)
    write_session(folder.file.with_name("copy.jsonl"), session.lines)
    report = folder.ingest()
    assert (report.files, report.turns, report.parts, report.lines) == (2, 3, 5, 12)
    assert report.skipped == {"no_content": 2}
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
        "origin": "user",
    }
    # Deleted transcripts keep their turns.
    shutil.rmtree(folder.file.parent)
    assert folder.ingest().files == 0
    assert folder.contents() == SAID


def test_a_half_written_line_waits_for_its_rest_a_whole_one_without_its_end_is_read(
    folder: Folder, session: ClaudeSession
) -> None:
    data = dump(session.lines)
    folder.file.write_bytes(data[:-20])
    first = folder.ingest()
    assert first.bytes_read == data.rindex(b"\n", 0, -20) + 1
    assert first.skipped["bad_json"] == 0
    assert folder.contents() == SAID[:2]
    folder.file.write_bytes(data[:-1])
    second = folder.ingest()
    assert (second.bytes_read, second.restarted) == (len(data) - 1 - first.bytes_read, 0)
    assert folder.contents() == SAID
    folder.file.write_bytes(data + dump([session.user("Thanks.")]))
    folder.ingest()
    assert folder.contents() == [*SAID, "User: Thanks."]


def another_session() -> ClaudeSession:
    other = ClaudeSession(session="another")
    other.user("A new session.")
    return other


def append(file: Path, lines: Sequence[Mapping[str, Any]]) -> int:
    """Let a transcript grow; by how many bytes."""
    with file.open("ab") as handle:
        return handle.write(dump(lines))


def test_a_truncated_file_keeps_what_it_held(folder: Folder, session: ClaudeSession) -> None:
    """Grown, damaged and moved files: tests/properties/test_transcripts.py."""
    write_session(folder.file, session.lines)
    folder.ingest()
    write_session(folder.file, another_session().lines)
    report = folder.ingest()
    assert (report.restarted, report.turns) == (1, 1)
    assert sorted(folder.contents()) == sorted([*SAID, "User: A new session."])
    again = folder.ingest()
    assert (again.bytes_read, again.unchanged) == (0, 1)


def test_a_file_cut_and_grown_longer_is_noticed(folder: Folder, session: ClaudeSession) -> None:
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


def test_a_rotated_file_is_followed(folder: Folder, session: ClaudeSession) -> None:
    write_session(folder.file, session.lines[:4])
    folder.ingest()
    rotated = folder.file.rename(folder.file.with_name("session.1.jsonl"))
    rest = append(rotated, session.lines[4:])
    write_session(folder.file, another_session().lines)
    assert folder.ingest().bytes_read == rest + folder.file.stat().st_size
    assert sorted(folder.contents()) == sorted([*SAID, "User: A new session."])
    # A file that an equal one replaced is not read again.
    copy = folder.file.with_name("copy")
    copy.write_bytes(folder.file.read_bytes())
    copy.replace(folder.file)
    report = folder.ingest()
    assert (report.bytes_read, report.restarted) == (0, 0)


def test_of_a_file_that_is_gone_only_the_turns_stay(folder: Folder, session: ClaudeSession) -> None:
    write_session(folder.file, session.lines)
    folder.ingest()
    whole = folder.file.read_bytes()
    folder.file.unlink()
    write_session(folder.file.with_name("next.jsonl"), another_session().lines)
    folder.ingest()
    with closing(sqlite3.connect(folder.turns)) as db:
        assert [Path(p).name for (p,) in db.execute("SELECT path FROM files")] == ["next.jsonl"]
    assert sorted(folder.contents()) == sorted([*SAID, "User: A new session."])
    folder.file.write_bytes(whole)
    assert folder.ingest().turns == 0, "put back: its turns are known"


def test_a_file_that_cannot_be_looked_at_is_not_gone(
    folder: Folder, session: ClaudeSession, tmp_path: Path
) -> None:
    write_session(folder.file, session.lines)
    folder.ingest()
    elsewhere = folder.file.parent.rename(tmp_path / "elsewhere")
    folder.file.parent.symlink_to(folder.file.parent)  # a link to itself
    ingest_transcripts(elsewhere, folder.turns)
    with closing(sqlite3.connect(folder.turns)) as db:
        assert str(folder.file) in {path for (path,) in db.execute("SELECT path FROM files")}


def test_a_forgotten_turn_is_in_no_page(folder: Folder) -> None:
    """Not where its row lay before its page was balanced either."""
    chance, kept = random.Random(5), dict[str, str]()
    for number in range(12):
        session = ClaudeSession(f"session {number}")
        for i in range(42):
            session.user(f"{number}.{i} {chance.randbytes(chance.randrange(20, 400)).hex()}")
        write_session(folder.file.with_name(f"{number}.jsonl"), session.lines)
        folder.ingest()
        with closing(sqlite3.connect(folder.turns)) as db:
            found = db.execute("SELECT turn_id, text FROM turns JOIN parts USING (number)")
            kept = {turn_id: said[-40:] for turn_id, said in found}
        gone = [*kept][: len(kept) // 2]
        assert forget_turns(folder.turns, gone) == len(gone)
        held = b"".join(p.read_bytes() for p in folder.turns.parent.glob("turns.sqlite*"))
        assert {i for i, end in kept.items() if end.encode() in held} == {*kept} - {*gone}


def test_parallel_calls_stay_one_turn_and_a_lone_result_is_dropped(folder: Folder) -> None:
    session = ClaudeSession()
    session.assistant(call("Read", "t1", path="a.py"), message="m")
    session.result("t1", "alpha")
    session.assistant(call("Read", "t2", path="b.py"), message="m")
    session.result("t2", "missing", is_error=True)
    session.result("never seen", "3 files")
    write_session(folder.file, session.lines)
    assert folder.ingest().skipped == {"orphan": 1}
    (row,) = kept_rows(folder.turns)
    assert row.fields["content"] == (
        "Assistant: [Read: a.py]\n[Read result: alpha]\n[Read: b.py]\n[Read failed: missing]"
    )
    assert row.fields["importance"] == 0.2, "nobody says anything in it"


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


def test_sidechains_are_kept_when_asked_for(folder: Folder, session: ClaudeSession) -> None:
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


def test_tool_texts_are_bounded_by_the_setting(folder: Folder, session: ClaudeSession) -> None:
    write_session(folder.file, session.lines)
    folder.ingest(tool_chars=0)
    assert folder.contents()[1] == "Assistant: I look it up.\n[Bash]"
    folder.ingest()
    assert folder.contents() == SAID
    folder.ingest(tool_chars=10)
    assert folder.contents()[1] == (
        "Assistant: I look it up.\n[Bash: grep -r sa]\n[Bash result: carriers.p]"
    )


def test_both_agents_live_in_one_file_and_what_is_no_transcript_is_left_alone(
    folder: Folder, session: ClaudeSession
) -> None:
    codex = CodexSession()
    codex.user("Which depot?")
    codex.called("c1", "shell", command=["ls"])
    codex.returned("c1", "D17")
    write_session(folder.file, session.lines)
    write_session(folder.root / "2026" / "rollout-x.jsonl", codex.lines)
    (folder.root / "history.jsonl").write_text('{"display": "hi", "project": "/x"}\n')
    (folder.root / "notes.txt").write_text("words")
    os.mkfifo(folder.root / "pipe.jsonl")
    (folder.root / "loop").symlink_to(folder.root)
    assert folder.ingest().files == 4
    answer = 'Assistant: [shell: ["ls"]]\n[shell result: D17]'
    assert set(folder.contents()) == {*SAID, "User: Which depot?", answer}


def test_a_missing_path_is_a_fault_and_no_error(turns: Path, tmp_path: Path) -> None:
    report = ingest_transcripts(tmp_path / "gone", turns)
    assert not report.is_complete
    assert report.faults == [f"{tmp_path / 'gone'} cannot be read: No such file or directory"]
    report = capture_session(tmp_path / "gone.jsonl", turns)
    assert not report.is_complete
    assert "gone.jsonl cannot be captured: No such file" in report.faults[0]


def test_small_batches_keep_it(
    folder: Folder, turns: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_session(folder.file, working_session(3, 12).lines)
    folder.ingest()
    monkeypatch.setattr(reading, "BATCH_BYTES", 700)
    ingest_transcripts(folder.root, turns)
    assert kept_rows(turns) == kept_rows(folder.turns)


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


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_session(tmp_path / "-home-me-shop" / "s.jsonl", working_session(1, 5).lines)


@pytest.fixture
def turns(tmp_path: Path) -> Path:
    return tmp_path / "store" / "turns.sqlite"


def test_a_session_is_captured_as_the_night_would(file: Path, turns: Path, tmp_path: Path) -> None:
    data = file.read_bytes()
    for size in (len(data) // 3, len(data) // 2, len(data)):
        file.write_bytes(data[:size])
        report = capture_session(str(file), turns)
        assert report.is_complete
        assert report.faults == []
    at_night = tmp_path / "night.sqlite"
    ingest_transcripts(file.parent, at_night)
    assert kept_rows(turns) == kept_rows(at_night)
    night = ingest_transcripts(file.parent, turns)
    assert (night.bytes_read, night.unchanged) == (0, 1), "the hook's offsets are the night's"


def test_settings_hold_for_a_capture(turns: Path, tmp_path: Path) -> None:
    session = ClaudeSession()
    session.user("look", isSidechain=True)
    file = write_session(tmp_path / "s.jsonl", session.lines)
    assert capture_session(file, turns).turns == 0
    file = write_session(tmp_path / "other.jsonl", session.lines)
    assert capture_session(file, turns, TranscriptSettings(include_sidechains=True)).turns == 1


@pytest.mark.parametrize("path", ["", ".", "/", "\0", "x" * 5_000, "/dev/zero", "/proc/self/mem"])
def test_a_path_that_leads_nowhere_good_is_no_error(turns: Path, path: str) -> None:
    started = time.monotonic()
    report = capture_session(path, turns, deadline_s=2)
    assert report.turns == 0
    assert time.monotonic() - started < 2


def test_turns_that_cannot_be_used_are_a_fault_of_a_hook(file: Path, turns: Path) -> None:
    turns.parent.write_text("a file")
    report = capture_session(file, turns)
    assert not report.is_complete
    assert report.faults
    turns.parent.unlink()
    turns.parent.mkdir()
    turns.write_bytes(b"no database" * 500)
    assert "turns.sqlite cannot be written: SQLITE_NOTADB" in capture_session(file, turns).faults[0]
    with pytest.raises(StoreError, match="cannot be used"):
        TranscriptSource(turns)
    with pytest.raises(StoreError, match=r"turns\.sqlite cannot be used .*backup.*move it away"):
        ingest_transcripts(file.parent, turns)
    turns.unlink()
    with closing(sqlite3.connect(turns)) as db:
        db.execute("PRAGMA user_version = 99")
    assert "format 99" in capture_session(file, turns).faults[0]
    with pytest.raises(StoreError, match="format 99, expected 1"):
        holds_turns(turns)


def test_a_file_that_a_killed_process_was_making_holds_no_turn_and_is_made_by_the_next(
    file: Path, turns: Path
) -> None:
    turns.parent.mkdir()
    with closing(sqlite3.connect(turns)) as db:
        db.execute("PRAGMA journal_mode=WAL")  # the last step before the tables
    assert not holds_turns(turns)
    assert not find_unread_sessions(turns)
    assert capture_session(file, turns).is_complete
    assert holds_turns(turns)


def test_a_writer_is_waited_for_within_a_deadline_a_reader_not(file: Path, turns: Path) -> None:
    capture_session(file, turns)
    append(file, [ClaudeSession("later").user("one more")])
    holder = sqlite3.connect(turns, isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN IMMEDIATE")
    started = time.monotonic()
    report = capture_session(file, turns, deadline_s=0.8)
    assert "SQLITE_BUSY" in report.faults[0]
    assert time.monotonic() - started < 0.8 + 2, "the other writer holds it for good"
    release = threading.Timer(0.2, lambda: holder.execute("ROLLBACK"))
    release.start()
    assert capture_session(file, turns, deadline_s=20).is_complete
    release.join()
    assert "User: one more" in kept_contents(turns)
    holder.execute("BEGIN")
    holder.execute("SELECT count(*) FROM turns").fetchone()
    append(file, [ClaudeSession("again").user("and one")])
    assert capture_session(file, turns, deadline_s=1).is_complete
    holder.close()


def test_what_a_deadline_cuts_off_is_read_later(
    file: Path, turns: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = capture_session(file, turns, deadline_s=0)
    assert not report.is_complete
    assert report.faults == []
    assert 0 < report.lines < 5, "a deadline that is over still lets it get ahead"
    for _ in range(200):
        if (report := capture_session(file, turns, deadline_s=0)).is_complete:
            break
    assert report.is_complete
    whole = turns.with_name("whole.sqlite")
    monkeypatch.setattr(reading, "BATCH_BYTES", 10**9)
    capture_session(file, whole)
    assert kept_rows(turns) == kept_rows(whole)


_PIECES = st.one_of(
    st.binary(max_size=60),
    st.sampled_from([dump([line]) for line in working_session(2, 2).lines]),
    st.sampled_from([b"\n", b'{"type":"user","message":{"content":"', b"\x00\n", b"{}\n"]),
)


@example_settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_PIECES, max_size=8).map(b"".join))
def test_any_bytes_are_captured_without_a_fault(tmp_path: Path, data: bytes) -> None:
    file, turns = tmp_path / "s.jsonl", tmp_path / "turns.sqlite"
    file.write_bytes(data)
    report = capture_session(file, turns)
    assert report.faults == []
    for row in kept_rows(turns):
        assert str(row.fields["content"]).startswith(("User: ", "Assistant: "))


def test_a_hook_imports_the_standard_library_only() -> None:
    code = (
        "import sys; import noctuary.sources.ingest, noctuary.sources.transcripts;"
        "print(*sorted({m.split('.')[0] for m in sys.modules} - sys.stdlib_module_names))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    own = {"sitecustomize"}  # some distributions of Python bring one
    assert {m for m in ran.stdout.split() if not m.startswith("_")} - own == {"noctuary"}


SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def test_words_with_a_secret_are_not_stored(folder: Folder) -> None:
    session = ClaudeSession()
    session.user(f"use {SECRET} for the registry")
    session.user("and deploy")
    write_session(folder.file, session.lines)
    report = folder.ingest()
    assert (report.sensitive, report.turns) == (1, 1)
    sensitive = [r.fields for r in kept_rows(folder.turns) if r.fields.get("is_sensitive")]
    assert [f["content"] for f in sensitive] == [""]
    assert SECRET.encode() not in folder.turns.read_bytes()
    assert ("User: and deploy") in folder.contents()


@pytest.mark.parametrize("place", ["call", "result", "far behind the bound"])
def test_a_secret_in_a_tool_text_withholds_that_text(folder: Folder, place: str) -> None:
    long = "x " * 5_000 + SECRET
    session = ClaudeSession()
    command = f"curl -H {SECRET}" if place == "call" else "env"
    session.assistant(text("I try."), call("Bash", "t1", command=command))
    session.result("t1", {"result": SECRET, "call": "ok"}.get(place, long))
    write_session(folder.file, session.lines)
    report = folder.ingest()
    assert (report.withheld, report.sensitive) == (1, 0)
    shown = "[Bash]\n[Bash result: ok]" if place == "call" else "[Bash: env]"
    assert folder.contents() == [f"Assistant: I try.\n{shown}"]


def test_a_secret_that_two_lines_make_together_takes_the_turn_back(folder: Folder) -> None:
    session = ClaudeSession()
    session.assistant(text("The password:"), message="m")
    write_session(folder.file, session.lines)
    folder.ingest()
    assert folder.contents() == ["Assistant: The password:"]
    session.assistant(text("Tr0ub4dor&3xyz"), message="m")
    session.assistant(text("as I said"), message="m")
    write_session(folder.file, session.lines)
    assert folder.ingest().sensitive == 1
    assert folder.contents() == [""]
    session.assistant(text("and what follows it"), message="m")
    write_session(folder.file, session.lines)
    later = folder.ingest()
    assert (later.lines, later.parts) == (1, 0), "a marked turn takes nothing more"
    assert not any(b"Tr0ub4dor" in f.read_bytes() for f in folder.turns.parent.glob("turns.sql*"))


def test_new_rules_take_back_what_old_ones_let_in(
    folder: Folder, session: ClaudeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("transcripts", "ingest"):
        monkeypatch.setattr(f"noctuary.sources.{name}.find_text_sensitivity", lambda _: None)  # pyright: ignore[reportUnknownLambdaType]
    session.user(f"use {SECRET} for the registry")
    write_session(folder.file, session.lines)
    folder.ingest()
    monkeypatch.undo()
    assert any(SECRET in c for c in folder.contents())
    assert forget_sensitive(folder.turns) == 1
    assert not any(SECRET in c for c in folder.contents())
    assert SECRET.encode() not in folder.turns.read_bytes()
    assert forget_sensitive(folder.turns) == 0


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    write_session(tmp_path / "p" / "s.jsonl", working_session(1, 8).lines)
    ingest_transcripts(tmp_path / "p", tmp_path / "turns.sqlite")
    return tmp_path / "turns.sqlite"


def test_rows_come_in_key_order_and_are_counted(kept: Path) -> None:
    texts, numbers = (kept_rows(kept), kept_rows(kept, id_kind="int"))
    with TranscriptSource(kept) as source:
        assert source.count() == len(texts) == len(numbers) == 24
    assert [r.key for r in texts] == sorted(r.key for r in texts if isinstance(r.key, str))
    assert [r.key for r in numbers] == sorted(r.key for r in numbers if isinstance(r.key, int))
    assert all(isinstance(r.key, int) and -(2**NUMBER_BITS) <= r.key < 0 for r in numbers)
    by_locator = {r.locator: r.fields["content"] for r in texts}
    assert by_locator == {r.locator: r.fields["content"] for r in numbers}


def test_numbers_wrap_at_their_end_and_two_turns_of_one_number_both_live(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert next_number(-1) == -2
    assert next_number(-(2**NUMBER_BITS)) == -1
    assert first_number("turn-1") == first_number("turn-1") != first_number("turn-2")
    monkeypatch.setattr("noctuary.sources.ingest.first_number", lambda _: -7)  # pyright: ignore[reportUnknownLambdaType]
    write_session(tmp_path / "p" / "s.jsonl", working_session(1, 2).lines)
    ingest_transcripts(tmp_path / "p", tmp_path / "turns.sqlite")
    found = kept_rows(tmp_path / "turns.sqlite", id_kind="int")
    assert [r.key for r in found] == list(range(-12, -6))


def test_a_source_is_pinned_and_its_marker_tells_states_apart(kept: Path, tmp_path: Path) -> None:
    def marker() -> object:
        with TranscriptSource(kept) as source:
            return source.identity().marker

    before = marker()
    assert marker() == before
    with TranscriptSource(kept) as source:
        capture_session(write_session(tmp_path / "later.jsonl", another_session().lines), kept)
        assert source.count() == 24
        assert sum(1 for _ in source.rows()) == 24
    assert len(kept_rows(kept)) == 25
    assert marker() != before


def test_holds_turns_says_whether_there_are_any(kept: Path, turns: Path, tmp_path: Path) -> None:
    assert holds_turns(kept)
    assert not holds_turns(turns)
    (tmp_path / "empty").mkdir()
    ingest_transcripts(tmp_path / "empty", turns)
    assert not holds_turns(turns)


def test_a_wing_that_is_named_later_moves_what_is_kept(
    folder: Folder, session: ClaudeSession
) -> None:
    write_session(folder.file, session.lines)
    ingest_transcripts(folder.file, folder.turns, TranscriptSettings())
    assert {row.fields["wing"] for row in kept_rows(folder.turns)} == {"shop"}
    named = TranscriptSettings(wings=("/home/me/shop=family",))
    ingest_transcripts(folder.file, folder.turns, named)
    assert {row.fields["wing"] for row in kept_rows(folder.turns)} == {"family"}


def sessions_of_two_projects(folder: Folder, tmp_path: Path) -> list[str]:
    """Two repositories of one name, with a session each; their folders."""
    folders: list[str] = []
    for owner in ("mona", "ben"):
        place = tmp_path / owner / "mill"
        (place / ".git").mkdir(parents=True)
        remote = f'[remote "origin"]\n\turl = git@github.com:{owner}/mill.git\n'
        (place / ".git/config").write_text(remote)
        said = ClaudeSession(session=f"of-{owner}", cwd=str(place))
        said.user(f"The {owner} wheel turns.")
        session = write_session(folder.root / owner / "session.jsonl", said.lines)
        os.utime(session, (1_790_000_000 + len(folders), 1_790_000_000 + len(folders)))
        folders.append(str(place))
    return folders


def wings_of(turns: Path) -> dict[str, str]:
    return {str(r.fields["content"]).split()[2]: str(r.fields["wing"]) for r in kept_rows(turns)}


def test_two_repositories_of_one_name_have_a_wing_each(folder: Folder, tmp_path: Path) -> None:
    mona, ben = sessions_of_two_projects(folder, tmp_path)
    folder.ingest()
    apart = {"mona": "mill", "ben": "ben/mill"}  # in the order in which they were begun
    assert wings_of(folder.turns) == apart
    assert [wing_of(place, folder.turns, 0.1) for place in (mona, ben)] == ["mill", "ben/mill"]
    assert wing_of(str(tmp_path / "eve/mill"), folder.turns, 0.1) == "eve/mill"
    before = folder.turns.read_bytes()
    assert wing_of(str(tmp_path / "eve/mill"), tmp_path / "none.sqlite", 0.1) == "mill"
    assert folder.turns.read_bytes() == before
    folder.ingest(wings=(f"{mona}=wheel",))
    assert wings_of(folder.turns) == {"ben": "ben/mill", "mona": "wheel"}
    folder.ingest()
    assert wings_of(folder.turns) == apart


def test_turns_of_before_are_moved_and_those_whose_transcripts_are_gone_stay(
    folder: Folder, tmp_path: Path
) -> None:
    sessions_of_two_projects(folder, tmp_path)
    lost = ClaudeSession(session="lost", cwd="/home/me/mill")
    lost.user("The lost wheel turns.")
    write_session(folder.file, lost.lines)
    folder.ingest()
    folder.file.unlink()
    with closing(sqlite3.connect(folder.turns)) as db:
        # As the version before left it.
        db.execute("UPDATE turns SET wing = 'mill'")
        db.execute("DELETE FROM facts WHERE name LIKE 'project:%'")
        db.execute("UPDATE facts SET value = substr(value, 3) WHERE name = 'settings'")
        db.commit()
        numbers = db.execute("SELECT turn_id, number FROM turns ORDER BY 1").fetchall()
    folder.ingest()
    assert wings_of(folder.turns) == {"mona": "mill", "lost": "mill", "ben": "ben/mill"}
    with closing(sqlite3.connect(folder.turns)) as db:
        assert db.execute("SELECT turn_id, number FROM turns ORDER BY 1").fetchall() == numbers
