"""Chats of Gemini CLI, and of its fork Qwen Code, to what they add to turns.

Neither format is published. Gemini CLI appends whole messages again when they change, and lists of
them (`$set`); before 0.40 or so, and in Qwen Code before 0.5, a chat was one JSON object. Later
Qwen Code writes lines of a tree. docs/transcripts.md says which versions were run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from noctuary.sources.injected import is_machine_made
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
    parse_object,
)

GEMINI, QWEN = "gemini", "qwen"
_ANSWERS = frozenset({"gemini", "qwen", "assistant", "model"})
_NOTICES = frozenset({"info", "error", "warning", "about", "help", "compression", "system"})


def is_gemini(line: Mapping[str, object], context: FileContext | None = None) -> bool:
    """Say whether an object is a line of a chat of Gemini CLI, or a whole chat.

    A message alone may be a row of a corpus, unless it has what only chats have.
    """
    if "projectHash" in line or isinstance(line.get("$set"), dict) or "$rewindTo" in line:
        return True
    kind, is_message = line.get("type"), {"id", "timestamp", "content"} <= line.keys()
    if not is_message or "message" in line or kind not in _ANSWERS | _NOTICES | {"user"}:
        return False
    has_marks = isinstance(line["content"], list) or bool({"thoughts", "tokens"} & line.keys())
    return has_marks or (context is not None and context.agent in (GEMINI, QWEN))


def read_gemini(line: Mapping[str, object], context: FileContext) -> list[Reading]:
    """Return what a line, or a whole chat, adds to turns, or why nothing."""
    if "$rewindTo" in line:
        undone = context.cut_path(as_name(line["$rewindTo"]))
        turns = [turn for native in undone for turn in (native, f"answer:{native}")]
        return [Skip.OTHER_TYPE, *(Retraction(_agent(context), turn) for turn in turns)]
    told = as_object(line.get("$set")) if "$set" in line else line
    if "projectHash" in told or "sessionId" in told:
        _learn(told, context)
    messages = as_list(told.get("messages"))
    if messages:
        context.path = []
        if any(as_object(message).get("type") == "qwen" for message in messages):
            context.agent = QWEN
        spoken = _without_summary(messages)
        found = [one for message in spoken for one in _read_message(message, context)]
        return [one for one in found if not isinstance(one, Skip)] or [Skip.OTHER_TYPE]
    if "$set" in line or "projectHash" in line:
        return [Skip.OTHER_TYPE]
    return list(_read_message(line, context))


def _without_summary(messages: list[object]) -> list[object]:
    """Return messages without what `/compress` made of the earlier ones, and the answer to it."""
    texts = ["".join(_texts(as_object(message).get("content"))) for message in messages]
    answers = {at for at, text in enumerate(texts) if _UNDERSTOOD.fullmatch(text)}
    return [m for at, m in enumerate(messages) if not {at, at + 1} & answers]


def _learn(line: Mapping[str, object], context: FileContext) -> None:
    session = as_name(line.get("sessionId"))
    if not context.session:
        # A subagent's file lies in a folder that is named like its parent session.
        context.session = f"{context.parent}/{session}" if context.parent else session
    context.is_sidechain = context.is_sidechain or line.get("kind") == "subagent"
    folders = [as_name(one) for one in as_list(line.get("directories"))]
    if not context.folder and folders:
        context.folder, context.project = folders[0], project_of(folders[0])


def _agent(context: FileContext) -> str:
    return context.agent or GEMINI


# What Gemini CLI says in its user's place.
_FRAMES = re.compile(
    r"\s*(?:<(?:session_context|hook_context|scratchpad|state_snapshot|loaded_context|project_context"
    r"|environment_context|untrusted_context)\b"
    r"|This is the (?:Gemini CLI|Qwen Code)\b.{0,80}\bsetting up the context\b"
    r"|I ran the following shell command:\n```sh\n"
    r"|You have stopped calling tools without finishing\.|System: Potential loop detected\.)",
    re.DOTALL,
)
_HOOKS = re.compile(r"<hook_context>.*?</hook_context>", re.DOTALL)
# Files that the user named with an @, which stand behind the prompt.
_FILES = re.compile(
    r"\n--- Content from referenced files ---(?:.*\n--- End of content ---|.*)", re.DOTALL
)
_UNDERSTOOD = re.compile(r"\s*Got it\. Thanks for the additional context!")
_SHELL_ENDS = re.compile(r"\n(?:Background PIDs|Process Group PGID|Signal): [^\n]*(?=\n|\Z)")
_UNTRUSTED = re.compile(r"\A<untrusted_context>\n?(.*?)\n?</untrusted_context>\s*\Z", re.DOTALL)


def _read_message(value: object, context: FileContext) -> Iterator[Reading]:
    message = as_object(value)
    kind, native = as_name(message.get("type")), as_name(message.get("id"))
    content = message.get("content")
    has_results = any("functionResponse" in as_object(one) for one in as_list(content))
    if kind in _NOTICES:
        yield Skip.OTHER_TYPE
    elif not native or kind not in _ANSWERS | {"user"}:
        yield Skip.UNKNOWN_TYPE
    elif kind == "user" and not has_results:
        context.follow(native, native)
        if _FRAMES.match(typed_text(_texts(content))):  # it may be shown as the prompt before it
            yield Skip.META
            return
        shown = message.get("displayContent")
        yield _read_prompt(_texts(shown) or _texts(content), native, message, context)
    elif kind == "user":  # what the tools gave back is at their calls too
        yield Skip.NO_CONTENT
    else:
        context.follow(native, native)
        yield from _read_answer(message, native, context)


def _message(
    line: Mapping[str, object], context: FileContext, native: str, role: Role, *parts: Part
) -> Message:
    where = (context.session, context.project, context.said_at(line), context.is_sidechain)
    return Message(native, role, _agent(context), *where, parts)


def _read_prompt(
    texts: tuple[str, ...], native: str, line: Mapping[str, object], context: FileContext
) -> Reading:
    text = typed_text(texts)
    if _FRAMES.match(text) or is_machine_made(text):
        return Skip.META
    if not text.strip():
        return Skip.NO_CONTENT
    return _message(line, context, native, "user", Part(f"{native}:0", "text", "", (text,)))


def typed_text(texts: tuple[str, ...]) -> str:
    """Return what of a prompt's texts was typed: no files that it names, no context of hooks."""
    text = "".join(text if text.startswith("\n") else f"\n{text}" for text in texts)
    return _HOOKS.sub("", _FILES.sub("", text.removeprefix("\n"))).strip()


