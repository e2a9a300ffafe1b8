from __future__ import annotations

from pathlib import Path

import pytest

from noctuary.context.prompt import Turn, read_session
from noctuary.core.errors import SessionFileError

GOOD = """{"role": "user", "text": "The build\\u2028is red.", "at": "2026-03-01"}

{"role": "assistant", "text": "Which?", "id": "m2", "bundle": "b", "cost": 3}\r
"""


def test_a_line_is_a_turn(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert read_session(path) == (
        Turn("user", "The build\u2028is red.", None, 1_772_323_200_000_000, None),
        Turn("assistant", "Which?", "m2", None, "b"),
    )


def test_an_empty_file_is_a_session_without_turns(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_text("\n\n")
    assert read_session(path) == ()


def test_every_line_that_is_wrong_is_named(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    lines = [
        b'{"role": "user"}',
        b'{"role": "user", "text": "fine"}',
        b'{"role": "user", "te',
        b"[1]",
        b'{"role": 3, "text": "x"}',
        b'{"role": "user", "text": "x", "at": "yesterday"}',
        b'{"text": "x"}',
        b"\xff\xfe",
        b"[" * 100_000,
    ]
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(SessionFileError) as caught:
        read_session(path)
    assert [fault.line for fault in caught.value.faults] == [1, 3, 4, 5, 6, 7, 8, 9]
    message = str(caught.value)
    assert "line 1: text is missing" in message
    assert "line 4: expected a JSON object, found list" in message
    assert "line 5: role must be a text, found int" in message
    assert "line 6: at must be an ISO-8601" in message


def test_what_cannot_be_read_is_one_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SessionFileError, match="No such file"):
        read_session(tmp_path / "none")
    with pytest.raises(SessionFileError, match="directory"):
        read_session(tmp_path)
    monkeypatch.setattr("noctuary.context.prompt.MAX_SESSION_BYTES", 10)
    path = tmp_path / "session.jsonl"
    path.write_text(GOOD)
    with pytest.raises(SessionFileError, match="more than 10 bytes"):
        read_session(path)
