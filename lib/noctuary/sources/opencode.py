"""Conversations of OpenCode to what they add to turns.

Since 1.2 they are rows of a SQLite database, before that small JSON files below `storage`; the
objects in both are the same. docs/transcripts.md says which versions were run.
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
    Retraction,
    Role,
    Skip,
    as_list,
    as_name,
    as_object,
    as_texts,
    call_texts,
    parse_object,
)

OPENCODE = "opencode"
DATABASE_SUFFIX = ".db"
DATABASES = "opencode*.db"  # one for each channel that it was installed from
STORAGE = "storage"
COPIES = frozenset({"bin", "log", "repos", "snapshot", "tool-output", "worktree"})  # of projects
_SESSIONS = re.compile(r"ses_\w+\.json")
_KEY = "opencode.message"  # of the lines that the readers here make
_TABLES = {
    "session": {"id", "parent_id", "directory", "time_created", "time_updated"},
    "message": {"id", "session_id", "time_created", "data"},
    "part": {"id", "message_id", "session_id", "data"},
}
_LOOK_WAIT_S = 1.0  # for a writer that locks the whole file; OpenCode's never does
_SLACK_MS = 86_400_000  # a clock may be set back; what was read already adds nothing
_CHANGED = """
SELECT id, parent_id, directory, {revert}, {version}, time_updated FROM session
WHERE time_updated >= ? OR {revert} IS NOT NULL ORDER BY time_created, id
"""
_ROWS = """
SELECT m.id, m.data, p.data FROM message m LEFT JOIN part p ON p.message_id = m.id
WHERE m.session_id = ? ORDER BY m.time_created, m.id, p.id
"""


def is_session(path: Path) -> bool:
    """Say whether a path is that of a session's file below `storage`."""
    is_named = _SESSIONS.fullmatch(path.name) is not None
    # OpenCode 0.x kept them below `info`, with other objects.
    return is_named and path.parts[-4:-2] == (STORAGE, "session") and path.parent.name != "info"


def holds_conversations(path: Path) -> bool:
    """Say whether a SQLite file has OpenCode's tables; sqlite3.Error where it cannot be read."""
    with closing(open_foreign(path, _LOOK_WAIT_S)[0]) as db:
        return not _missing(db)


def _missing(db: sqlite3.Connection) -> list[str]:
    return [
        table
        for table, wanted in _TABLES.items()
        if not wanted <= {row[1] for row in db.execute(f"PRAGMA table_info({table})")}
    ]