def _texts(content: object) -> tuple[str, ...]:
    """Return the texts of a list of parts, thoughts left out."""
    if isinstance(content, str):
        return (content,)
    parts = [content] if isinstance(content, dict) else as_list(content)
    spoken = [one for one in parts if as_object(one).get("thought") is not True]
    return tuple(
        text for one in spoken for text in ((one,) if isinstance(one, str) else as_texts([one]))
    )


def _read_answer(
    message: Mapping[str, object], native: str, context: FileContext
) -> Iterator[Reading]:
    text = "".join(_texts(message.get("content")))
    if _FRAMES.match(text) or _UNDERSTOOD.fullmatch(text):
        yield Skip.COMPACT_SUMMARY
        return
    parts, said, answered = list[Part](), "", message
    if text.strip():
        parts.append(Part(f"{native}:0", "text", "", (text,)))
    for index, value in enumerate(as_list(message.get("toolCalls"))):
        call = as_object(value)
        name, key = as_name(call.get("name")), f"{native}/{as_name(call.get('id')) or index}"
        parts.append(Part(f"call:{key}", "call", name, call_texts(call.get("args"))))
        texts, failed = _results(as_list(call.get("result")))
        if name in _QUESTIONS and not failed:
            said, answered = _gemini_answer(call, texts), call
            texts = () if said else texts
        is_error = failed or call.get("status") == "error"
        if texts:
            parts.append(Part(f"result:{key}", "result", "", texts, is_error))
    if parts:
        yield _message(message, context, native, "assistant", *parts)
    else:
        yield Skip.NO_CONTENT
    if said:
        answer = f"answer:{native}"
        part = Part(f"{answer}:0", "text", "", (said,))
        yield _message(answered, context, answer, "user", part)


def _results(parts: list[object]) -> tuple[tuple[str, ...], bool]:
    """Return what a tool gave back, and whether it failed."""
    texts, failed = list[str](), False
    for part in parts:
        response = as_object(as_object(as_object(part).get("functionResponse")).get("response"))
        error = response.get("error")
        failed = failed or bool(error)
        for text in as_texts(error) or as_texts(response.get("output")) or as_texts([part]):
            inner = _UNTRUSTED.match(text)
            texts.append(_SHELL_ENDS.sub("", inner[1] if inner else text))
    return tuple(texts), failed


# Questions of the agent: what the user answers is the user's.

_QUESTIONS = frozenset({"ask_user", "ask_user_question"})


