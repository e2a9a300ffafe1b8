"""One line of a Codex rollout to what it adds to a turn.

Source: the published protocol of openai/codex (codex-rs/protocol, rollout/src/policy.rs).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from noctuary.sources.projects import project_of
from noctuary.sources.transcripts import (
    FileContext,
    Message,
    Part,
    Reading,
    Role,
    Skip,
    as_name,
    as_object,
    as_texts,
    call_texts,
)

CODEX = "codex"
_TYPES = frozenset({"session_meta", "turn_context", "response_item", "event_msg", "compacted"})
_CALLS = {"function_call": "arguments", "custom_tool_call": "input", "local_shell_call": "action"}
_RESULTS = frozenset({"function_call_output", "custom_tool_call_output"})


def is_codex(line: Mapping[str, object]) -> bool:
    """Say whether a line is one of a rollout."""
    return line.get("type") in _TYPES and isinstance(line.get("payload"), dict)


def read_codex(line: Mapping[str, object], context: FileContext) -> list[Reading]:
    """Return what a line adds to turns, or why nothing; the context learns session and folder."""
    found = _read_item(line, as_object(line.get("payload")), context)
    if isinstance(found, Skip):
        return [found]
    native, role, part = found
    where = (context.session, context.project, context.said_at(line), context.is_sidechain)
    return [Message(native, role, CODEX, *where, (part,))]


_Item = tuple[str, Role, Part]
"""The native id of the turn that a line adds a part to, who says it, and the part."""


def _read_item(
    line: Mapping[str, object], payload: Mapping[str, object], context: FileContext
) -> _Item | Skip:
    kind, inner = line.get("type"), payload.get("type")
    if kind == "session_meta":
        _learn(payload, context)
    if kind == "compacted":
        return Skip.COMPACT_SUMMARY
    if kind == "event_msg" and inner == "context_compacted":
        return Skip.COMPACT_BOUNDARY
    stamp = as_name(line.get("timestamp")) or context.session
    if kind == "event_msg" and inner == "user_message":
        context.step = ""
        return _said("user", payload.get("message"), stamp, payload)
    return _read_response(payload, stamp, context) if kind == "response_item" else Skip.OTHER_TYPE


def _read_response(payload: Mapping[str, object], stamp: str, context: FileContext) -> _Item | Skip:
    inner = payload.get("type")
    if inner == "message":
        # Those of other roles: the prompt's frame, and what `event_msg` says again.
        if payload.get("role") != "assistant":
            return Skip.META
        said = _said("assistant", "\n".join(as_texts(payload.get("content"))), stamp, payload)
        context.step = context.step if isinstance(said, Skip) else said[0]
        return said
    if inner in _CALLS:
        call = as_name(payload.get("call_id")) or as_name(payload.get("id"))
        if not call:
            return Skip.NO_CONTENT
        context.step = context.step or f"call:{call}"
        arguments = payload.get(_CALLS[str(inner)])
        if inner == "local_shell_call":
            arguments = {"command": as_object(arguments).get("command")}
        name = as_name(payload.get("name")) or "shell"
        return context.step, "assistant", Part(f"call:{call}", "call", name, call_texts(arguments))
    if inner not in _RESULTS:
        return Skip.OTHER_TYPE
    context.step = ""
    call, output = as_name(payload.get("call_id")), payload.get("output")
    shown = as_object(output)
    texts = as_texts(shown.get("content") if shown else output)
    failed = shown.get("success") is False
    part = Part(f"result:{call}", "result", "", texts, is_error=failed)
    return ("", "assistant", part) if call else Skip.NO_CONTENT


def _learn(payload: Mapping[str, object], context: FileContext) -> None:
    """Take session, folder and kind of session from the first line that names them."""
    if context.has_meta:
        return
    context.has_meta = True
    context.session = as_name(payload.get("id")) or context.session
    context.folder = as_name(payload.get("cwd"))
    context.project = project_of(context.folder) or context.project
    source = payload.get("source")
    named = as_name(payload.get("thread_source")) or as_name(source)
    context.is_sidechain = "subagent" in as_object(source) or named == "subagent"


def _said(role: Role, text: object, stamp: str, payload: Mapping[str, object]) -> _Item | Skip:
    if not isinstance(text, str) or not text.strip():
        return Skip.NO_CONTENT
    native = as_name(payload.get("id"))
    if not native:
        # No id of its own: the same words at the same moment are the same turn, also in a fork.
        said = f"{stamp}\n{role}\n{text}".encode("utf-8", "surrogatepass")
        native = hashlib.sha256(said).hexdigest()[:32]
    return native, role, Part(f"{native}:0", "text", "", (text,))
