"""Read lines of Claude Code transcripts.

The format is internal and changes: no field is required, and unknown types are counted.
docs/transcripts.md lists the tested versions.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping

from noctuary.sources.injected import is_machine_made
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
    result_part,
    squeeze,
    text_part,
    withdraw,
)

CLAUDE = "claude"
# Bookkeeping types of the inspected versions.
_TYPES = frozenset(
    {
        "agent-color", "agent-name", "agent-setting", "ai-title", "api-request",
        "api-request-blob", "api-request-resumed", "api-request-shape",
        "artifact-autoreact-ledger", "artifact-comment-monitor", "atis-latch",
        "attribution-snapshot", "bridge-session", "content-replacement", "continued-in",
        "cost-state", "custom-title", "data-flow-incomplete", "data-flow-records",
        "derived-from", "dev-mods", "ended-by-model", "file-history-delta",
        "file-history-snapshot", "fork-context-ref", "frame-link", "history-suppression",
        "host-row", "hybrid-organization", "isolation-latch", "last-prompt", "memory-mode",
        "mode", "observer-ref", "permission-mode", "pr-link", "progress", "relocated",
        "repl-mode", "result", "resume-head-vouch", "session-owner", "summary", "system", "tag",
        "tools-used", "worktree-state",
    }
)  # fmt: skip


def read_claude(line: Mapping[str, object], context: FileContext) -> list[Reading]:
    """Return the readings of a line; results join the turn of their call."""
    if not context.project and (folder := as_name(line.get("cwd"))):
        context.enter(folder)
    context.version = context.version or as_name(line.get("version"))
    message = as_object(line.get("message"))
    match line:
        case {"type": "queue-operation"}:
            return [_follow_queue(line, context)]
        case {"type": "attachment"}:
            return [_read_attachment(line, as_object(line.get("attachment")), context)]
        case {"type": "system", "subtype": "compact_boundary"}:
            return [Skip.COMPACT_BOUNDARY]
        case {"type": "user" | "assistant", "isCompactSummary": True}:
            return [Skip.COMPACT_SUMMARY]
        case {"type": "user" | "assistant", "isMeta": True} | {
            "type": "user" | "assistant",
            "isVisibleInTranscriptOnly": True,
        }:
            return [Skip.META]
        case {"type": "user" | "assistant", "message": {"model": "<synthetic>"}} | {
            "type": "user" | "assistant",
            "isApiErrorMessage": True,
        }:
            return [Skip.SYNTHETIC]
        case {"type": "assistant"}:
            return _read_answer(line, message, context)
        case {"type": "user"}:
            return _read_message(line, message, context)
        case _:
            return [Skip.OTHER_TYPE if as_name(line.get("type")) in _TYPES else Skip.UNKNOWN_TYPE]


def finish_claude(context: FileContext, *, is_idle: bool) -> list[Reading]:
    """Return queued prompts that no line repeats; none while the file still grows."""
    return _release(context, ("taken", "queued")) if is_idle else []


def _message(
    line: Mapping[str, object], context: FileContext, native: str, role: Role, *parts: Part
) -> Message:
    """Return a message of a line's session, or of its subagent."""
    session, agent_id = as_name(line.get("sessionId")) or context.session, line.get("agentId")
    context.session = context.session or session
    # The lead's lines name the team too, but no agent: they are the user's own session.
    is_member = isinstance(line.get("teamName"), str) and isinstance(line.get("agentName"), str)
    named = isinstance(agent_id, str) or is_member
    is_sidechain = named or line.get("isSidechain") is True
    if is_sidechain:
        session = f"{session}/{as_name(agent_id) or 'sidechain'}"
    said = context.message(CLAUDE, native, role, parse_moment(line.get("timestamp")), *parts)
    return said._replace(session=session, is_sidechain=is_sidechain)


