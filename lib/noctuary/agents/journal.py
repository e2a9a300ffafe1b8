"""The journal of the hooks: one JSON line per compaction, stop and end of a session.

What belongs here: appending a line and reading them back. What does not: what follows from one
(capturing a transcript, the night). Appending waits for nobody and never raises. No text of a
conversation has a place in it; paths and ids of sessions have, so the file is its user's alone.

A PreCompact hook can do no more than this in time: what the conversation held up to that byte is
compacted out of band, from the transcript.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

from noctuary.foreign_json import parse_json

MAX_BYTES = 4_000_000
"""Size from which on the journal is put aside (`journal.1.jsonl`, replacing the one before): some
15,000 lines. More keeps a longer past, less a smaller file."""

_MAX_READ_BYTES = 4 * MAX_BYTES


class JournalEntry(NamedTuple):
    """One line.

    Attributes:
        at_us: When, microseconds since the epoch.
        agent: "claude" or "codex".
        event: The event's name.
        session_id: The agent's name of the conversation, or "".
        transcript_path: Its transcript, or "".
        offset_bytes: How long the transcript was, or None where it could not be looked at.
        cwd: The folder that the agent worked in, or "".
        detail: Trigger of a compaction or reason of an end, or "".
        store: The store directory that the hook was for, or "" where there was none.
    """

    at_us: int
    agent: str
    event: str
    session_id: str = ""
    transcript_path: str = ""
    offset_bytes: int | None = None
    cwd: str = ""
    detail: str = ""
    store: str = ""


def append_entry(path: Path, entry: JournalEntry) -> str | None:
    """Append one line; return what went wrong, or None.

    Args:
        path: `HookPlaces.journal`, in a directory that exists.
        entry: What happened.
    """
    line = json.dumps(entry._asdict(), separators=(",", ":")).encode("ascii") + b"\n"
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
    try:
        handle = os.open(path, flags, 0o600)
        try:
            size = os.fstat(handle).st_size
            if size > MAX_BYTES and _put_aside(path, handle):
                return append_entry(path, entry)
            if size and os.pread(handle, 1, size - 1) != b"\n":
                line = b"\n" + line  # behind a line that a full disk cut off
            if os.write(handle, line) != len(line):
                return "the journal's disk is full"
        finally:
            os.close(handle)
    except (OSError, ValueError) as error:
        return f"the journal cannot be written: {type(error).__name__}"
    return None


def read_journal(path: Path) -> tuple[JournalEntry, ...]:
    """Return every entry, oldest first; lines that are damaged are left out. Never raises."""
    return tuple(
        entry for part in (_aside(path), path) for line in _lines(part) if (entry := _parse(line))
    )


def transcripts_in(path: Path, store: Path) -> tuple[str, ...]:
    """Return the transcripts that the journal names for a store, in order of their last entry.

    Args:
        path: `HookPlaces.journal`.
        store: A store directory: the sessions of another one are none of its business.
    """
    found: dict[str, None] = {}
    own = str(store.absolute())
    for entry in read_journal(path):
        if entry.transcript_path and entry.store == own:
            found.pop(entry.transcript_path, None)
            found[entry.transcript_path] = None
    return tuple(found)


def _put_aside(path: Path, handle: int) -> bool:
    """Rename a journal that is full; tell whether another one is in its place now."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(path.stat(), os.fstat(handle)):
            return True  # another hook did
        path.replace(_aside(path))
    except OSError:
        return False
    return True


def _aside(path: Path) -> Path:
    return path.with_name(f"{path.stem}.1{path.suffix}")


def _lines(path: Path) -> Iterator[bytes]:
    with suppress(OSError), path.open("rb") as file:
        yield from file.read(_MAX_READ_BYTES).splitlines()


def _parse(line: bytes) -> JournalEntry | None:
    try:
        value: Any = parse_json(line)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    raw = cast("dict[str, Any]", value)
    at_us, offset = raw.get("at_us"), raw.get("offset_bytes")
    texts = {
        name: raw.get(name, "")
        for name in ("agent", "event", "session_id", "transcript_path", "cwd", "detail", "store")
    }
    if type(at_us) is not int or type(offset) not in (int, type(None)):
        return None
    if not all(isinstance(text, str) for text in texts.values()):
        return None
    return JournalEntry(at_us=at_us, offset_bytes=offset, **texts)
