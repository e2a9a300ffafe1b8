"""turns.sqlite: the turns of agents' transcripts, kept and read as a source."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from noctuary.core.files import hash_text, make_directory
from noctuary.core.sqlite import LogFormat, open_log, transaction
from noctuary.sources.transcripts import Message, Vetted

# How far a file was read, and whether what was read of it is still there.
#
# A file is known by its bytes, not by its inode: a digest of its beginning and of what lies right
# before the offset. Appended to: both hold. Truncated, replaced, rotated away or rewritten: one
# does not, and it is read from its beginning; turns that are kept already are recognised by their
# ids.

_HEAD_BYTES = 4_096
_TAIL_BYTES = 1_024
"""Bytes before the offset that must be unchanged. More notices more edits in the middle of a file,
which agents do not make."""


class FileState(NamedTuple):
    """What is known of a file from the last time it was read."""

    device: int  # Of the file
    inode: int  # Of the file
    size: int  # In bytes, then
    mtime_ns: int  # Then
    offset: int  # Up to where its lines were read
    digest: str  # Of its bytes before the offset (`digest_before`)
    context: str  # What its lines told so far, as JSON (`FileContext`)


def digest_before(fd: int, offset: int) -> str:
    """Return a digest of a file's first bytes and of those right before an offset."""
    digest = hashlib.sha256(str(offset).encode())
    digest.update(os.pread(fd, min(_HEAD_BYTES, offset), 0))
    start = max(0, offset - _TAIL_BYTES)
    digest.update(os.pread(fd, offset - start, start))
    return digest.hexdigest()[:32]


def is_unchanged(state: FileState, found: os.stat_result) -> bool:
    """Say whether a file looks exactly as it did, without opening it."""
    return (state.device, state.inode, state.size, state.mtime_ns) == (
        found.st_dev,
        found.st_ino,
        found.st_size,
        found.st_mtime_ns,
    )


def may_continue(state: FileState, fd: int) -> bool:
    """Say whether a file still begins with what was read of it; a shorter one does not."""
    return digest_before(fd, state.offset) == state.digest


# turns.sqlite: turns, the parts that they are made of, and how far each transcript was read.
#
# The file is changed in place, by a night and by hooks at once: every batch of a file and its new
# offset are one transaction.
#
# A turn is a row of `turns` and its parts in the order in which they arrived; its text is joined
# when it is read. A turn that held a secret keeps its row, marked, and loses its parts: its id
# stays known as one that must not be exported.

NUMBER_BITS = 52
"""Numbers of turns are negative with this many bits: exact in every JSON reader, and two of a
million turns share one with a chance of 1 in 9,000 before the next free one is taken."""

TURNS = LogFormat(
    noun="the file of turns",
    version=1,
    schema="""
CREATE TABLE IF NOT EXISTS files (
    path TEXT PRIMARY KEY,
    device INTEGER NOT NULL, inode INTEGER NOT NULL,
    size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
    offset INTEGER NOT NULL, digest TEXT NOT NULL, context TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS turns (
    number INTEGER PRIMARY KEY,
    turn_id TEXT NOT NULL UNIQUE,
    agent TEXT NOT NULL, role TEXT NOT NULL,
    session TEXT NOT NULL, wing TEXT NOT NULL,
    at_us INTEGER,
    is_sidechain INTEGER NOT NULL, is_sensitive INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS parts (
    part INTEGER PRIMARY KEY,
    number INTEGER NOT NULL,
    key TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL, label TEXT NOT NULL, text TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS parts_of_turn ON parts (number, part);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID
""",
)


class Call(NamedTuple):
    """A tool call that is kept."""

    number: int  # Of its turn
    label: str  # The tool's name


