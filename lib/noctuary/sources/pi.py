"""Read sessions of pi (@mariozechner/pi-coding-agent).

The format is published: docs/session-format.md of the package.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping

from noctuary.sources.transcripts import (
    FileContext,
    Part,
    Reading,
    Skip,
    as_list,
    as_name,
    as_object,
    as_texts,
    call_part,
    from_millis,
    parse_moment,
    result_part,
    text_part,
    withdraw,
)

PI = "pi"
_BOOKKEEPING = frozenset(
    {"session", "model_change", "thinking_level_change", "custom", "label", "session_info"}
)


def is_pi(line: Mapping[str, object]) -> bool:
    """Return whether a line is from a session of pi."""
    match line.get("type"):
        case "session":
            return isinstance(line.get("cwd"), str)
        case "message":
            return "role" in as_object(line.get("message"))
        case _:  # Copilot CLI's events have ids and parents too, and all have data
            is_event = "data" in line and "customType" not in line
            return "parentId" in line and isinstance(line.get("id"), str) and not is_event


def read_pi(line: Mapping[str, object], context: FileContext) -> list[Reading]:
    """Return the readings of a line."""
    context.agent = PI
    kind, message, found = as_name(line.get("type")), as_object(line.get("message")), []
    native = _hash_message(line, message) if kind == "message" else as_name(line.get("id"))
    if "parentId" in line:
        found = withdraw(PI, *context.follow(as_name(line.get("id")), native, line["parentId"]))
    match kind:
        case "message":
            return [*found, _read_message(line, message, native, context)]
        case "session":
            context.session = native or context.session
            context.enter(as_name(line.get("cwd")))
            return [*found, Skip.OTHER_TYPE]
        case "compaction" | "branch_summary":
            return [*found, Skip.COMPACT_SUMMARY]
        case "custom_message":  # from an extension
            return [*found, Skip.META]
        case _:
            return [*found, Skip.OTHER_TYPE if kind in _BOOKKEEPING else Skip.UNKNOWN_TYPE]


def _hash_message(line: Mapping[str, object], message: Mapping[str, object]) -> str:
    """Return an id that survives a fork and the migration of an old file: pi's own is short."""
    at = message.get("timestamp") or line.get("timestamp")
    calls = [as_object(one).get("id") for one in as_list(message.get("content"))]
    said = json.dumps([str(at), message.get("role"), as_texts(message.get("content")), calls])
    return hashlib.sha256(said.encode()).hexdigest()[:32]


def _read_message(
    line: Mapping[str, object], message: Mapping[str, object], native: str, context: FileContext
) -> Reading:
    role, content = as_name(message.get("role")), message.get("content")
    at_us, call = from_millis(message.get("timestamp")), as_name(message.get("toolCallId"))
    at_us = parse_moment(line["timestamp"]) if "timestamp" in line else at_us
    match role:
        case "user":
            text = _typed("\n".join(as_texts(content)))
            part = text_part(native, text)
            return context.message(PI, native, role, at_us, part) if text else Skip.NO_CONTENT
        case "assistant":
            context.step = native
            parts = list(_answer_parts(content, native))
            return context.message(PI, native, role, at_us, *parts) if parts else Skip.NO_CONTENT
        case "toolResult" if call:
            is_error, key = message.get("isError") is True, f"{context.step}/{call}"
            result = result_part(key, as_texts(content), is_error=is_error)
            return context.message(PI, "", "assistant", at_us, result)
        case "branchSummary" | "compactionSummary":
            return Skip.COMPACT_SUMMARY
        case "custom" | "hookMessage" | "bashExecution":
            return Skip.META
        case _:
            return Skip.UNKNOWN_TYPE


def _answer_parts(content: object, native: str) -> Iterator[Part]:
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else as_list(content)
    for index, block in enumerate(map(as_object, blocks)):
        match block:
            case {"type": "text", "text": str(text)}:
                yield text_part(native, text, index)
            case {"type": "toolCall"} if call := as_name(block.get("id")):
                name = as_name(block.get("name"))
                yield call_part(f"{native}/{call}", name, block.get("arguments"))
            case _:
                pass


# Attached files and invoked skills come before the typed text.
_GIVEN = re.compile(r"\A\s*<(file|skill) name=\"[^\"\n]*\"[^>\n]*>")


def _typed(text: str) -> str:
    while (found := _GIVEN.match(text)) and f"</{found[1]}>" in text[found.end() :]:
        text = text.rpartition(f"</{found[1]}>")[2]
    return text.strip()
