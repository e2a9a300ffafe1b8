"""The published shapes of hook outputs, written down a second time to check ours against.

From the types of npm @anthropic-ai/claude-agent-sdk 0.3.329 (sdk.d.ts: `SyncHookJSONOutput` and the
`...HookSpecificOutput` types) and from openai/codex codex-rs/hooks/schema/generated
(`*.command.output.schema.json`, all `additionalProperties: false`). Written from these, not from
`noctuary.agents.hooks`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

AGENTS = ("claude", "codex")
EVENTS = ("UserPromptSubmit", "SessionStart", "PreCompact", "PostCompact", "Stop", "SessionEnd")

TEXT: tuple[type, ...] = (str,)
FLAG: tuple[type, ...] = (bool,)
TEXT_OR_NULL = (str, type(None))

_COMMON_CLAUDE: dict[str, tuple[type, ...]] = {
    "continue": FLAG, "suppressOutput": FLAG, "stopReason": TEXT, "decision": TEXT,
    "systemMessage": TEXT, "terminalSequence": TEXT, "reason": TEXT, "hookSpecificOutput": (dict,),
}  # fmt: skip
_COMMON_CODEX: dict[str, tuple[type, ...]] = {
    "continue": FLAG, "suppressOutput": FLAG,
    "stopReason": TEXT_OR_NULL, "systemMessage": TEXT_OR_NULL,
}  # fmt: skip
_DECIDING_CODEX = {**_COMMON_CODEX, "decision": TEXT_OR_NULL, "reason": TEXT_OR_NULL}

TOP: dict[str, dict[str, dict[str, tuple[type, ...]]]] = {
    "claude": dict.fromkeys(EVENTS, _COMMON_CLAUDE),
    "codex": {
        "UserPromptSubmit": {**_DECIDING_CODEX, "hookSpecificOutput": (dict,)},
        # Its schema allows no null for these, only their absence.
        "SessionStart": {
            "continue": FLAG, "suppressOutput": FLAG, "stopReason": TEXT, "systemMessage": TEXT,
            "hookSpecificOutput": (dict,),
        },
        "PreCompact": _COMMON_CODEX,
        "PostCompact": _COMMON_CODEX,
        "Stop": _DECIDING_CODEX,
        # No schema of it is published: nothing may be printed.
        "SessionEnd": {},
    },
}  # fmt: skip
"""Fields of the whole output, by agent and event."""

SPECIFIC: dict[str, dict[str, dict[str, tuple[type, ...]]]] = {
    "claude": {
        "UserPromptSubmit": {
            "additionalContext": TEXT, "sessionTitle": TEXT, "suppressOriginalPrompt": FLAG,
        },
        "SessionStart": {
            "additionalContext": TEXT, "initialUserMessage": TEXT, "sessionTitle": TEXT,
            "watchPaths": (list,), "reloadSkills": FLAG,
        },
        "Stop": {"additionalContext": TEXT},
    },
    "codex": {
        "UserPromptSubmit": {"additionalContext": TEXT_OR_NULL},
        "SessionStart": {"additionalContext": TEXT, "env": (dict,)},
    },
}  # fmt: skip
"""Fields of `hookSpecificOutput` besides `hookEventName`; an event that is not here has none."""

MAX_CONTEXT_CHARS = 8_000


def shape_faults(agent: str, event: str, output: object) -> list[str]:
    """Return what is wrong with the output of one event; empty for one that the agent takes.

    Beyond the schemas: nothing may stop an agent or change its turn, and the context stays below
    `MAX_CONTEXT_CHARS`.
    """
    if not isinstance(output, dict):
        return [f"no object: {type(output).__name__}"]
    found = cast("dict[str, Any]", output)
    faults = _fields(found, TOP[agent][event], "")
    specific = found.get("hookSpecificOutput")
    if isinstance(specific, dict):
        own = cast("dict[str, Any]", specific)
        known = SPECIFIC[agent].get(event)
        if known is None:
            faults.append(f"{event} has no hookSpecificOutput")
        else:
            faults += _fields(own, {**known, "hookEventName": TEXT}, "hookSpecificOutput.")
        if own.get("hookEventName") != event:
            faults.append(f"hookEventName is {own.get('hookEventName')!r}")
        if len(own.get("additionalContext") or "") >= MAX_CONTEXT_CHARS:
            faults.append("the context is too long")
    if "decision" in found or found.get("continue") is False or "stopReason" in found:
        faults.append("it stops the agent")
    if event == "Stop" and found.get("hookSpecificOutput"):
        faults.append("it keeps the turn going")
    return faults


def stdout_faults(agent: str, event: str | None, raw: bytes) -> list[str]:
    """Return what is wrong with what a hook printed.

    Args:
        agent: Who reads it.
        event: The event, None where stdin described none: nothing may be printed then.
        raw: Everything on stdout.
    """
    if not raw:
        return []
    if event not in EVENTS:
        return [f"something was printed for no event: {raw[:80]!r}"]
    try:
        output: object = json.loads(raw.decode("utf-8"))
    except ValueError as error:
        return [f"no JSON: {error}"]
    if output == {}:
        return ["an empty object: print nothing"]
    return shape_faults(agent, event, output)


def _fields(
    found: Mapping[str, Any], known: Mapping[str, tuple[type, ...]], where: str
) -> list[str]:
    return [
        f"{where}{name} is unknown or of type {type(value).__name__}"
        for name, value in found.items()
        if name not in known or type(value) not in known[name]
    ]
