"""Read lines of Codex rollouts.

A rollout holds a prompt once, twice or three times, by version: as a message of role user, as
the event `user_message` (to 0.146) and as the event `item_completed` of a `UserMessage` (from 0.147
on, and after `codex migrate-rollouts`). Events hold only typed text; messages of role user also
hold text that Codex adds. docs/transcripts.md lists the tested versions.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping

from noctuary.sources.transcripts import (
    FileContext,
    Message,
    Part,
    Reading,
    Role,
    Skip,
    Waiting,
    as_list,
    as_name,
    as_object,
    as_texts,
    call_part,
    join_answers,
    parse_moment,
    parse_object,
    result_part,
    squeeze,
    text_part,
    withdraw,
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
# Events at the beginning or end of a turn of the conversation.
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
    """Return whether a line is from a rollout."""
    return as_name(line.get("type")) in _TYPES and isinstance(line.get("payload"), dict)


def read_codex(line: Mapping[str, object], context: FileContext) -> list[Reading]:
    """Return the readings of a line; the context learns session and folder."""
    kind, payload = as_name(line.get("type")), as_object(line.get("payload"))
    match kind:
        case "response_item":
            return _read_response(line, payload, context)
        case "event_msg":
            return _read_event(payload, as_name(line.get("timestamp")), context)
        case "compacted":
            return [*_drop_summary(payload, context), Skip.COMPACT_SUMMARY]
        case "session_meta" if not context.has_meta:
            _learn(payload, context)
            return [Skip.OTHER_TYPE]
        case _:
            return [Skip.OTHER_TYPE if kind in _TYPES else Skip.UNKNOWN_TYPE]


def finish_codex(context: FileContext) -> list[Reading]:
    """Return the messages still waiting for their event at the end of the file."""
    return _release(context)


def _learn(payload: Mapping[str, object], context: FileContext) -> None:
    """Set session, version, folder and kind from the first `session_meta`."""
    context.has_meta = True
    context.session = as_name(payload.get("id")) or context.session
    context.version = as_name(payload.get("cli_version")) or context.version
    context.enter(as_name(payload.get("cwd")))
    source = payload.get("source")
    named = as_name(payload.get("thread_source")) or as_name(source)
    context.is_sidechain = "subagent" in as_object(source) or named == "subagent"
    if "history_base" not in payload:  # else the parent's lines are not repeated
        context.copied_from = as_name(payload.get("forked_from_id"))


def _message(native: str, role: Role, part: Part, stamp: str, context: FileContext) -> Message:
    said = context.message(CODEX, native, role, parse_moment(stamp), part)
    return said._replace(copied_from=context.copied_from if role == "user" else "")


def _hash_said(role: Role, text: str, stamp: str) -> str:
    # No lasting id: the same words at the same moment are the same turn.
    said = f"{stamp}\n{role}\n{text}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(said).hexdigest()[:32]


# Events: prompts, and the bounds of a turn.


def _read_event(payload: Mapping[str, object], stamp: str, context: FileContext) -> list[Reading]:
    inner, item = as_name(payload.get("type")), as_object(payload.get("item"))
    kind = f"{inner} {item.get('type')}" if inner == "item_completed" else inner
    match kind:
        case "user_message":
            return _take_prompt(as_texts(payload.get("message")), stamp, context)
        case "item_completed UserMessage":
            return _take_prompt(as_texts(item.get("content")), stamp, context)
        case "context_compacted":
            return [Skip.COMPACT_BOUNDARY]
        case _:
            pass
    found = list[Reading]()
    if inner == "agent_message" or item.get("type") == "AgentMessage":
        text = "\n".join(as_texts(payload.get("message")) or as_texts(item.get("content")))
        context.heard = squeeze(text)
        if _find_waiting("assistant", text, context) is not None:
            found = _release(context)
    elif inner in _BOUNDS:
        found = _release(context)
        context.waiting.clear()
        # Ids of turns begin with their time: this one began after the fork.
        if inner == "task_started" and as_name(payload.get("turn_id")) > context.session:
            context.copied_from = ""
    return [*found, Skip.OTHER_TYPE]


def _take_prompt(texts: tuple[str, ...], stamp: str, context: FileContext) -> list[Reading]:
    """Read the event of a prompt; a waiting message with its text is the same prompt."""
    context.step, text = "", "\n".join(texts)
    known = _find_waiting("user", text, context)
    if known is not None:
        context.waiting.remove(known)
    if not text.strip():
        return [Skip.NO_CONTENT]
    native = _hash_said("user", text, stamp or context.session)
    if known is None:
        context.wait("user", text, stamp, native, is_read=True)
    elif known.is_read:
        native = known.native
    # Other waiting user messages have no event of their own: Codex wrote them around the prompt.
    context.waiting = [one for one in context.waiting if one.role != "user" or one.is_read]
    return [_message(native, "user", text_part(native, text), stamp, context)]


def _find_waiting(role: Role, text: str, context: FileContext) -> Waiting | None:
    """Return the waiting message with the same text, if any."""
    wanted = squeeze(text)
    waiting = [(squeeze(one.text), one) for one in context.waiting if one.role == role]
    same = [one for said, one in waiting if said == wanted]
    # One form may name images or files that the other leaves out.
    near = [one for said, one in waiting if not one.is_read and wanted and wanted in said]
    return same[0] if same else near[0] if len(near) == 1 else None


def _release(context: FileContext) -> list[Reading]:
    """Return the waiting messages: no event will come for them."""
    found = list[Reading]()
    for one in context.release(lambda _: True):
        role: Role = "user" if one.role == "user" else "assistant"
        part = text_part(one.native, one.text)
        found.append(_message(one.native, role, part, one.stamp, context))
    return found


# Messages, tool calls and results.

# Messages that Codex writes in the user's role, in versions that do not mark them.
_FRAMES = re.compile(
    r"\s*(?:<(?:environment_context|user_instructions|permissions instructions"
    r"|skills_instructions|skill|turn_aborted|user_shell_command|subagent_notification|hook_prompt"
    r"|goal_context|codex_internal_context|external_[\w-]+|user_action|recommended_plugins"
    r"|model_switch|collaboration_mode|personality_spec|apps_instructions|plugins_instructions)\b"
    r"|# AGENTS\.md instructions\b|<INSTRUCTIONS>)"
)
_TAGGED = re.compile(r"\s*<([A-Za-z][\w.-]*)(?:\s[^<>]*)?>.*</\1>\s*\Z", re.DOTALL)
_IMAGE = re.compile(r"\s*</?image\b[^<>]*>\s*\Z")
_TYPED = "user."  # prefix of kinds for user input


def _read_response(
    line: Mapping[str, object], payload: Mapping[str, object], context: FileContext
) -> list[Reading]:
    inner, stamp = as_name(payload.get("type")), as_name(line.get("timestamp"))
    match payload:
        case {"type": "message", "role": "assistant"}:
            return _read_answer(as_object(line.get("metadata")), payload, stamp, context)
        case {"type": "message", "role": "user"}:
            is_inherited = as_object(line.get("metadata")).get("inherited_user_message") is True
            return [Skip.META] if is_inherited else _hear_prompt(payload, stamp, context)
        case {"type": "message"}:
            return [Skip.META]
        case _ if inner in _CALLS:
            return [*_release(context), _read_call(payload, inner, stamp, context)]
        case _ if inner in _RESULTS:
            return [*_release(context), _read_result(payload, stamp, context)]
        case _:
            return [Skip.OTHER_TYPE if inner in _ITEMS else Skip.UNKNOWN_TYPE]


def _hear_prompt(payload: Mapping[str, object], stamp: str, context: FileContext) -> list[Reading]:
    """Hold a possible prompt until its event, or something else, follows."""
    text = _typed(payload)
    known = _find_waiting("user", text, context) if text else None
    if known is not None and known.is_read:  # its event came first
        context.waiting.remove(known)
        return [Skip.META]
    if text:
        native = _hash_said("user", text, stamp or context.session)
        context.wait("user", text, stamp, native)
    return [] if text else [Skip.META]


def _typed(payload: Mapping[str, object]) -> str:
    """Return the typed part of a message of role user; "" if Codex wrote all of it."""
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
    marks: Mapping[str, object], payload: Mapping[str, object], stamp: str, context: FileContext
) -> list[Reading]:
    if marks.get("compaction_output") is True:
        return [Skip.COMPACT_SUMMARY]
    found, text = _release(context), "\n".join(as_texts(payload.get("content")))
    if not text.strip():
        return [*found, Skip.NO_CONTENT]
    native = as_name(payload.get("id")) or _hash_said("assistant", text, stamp or context.session)
    context.step = native
    # A summary, which `compacted` follows, has no event; newer versions mark it as one.
    if marks or not context.heard or context.heard == squeeze(text):
        context.last_answer = [native, text]
        return [*found, _message(native, "assistant", text_part(native, text), stamp, context)]
    context.wait("assistant", text, stamp, native)
    return found


def _drop_summary(payload: Mapping[str, object], context: FileContext) -> list[Reading]:
    """Withdraw the answer that became the summary of a compaction."""
    summary = squeeze(" ".join(as_texts(payload.get("message"))))
    kept = [
        one
        for one in context.waiting
        if one.role == "user" or one.is_read or not summary.endswith(squeeze(one.text))
    ]
    is_dropped, context.waiting = len(kept) < len(context.waiting), kept
    found = _release(context)
    native, text = context.last_answer or ("", "")
    if native and not is_dropped and summary.endswith(squeeze(text)):
        found += withdraw(CODEX, native)
    context.last_answer, context.step = [], ""
    return found


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
    if tool == _QUESTION:
        context.ask(call, json.dumps(_questions(arguments)))
    part = call_part(call, f"{server}__{tool}" if server else tool, arguments)
    return _message(context.step, "assistant", part, stamp, context)


_EXIT_CODE = re.compile(r"^(?:Process exited with|Exit) code:? (-?\d+)$", re.MULTILINE)
# Codex's header lines before a command's output.
_HEAD = re.compile(
    r"\A(?:Command: [^\0]*?\n(?=Chunk ID: |Wall time: ))?"  # a command may have several lines
    r"(?:(?:Chunk ID: \S*|Wall time:? [\d.]+ ?(?:s|seconds)?|Exit code: -?\d+"
    r"|Process (?:exited with code|running with session ID) \S+|Original token count: \d+"
    r"|Total output lines: \d+|Script (?:completed|failed|running[^\n]*))[ \t]*\n)+"
    r"(?:Output:[ \t]*(?:\n|\Z))?"
)

# A tool that could not do its work answers with a sentence alone.
_FAULT = re.compile(r"\w+ (?:verification )?failed(?: for `[^\n]*`)?: ")


def _read_result(payload: Mapping[str, object], stamp: str, context: FileContext) -> Reading:
    context.step = ""
    call, output = as_name(payload.get("call_id")), payload.get("output")
    if not call:
        return Skip.NO_CONTENT
    if answer := _answer(output, context.asked.pop(call, "")):
        native = f"answer:{call}"
        return _message(native, "user", text_part(native, answer), stamp, context)
    shown = as_object(output)
    failed = shown.get("success") is False
    texts = list(as_texts(shown.get("content") if shown else output))
    if len(texts) == 1 and texts[0].startswith('{"output":'):  # format of versions from 2025
        whole = parse_object(texts[0]) or {}
        failed = failed or as_object(whole.get("metadata")).get("exit_code") not in (None, 0)
        texts = list(as_texts(whole.get("output"))) or texts
    failed = failed or any(map(_FAULT.match, texts))
    for index, text in enumerate(texts):
        head = _HEAD.match(f"{text}\n")
        if head is not None:
            code = _EXIT_CODE.search(head[0])
            failed = failed or (code is not None and code[1] != "0")
            texts[index] = text[head.end() :]
    part = result_part(call, tuple(texts), is_error=failed)
    return _message("", "assistant", part, stamp, context)


# Questions of the agent: the user's answers are prompts.

_QUESTION = "request_user_input"
_NOTE = "user_note:"


def _questions(arguments: object) -> dict[str, str]:
    parsed = parse_object(arguments) if isinstance(arguments, str) else as_object(arguments)
    asked = map(as_object, as_list((parsed or {}).get("questions")))
    return {as_name(one.get("id")): " ".join(as_texts(one.get("question"))) for one in asked}


def _answer(output: object, asked: str) -> str:
    """Return the user's answers, each after its question; "" if nothing was asked."""
    questions, pairs = parse_object(asked) or {}, list[tuple[str, str]]()
    answers = parse_object("".join(as_texts(output))) if asked else None
    for key, value in as_object((answers or {}).get("answers")).items():
        said = as_list(as_object(value).get("answers")) or as_list(value) or [value]
        given = [s.removeprefix(_NOTE).strip() for s in said if isinstance(s, str) and s.strip()]
        pairs.append((str(questions.get(key, "")), "; ".join(given)))
    return join_answers(pairs)
