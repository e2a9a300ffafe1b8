from __future__ import annotations

import json
import multiprocessing
import os
import time
from pathlib import Path

import pytest

from noctuary.agents import state as journal
from noctuary.agents.state import JournalEntry, append_entry, read_journal, transcripts_in

ENTRY = JournalEntry(
    1_790_000_000_000_000, "claude", "PreCompact", "s", "/t.jsonl", 42, "/p", "auto"
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def append_many(path: Path, agent: str, count: int) -> None:
    for i in range(count):
        append_entry(path, ENTRY._replace(agent=agent, at_us=i))


def test_entries_are_read_back_in_order(path: Path) -> None:
    others = [ENTRY._replace(event="Stop", offset_bytes=None), ENTRY._replace(session_id='é\n"')]
    for entry in (ENTRY, *others):
        assert append_entry(path, entry) is None
    assert read_journal(path) == (ENTRY, *others)
    assert len(path.read_text().splitlines()) == 3
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_line_that_was_cut_off_takes_no_other_with_it(path: Path) -> None:
    append_entry(path, ENTRY)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:30])
    append_entry(path, ENTRY._replace(event="Stop"))
    assert [e.event for e in read_journal(path)] == ["PreCompact", "Stop"]


def test_damaged_lines_are_left_out(path: Path) -> None:
    append_entry(path, ENTRY)
    lines = [b"{", b"[]", b"\xff\xfe", b'{"at_us": "x"}', b'{"at_us": 1, "agent": 3}', b"[" * 9_999]
    path.write_bytes(b"\n".join([*lines, path.read_bytes()]))
    assert read_journal(path) == (ENTRY,)
    assert read_journal(path.with_name("none")) == ()


def test_two_processes_write_whole_lines(path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [
        context.Process(target=append_many, args=(path, a, 200)) for a in ("claude", "codex")
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found = read_journal(path)
    for agent in ("claude", "codex"):
        assert [e.at_us for e in found if e.agent == agent] == list(range(200))


def test_a_full_journal_is_put_aside_and_still_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "MAX_BYTES", 2_000)
    for i in range(40):
        append_entry(path, ENTRY._replace(at_us=i))
    found = [e.at_us for e in read_journal(path)]
    assert found == list(range(found[0], 40)), "the newest ones, none missing between"
    assert 10 < len(found) < 40
    assert {p.name for p in path.parent.iterdir()} == {"journal.jsonl", "journal.1.jsonl"}
    assert all(p.stat().st_size < 2_500 for p in path.parent.iterdir())


@pytest.mark.parametrize("what", ["directory", "fifo", "link", "no directory"])
def test_what_cannot_be_written_is_said_at_once(path: Path, what: str) -> None:
    if what == "directory":
        path.mkdir()
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "link":
        path.symlink_to(path.with_name("elsewhere"))
    else:
        path = path.parent / "none" / "journal.jsonl"
    before = time.monotonic()
    fault = append_entry(path, ENTRY)
    assert time.monotonic() - before < 5, "nobody ever reads from it"
    assert fault is None if what == "fifo" else fault is not None
    assert not path.with_name("elsewhere").exists()


def test_transcripts_are_named_once_in_order_of_their_last_entry(path: Path) -> None:
    for name in ("/a", "/b", "", "/a", "/c"):
        append_entry(path, ENTRY._replace(transcript_path=name, store="/s"))
    append_entry(path, ENTRY._replace(transcript_path="/of another store", store="/t"))
    append_entry(path, ENTRY._replace(transcript_path="/of none"))
    assert transcripts_in(path, Path("/s")) == ("/b", "/a", "/c")


def test_the_format(path: Path) -> None:
    append_entry(path, ENTRY)
    assert json.loads(path.read_text()) == {
        "at_us": 1_790_000_000_000_000, "agent": "claude", "event": "PreCompact",
        "session_id": "s", "transcript_path": "/t.jsonl", "offset_bytes": 42, "cwd": "/p",
        "detail": "auto", "store": "",
    }  # fmt: skip