def _uuid(line: Mapping[str, object]) -> str:
    """Return the line's id; in a forked session, the id of the line that it copies."""
    origin = as_object(line.get("forkedFrom")).get("messageUuid")
    said = [line.get("sessionId"), line.get("timestamp"), line.get("message")]
    return as_name(origin) or as_name(line.get("uuid")) or _digest(said)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]


def _is_human(origin: object, text: str) -> bool:
    """Return whether the user wrote a prompt; early versions do not record its origin."""
    return as_object(origin).get("kind") in (None, "human") and not is_machine_made(text)


# Answers: texts and tool calls.


def _read_answer(
    line: Mapping[str, object], message: Mapping[str, object], context: FileContext
) -> list[Reading]:
    found = _release(context, ("taken",), parse_moment(line.get("timestamp")))
    uuid, parts = _uuid(line), list[Part]()
    for index, block in enumerate(_blocks(message)):
        match block:
            case {"type": "text", "text": str(text)}:
                parts.append(text_part(uuid, text, index))
            case {"type": "tool_use"} if call := as_name(block.get("id")):
                name = as_name(block.get("name"))
                if name == _QUESTION:
                    context.ask(call, "")
                parts.append(call_part(call, name, block.get("input")))
            case _:
                pass
    if not parts:
        return [*found, Skip.NO_CONTENT]
    native = as_name(message.get("id")) or as_name(line.get("requestId")) or uuid
    return [*found, _message(line, context, native, "assistant", *parts)]


def _blocks(message: Mapping[str, object]) -> list[dict[str, object]]:
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else as_list(content)
    return [as_object(block) for block in blocks]


# Messages of role user: prompts, and results of tools, which may hold the user's feedback.


def _read_message(
    line: Mapping[str, object], message: Mapping[str, object], context: FileContext
) -> list[Reading]:
    uuid, said, found = _uuid(line), list[Part](), list[Reading]()
    for index, block in enumerate(_blocks(message)):
        match block:
            case {"type": "text", "text": str(text)}:
                said.append(text_part(uuid, _without_arguments(text), index))
            case {"type": "tool_result"} if call := as_name(block.get("tool_use_id")):
                found += _read_result(line, block, call, context)
            case _:
                pass
    text = "\n".join(part.texts[0] for part in said)
    if said and not _is_human(line.get("origin"), text):
        found += [Skip.META, *withdraw(CLAUDE, uuid)]
    elif said and not _was_queued(text, line, context):
        found.append(_message(line, context, uuid, "user", *said))
    return found or [Skip.NO_CONTENT]


# Commands of Claude Code itself: their arguments are for the tool. The words after a command that
# goes to the model are the user's.
_OWN_COMMANDS = frozenset(
    {
        "access", "add-dir", "advisor", "agents", "allowed-tools", "artifacts", "autocompact",
        "background", "branch", "brief", "btw", "bug", "cd", "clear", "color", "compact", "config",
        "context", "copy", "cost", "daemon", "desktop", "diff", "doctor", "effort", "exit",
        "export", "extra-usage", "fast", "feedback", "focus", "fork", "goal", "heapdump", "help",
        "hooks", "ide", "import", "install", "install-github-app", "install-slack-app",
        "keybindings", "list-agents", "login", "logout", "marketplace", "mcp", "memory",
        "migrate-installer", "mobile", "model", "output-style", "passes", "pause-memory",
        "permissions", "plan", "plugin", "plugins", "privacy-settings", "project", "quit", "radio",
        "rate-limit-options", "recap", "release-notes", "reload-plugins", "reload-skills",
        "remote-control", "remote-env", "rename", "reset", "restart", "resume", "rewind",
        "sandbox", "scroll-speed", "session", "settings", "skill-doctor", "skills", "stats",
        "status", "statusline", "stickers", "stop", "subtask", "tag", "tasks", "teleport",
        "terminal-setup", "theme", "todos", "tui", "upgrade", "usage", "usage-credits", "version",
        "vim", "voice", "web-setup", "workflows",
    }
)  # fmt: skip
_COMMAND = re.compile(r"<command-name>\s*/?([\w.:-]+)\s*</command-name>")
_COMMAND_ARGUMENTS = re.compile(r"<command-args>.*?</command-args>", re.DOTALL)
_TYPED_COMMAND = re.compile(r"\s*[/!]")


