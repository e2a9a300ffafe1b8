"""One line of a Codex rollout to what it adds to a turn.

A prompt stands in a rollout once, twice or three times, by version: as a message of role user, as
the event `user_message` (to 0.146) and as the event `item_completed` of a `UserMessage` (from 0.147
on, and after `codex migrate-rollouts`). Events hold what people typed; messages of role user also
hold what Codex adds. docs/transcripts.md says which versions were run.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress

from noctuary.sources.projects import project_of
from noctuary.sources.transcripts import (
    FileContext,
    Message,
    Part,
    Reading,
    Retraction,
    Role,
    Skip,
    Waiting,
    as_list,
    as_name,
    as_object,
    as_texts,
    call_texts,
    parse_object,
    squeeze,
)

CODEX = "codex"
_MESSAGE_TYPES = frozenset({"session_meta", "response_item", "event_msg", "compacted"})
_OTHER_TYPES = frozenset(
    {
        "turn_context", "world_state", "token_usage_record", "retained_context",
        "inter_agent_communication", "inter_agent_communication_metadata", "session_state",
    }
)  # fmt: skip
_TYPES = _MESSAGE_TYPES | _OTHER_TYPES
# A new turn of the conversation begins or ends.
_BOUNDS = frozenset(
    {"task_started", "task_complete", "turn_started", "turn_complete", "turn_aborted"}
)
_ITEMS = frozenset(
    {
        "additional_tools", "agent_message", "compaction", "compaction_trigger",
        "context_compaction", "ghost_snapshot", "image_generation_call", "message", "other",
        "reasoning", "tool_search_call", "tool_search_output", "web_search_call",
    }
)  # fmt: skip
_CALLS = {"function_call": "arguments", "custom_tool_call": "input", "local_shell_call": "action"}
_RESULTS = frozenset({"function_call_output", "custom_tool_call_output"})


def is_codex(line: Mapping[str, object]) -> bool:
    """Say whether a line is one of a rollout."""
    return as_name(line.get("type")) in _TYPES and isinstance(line.get("payload"), dict)


def read_codex(line: Mapping[str, object], context: FileContext) -> list[Reading]:
    """Return what a line adds to turns, or why nothing; the context learns session and folder."""
    return list(_read(line, as_object(line.get("payload")), context))


def finish_codex(context: FileContext) -> list[Reading]:
    """Return the messages that still wait for their event where the file ends."""
    return list(_release(context))


def _read(
    line: Mapping[str, object], payload: Mapping[str, object], context: FileContext
) -> Iterator[Reading]:
    kind, stamp = as_name(line.get("type")), as_name(line.get("timestamp"))
    if kind == "response_item":
        yield from _read_response(line, payload, stamp, context)
    elif kind == "event_msg":
        yield from _read_event(payload, stamp, context)
    elif kind == "compacted":
        yield from _drop_summary(payload, context)
        yield Skip.COMPACT_SUMMARY
    else:
        if kind == "session_meta":
            _learn(payload, context)
        yield Skip.OTHER_TYPE if kind in _TYPES else Skip.UNKNOWN_TYPE


def _learn(payload: Mapping[str, object], context: FileContext) -> None:
    """Take session, folder and kind of session from the first line that names them."""
    if context.has_meta:
        return
    context.has_meta = True
    context.session = as_name(payload.get("id")) or context.session
    context.version = as_name(payload.get("cli_version")) or context.version
    context.folder = as_name(payload.get("cwd"))
    context.project = project_of(context.folder) or context.project
    source = payload.get("source")
    named = as_name(payload.get("thread_source")) or as_name(source)
    context.is_sidechain = "subagent" in as_object(source) or named == "subagent"
    if "history_base" not in payload:  # else the parent's lines are not repeated
        context.copied_from = as_name(payload.get("forked_from_id"))


def _message(native: str, role: Role, part: Part, stamp: str, context: FileContext) -> Message:
    where = (context.session, context.project, context.said_at({"timestamp": stamp}))
    copied_from = context.copied_from if role == "user" else ""
    return Message(native, role, CODEX, *where, context.is_sidechain, (part,), copied_from)


def _text_part(native: str, text: str) -> Part:
    return Part(f"{native}:0", "text", "", (text,))


def _hash_said(role: Role, text: str, stamp: str) -> str:
    # No id of its own that lasts: the same words at the same moment are the same turn.
    said = f"{stamp}\n{role}\n{text}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(said).hexdigest()[:32]


# Events: prompts, and the bounds of a turn.


def _read_event(
    payload: Mapping[str, object], stamp: str, context: FileContext
) -> Iterator[Reading]:
    inner, item = as_name(payload.get("type")), as_object(payload.get("item"))
    if inner == "user_message":
        yield from _take_prompt(as_texts(payload.get("message")), stamp, context)
    elif inner == "item_completed" and item.get("type") == "UserMessage":
        yield from _take_prompt(as_texts(item.get("content")), stamp, context)
    elif inner == "context_compacted":
        yield Skip.COMPACT_BOUNDARY
    else:
        if inner == "agent_message" or item.get("type") == "AgentMessage":
            text = "\n".join(as_texts(payload.get("message")) or as_texts(item.get("content")))
            context.heard = squeeze(text)
            if _find_waiting("assistant", text, context) is not None:
                yield from _release(context)
        elif inner in _BOUNDS:
            yield from _release(context)
            context.waiting.clear()
            turn = as_name(payload.get("turn_id"))
            # Ids of turns begin with their time: this one began after the fork.
            if inner == "task_started" and turn > context.session:
                context.copied_from = ""
        yield Skip.OTHER_TYPE


def _take_prompt(texts: tuple[str, ...], stamp: str, context: FileContext) -> Iterator[Reading]:
    """Read the event of a prompt; a message that waits for it is the same prompt."""
    context.step = ""
    text = "\n".join(texts)
    known = _find_waiting("user", text, context)
    if known is not None:
        context.waiting.remove(known)
    if not text.strip():
        yield Skip.NO_CONTENT
        return
    native = _hash_said("user", text, stamp or context.session)
    if known is None:
        context.wait(Waiting("user", text, stamp, native, True))
    elif known.is_read:
        native = known.native
    # What else waits of the user's role had no event of its own: it is the prompt's frame.
    context.waiting = [one for one in context.waiting if one.role != "user" or one.is_read]
    yield _message(native, "user", _text_part(native, text), stamp, context)


def _find_waiting(role: Role, text: str, context: FileContext) -> Waiting | None:
    """Return the prompt that was heard in the other place, if it was."""
    wanted = squeeze(text)
    waiting = [one for one in context.waiting if one.role == role]
    for one in waiting:
        if squeeze(one.text) == wanted:
            return one
    # One place may name images or files where the other has none.
    near = [one for one in waiting if not one.is_read and wanted and wanted in squeeze(one.text)]
    return near[0] if len(near) == 1 else None


def _release(context: FileContext) -> Iterator[Reading]:
    """Yield the messages that wait: no event of theirs will come."""
    for index, one in enumerate(context.waiting):
        if not one.is_read:
            context.waiting[index] = one._replace(is_read=True)
            role: Role = "user" if one.role == "user" else "assistant"
            part = _text_part(one.native, one.text)
            yield _message(one.native, role, part, one.stamp, context)


# Messages, tool calls and results.

# What Codex says in its user's place, in versions that do not mark it.
_FRAMES = re.compile(
    r"\s*(?:<(?:environment_context|user_instructions|permissions instructions"
    r"|skills_instructions|skill|turn_aborted|user_shell_command|subagent_notification|hook_prompt"
    r"|goal_context|codex_internal_context|external_[\w-]+|user_action|recommended_plugins"
    r"|model_switch|collaboration_mode|personality_spec|apps_instructions|plugins_instructions)\b"
    r"|# AGENTS\.md instructions\b|<INSTRUCTIONS>)"
)
_TAGGED = re.compile(r"\s*<([A-Za-z][\w.-]*)(?:\s[^<>]*)?>.*</\1>\s*\Z", re.DOTALL)
_IMAGE = re.compile(r"\s*</?image\b[^<>]*>\s*\Z")
_TYPED = "user."  # begins the kind of what the user gave


def _read_response(
    line: Mapping[str, object], payload: Mapping[str, object], stamp: str, context: FileContext
) -> Iterator[Reading]:
    inner = as_name(payload.get("type"))
    if inner == "message":
        role = payload.get("role")
        if role == "assistant":
            yield from _read_answer(line, payload, stamp, context)
        elif role == "user":
            yield from _hear_prompt(line, payload, stamp, context)
        else:
            yield Skip.META
    elif inner in _CALLS:
        yield from _release(context)
        yield _read_call(payload, inner, stamp, context)
    elif inner in _RESULTS:
        yield from _release(context)
        yield from _read_result(payload, stamp, context)
    else:
        yield Skip.OTHER_TYPE if inner in _ITEMS else Skip.UNKNOWN_TYPE


def _hear_prompt(
    line: Mapping[str, object], payload: Mapping[str, object], stamp: str, context: FileContext
) -> Iterator[Reading]:
    """Keep what may be a prompt until its event, or something else, follows."""
    text = _typed(payload)
    if not text or as_object(line.get("metadata")).get("inherited_user_message") is True:
        yield Skip.META
        return
    known = _find_waiting("user", text, context)
    if known is not None and known.is_read:  # its event came first
        context.waiting.remove(known)
        yield Skip.META
        return
    native = _hash_said("user", text, stamp or context.session)
    context.wait(Waiting("user", text, stamp, native, False))


def _typed(payload: Mapping[str, object]) -> str:
    """Return what of a message of role user its user typed; "" for what Codex wrote."""
    content = payload.get("content")
    blocks = [content] if isinstance(content, str) else as_list(content)
    marks = as_object(payload.get("internal_chat_message_metadata_passthrough"))
    kinds = as_list(marks.get("content_item_kinds"))
    texts = [" ".join(as_texts(b if isinstance(b, str) else [b])) for b in blocks]
    if len(kinds) == len(texts) and kinds != ["unknown"] * len(texts):
        pairs = zip(texts, map(as_name, kinds), strict=True)
        texts = [text for text, kind in pairs if kind.startswith(_TYPED)]
    else:
        texts = [text for text in texts if not _FRAMES.match(text)]
        if _TAGGED.match("\n".join(texts)):
            return ""
    return "\n".join(text for text in texts if text.strip() and not _IMAGE.match(text)).strip()


def _read_answer(
    line: Mapping[str, object], payload: Mapping[str, object], stamp: str, context: FileContext
) -> Iterator[Reading]:
    marks = as_object(line.get("metadata"))
    if marks.get("compaction_output") is True:
        yield Skip.COMPACT_SUMMARY
        return
    yield from _release(context)
    text = "\n".join(as_texts(payload.get("content")))
    if not text.strip():
        yield Skip.NO_CONTENT
        return
    native = as_name(payload.get("id")) or _hash_said("assistant", text, stamp or context.session)
    context.step = native
    # A summary, which `compacted` follows, has no event; versions with these marks say so.
    if marks or not context.heard or context.heard == squeeze(text):
        context.last_answer = [native, text]
        yield _message(native, "assistant", _text_part(native, text), stamp, context)
    else:
        context.wait(Waiting("assistant", text, stamp, native, False))


def _drop_summary(payload: Mapping[str, object], context: FileContext) -> Iterator[Reading]:
    """Take back the answer that a compaction's summary is made of."""
    summary = squeeze(" ".join(as_texts(payload.get("message"))))
    kept = [
        one
        for one in context.waiting
        if one.role == "user" or one.is_read or not summary.endswith(squeeze(one.text))
    ]
    is_dropped, context.waiting = len(kept) < len(context.waiting), kept
    yield from _release(context)
    if context.last_answer and not is_dropped:
        native, text = context.last_answer
        if summary.endswith(squeeze(text)):
            yield Retraction(CODEX, native)
    context.last_answer = []
    context.step = ""


