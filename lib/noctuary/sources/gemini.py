"""Read chats of Gemini CLI and of its fork Qwen Code.

Both formats are undocumented. Gemini CLI appends a message again when it changes, and lists of
them (`$set`); before 0.40 or so, and in Qwen Code before 0.5, a chat was one JSON object. Later
Qwen Code writes lines of a tree. docs/transcripts.md lists the tested versions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from noctuary.sources.injected import is_machine_made
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
    call_part,
    join_answers,
    parse_moment,
    parse_object,
    result_part,
    text_part,
    withdraw,
)

GEMINI, QWEN = "gemini", "qwen"
_ANSWERS = frozenset({"gemini", "qwen", "assistant", "model"})
_NOTICES = frozenset({"info", "error", "warning", "about", "help", "compression", "system"})


def is_gemini(line: Mapping[str, object], context: FileContext | None = None) -> bool:
    """Return whether an object is a line of a chat of Gemini CLI, or a whole chat.

    A message alone may be a row of a corpus, unless it has fields that only chats have.
    """
    if "projectHash" in line or isinstance(line.get("$set"), dict) or "$rewindTo" in line:
        return True
    kind, is_message = line.get("type"), {"id", "timestamp", "content"} <= line.keys()
    if not is_message or "message" in line or kind not in _ANSWERS | _NOTICES | {"user"}:
        return False
    has_marks = isinstance(line["content"], list) or bool({"thoughts", "tokens"} & line.keys())
    return has_marks or (context is not None and context.agent in (GEMINI, QWEN))


def read_gemini(line: Mapping[str, object], context: FileContext) -> list[Reading]:
    """Return the readings of a line, or of a whole chat."""
    if "$rewindTo" in line:
        undone = context.cut_path(as_name(line["$rewindTo"]))
        return [Skip.OTHER_TYPE, *_withdraw(context.agent or GEMINI, undone)]
    chat = as_object(line.get("$set")) if "$set" in line else line
    if "projectHash" in chat or "sessionId" in chat:
        _learn(chat, context)
    messages = [as_object(message) for message in as_list(chat.get("messages"))]
    if messages:
        context.path = []
        if any(message.get("type") == "qwen" for message in messages):
            context.agent = QWEN
        texts = ["".join(_texts(message.get("content"))) for message in messages]
        answers = {at for at, text in enumerate(texts) if _UNDERSTOOD.fullmatch(text)}
        # Skip the summary that `/compress` made of earlier messages, and the answer to it.
        spoken = (m for at, m in enumerate(messages) if not {at, at + 1} & answers)
        found = [one for message in spoken for one in _read_message(message, context)]
        return [one for one in found if not isinstance(one, Skip)] or [Skip.OTHER_TYPE]
    if "$set" in line or "projectHash" in line:
        return [Skip.OTHER_TYPE]
    return _read_message(line, context)


def _withdraw(agent: str, turns: list[str]) -> list[Message]:
    return withdraw(agent, *(turn for native in turns for turn in (native, f"answer:{native}")))


def _learn(line: Mapping[str, object], context: FileContext) -> None:
    session = as_name(line.get("sessionId"))
    if not context.session:
        # A subagent's file is in a folder named after its parent session.
        context.session = f"{context.parent}/{session}" if context.parent else session
    context.is_sidechain = context.is_sidechain or line.get("kind") == "subagent"
    folders = as_list(line.get("directories"))
    if not context.folder and folders:
        context.enter(as_name(folders[0]))


# Messages that Gemini CLI writes in the user's role.
_FRAMES = re.compile(
    r"\s*(?:<(?:session_context|hook_context|scratchpad|state_snapshot|loaded_context|project_context"
    r"|environment_context|untrusted_context)\b"
    r"|This is the (?:Gemini CLI|Qwen Code)\b.{0,80}\bsetting up the context\b"
    r"|I ran the following shell command:\n```sh\n"
    r"|You have stopped calling tools without finishing\.|System: Potential loop detected\.)",
    re.DOTALL,
)
_HOOKS = re.compile(r"<hook_context>.*?</hook_context>", re.DOTALL)
# Files that the user named with an @; their contents follow the prompt.
_FILES = re.compile(
    r"\n--- Content from referenced files ---(?:.*\n--- End of content ---|.*)", re.DOTALL
)
_UNDERSTOOD = re.compile(r"\s*Got it\. Thanks for the additional context!")
_SHELL_ENDS = re.compile(r"\n(?:Background PIDs|Process Group PGID|Signal): [^\n]*(?=\n|\Z)")
_UNTRUSTED = re.compile(r"\A<untrusted_context>\n?(.*?)\n?</untrusted_context>\s*\Z", re.DOTALL)


def _read_message(message: Mapping[str, object], context: FileContext) -> list[Reading]:
    kind, native = as_name(message.get("type")), as_name(message.get("id"))
    content, shown = message.get("content"), message.get("displayContent")
    if kind in _NOTICES:
        return [Skip.OTHER_TYPE]
    if not native or kind not in _ANSWERS | {"user"}:
        return [Skip.UNKNOWN_TYPE]
    if kind == "user" and any("functionResponse" in as_object(one) for one in as_list(content)):
        return [Skip.NO_CONTENT]  # tool results are repeated at their calls
    context.follow(native, native)
    if kind != "user":
        return _read_answer(message, native, context)
    # An inserted message may display the prompt before it.
    is_frame = _FRAMES.match(typed_text(_texts(content)))
    texts = _texts(shown) or _texts(content)
    return [Skip.META if is_frame else _read_prompt(texts, native, message, context)]


def _message(
    line: Mapping[str, object], context: FileContext, native: str, role: Role, *parts: Part
) -> Message:
    at_us = parse_moment(line.get("timestamp"))
    return context.message(context.agent or GEMINI, native, role, at_us, *parts)


def _read_prompt(
    texts: tuple[str, ...], native: str, line: Mapping[str, object], context: FileContext
) -> Reading:
    text = typed_text(texts)
    if _FRAMES.match(text) or is_machine_made(text):
        return Skip.META
    if not text.strip():
        return Skip.NO_CONTENT
    return _message(line, context, native, "user", text_part(native, text))


def typed_text(texts: tuple[str, ...]) -> str:
    """Return the typed part of a prompt, without contents of files and context of hooks."""
    text = "".join(text if text.startswith("\n") else f"\n{text}" for text in texts)
    return _HOOKS.sub("", _FILES.sub("", text.removeprefix("\n"))).strip()


def _texts(content: object) -> tuple[str, ...]:
    """Return the texts of a list of parts, without thoughts."""
    parts = as_list(content) or [content]
    spoken = [one for one in parts if as_object(one).get("thought") is not True]
    return tuple(
        text for one in spoken for text in as_texts(one if isinstance(one, str) else [one])
    )


def _read_answer(message: Mapping[str, object], native: str, context: FileContext) -> list[Reading]:
    text = "".join(_texts(message.get("content")))
    if _FRAMES.match(text) or _UNDERSTOOD.fullmatch(text):
        return [Skip.COMPACT_SUMMARY]
    parts, said, answered = list[Part](), "", message
    if text.strip():
        parts.append(text_part(native, text))
    for index, call in enumerate(map(as_object, as_list(message.get("toolCalls")))):
        name, key = as_name(call.get("name")), f"{native}/{as_name(call.get('id')) or index}"
        parts.append(call_part(key, name, call.get("args")))
        texts, failed = _results(as_list(call.get("result")))
        if name in _QUESTIONS and not failed:
            said, answered = _gemini_answer(call, texts), call
            texts = () if said else texts
        if texts:
            is_error = failed or call.get("status") == "error"
            parts.append(result_part(key, texts, is_error=is_error))
    found: list[Reading] = [Skip.NO_CONTENT]
    if parts:
        found = [_message(message, context, native, "assistant", *parts)]
    if said:
        answer = f"answer:{native}"
        found.append(_message(answered, context, answer, "user", text_part(answer, said)))
    return found


def _results(parts: list[object]) -> tuple[tuple[str, ...], bool]:
    """Return the texts of a tool's result, and whether it failed."""
    texts, failed = list[str](), False
    for part in parts:
        response = as_object(as_object(as_object(part).get("functionResponse")).get("response"))
        error = response.get("error")
        failed = failed or bool(error)
        for text in as_texts(error) or as_texts(response.get("output")) or as_texts([part]):
            texts.append(_SHELL_ENDS.sub("", _UNTRUSTED.sub(r"\1", text)))
    return tuple(texts), failed


