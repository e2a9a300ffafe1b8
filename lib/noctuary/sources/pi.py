"""Sessions of pi (@mariozechner/pi-coding-agent) to what they add to turns.

The format is published: docs/session-format.md of the package.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from noctuary.sources.projects import project_of
from noctuary.sources.transcripts import (
    FileContext,
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
)

PI = "pi"
_BOOKKEEPING = frozenset(
    {"session", "model_change", "thinking_level_change", "custom", "label", "session_info"}
)
_LAST_MS = 7_258_118_400_000  # the year 2200


def is_pi(line: Mapping[str, object]) -> bool:
    """Say whether a line is one of a session of pi."""
    kind = line.get("type")
    if kind == "session":
        return isinstance(line.get("cwd"), str)
    if kind == "message":
        return "role" in as_object(line.get("message"))
    return "parentId" in line and isinstance(line.get("id"), str)


def read_pi(line: Mapping[str, object], context: FileContext) -> list[Reading]:
    """Return what a line adds to turns, or why nothing."""
    context.agent = PI
    kind, message = as_name(line.get("type")), as_object(line.get("message"))
    if kind == "session":
        context.session = as_name(line.get("id")) or context.session
        context.folder = as_name(line.get("cwd"))
        context.project = project_of(context.folder) or context.project
    native = _hash_message(line, message) if kind == "message" else as_name(line.get("id"))
    found = list[Reading]()
    if "parentId" in line:
        undone = context.follow(as_name(line.get("id")), native, line["parentId"])
        found = [Retraction(PI, one) for one in undone]
    if kind == "message":
        return [*found, *_read_message(line, message, native, context)]
    if kind in ("compaction", "branch_summary"):
        return [*found, Skip.COMPACT_SUMMARY]
    if kind == "custom_message":  # an extension's
        return [*found, Skip.META]
    return [*found, Skip.OTHER_TYPE if kind in _BOOKKEEPING else Skip.UNKNOWN_TYPE]


def _hash_message(line: Mapping[str, object], message: Mapping[str, object]) -> str:
    """Return an id that a fork, and the migration of an old file, keeps: pi's own is short."""
    at = message.get("timestamp") or line.get("timestamp")
    calls = [as_object(one).get("id") for one in as_list(message.get("content"))]
    said = json.dumps([str(at), message.get("role"), as_texts(message.get("content")), calls])
    return hashlib.sha256(said.encode()).hexdigest()[:32]


def _read_message(
    line: Mapping[str, object], message: Mapping[str, object], native: str, context: FileContext
) -> Iterator[Reading]:
    role, content = as_name(message.get("role")), message.get("content")
    if role == "user":
        text = _typed("\n".join(as_texts(content)))
        part = Part(f"{native}:0", "text", "", (text,))
        yield _message(line, context, native, "user", part) if text else Skip.NO_CONTENT
    elif role == "assistant":
        context.step = native
        parts = list(_answer_parts(content, native))
        yield _message(line, context, native, role, *parts) if parts else Skip.NO_CONTENT
    elif role == "toolResult" and (call := as_name(message.get("toolCallId"))):
        failed, key = message.get("isError") is True, f"result:{context.step}/{call}"
        part = Part(key, "result", "", as_texts(content), failed)
        yield _message(line, context, "", "assistant", part)
    elif role in ("branchSummary", "compactionSummary"):
        yield Skip.COMPACT_SUMMARY
    elif role in ("custom", "hookMessage", "bashExecution"):
        yield Skip.META
    else:
        yield Skip.UNKNOWN_TYPE


def _message(
    line: Mapping[str, object], context: FileContext, native: str, role: Role, *parts: Part
) -> Message:
    at = as_object(line.get("message")).get("timestamp")
    stamp = line
    if "timestamp" not in line and isinstance(at, int) and 0 <= at < _LAST_MS:
        stamp = {"timestamp": datetime.fromtimestamp(at / 1000, UTC).isoformat()}
    where = (context.session, context.project, context.said_at(stamp), False)
    return Message(native, role, PI, *where, parts)


def _answer_parts(content: object, native: str) -> Iterator[Part]:
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else as_list(content)
    for index, value in enumerate(blocks):
        block = as_object(value)
        kind = block.get("type")
        if kind == "text" and isinstance(text := block.get("text"), str):
            yield Part(f"{native}:{index}", "text", "", (text,))
        elif kind == "toolCall" and (call := as_name(block.get("id"))):
            name = as_name(block.get("name"))
            yield Part(f"call:{native}/{call}", "call", name, call_texts(block.get("arguments")))


# Files that the user gave and skills that they called stand before what they typed.
_GIVEN = re.compile(r"\A\s*<(file|skill) name=\"[^\"\n]*\"[^>\n]*>")


def _typed(text: str) -> str:
    while (found := _GIVEN.match(text)) is not None:
        end = text.rfind(f"</{found[1]}>")
        if end < 0:
            break
        text = text[end + len(f"</{found[1]}>") :]
    return text.strip()
