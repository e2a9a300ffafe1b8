"""What an agent reads on stdout: one JSON object of its published shape, or nothing.

What belongs here: which event of which agent may carry what. What does not: what is said
(`handling`). There is no field here that could stop an agent: no `decision`, no `continue`.

Shapes: Claude's `SyncHookJSONOutput` (sdk.d.ts of @anthropic-ai/claude-agent-sdk 0.3); Codex's
`*.command.output.schema.json`, which allow no other field (`additionalProperties: false`).
PreCompact of both knows no `hookSpecificOutput`; additional context at Stop would keep Claude's
turn going, and Codex's schema does not have it.
"""

from __future__ import annotations

from typing import Any

from noctuary.agents.events import PROMPT, SESSION_START
from noctuary.text.visible import visible

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
