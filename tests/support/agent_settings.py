"""Agents' settings: random ones, and checks of the hooks in them against the published types.

The checks are written from the types, not from noctuary's code: Claude Code's `Settings.hooks`
(`@anthropic-ai/claude-agent-sdk` 0.3.329, sdk.d.ts) and Codex's `MatcherGroup` and
`HookHandlerConfig` (codex-rs/config/src/hook_config.rs). Unknown fields are faults, although both
agents pass them over: nothing of ours should be unknown to them.
"""

from __future__ import annotations

import json
import re
from typing import Any, cast

from hypothesis import strategies as st

_CLAUDE_FIELDS: dict[str, Any] = {
    "type": str, "command": str, "args": list, "if": str, "shell": str, "timeout": (int, float),
    "onFailure": str, "statusMessage": str, "once": bool, "async": bool, "asyncRewake": bool,
}  # fmt: skip
_CODEX_FIELDS: dict[str, Any] = {
    "type": str, "command": str, "timeout": int, "async": bool, "statusMessage": str,
}  # fmt: skip
_CLAUDE_EVENTS = {
    "PreToolUse", "PostToolUse", "UserPromptSubmit", "SessionStart", "SessionEnd", "Stop",
    "SubagentStop", "PreCompact", "PostCompact", "Notification",
}  # fmt: skip
_CODEX_EVENTS = {
    "PreToolUse", "PermissionRequest", "PostToolUse", "PreCompact", "PostCompact", "SessionStart",
    "SessionEnd", "UserPromptSubmit", "SubagentStart", "SubagentStop", "Stop", "Interrupt",
}  # fmt: skip
_START_SOURCES = {"startup", "resume", "clear", "compact", "fork"}


def hook_faults(agent: str, hooks: dict[str, Any]) -> list[str]:
    """Return what the agent's published types do not allow in the value of "hooks"."""
    events = _CLAUDE_EVENTS if agent == "claude" else _CODEX_EVENTS
    fields = _CLAUDE_FIELDS if agent == "claude" else _CODEX_FIELDS
    faults = [f"no event {event}" for event in hooks if event not in events]
    for event, groups in hooks.items():
        if not isinstance(groups, list):
            faults.append(f"{event} is no array")
            continue
        for group in cast("list[dict[str, Any]]", groups):
            faults += _group_faults(agent, event, group, fields)
    return faults


def _group_faults(agent: str, event: str, group: dict[str, Any], fields: Any) -> list[str]:
    faults = [f"{event}: unknown {key}" for key in group if key not in {"matcher", "hooks"}]
    matcher = group.get("matcher")
    if matcher is not None:
        # Both agents match plain names exactly; "|" separates them.
        if event != "SessionStart" or not re.fullmatch(r"[\w|]+", matcher):
            faults.append(f"{event}: matcher {matcher!r}")
        elif not set(matcher.split("|")) <= _START_SOURCES:
            faults.append(f"{event}: matcher {matcher!r} names no start")
    for entry in group["hooks"]:
        faults += [f"{event}: unknown {key}" for key in entry if key not in fields]
        faults += [
            f"{event}: {key} is {value!r}"
            for key, value in entry.items()
            if key in fields and not isinstance(value, fields[key])
        ]
        if entry.get("type") != "command" or not str(entry.get("command", "")).strip():
            faults.append(f"{event}: no command")
        if not all(isinstance(word, str) for word in entry.get("args", [])):
            faults.append(f"{event}: args are not all text")
        timeout: Any = entry.get("timeout", 1)
        if isinstance(timeout, bool) or (isinstance(timeout, int | float) and timeout <= 0):
            faults.append(f"{event}: timeout {timeout!r}")
        if agent == "codex" and entry.get("async"):
            faults.append(f"{event}: older versions of Codex skip async hooks")
    return faults


def plugin_faults(files: dict[str, str]) -> list[str]:
    """Return what `claude plugin validate` and Codex's loader would refuse in a plugin folder."""
    values: dict[str, Any] = {path: json.loads(text) for path, text in files.items()}
    faults: list[str] = []
    claude = values[".claude-plugin/marketplace.json"]
    codex = values[".agents/plugins/marketplace.json"]
    for market in (claude, codex):
        faults += [] if re.fullmatch(r"[a-z0-9-]+", market["name"]) else ["marketplace name"]
        faults += [] if market["plugins"] else ["no plugins"]
    faults += [] if claude["owner"]["name"] else ["no owner"]
    sources = [p["source"] for p in claude["plugins"]]
    sources += [p["source"]["path"] for p in codex["plugins"] if p["source"]["source"] == "local"]
    for source in sources:
        # Codex: below the marketplace's root, never the root itself, no "..".
        if not re.fullmatch(r"\./[\w-]+(/[\w-]+)*", source):
            faults.append(f"source {source!r}")
            continue
        faults += _manifest_faults(values, source.removeprefix("./"))
    return faults


def _manifest_faults(values: dict[str, Any], root: str) -> list[str]:
    faults: list[str] = []
    for agent in ("claude", "codex"):
        manifest = values[f"{root}/.{agent}-plugin/plugin.json"]
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", manifest["name"]):
            faults.append(f"{agent}: name is not kebab-case")
        if not re.fullmatch(r"\d+\.\d+\.\d+\S*", manifest["version"]):
            faults.append(f"{agent}: version is not semantic")
        hooks = manifest.get("hooks", "./hooks/hooks.json")
        if not hooks.startswith("./") or f"{root}/{hooks[2:]}" not in values:
            faults.append(f"{agent}: no hooks at {hooks}")
        else:
            found = values[f"{root}/{hooks[2:]}"]
            faults += [f"unknown {key}" for key in found if key not in {"description", "hooks"}]
            faults += [f"{agent}: {fault}" for fault in hook_faults(agent, found["hooks"])]
    servers = values[f"{root}/.mcp.json"]["mcpServers"]
    for name, server in servers.items():
        if set(server) != {"command", "args"} or not all(
            isinstance(a, str) for a in server["args"]
        ):
            faults.append(f"server {name}")
    return faults


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=12,
)
"""Any JSON value, small."""

_entries = st.fixed_dictionaries(
    {"type": st.sampled_from(["command", "prompt", "http"])},
    optional={
        "command": st.sampled_from(
            ["say done", "noctuary recall x", "echo noctuary hook", "/usr/bin/other hook", "a 'b"]
        ),
        "args": st.lists(st.text(max_size=3), max_size=2),
        "timeout": st.integers(1, 600),
    },
)
_groups = (
    st.fixed_dictionaries(
        {"hooks": st.lists(_entries, max_size=2)}, optional={"matcher": st.text(max_size=5)}
    )
    | json_values
)
_events = st.dictionaries(
    st.sampled_from(["Stop", "SessionStart", "UserPromptSubmit", "PreToolUse", "Unknown"]),
    st.lists(_groups, max_size=3),
    max_size=4,
)


def _settings(rest: dict[str, Any], hooks: dict[str, Any] | None) -> dict[str, Any]:
    others = {key: value for key, value in rest.items() if key != "hooks"}
    return others if hooks is None else {**others, "hooks": hooks}


settings_values = st.builds(
    _settings, st.dictionaries(st.text(max_size=5), json_values, max_size=4), st.none() | _events
)
"""Settings that an agent's user may have, with foreign hooks or none."""

json_layouts = st.sampled_from(
    [
        {"indent": 2},
        {"indent": 4},
        {"indent": "\t"},
        {"indent": None},
        {"separators": (",", ":")},
        {"indent": 2, "ensure_ascii": False},
    ]
)
"""How somebody wrote the file: arguments of json.dumps."""