class TurnsFile:
    """An open turns.sqlite that may be changed; use within one thread."""

    def __init__(self, path: Path, *, wait_s: float) -> None:
        """Open the file, or make it (readable by its owner only)."""
        make_directory(path.parent)
        self._db = open_log(path, TURNS, "rwc", wait_s=wait_s)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def transaction(self) -> AbstractContextManager[None]:
        """Make what the block does one change: all of it or nothing, waiting for other writers."""
        return transaction(self._db)

    def state_of(self, path: str) -> FileState | None:
        """Return how far a file was read, or None if it never was."""
        columns = ", ".join(FileState._fields)
        row = self._db.execute(f"SELECT {columns} FROM files WHERE path = ?", (path,)).fetchone()
        return None if row is None else FileState(*row)

    def moved_state(self, device: int, inode: int) -> FileState | None:
        """Return how far the file of an inode was read under another path, or None."""
        columns = ", ".join(FileState._fields)
        row = self._db.execute(
            f"SELECT {columns} FROM files WHERE device = ? AND inode = ? "
            "ORDER BY offset DESC LIMIT 1",
            (device, inode),
        ).fetchone()
        return None if row is None else FileState(*row)

    def keep_state(self, path: str, state: FileState) -> None:
        """Remember how far a file was read."""
        marks = ", ".join("?" * (1 + len(state)))
        self._db.execute(f"INSERT OR REPLACE INTO files VALUES ({marks})", (path, *state))

    def forget_states(self) -> None:
        """Make every file be read from its beginning."""
        self._db.execute("DELETE FROM files")

    def fact(self, name: str) -> str:
        """Return a remembered fact, "" if there is none."""
        row = self._db.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return "" if row is None else str(row[0])

    def keep_fact(self, name: str, value: str) -> None:
        """Remember a fact."""
        self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    def call(self, agent: str, call_key: str) -> Call | None:
        """Return where a tool call is kept, or None if it is not."""
        row = self._db.execute(
            "SELECT number, label FROM parts WHERE key = ?", (f"{agent}:{call_key}",)
        ).fetchone()
        return None if row is None else Call(*row)

    def turn(self, message: Message) -> tuple[int, bool]:
        """Return the number of a message's turn and whether it is new; make it if it is.

        What the first message of a turn says of session, time and wing stays.
        """
        turn_id = f"turn-{hash_text(message.agent, message.native_id)[:16]}"
        row = self._db.execute("SELECT number FROM turns WHERE turn_id = ?", (turn_id,)).fetchone()
        if row is not None:
            return int(row[0]), False
        number = self._free_number(turn_id)
        self._db.execute(
            "INSERT INTO turns VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)",
            (
                number,
                turn_id,
                message.agent,
                message.role,
                message.session,
                message.project,
                message.at_us,
                message.is_sidechain,
            ),
        )
        return number, True

    def is_sensitive(self, number: int) -> bool:
        """Say whether a turn is marked as one that held a secret."""
        row = self._db.execute("SELECT is_sensitive FROM turns WHERE number = ?", (number,))
        return bool(row.fetchone()[0])

    def mark_sensitive(self, number: int) -> None:
        """Forget the parts of a turn and mark it."""
        self._db.execute("UPDATE turns SET is_sensitive = 1 WHERE number = ?", (number,))
        self._db.execute("DELETE FROM parts WHERE number = ?", (number,))

    def keep_part(self, agent: str, number: int, part: Vetted) -> bool:
        """Keep a part, or its new text, behind those of its turn; say whether anything changed.

        A part without a text is forgotten.
        """
        key = f"{agent}:{part.key}"
        row = self._db.execute("SELECT number, text FROM parts WHERE key = ?", (key,)).fetchone()
        if row is not None and (int(row[0]) != number or row[1] == part.text):
            return False
        if not part.text:
            return self._db.execute("DELETE FROM parts WHERE key = ?", (key,)).rowcount > 0
        if row is None:
            self._db.execute(
                "INSERT INTO parts (number, key, kind, label, text) VALUES (?, ?, ?, ?, ?)",
                (number, key, part.kind, part.label, part.text),
            )
        else:
            self._db.execute(
                "UPDATE parts SET text = ?, label = ? WHERE key = ?", (part.text, part.label, key)
            )
        return True

    def texts_of(self, number: int) -> list[str]:
        """Return the texts of a turn's parts in order."""
        rows = self._db.execute("SELECT text FROM parts WHERE number = ? ORDER BY part", (number,))
        return [str(text) for (text,) in rows]

    def numbers(self, after: int | None, limit: int) -> list[int]:
        """Return the next numbers of turns that are not marked, ascending."""
        rows = self._db.execute(
            "SELECT number FROM turns WHERE is_sensitive = 0 AND (? IS NULL OR number > ?) "
            "ORDER BY number LIMIT ?",
            (after, after, limit),
        )
        return [int(number) for (number,) in rows]

    def _free_number(self, turn_id: str) -> int:
        number = first_number(turn_id)
        while self._db.execute("SELECT 1 FROM turns WHERE number = ?", (number,)).fetchone():
            number = next_number(number)
        return number


def first_number(turn_id: str) -> int:
    """Return the number that a turn gets if it is free: in [-2^52, -1]."""
    return -1 - int(hash_text("number", turn_id)[:16], 16) % 2**NUMBER_BITS


def next_number(number: int) -> int:
    """Return the number to try when one is taken."""
    return number - 1 if number > -(2**NUMBER_BITS) else -1


def join_parts(role: str, texts: Iterable[str]) -> str:
    """Return the content of a turn as a memory: its speaker, then its parts line by line."""
    return f"{role.capitalize()}: " + "\n".join(texts)