def _read_call(
    payload: Mapping[str, object], inner: str, stamp: str, context: FileContext
) -> Reading:
    call = as_name(payload.get("call_id")) or as_name(payload.get("id"))
    if not call:
        return Skip.NO_CONTENT
    context.step = context.step or f"call:{call}"
    arguments = payload.get(_CALLS[inner])
    if inner == "local_shell_call":
        arguments = {"command": as_object(arguments).get("command")}
    server, tool = as_name(payload.get("namespace")), as_name(payload.get("name")) or "shell"
    name = f"{server}__{tool}" if server else tool
    if tool == _QUESTION:
        context.ask(call, json.dumps(_questions(arguments)))
    part = Part(f"call:{call}", "call", name, call_texts(arguments))
    return _message(context.step, "assistant", part, stamp, context)


_EXIT_CODE = re.compile(r"^(?:Process exited with|Exit) code:? (-?\d+)$", re.MULTILINE)
# Codex's own lines before a command's output.
_HEAD = re.compile(
    r"\A(?:(?:Chunk ID: \S*|Wall time:? [\d.]+ ?(?:s|seconds)?|Exit code: -?\d+"
    r"|Process (?:exited with code|running with session ID) \S+|Original token count: \d+"
    r"|Total output lines: \d+|Script (?:completed|failed|running[^\n]*))[ \t]*\n)+"
    r"(?:Output:[ \t]*(?:\n|\Z))?"
)


