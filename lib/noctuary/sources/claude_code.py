"""One line of a Claude Code transcript to what it adds to a turn.

The format is internal and changes: nothing is required of a line, and what is not known is skipped.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping

from noctuary.sources.projects import project_of
from noctuary.sources.transcripts import (
    FileContext,
    Message,
    Part,
    Reading,
    Role,
    Skip,
    as_list,
    as_name,
    as_object,
    as_texts,
    call_texts,
)

CLAUDE = "claude"
_META_FLAGS = ("isMeta", "isVisibleInTranscriptOnly")
_SYNTHETIC_MODEL = "<synthetic>"


def read_claude(line: Mapping[str, object], context: FileContext) -> list[Reading]:
    """Return what a line adds to turns (results to their call's), or why nothing."""
    if not context.project and (folder := as_name(line.get("cwd"))):
        context.folder, context.project = folder, project_of(folder)
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
    uuid = _uuid(line)
    parts = list(_parts(message.get("content"), uuid))
    if not parts:
        return [Skip.NO_CONTENT]
    role: Role = "user" if kind == "user" else "assistant"
    native = as_name(message.get("id")) or as_name(line.get("requestId"))
    native = native if role == "assistant" and native else uuid
    session = as_name(line.get("sessionId")) or context.session
    context.session = context.session or session
    named = any(isinstance(line.get(name), str) for name in ("agentId", "teamName"))
    is_sidechain = named or line.get("isSidechain") is True
    if is_sidechain:
        session = f"{session}/{as_name(line.get('agentId')) or 'sidechain'}"
    at_us = context.said_at(line)
    found = list[Reading]()
    for native_id, is_result in (("", True), (native, False)):
        if own := tuple(p for p in parts if (p.kind == "result") is is_result):
            where = (session, context.project, at_us, is_sidechain)
            found.append(Message(native_id, role, CLAUDE, *where, own))
    return found


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
            failed, texts = block.get("is_error") is True, as_texts(block.get("content"))
            yield Part(f"result:{call}", "result", "", texts, is_error=failed)


def _uuid(line: Mapping[str, object]) -> str:
    """Return the line's id: that of the line which it copies, in a forked session."""
    origin = as_object(line.get("forkedFrom")).get("messageUuid")
    if named := as_name(origin) or as_name(line.get("uuid")):
        return named
    said = json.dumps([line.get("sessionId"), line.get("timestamp"), line.get("message")])
    return hashlib.sha256(said.encode()).hexdigest()[:32]
