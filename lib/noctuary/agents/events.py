"""Hook events as agents send them, and answers as agents read them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from noctuary.text.marks import visible

# One hook event as an agent sends it, read without trusting any of it.
#
# Shapes: Claude's `BaseHookInput` and its events (npm @anthropic-ai/claude-agent-sdk 0.3,
# sdk.d.ts); Codex's `*.command.input.schema.json` (openai/codex, codex-rs/hooks/schema/generated).
# The fields used here have the same names in both.


PROMPT = "UserPromptSubmit"
SESSION_START = "SessionStart"
PRE_COMPACT = "PreCompact"
POST_COMPACT = "PostCompact"
STOP = "Stop"
SESSION_END = "SessionEnd"

EVENTS = (PROMPT, SESSION_START, PRE_COMPACT, POST_COMPACT, STOP, SESSION_END)
"""The events that noctuary does something about; any other is answered with nothing."""

AGENTS = ("claude", "codex")

MAX_FIELD_CHARS = 4_096
"""Characters of a field besides the prompt: the longest path that Linux takes. A longer one is no
path and no id, and counts as missing."""


class HookEvent(NamedTuple):
    """What noctuary uses of an event; "" for what is missing or of another type.

    Attributes:
        name: One of `EVENTS`, or "".
        session_id: The agent's name of the conversation.
        transcript_path: Its transcript; Codex may have none.
        cwd: The folder that the agent works in.
        prompt: What was typed, or what a machine submitted in its place (`source`).
        source: Of a prompt: who wrote it; of a start: startup, resume, clear, compact or fork.
        trigger: Of a compaction: manual or auto.
        reason: Of an end of session.
        is_subagent: Whether the event comes from inside a subagent.
    """

    name: str
    session_id: str = ""
    transcript_path: str = ""
    cwd: str = ""
    prompt: str = ""
    source: str = ""
    trigger: str = ""
    reason: str = ""
    is_subagent: bool = False


def parse_event(value: object) -> HookEvent:
    """Return the event that a JSON value describes; one without a name where it describes none."""
    if not isinstance(value, dict):
        return HookEvent("")
    raw = cast("dict[str, Any]", value)
    name = raw.get("hook_event_name")
    if not isinstance(name, str) or name not in EVENTS:
        return HookEvent("")
    prompt = raw.get("prompt")
    return HookEvent(
        name,
        session_id=_text(raw, "session_id"),
        transcript_path=_text(raw, "transcript_path"),
        cwd=_text(raw, "cwd"),
        prompt=_whole(prompt) if isinstance(prompt, str) else "",
        source=_text(raw, "source"),
        trigger=_text(raw, "trigger"),
        reason=_text(raw, "reason"),
        is_subagent=raw.get("agent_id") not in (None, ""),
    )


def _text(raw: Mapping[str, Any], key: str) -> str:
    value = raw.get(key)
    if not isinstance(value, str) or len(value) > MAX_FIELD_CHARS or "\0" in value:
        return ""
    return _whole(value)


def _whole(text: str) -> str:
    """Return a text without lone surrogates: JSON can write them, no file or database takes them.

    Paths lose nothing: an agent that met bytes that are no UTF-8 has replaced them before.
    """
    return text.encode("utf-8", "replace").decode("utf-8")


# What an agent reads on stdout: one JSON object of its published shape, or nothing.
#
# There is no field here that could stop an agent: no `decision`, no `continue`.
#
# Shapes: Claude's `SyncHookJSONOutput` (sdk.d.ts of @anthropic-ai/claude-agent-sdk 0.3); Codex's
# `*.command.output.schema.json`, which allow no other field (`additionalProperties: false`).
# PreCompact of both knows no `hookSpecificOutput`; additional context at Stop would keep Claude's
# turn going, and Codex's schema does not have it.


TELLING = frozenset({PROMPT, SESSION_START})
"""Events whose answer may hold context for the model and a message for the user. All others are
answered with nothing: what PreCompact prints may become instructions of the compaction, and nobody
reads what SessionEnd prints."""

CONTEXT_TOKENS = {"claude": 10_000, "codex": 2_400}
"""Tokens of context that an agent takes whole, as estimated: Codex cuts above some 2,500, Claude
above 10,000 characters, which the block's own limit keeps. The settings' budgets are cut to it."""


def encode(event: str, context: str, message: str) -> dict[str, Any]:
    """Return the object to print; an empty one means printing nothing.

    One encoding serves both agents: it uses only what both schemas have. Characters that a
    terminal would obey are marks.

    Args:
        event: Name of the event.
        context: For the model; "" for none.
        message: For the user; "" for none.
    """
    if event not in TELLING:
        return {}
    answer: dict[str, Any] = {}
    if context:
        told = {"hookEventName": event, "additionalContext": visible(context)}
        answer["hookSpecificOutput"] = told
    if message:
        answer["systemMessage"] = visible(message)
    return answer


# Which prompts are worth a recall, and what is asked of the store for one.
#
# Standard library only.


MIN_SIGNS = 4
"""Letters and digits of the shortest prompt that is looked up; one of a script without spaces
between words counts twice. Lower looks up "ok" and "yes", higher leaves out short questions."""

MAX_QUERY_CHARS = 4_000
"""Characters of a query: the beginning and the end of a longer prompt, where people put what they
want. More costs time with every pasted log."""

MAX_PROMPT_CHARS = 200_000
"""Characters of a prompt that are looked at at all."""

MACHINE_SOURCES = frozenset({"system", "poll_event"})
"""Claude's names of prompts that no person wrote: messages of tasks and channels. Prompts of /loop
and of schedules were written by one, and are looked up."""

_COMMAND = re.compile(r"/[\w:.-]+(?:\s|\Z)")
_FIRST_WIDE = "\u2e80"


def query_of(prompt: str, source: str = "") -> str | None:
    """Return what to ask the store for a prompt; None where it is not worth asking.

    Args:
        prompt: As it was submitted.
        source: Who submitted it, as Claude names it; "" where that is not said.

    Returns:
        Up to `MAX_QUERY_CHARS` characters, or None for a machine's message, a slash command, and a
        prompt of fewer than `MIN_SIGNS` signs. Blocks that noctuary injected earlier are not asked.
    """
    # Here, as a compaction is journalled without what only prompts need.
    from noctuary.sources.injected import cut_blocks

    if source in MACHINE_SOURCES:
        return None
    text = cut_blocks(prompt[:MAX_PROMPT_CHARS]).text.strip()
    if _COMMAND.match(text) or _signs(text) < MIN_SIGNS:
        return None
    if len(text) <= MAX_QUERY_CHARS:
        return text
    half = (MAX_QUERY_CHARS - 1) // 2
    return f"{text[:half]}\n{text[-half:]}"


def _signs(text: str) -> int:
    found = 0
    for char in text:
        if char.isalnum():
            found += 2 if char >= _FIRST_WIDE else 1
            if found >= MIN_SIGNS:
                break
    return found
