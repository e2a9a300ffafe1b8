"""What the Stop hook calls: one file, a deadline, never an exception."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as example_settings
from hypothesis import strategies as st

from noctuary.core.settings import TranscriptSettings
from noctuary.sources import ingest as reading
from noctuary.sources.ingest import capture_session, ingest_transcripts
from tests.support.transcripts import (
    ClaudeSession,
    dump,
    kept_contents,
    kept_rows,
    working_session,
    write_session,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_session(tmp_path / "-home-me-shop" / "s.jsonl", working_session(1, 5).lines)


@pytest.fixture
def turns(tmp_path: Path) -> Path:
    return tmp_path / "store" / "turns.sqlite"


def test_a_session_is_captured_stop_by_stop_as_the_night_would(
    file: Path, turns: Path, tmp_path: Path
) -> None:
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


def test_a_missing_transcript_is_a_fault(turns: Path, tmp_path: Path) -> None:
    report = capture_session(tmp_path / "gone.jsonl", turns)
    assert not report.is_complete
    assert "gone.jsonl cannot be captured: No such file" in report.faults[0]


@pytest.mark.parametrize("path", ["", ".", "/", "\0", "x" * 5_000, "/dev/zero", "/proc/self/mem"])
def test_a_path_that_leads_nowhere_good_is_no_error(turns: Path, path: str) -> None:
    started = time.monotonic()
    report = capture_session(path, turns, deadline_s=2)
    assert report.turns == 0
    assert time.monotonic() - started < 2


def test_a_damaged_or_newer_file_of_turns_is_a_fault(file: Path, turns: Path) -> None:
    turns.parent.mkdir()
    turns.write_bytes(b"no database" * 500)
    assert "turns.sqlite cannot be written: SQLITE_NOTADB" in capture_session(file, turns).faults[0]
    turns.unlink()
    with sqlite3.connect(turns) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    assert "format 99" in capture_session(file, turns).faults[0]


def test_a_directory_that_cannot_be_made_is_a_fault(file: Path, tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file")
    report = capture_session(file, tmp_path / "store" / "turns.sqlite")
    assert not report.is_complete
    assert report.faults


def test_another_writer_is_waited_for_within_the_deadline(file: Path, turns: Path) -> None:
    capture_session(file, turns)
    with file.open("ab") as handle:
        handle.write(dump([ClaudeSession("later").user("one more")]))
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
    holder.close()
    assert "User: one more" in kept_contents(turns)


def test_a_reader_does_not_keep_a_capture_waiting(file: Path, turns: Path) -> None:
    capture_session(file, turns)
    with file.open("ab") as handle:
        handle.write(dump([ClaudeSession("later").user("one more")]))
    reader = sqlite3.connect(turns, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM turns").fetchone()
    assert capture_session(file, turns, deadline_s=1).is_complete
    reader.close()


def test_what_the_deadline_cuts_off_is_read_next_time(
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
