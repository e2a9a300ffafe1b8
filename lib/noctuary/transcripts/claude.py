"""One line of a Claude Code transcript to what it adds to a turn.

What belongs here: the meaning of a line. What does not: bytes (`lines`), what may be kept
(`vetting`). Standard library only.

The format is internal to the agent and changes: nothing is required of a line, and what is not
known is skipped. Source: research/ecosystem.md 1.3.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping

from noctuary.transcripts.messages import (
    FileContext,
    Message,
    Part,
    Reading,
    Role,
    as_list,
    as_name,
    as_object,
)
from noctuary.transcripts.moments import parse_moment, place_after
from noctuary.transcripts.projects import project_of
from noctuary.transcripts.report import Skip
from noctuary.transcripts.tools import call_texts

AGENT = "claude"

_META_FLAGS = ("isMeta", "isVisibleInTranscriptOnly")
_SYNTHETIC_MODEL = "<synthetic>"


def read_claude(line: Mapping[str, object], context: FileContext) -> list[Reading]:
    """Return what a line adds to turns, or why nothing; the context learns session and folder.

    A line with tool results and words of its user adds to two turns.
    """
    if not context.project and (folder := as_name(line.get("cwd"))):
        context.project = project_of(folder)
    kind = line.get("type")
    if kind not in ("user", "assistant"):
        is_boundary = kind == "system" and line.get("subtype") == "compact_boundary"
        return [Skip.COMPACT_BOUNDARY if is_boundary else Skip.OTHER_TYPE]
    if line.get("isCompactSummary") is True:
        return [Skip.COMPACT_SUMMARY]
    if any(line.get(flag) is True for flag in _META_FLAGS):
        return [Skip.META]
    message = as_object(line.get("message"))
    if message.get("model") == _SYNTHETIC_MODEL or line.get("isApiErrorMessage") is True:
        return [Skip.SYNTHETIC]
    role: Role = "user" if kind == "user" else "assistant"
    made = list(_messages(line, message, role, context))
    return [*made] if made else [Skip.NO_CONTENT]


def _messages(
    line: Mapping[str, object], message: Mapping[str, object], role: Role, context: FileContext
) -> Iterator[Message]:
    uuid = _uuid(line)
    parts = list(_parts(message.get("content"), uuid))
    spoken = tuple(p for p in parts if p.kind != "result")
    if not parts:
        return
    context.last_us = place_after(parse_moment(line.get("timestamp")), context.last_us)
    native = as_name(message.get("id")) or as_name(line.get("requestId"))
    native = native if role == "assistant" and native else uuid
    for native_id, own in (
        ("", tuple(p for p in parts if p.kind == "result")),
        (native, spoken),
    ):
        if own:
            yield Message(
                native_id,
                role,
                AGENT,
                _session(line, context),
                context.project,
                context.last_us,
                _is_sidechain(line),
                own,
            )


def _parts(content: object, uuid: str) -> Iterator[Part]:
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else as_list(content)
    for index, value in enumerate(blocks):
        block = as_object(value)
        kind = block.get("type")
        if kind == "text" and isinstance(text := block.get("text"), str):
            yield Part(f"{uuid}:{index}", "text", "", (text,))
        elif kind == "tool_use" and (call := as_name(block.get("id"))):
            name = as_name(block.get("name"))
            yield Part(f"call:{call}", "call", name, call_texts(block.get("input")))
        elif kind == "tool_result" and (call := as_name(block.get("tool_use_id"))):
            failed = block.get("is_error") is True
            yield Part(f"result:{call}", "result", "", result_texts(block), is_error=failed)


def result_texts(block: Mapping[str, object]) -> tuple[str, ...]:
    """Return the texts of a tool's result: a text, or blocks of which images are left out."""
    content = block.get("content")
    if isinstance(content, str):
        return (content,)
    found = (as_object(value).get("text") for value in as_list(content))
    return tuple(text for text in found if isinstance(text, str))


def _uuid(line: Mapping[str, object]) -> str:
    """Return the line's id: that of the line which it copies, in a forked session."""
    origin = as_object(line.get("forkedFrom")).get("messageUuid")
    if named := as_name(origin) or as_name(line.get("uuid")):
        return named
    said = json.dumps([line.get("sessionId"), line.get("timestamp"), line.get("message")])
    return hashlib.sha256(said.encode()).hexdigest()[:32]


def _session(line: Mapping[str, object], context: FileContext) -> str:
    session = as_name(line.get("sessionId")) or context.session
    context.session = context.session or session
    if not _is_sidechain(line):
        return session
    return f"{session}/{as_name(line.get('agentId')) or 'sidechain'}"


def _is_sidechain(line: Mapping[str, object]) -> bool:
    if line.get("isSidechain") is True:
        return True
    return any(isinstance(line.get(name), str) for name in ("agentId", "teamName"))