def _gemini_answer(call: Mapping[str, object], texts: tuple[str, ...]) -> str:
    questions = as_list(as_object(call.get("args")).get("questions"))
    answers = as_object((parse_object("\n".join(texts)) or {}).get("answers"))
    lines = list[str]()
    for place, answer in answers.items():
        said = answer if isinstance(answer, str) else "; ".join(as_texts(answer))
        asked = as_object(questions[int(place)]) if place in map(str, range(len(questions))) else {}
        question = as_name(asked.get("question"))
        if said.strip():
            lines.append(f"[{question}] {said}" if question else said)
    return "\n".join(lines)


# Qwen Code: a line each for a prompt, an answer, a result; each names the one before it.


def is_qwen(line: Mapping[str, object]) -> bool:
    """Say whether a line is one of a chat of Qwen Code."""
    if not {"uuid", "sessionId", "type"} <= line.keys():
        return False
    message = as_object(line.get("message"))
    if "content" in message:  # Claude Code's
        return False
    return isinstance(message.get("parts"), list) or bool(
        {"provenance", "systemPayload", "toolCallResult"} & line.keys()
    )


def read_qwen(line: Mapping[str, object], context: FileContext) -> list[Reading]:
    """Return what a line adds to turns, or why nothing."""
    context.agent = QWEN
    context.version = context.version or as_name(line.get("version"))
    if not context.folder and (folder := as_name(line.get("cwd"))):
        context.folder, context.project = folder, project_of(folder)
    uuid, subagent = as_name(line.get("uuid")), as_name(line.get("agentId"))
    context.is_sidechain = bool(subagent) or line.get("isSidechain") is True
    session = as_name(line.get("sessionId"))
    context.session = f"{session}/{subagent}" if subagent else session
    undone = context.follow(uuid, uuid, line.get("parentUuid"))
    turns = [turn for native in undone for turn in (native, f"answer:{native}")]
    found: list[Reading] = [Retraction(QWEN, turn) for turn in turns]
    return [*found, *_read_qwen(line, uuid, context)]


def _read_qwen(line: Mapping[str, object], uuid: str, context: FileContext) -> Iterator[Reading]:
    kind, parts = as_name(line.get("type")), as_object(line.get("message")).get("parts")
    if kind == "system":
        is_summary = line.get("subtype") == "chat_compression"
        yield Skip.COMPACT_SUMMARY if is_summary else Skip.OTHER_TYPE
    elif kind == "user":
        is_typed = line.get("subtype") in (None, "mid_turn_user_message")
        if line.get("provenance") not in (None, "real_user") or not is_typed:
            yield Skip.META
        else:
            shown = as_object(line.get("systemPayload")).get("displayText")
            yield _read_prompt(_texts(shown) or _texts(parts), uuid, line, context)
    elif kind == "assistant":
        context.step = uuid
        yield _read_qwen_answer(as_list(parts), uuid, line, context)
    elif kind == "tool_result":
        yield from _read_qwen_result(as_list(parts), line, context)
    else:
        yield Skip.UNKNOWN_TYPE


def _read_qwen_answer(
    content: list[object], uuid: str, line: Mapping[str, object], context: FileContext
) -> Reading:
    parts = [Part(f"{uuid}:0", "text", "", (text,)) for text in ["".join(_texts(content))] if text]
    for index, value in enumerate(content):
        call = as_object(as_object(value).get("functionCall"))
        if call:
            key = f"call:{uuid}/{as_name(call.get('id')) or index}"
            parts.append(Part(key, "call", as_name(call.get("name")), call_texts(call.get("args"))))
    if not parts:
        return Skip.NO_CONTENT
    return _message(line, context, uuid, "assistant", *parts)


def _read_qwen_result(
    content: list[object], line: Mapping[str, object], context: FileContext
) -> Iterator[Reading]:
    shown = as_object(as_object(line.get("toolCallResult")).get("resultDisplay"))
    said = "\n".join(
        f"[{as_name(one.get('question'))}] {answer}"
        for one in map(as_object, as_list(shown.get("answers")))
        if isinstance(answer := one.get("answer"), str) and answer.strip()
    )
    if said:
        native = f"answer:{as_name(line.get('uuid'))}"
        part = Part(f"{native}:0", "text", "", (said,))
        yield _message(line, context, native, "user", part)
        return
    parts = list[Part]()
    for value in content:
        call = as_name(as_object(as_object(value).get("functionResponse")).get("id"))
        texts, failed = _results([value])
        if call and texts:
            key = f"result:{context.step}/{call}"
            parts.append(Part(key, "result", "", texts, failed))
    yield _message(line, context, "", "assistant", *parts) if parts else Skip.NO_CONTENT