# Questions of the agent: the user's answers are prompts.

_QUESTIONS = frozenset({"ask_user", "ask_user_question"})


def _gemini_answer(call: Mapping[str, object], texts: tuple[str, ...]) -> str:
    questions = as_list(as_object(call.get("args")).get("questions"))
    asked = {str(at): as_name(as_object(one).get("question")) for at, one in enumerate(questions)}
    answers = as_object((parse_object("\n".join(texts)) or {}).get("answers"))
    return join_answers(
        (asked.get(place, ""), answer if isinstance(answer, str) else "; ".join(as_texts(answer)))
        for place, answer in answers.items()
    )


# Qwen Code: one line per prompt, answer or result, with the id of its parent.


def is_qwen(line: Mapping[str, object]) -> bool:
    """Return whether a line is from a chat of Qwen Code."""
    if not {"uuid", "sessionId", "type"} <= line.keys():
        return False
    message = as_object(line.get("message"))
    if "content" in message:  # from Claude Code
        return False
    return isinstance(message.get("parts"), list) or bool(
        {"provenance", "systemPayload", "toolCallResult"} & line.keys()
    )


def read_qwen(line: Mapping[str, object], context: FileContext) -> list[Reading]:
    """Return the readings of a line."""
    context.agent = QWEN
    context.version = context.version or as_name(line.get("version"))
    if not context.folder and (folder := as_name(line.get("cwd"))):
        context.enter(folder)
    uuid, subagent = as_name(line.get("uuid")), as_name(line.get("agentId"))
    context.is_sidechain = bool(subagent) or line.get("isSidechain") is True
    session = as_name(line.get("sessionId"))
    context.session = f"{session}/{subagent}" if subagent else session
    undone = context.follow(uuid, uuid, line.get("parentUuid"))
    return [*_withdraw(QWEN, undone), _read_qwen(line, uuid, context)]


