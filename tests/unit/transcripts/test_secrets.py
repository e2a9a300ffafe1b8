"""Nothing that holds a secret is stored, and what was stored is taken back."""

from __future__ import annotations

import pytest

from noctuary.sources import ingest as reading
from noctuary.sources.ingest import forget_sensitive
from tests.support.transcripts import (
    ClaudeSession,
    Folder,
    call,
    kept_rows,
    text,
    write_session,
)

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def never(_: str) -> None:
    """Find nothing objectionable, as rules of long ago."""


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
    monkeypatch.setattr("noctuary.sources.transcripts.find_text_sensitivity", never)
    monkeypatch.setattr(reading, "find_text_sensitivity", never)
    session.user(f"use {SECRET} for the registry")
    write_session(folder.file, session.lines)
    folder.ingest()
    monkeypatch.undo()
    assert any(SECRET in c for c in folder.contents())
    assert forget_sensitive(folder.turns) == 1
    assert not any(SECRET in c for c in folder.contents())
    assert SECRET.encode() not in folder.turns.read_bytes()
    assert forget_sensitive(folder.turns) == 0