def read_database(path: Path, context: FileContext) -> Iterator[Line]:
    """Yield the messages of every session that changed since the last reading."""
    try:
        db, _ = open_foreign(path, WAIT_S)
        with closing(db):
            db.execute("BEGIN")
            if missing := _missing(db):
                raise SourceFormatError(
                    f"{path} is no database of OpenCode that is read here: expected the tables "
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
    columns = {row[1] for row in db.execute("PRAGMA table_info(session)")}
    sql = _CHANGED.format(**{n: n if n in columns else "NULL" for n in ("revert", "version")})
    since, last_ms = context.since_ms, context.since_ms
    for session, parent, directory, revert, version, updated_ms in db.execute(
        sql, (since,)
    ).fetchall():
        told = {"id": session, "parentID": parent, "directory": directory, "version": version}
        told["revert"] = parse_object(revert) if isinstance(revert, str) else None
        rows = db.execute(_ROWS, (session,))
        for (native, data), parts in groupby(rows, itemgetter(0, 1)):
            yield _line(told, native, data, [row[2] for row in parts])
        if isinstance(updated_ms, int):
            last_ms = max(last_ms, updated_ms)
    last_ms = min(last_ms, time.time_ns() // 1_000_000)
    context.since_ms = max(since, last_ms - _SLACK_MS)


def read_session(path: Path) -> Iterator[Line]:
    """Yield the messages of a session's file below `storage`."""
    told = parse_object(_small(path)) or {}
    storage = path.parents[2]
    session = as_name(told.get("id")) or path.stem
    for file in sorted((storage / "message" / session).glob("msg_*.json")):
        parts = sorted((storage / "part" / file.stem).glob("prt_*.json"))
        yield _line(told, file.stem, _small(file), [_small(part) for part in parts])


def _small(path: Path) -> str:
    with path.open("rb") as handle:
        return handle.read(MAX_LINE_BYTES + 1).decode("utf-8", "replace")


def _line(told: Mapping[str, object], native: object, data: object, parts: list[object]) -> Line:
    """Return a message as a line: its texts are parsed one by one, as they were written."""
    known = {name: told.get(name) for name in ("id", "parentID", "directory", "revert", "version")}
    value = {_KEY: native, "session": known, "message": data, "parts": parts}
    line = json.dumps(value, default=lambda _: None).encode()
    return Line(0, len(line), line if len(line) <= 2 * MAX_LINE_BYTES else None, True)


def is_opencode(line: Mapping[str, object]) -> bool:
    """Say whether a line is one that the readers here made."""
    return _KEY in line


def read_opencode(line: Mapping[str, object], context: FileContext) -> list[Reading]:
    """Return what a message adds to turns, or why nothing."""
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
    context.session = as_name(session.get("id"))
    if parent:
        context.session = f"{parent}/{context.session}"
    at = as_object(message.get("time")).get("created")
    at_us = _micros(at)
    # A fork copies its messages under new ids, with their times.
    native = row if parent or at_us is None else f"{role}:{at}:{folder}"
    undone = as_name(as_object(session.get("revert")).get("messageID"))
    if undone and row >= undone:
        return [Skip.META, Retraction(OPENCODE, native)]
    where = (OPENCODE, context.session, context.project)
    parts = [_parsed(one) for one in as_list(line.get("parts"))]
    found = _read_parts(parts, native, "user" if role == "user" else "assistant", at_us)
    return [
        Message(one, who, *where, said_us, bool(parent), tuple(said), folder=folder)
        for one, who, said_us, said in found
        if said
    ] or [Skip.SYNTHETIC if message.get("error") else Skip.NO_CONTENT]


_LAST_MS = 7_258_118_400_000  # the year 2200


def _parsed(data: object) -> dict[str, object]:
    is_text = isinstance(data, str) and len(data) <= MAX_LINE_BYTES
    return (parse_object(str(data)) or {}) if is_text else {}


def _read_parts(
    parts: list[dict[str, object]], native: str, role: Role, at_us: int | None
) -> Iterator[tuple[str, Role, int | None, list[Part]]]:
    """Yield what was said and when, and what its user said to a tool call of it."""
    said, answers, answered_us = list[Part](), list[str](), at_us
    for index, part in enumerate(parts):
        kind = part.get("type")
        if kind == "text" and isinstance(text := part.get("text"), str):
            # Synthetic: files that the user named, and what OpenCode says in their place.
            if part.get("synthetic") is not True and part.get("ignored") is not True:
                said.append(Part(f"{native}:{index}", "text", "", (text,)))
        elif kind == "tool":
            texts, answer = _tool(part, f"{native}/{index}")
            said += texts
            if answer:
                answers.append(answer)
                ended = as_object(as_object(part.get("state")).get("time")).get("end")
                answered_us = _micros(ended) or answered_us
    yield native, role, at_us, said
    if answers:
        name = f"answer:{native}"
        yield name, "user", answered_us, [Part(f"{name}:0", "text", "", ("\n".join(answers),))]


def _micros(at_ms: object) -> int | None:
    return at_ms * 1000 if isinstance(at_ms, int) and 0 <= at_ms < _LAST_MS else None


_REJECTED = re.compile(r"\s*The user rejected permission to use this specific tool call\b")
_FEEDBACK = re.compile(r"with the following feedback:\s*(.*)\Z", re.DOTALL)


def _tool(part: Mapping[str, object], key: str) -> tuple[list[Part], str]:
    """Return a call and its result, and what the user said to it."""
    state = as_object(part.get("state"))
    name, error = as_name(part.get("tool")), state.get("error")
    call = Part(f"call:{key}", "call", name, call_texts(state.get("input")))
    if isinstance(error, str) and state.get("status") == "error":
        reason = _FEEDBACK.search(error) if _REJECTED.match(error) else None
        shown = "rejected by the user" if _REJECTED.match(error) else error
        result = Part(f"result:{key}", "result", "", (shown,), is_error=True)
        return [call, result], reason[1].strip() if reason else ""
    questions = as_list(as_object(state.get("input")).get("questions"))
    answers = as_list(as_object(state.get("metadata")).get("answers"))
    if name == "question" and answers:
        lines = [
            f"[{as_name(as_object(asked).get('question'))}] {', '.join(_chosen(answer))}"
            for asked, answer in zip(questions, answers, strict=False)
            if _chosen(answer)
        ]
        return [call], "\n".join(lines)
    texts = as_texts(state.get("output"))
    return [call, *([Part(f"result:{key}", "result", "", texts)] if texts else [])], ""


def _chosen(answer: object) -> list[str]:
    """Return what the user chose, and what they typed."""
    return [one for one in as_list(answer) if isinstance(one, str) and one.strip()]