def _without_arguments(text: str) -> str:
    """Return a text without the arguments of Claude Code's own commands."""
    if "<command-name>" in text:
        command = _COMMAND.search(text)
        if command is not None and command[1] in _OWN_COMMANDS:
            return _COMMAND_ARGUMENTS.sub("", text)
    return text


# The queue: prompts typed while the agent works. They appear again as a user line, as an
# attachment or, in some versions, not at all.

_SOON_US = 60_000_000  # a user line this soon after an attachment of its text is the same prompt


def _follow_queue(line: Mapping[str, object], context: FileContext) -> Reading:
    operation, text = line.get("operation"), "\n".join(as_texts(line.get("content")))
    queued = [one for one in context.waiting if one.role == "queued"]
    named = [one for one in queued if not text or squeeze(one.text) == squeeze(text)]
    match operation:
        case "enqueue" if is_machine_made(text):
            return Skip.META
        case "enqueue" if text.strip() and not _TYPED_COMMAND.match(text):
            stamp = as_name(line.get("timestamp"))
            native = _digest([as_name(line.get("sessionId")), stamp, text])
            context.wait("queued", text, stamp, native)
        case "popAll":  # back in the input box
            context.waiting = [one for one in context.waiting if one.role != "queued"]
        case "dequeue" | "remove" if named:
            place, is_taken = context.waiting.index(named[0]), line.get("reason") in _TAKEN
            kept = [named[0]._replace(role="taken")] if is_taken else []
            context.waiting[place : place + 1] = kept
        case _:
            pass
    return Skip.OTHER_TYPE


_TAKEN = (None, "absorbed_mid_turn")


def _read_attachment(
    line: Mapping[str, object], attachment: Mapping[str, object], context: FileContext
) -> Reading:
    is_prompt = attachment.get("type") == "queued_command"
    if not is_prompt or attachment.get("commandMode") not in (None, "prompt"):
        return Skip.OTHER_TYPE
    texts = as_texts(attachment.get("prompt"))
    text, uuid = "\n".join(texts), _uuid(line)
    if attachment.get("isMeta") is True or not _is_human(attachment.get("origin"), text):
        return Skip.META
    if not text.strip() or _was_queued(text, line, context):
        return Skip.NO_CONTENT
    context.wait("user", text, as_name(line.get("timestamp")), uuid, is_read=True)
    return _message(line, context, uuid, "user", Part(f"{uuid}:0", "text", "", texts))


def _was_queued(text: str, line: Mapping[str, object], context: FileContext) -> bool:
    """Return whether a prompt was read in its other form; otherwise stop waiting for it."""
    wanted, at_us = squeeze(text), parse_moment(line.get("timestamp"))

    def is_soon(one: Waiting) -> bool:
        then_us = parse_moment(one.stamp)
        return at_us is None or then_us is None or abs(at_us - then_us) <= _SOON_US

    same = [one for one in context.waiting if wanted and squeeze(one.text) == wanted]
    unread = [one for one in same if not one.is_read]
    known = next(iter(unread or filter(is_soon, same)), None)
    if known is not None:
        context.waiting.remove(known)
    return known is not None and known.is_read


def _release(
    context: FileContext, roles: tuple[str, ...], at_us: int | None = None
) -> list[Reading]:
    """Return prompts taken from the queue by a moment and written in no other line."""

    def is_due(one: Waiting) -> bool:
        # A fork repeats its parent's lines after its own first prompt.
        return one.role in roles and (at_us is None or (parse_moment(one.stamp) or 0) <= at_us)

    return [
        _message(
            {"timestamp": one.stamp}, context, one.native, "user", text_part(one.native, one.text)
        )
        for one in context.release(is_due, role="user")
    ]


