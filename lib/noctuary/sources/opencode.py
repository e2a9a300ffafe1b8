"""Read conversations of OpenCode.

Since 1.2 they are rows of a SQLite database, before that small JSON files below `storage`, with the
same objects. docs/transcripts.md lists the tested versions.
"""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from noctuary.core.errors import SourceFormatError
from noctuary.core.sqlite import WAIT_S, name_fault, open_foreign
from noctuary.sources.projects import project_of
from noctuary.sources.transcripts import (
    MAX_LINE_BYTES,
    FileContext,
    Line,
    Message,
    Part,
    Reading,
    Skip,
    as_list,
    as_name,
    as_object,
    as_texts,
    call_part,
    from_millis,
    join_answers,
    parse_object,
    result_part,
    text_part,
    withdraw,
)

OPENCODE = "opencode"
DATABASE_SUFFIX = ".db"
DATABASES = "opencode*.db"  # one for each installation channel
STORAGE = "storage"
COPIES = frozenset({"bin", "log", "repos", "snapshot", "tool-output", "worktree"})  # skipped
_SESSIONS = re.compile(r"ses_\w+\.json")
_KEY = "opencode.message"  # marks the lines made by this module
_TABLES = {
    "session": {"id", "parent_id", "directory", "time_created", "time_updated"},
    "message": {"id", "session_id", "time_created", "data"},
    "part": {"id", "message_id", "session_id", "data"},
}
_LOOK_WAIT_S = 1.0  # for a writer that locks the whole file; OpenCode's never does
_SLACK_MS = 86_400_000  # for clocks set back; repeated messages add nothing
_SESSION = ("id", "parentID", "directory", "version")
_CHANGED = """
SELECT id, parent_id, directory, {version}, {revert}, time_updated FROM session
WHERE time_updated >= ? OR {revert} IS NOT NULL ORDER BY time_created, id
"""
_ROWS = """
SELECT m.id, m.data, p.data FROM message m LEFT JOIN part p ON p.message_id = m.id
WHERE m.session_id = ? ORDER BY m.time_created, m.id, p.id
"""


def is_session(path: Path) -> bool:
    """Return whether a path is a session file below `storage`."""
    # OpenCode 0.x kept other objects below `info`.
    is_placed = path.parts[-4:-2] == (STORAGE, "session") and path.parent.name != "info"
    return is_placed and _SESSIONS.fullmatch(path.name) is not None


def holds_conversations(path: Path) -> bool:
    """Return whether a SQLite file has OpenCode's tables; raises sqlite3.Error if unreadable."""
    with closing(open_foreign(path, _LOOK_WAIT_S)[0]) as db:
        return not _missing(db)


def _missing(db: sqlite3.Connection) -> list[str]:
    return [table for table, wanted in _TABLES.items() if not wanted <= _columns(db, table)]


def _columns(db: sqlite3.Connection, table: str) -> set[str]:
    return {str(row[1]) for row in db.execute(f"PRAGMA table_info({table})")}


def read_database(path: Path, context: FileContext) -> Iterator[Line]:
    """Yield the messages of every session that changed since the last reading."""
    try:
        db, _ = open_foreign(path, WAIT_S)
        with closing(db):
            db.execute("BEGIN")
            if missing := _missing(db):
                raise SourceFormatError(
                    f"{path} is no supported OpenCode database: expected the tables "
                    f"session, message and part of OpenCode 1.2 to 1.18; "
                    f"{', '.join(missing)} is missing or has other columns. Its conversations "
                    f"were not read."
                )
            yield from _read_sessions(db, context)
    except sqlite3.Error as error:
        raise SourceFormatError(
            f"{path} cannot be read ({name_fault(error)[1]}). Close OpenCode and run again."
        ) from None


