"""turns.sqlite as a source of the corpus."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from noctuary.core.errors import StoreError
from noctuary.sources.ingest import (
    NUMBER_BITS,
    TranscriptSource,
    capture_session,
    first_number,
    holds_turns,
    ingest_transcripts,
    next_number,
)
from tests.support.transcripts import ClaudeSession, kept_rows, working_session, write_session


@pytest.fixture
def turns(tmp_path: Path) -> Path:
    write_session(tmp_path / "p" / "s.jsonl", working_session(1, 8).lines)
    ingest_transcripts(tmp_path / "p", tmp_path / "turns.sqlite")
    return tmp_path / "turns.sqlite"


def test_rows_come_in_key_order_and_are_counted(turns: Path) -> None:
    texts, numbers = kept_rows(turns), kept_rows(turns, id_kind="int")
    with TranscriptSource(turns) as source:
        assert source.count() == len(texts) == len(numbers) == 24
    assert [r.key for r in texts] == sorted(r.key for r in texts if isinstance(r.key, str))
    assert [r.key for r in numbers] == sorted(r.key for r in numbers if isinstance(r.key, int))
    assert all(isinstance(r.key, int) and -(2**NUMBER_BITS) <= r.key < 0 for r in numbers)
    by_locator = {r.locator: r.fields["content"] for r in texts}
    assert by_locator == {r.locator: r.fields["content"] for r in numbers}


def test_numbers_wrap_at_their_end() -> None:
    assert next_number(-1) == -2
    assert next_number(-(2**NUMBER_BITS)) == -1
    assert first_number("turn-1") == first_number("turn-1") != first_number("turn-2")


def test_two_turns_of_one_number_both_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def seventh(_: str) -> int:
        return -7

    monkeypatch.setattr("noctuary.sources.ingest.first_number", seventh)
    write_session(tmp_path / "p" / "s.jsonl", working_session(1, 2).lines)
    ingest_transcripts(tmp_path / "p", tmp_path / "turns.sqlite")
    found = kept_rows(tmp_path / "turns.sqlite", id_kind="int")
    assert [r.key for r in found] == list(range(-12, -6))


def test_a_source_is_pinned_while_a_hook_writes(turns: Path, tmp_path: Path) -> None:
    with TranscriptSource(turns) as source:
        later = ClaudeSession("later")
        later.user("one more")
        capture_session(write_session(tmp_path / "later.jsonl", later.lines), turns)
        assert source.count() == 24
        assert sum(1 for _ in source.rows()) == 24
    assert len(kept_rows(turns)) == 25


def test_the_marker_tells_states_apart(turns: Path, tmp_path: Path) -> None:
    def marker() -> object:
        with TranscriptSource(turns) as source:
            return source.identity().marker

    before = marker()
    assert marker() == before
    later = ClaudeSession("later")
    later.user("one more")
    capture_session(write_session(tmp_path / "later.jsonl", later.lines), turns)
    assert marker() != before


def test_holds_turns_says_whether_there_are_any(turns: Path, tmp_path: Path) -> None:
    assert holds_turns(turns)
    assert not holds_turns(tmp_path / "none.sqlite")
    (tmp_path / "empty").mkdir()
    ingest_transcripts(tmp_path / "empty", tmp_path / "empty.sqlite")
    assert not holds_turns(tmp_path / "empty.sqlite")


def test_what_cannot_be_read_is_a_store_error(tmp_path: Path) -> None:
    path = tmp_path / "turns.sqlite"
    path.write_bytes(b"no database" * 500)
    with pytest.raises(StoreError, match="cannot be used"):
        TranscriptSource(path)
    path.unlink()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StoreError, match="format 99, expected 1"):
        holds_turns(path)