def _read_qwen(line: Mapping[str, object], uuid: str, context: FileContext) -> Reading:
    parts, subtype = as_object(line.get("message")).get("parts"), line.get("subtype")
    match as_name(line.get("type")):
        case "system":
            return Skip.COMPACT_SUMMARY if subtype == "chat_compression" else Skip.OTHER_TYPE
        case "user":
            is_user = line.get("provenance") in (None, "real_user")
            if not is_user or subtype not in (None, "mid_turn_user_message"):
                return Skip.META
            shown = as_object(line.get("systemPayload")).get("displayText")
            return _read_prompt(_texts(shown) or _texts(parts), uuid, line, context)
        case "assistant":
            context.step = uuid
            return _read_qwen_answer(as_list(parts), uuid, line, context)
        case "tool_result":
            return _read_qwen_result(as_list(parts), line, context)
        case _:
            return Skip.UNKNOWN_TYPE


def _read_qwen_answer(
    content: list[object], uuid: str, line: Mapping[str, object], context: FileContext
) -> Reading:
    text = "".join(_texts(content))
    calls = [as_object(as_object(value).get("functionCall")) for value in content]
    parts = [text_part(uuid, text)] if text else []
    parts += [
        call_part(f"{uuid}/{as_name(o.get('id')) or at}", as_name(o.get("name")), o.get("args"))
        for at, o in enumerate(calls)
        if o
    ]
    return _message(line, context, uuid, "assistant", *parts) if parts else Skip.NO_CONTENT


def _read_qwen_result(
    content: list[object], line: Mapping[str, object], context: FileContext
) -> Reading:
    shown = as_object(as_object(line.get("toolCallResult")).get("resultDisplay"))
    said = join_answers(
        (as_name(one.get("question")), answer)
        for one in map(as_object, as_list(shown.get("answers")))
        if isinstance(answer := one.get("answer"), str)
    )
    if said:
        native = f"answer:{as_name(line.get('uuid'))}"
        return _message(line, context, native, "user", text_part(native, said))
    parts = list[Part]()
    for value in content:
        call = as_name(as_object(as_object(value).get("functionResponse")).get("id"))
        texts, failed = _results([value])
        if call and texts:
            parts.append(result_part(f"{context.step}/{call}", texts, is_error=failed))
    return _message(line, context, "", "assistant", *parts) if parts else Skip.NO_CONTENT