# Results of tools. The user's reason for a rejection, or answer to a question, is a prompt.

_QUESTION = "AskUserQuestion"
_REJECTED = re.compile(
    r"\s*(?:The user doesn't want to proceed with this tool use|Permission for this tool use was"
    r" denied|The user doesn't want to take this action)\b"
)
_REASON = re.compile(r"\bthe user said:[ \t]*\n?(.*)\Z", re.DOTALL | re.IGNORECASE)
_NOTE = re.compile(r"\n+Note: The user's next message may contain a correction\b.*\Z", re.DOTALL)
_ANSWERED = re.compile(
    r"\s*(?:User has answered your questions?|Your questions? ha(?:ve|s) been answered"
    r"|The user answered):\s*(.*)\Z",
    re.DOTALL,
)
_PAIR = re.compile(r'"((?:[^"\\]|\\.)*)"="((?:[^"\\]|\\.)*)"')
_ENDINGS = re.compile(
    r"\.?\s*(?:You can now continue with (?:the user's|these) answers in mind\."
    r"|Read the answers carefully\b.*)\s*\Z",
    re.DOTALL,
)


def _read_result(
    line: Mapping[str, object], block: Mapping[str, object], call: str, context: FileContext
) -> Iterator[Message]:
    texts, failed = as_texts(block.get("content")), block.get("is_error") is True
    whole, said = "\n".join(texts), ""
    is_question = context.asked.pop(call, None) is not None
    if failed and _REJECTED.match(whole):
        reason = _REASON.search(whole)
        said = _NOTE.sub("", reason[1]).strip() if reason else ""
        texts = ("rejected by the user",)
    elif is_question or _ANSWERED.match(whole):
        said = _answer(as_object(line.get("toolUseResult")), _ANSWERED.match(whole))
        texts = () if said else texts
    else:
        texts = tuple(map(_without_agent, texts))
    if texts:
        yield _message(line, context, "", "user", result_part(call, texts, is_error=failed))
    if said:
        native = f"answer:{call}"
        yield _message(line, context, native, "user", text_part(native, said))


def _answer(result: Mapping[str, object], told: re.Match[str] | None) -> str:
    """Return the user's answers, each after its question; "" if there are none."""
    notes, pairs = as_object(result.get("annotations")), list[tuple[str, str]]()
    for question, value in as_object(result.get("answers")).items():
        answer = ", ".join(as_texts(value) or map(str, as_list(value))).strip()
        note = as_object(notes.get(question)).get("notes")
        said = [x for x in (answer, note) if isinstance(x, str) and x.strip()]
        pairs.append((question, "; ".join(said)))
    if told is None or any(answer for _, answer in pairs):
        return join_answers(pairs)
    found = _PAIR.findall(told[1])
    return "\n".join(f"[{q}] {a}" for q, a in found) or _ENDINGS.sub("", told[1]).strip()


# Wrapper of the report in a subagent's result.
_HAND_BACK = re.compile(r"\A\s*\[Subagent hand-back\][^\n]*\n")
_LAUNCHED = re.compile(
    r"\s*(?:Async agent launched successfully|Command running in background with ID:)"
)
_AGENT_ID = re.compile(r"(?:\A|\n)\s*agentId: [\w-]+[ \t]*(?:\(|\n|\Z)")
_USAGE = re.compile(r"\s*<usage>.*?</usage>\s*\Z", re.DOTALL)
_USED_TOOLS = re.compile(r"\s*<tools-used-before-summary>[^<]*</tools-used-before-summary>\s*")


def _without_agent(text: str) -> str:
    """Return a tool's result without Claude Code's wrapper of a subagent's report."""
    if _LAUNCHED.match(text):
        return ""
    if "<usage>" in text:
        text = _USAGE.sub("", text)
    if "agentId: " in text and (found := [*_AGENT_ID.finditer(text)]):
        text = text[: found[-1].start()]
    return _HAND_BACK.sub("", _USED_TOOLS.sub("", text))
