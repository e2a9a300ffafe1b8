"""One hook event as an agent sends it, read without trusting any of it.

What belongs here: the fields that noctuary uses, and what they are where they are missing or wrong.
What does not: what is done about an event (`handling`).

Shapes: Claude's `BaseHookInput` and its events (npm @anthropic-ai/claude-agent-sdk 0.3, sdk.d.ts);
Codex's `*.command.input.schema.json` (openai/codex, codex-rs/hooks/schema/generated). The fields
used here have the same names in both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

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