def _read_result(
    payload: Mapping[str, object], stamp: str, context: FileContext
) -> Iterator[Reading]:
    context.step = ""
    call, output = as_name(payload.get("call_id")), payload.get("output")
    if not call:
        yield Skip.NO_CONTENT
        return
    asked = context.asked.pop(call, "")
    if asked and (answer := _answer(output, asked)):
        native = f"answer:{call}"
        yield _message(native, "user", _text_part(native, answer), stamp, context)
        return
    shown = as_object(output)
    failed = shown.get("success") is False
    texts = list(as_texts(shown.get("content") if shown else output))
    if len(texts) == 1 and texts[0].startswith('{"output":'):  # as versions of 2025 wrote it
        whole = parse_object(texts[0]) or {}
        failed = failed or as_object(whole.get("metadata")).get("exit_code") not in (None, 0)
        texts = list(as_texts(whole.get("output"))) or texts
    for index, text in enumerate(texts):
        head = _HEAD.match(f"{text}\n")
        if head is not None:
            code = _EXIT_CODE.search(head[0])
            failed = failed or (code is not None and code[1] != "0")
            texts[index] = text[head.end() :]
    part = Part(f"result:{call}", "result", "", tuple(texts), is_error=failed)
    yield _message("", "assistant", part, stamp, context)


# Questions of the agent: what its user answers is the user's.

_QUESTION = "request_user_input"
_NOTE = "user_note:"


def _questions(arguments: object) -> dict[str, str]:
    parsed = parse_object(arguments) if isinstance(arguments, str) else as_object(arguments)
    asked = map(as_object, as_list((parsed or {}).get("questions")))
    return {as_name(one.get("id")): " ".join(as_texts(one.get("question"))) for one in asked}


def _answer(output: object, asked: str) -> str:
    """Return what the user answered, each behind its question; "" where there is no answer."""
    texts = as_texts(output)
    answers = as_object((parse_object("".join(texts)) or {}).get("answers"))
    questions: dict[str, object] = {}
    with suppress(ValueError):
        questions = as_object(json.loads(asked))
    lines = list[str]()
    for key, value in answers.items():
        said = as_list(as_object(value).get("answers")) or as_list(value) or [value]
        given = [s.removeprefix(_NOTE).strip() for s in said if isinstance(s, str) and s.strip()]
        if given:
            question = questions.get(key)
            lines.append(f"[{question}] {'; '.join(given)}" if question else "; ".join(given))
    return "\n".join(lines)