def _read_sessions(db: sqlite3.Connection, context: FileContext) -> Iterator[Line]:
    columns = _columns(db, "session")
    sql = _CHANGED.format(**{n: n if n in columns else "NULL" for n in ("revert", "version")})
    changed = db.execute(sql, (context.since_ms,)).fetchall()
    last_ms = context.since_ms
    for *told, revert, updated_ms in changed:
        session = dict[str, object](zip(_SESSION, told, strict=True))
        session["revert"] = parse_object(revert) if isinstance(revert, str) else None
        rows = db.execute(_ROWS, (session["id"],))
        for (native, data), parts in groupby(rows, itemgetter(0, 1)):
            yield _line(session, native, data, [row[2] for row in parts])
        last_ms = max(last_ms, updated_ms if isinstance(updated_ms, int) else 0)
    last_ms = min(last_ms, time.time_ns() // 1_000_000)
    context.since_ms = max(context.since_ms, last_ms - _SLACK_MS)


def read_session(path: Path) -> Iterator[Line]:
    """Yield the messages of a session file below `storage`."""
    session, storage = parse_object(_small(path)) or {}, path.parents[2]
    for file in sorted(
        (storage / "message" / (as_name(session.get("id")) or path.stem)).glob("msg_*.json")
    ):
        parts = sorted((storage / "part" / file.stem).glob("prt_*.json"))
        yield _line(session, file.stem, _small(file), [_small(part) for part in parts])


def _small(path: Path) -> str:
    with path.open("rb") as handle:
        return handle.read(MAX_LINE_BYTES + 1).decode("utf-8", "replace")


def _line(session: Mapping[str, object], native: object, data: object, parts: object) -> Line:
    """Return a message as a line, with its JSON texts unparsed."""
    known = {name: session.get(name) for name in (*_SESSION, "revert")}
    value = {_KEY: native, "session": known, "message": data, "parts": parts}
    line = json.dumps(value, default=lambda _: None).encode()
    return Line(0, len(line), line if len(line) <= 2 * MAX_LINE_BYTES else None, True)


def is_opencode(line: Mapping[str, object]) -> bool:
    """Return whether a line was made by this module."""
    return _KEY in line


def read_opencode(line: Mapping[str, object], context: FileContext) -> list[Reading]:
    """Return the readings of a message."""
    session, row = as_object(line.get("session")), as_name(line.get(_KEY))
    message = _parsed(line.get("message"))
    role = message.get("role")
    context.version = as_name(session.get("version")) or context.version
    if role not in ("user", "assistant"):
        return [Skip.BAD_JSON if not message else Skip.UNKNOWN_TYPE]
    if message.get("summary") is True:
        return [Skip.COMPACT_SUMMARY]
    folder, parent = as_name(session.get("directory")), as_name(session.get("parentID"))
    context.folder, context.project = folder, project_of(folder)
    context.session = "/".join(filter(None, (parent, as_name(session.get("id")))))
    at = as_object(message.get("time")).get("created")
    at_us = from_millis(at)
    # A fork copies its messages under new ids, but keeps their times.
    native = row if parent or at_us is None else f"{role}:{at}:{folder}"
    undone = as_name(as_object(session.get("revert")).get("messageID"))
    if undone and row >= undone:
        return [Skip.META, *withdraw(OPENCODE, native)]
    parts, answers = list[Part](), list[tuple[str, int | None]]()
    for index, part in enumerate(map(_parsed, as_list(line.get("parts")))):
        found, answer = _read_part(part, native, index)
        parts += found
        if answer:
            ended = as_object(as_object(part.get("state")).get("time")).get("end")
            answers.append((answer, from_millis(ended)))
    where = (OPENCODE, context.session, context.project)
    said = list[Reading]()
    if parts:
        said.append(Message(native, role, *where, at_us, bool(parent), tuple(parts), folder=folder))
    if answers:
        name, text = f"answer:{native}", "\n".join(answer for answer, _ in answers)
        at_us = next((ended for _, ended in answers[::-1] if ended), at_us)
        part = text_part(name, text)
        said.append(Message(name, "user", *where, at_us, bool(parent), (part,), folder=folder))
    return said or [Skip.SYNTHETIC if message.get("error") else Skip.NO_CONTENT]


def _parsed(data: object) -> dict[str, object]:
    is_text = isinstance(data, str) and len(data) <= MAX_LINE_BYTES
    return (parse_object(str(data)) or {}) if is_text else {}


def _read_part(part: Mapping[str, object], native: str, index: int) -> tuple[list[Part], str]:
    """Return the parts of a message's text or tool call, and the user's answer to the call."""
    match part:
        # Contents of files that the user named, and other text inserted by OpenCode.
        case {"type": "text", "synthetic": True} | {"type": "text", "ignored": True}:
            return [], ""
        case {"type": "text", "text": str(text)}:
            return [text_part(native, text, index)], ""
        case {"type": "tool"}:
            return _read_tool(part, f"{native}/{index}")
        case _:
            return [], ""


_REJECTED = re.compile(r"\s*The user rejected permission to use this specific tool call\b")
_FEEDBACK = re.compile(r"with the following feedback:\s*(.*)\Z", re.DOTALL)


def _read_tool(part: Mapping[str, object], key: str) -> tuple[list[Part], str]:
    """Return a call with its result, and the user's answer or feedback to it."""
    state = as_object(part.get("state"))
    name, error = as_name(part.get("tool")), state.get("error")
    call = call_part(key, name, state.get("input"))
    if isinstance(error, str) and state.get("status") == "error":
        is_rejected = _REJECTED.match(error) is not None
        reason = _FEEDBACK.search(error) if is_rejected else None
        shown = "rejected by the user" if is_rejected else error
        return [call, result_part(key, (shown,), is_error=True)], reason[
            1
        ].strip() if reason else ""
    metadata = as_object(state.get("metadata"))
    answers = as_list(metadata.get("answers"))
    if name == "question" and answers:
        questions = map(as_object, as_list(as_object(state.get("input")).get("questions")))
        # Chosen options and typed answers.
        chosen = (
            ", ".join(x for x in as_list(a) if isinstance(x, str) and x.strip()) for a in answers
        )
        asked = (as_name(question.get("question")) for question in questions)
        return [call], join_answers(zip(asked, chosen, strict=False))
    texts = as_texts(state.get("output"))
    failed = metadata.get("exit") not in (None, 0)  # a command that fails is "completed" too
    return [call, *([result_part(key, texts, is_error=failed)] if texts else [])], ""
