"""One line of a Codex rollout to what it adds to a turn.

What belongs here: the meaning of a line. What does not: bytes (`lines`), what may be kept
(`vetting`). Standard library only.

What its user typed is taken from `event_msg` lines, because `response_item` messages of that role
also hold what the agent puts into the prompt. Answers, calls and results are `response_item`
lines. Calls carry no id of an answer: they belong to the answer right before them. Source: the
published protocol of openai/codex (codex-rs/protocol, codex-rs/rollout/src/policy.rs).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

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

AGENT = "codex"

_TYPES = frozenset({"session_meta", "turn_context", "response_item", "event_msg", "compacted"})
_CALLS = {"function_call": "arguments", "custom_tool_call": "input", "local_shell_call": "action"}
_RESULTS = frozenset({"function_call_output", "custom_tool_call_output"})


def is_codex(line: Mapping[str, object]) -> bool:
    """Say whether a line is one of a rollout."""
    return line.get("type") in _TYPES and isinstance(line.get("payload"), dict)


def read_codex(line: Mapping[str, object], context: FileContext) -> list[Reading]:
    """Return what a line adds to turns, or why nothing; the context learns session and folder."""
    kind, payload = line.get("type"), as_object(line.get("payload"))
    if kind == "session_meta":
        _learn(payload, context)
        return [Skip.OTHER_TYPE]
    if kind == "compacted":
        return [Skip.COMPACT_SUMMARY]
    inner = payload.get("type")
    if kind == "event_msg":
        if inner != "user_message":
            is_boundary = inner == "context_compacted"
            return [Skip.COMPACT_BOUNDARY if is_boundary else Skip.OTHER_TYPE]
        context.step = ""
        return _said("user", payload.get("message"), line, payload, context)
    if kind != "response_item":
        return [Skip.OTHER_TYPE]
    if inner == "message":
        # Those of other roles: the prompt's frame, and what `event_msg` says again.
        if payload.get("role") != "assistant":
            return [Skip.META]
        texts = (as_object(v).get("text") for v in as_list(payload.get("content")))
        said = "\n".join(t for t in texts if isinstance(t, str))
        return _said("assistant", said, line, payload, context)
    if inner in _CALLS:
        return _called(str(inner), line, payload, context)
    if inner in _RESULTS:
        return _returned(line, payload, context)
    return [Skip.OTHER_TYPE]


def _learn(payload: Mapping[str, object], context: FileContext) -> None:
    """Take session, folder and kind of session from the first line that names them."""
    if context.has_meta:
        return
    context.has_meta = True
    context.session = as_name(payload.get("id")) or context.session
    context.project = project_of(as_name(payload.get("cwd"))) or context.project
    source = payload.get("source")
    named = as_name(payload.get("thread_source")) or as_name(source)
    context.is_sidechain = "subagent" in as_object(source) or named == "subagent"


def _said(
    role: Role,
    text: object,
    line: Mapping[str, object],
    payload: Mapping[str, object],
    context: FileContext,
) -> list[Reading]:
    if not isinstance(text, str) or not text.strip():
        return [Skip.NO_CONTENT]
    native = as_name(payload.get("id"))
    if not native:
        # No id of its own: the same words at the same moment are the same turn, also in a fork.
        stamp = as_name(line.get("timestamp")) or context.session
        said = f"{stamp}\n{role}\n{text}".encode("utf-8", "surrogatepass")
        native = hashlib.sha256(said).hexdigest()[:32]
    if role == "assistant":
        context.step = native
    return [_message(native, role, Part(f"{native}:0", "text", "", (text,)), line, context)]


def _called(
    kind: str, line: Mapping[str, object], payload: Mapping[str, object], context: FileContext
) -> list[Reading]:
    call = as_name(payload.get("call_id")) or as_name(payload.get("id"))
    if not call:
        return [Skip.NO_CONTENT]
    context.step = context.step or f"call:{call}"
    arguments = payload.get(_CALLS[kind])
    if kind == "local_shell_call":
        arguments = {"command": as_object(arguments).get("command")}
    name = as_name(payload.get("name")) or "shell"
    part = Part(f"call:{call}", "call", name, call_texts(arguments))
    return [_message(context.step, "assistant", part, line, context)]


def _returned(
    line: Mapping[str, object], payload: Mapping[str, object], context: FileContext
) -> list[Reading]:
    call = as_name(payload.get("call_id"))
    context.step = ""
    output = payload.get("output")
    inner = as_object(output)
    shown = output if isinstance(output, str) else inner.get("content")
    texts = (as_object(v).get("text") for v in as_list(output) or as_list(shown))
    found = (shown,) if isinstance(shown, str) else tuple(t for t in texts if isinstance(t, str))
    if not call:
        return [Skip.NO_CONTENT]
    part = Part(f"result:{call}", "result", "", found, is_error=inner.get("success") is False)
    return [_message("", "assistant", part, line, context)]


def _message(
    native: str, role: Role, part: Part, line: Mapping[str, object], context: FileContext
) -> Message:
    context.last_us = place_after(parse_moment(line.get("timestamp")), context.last_us)
    return Message(
        native,
        role,
        AGENT,
        context.session,
        context.project,
        context.last_us,
        context.is_sidechain,
        (part,),
    )
