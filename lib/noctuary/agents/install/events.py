"""Which events noctuary's hooks are for: one table, and its entries in each agent's form.

What belongs here: the table and the forms. What does not: where entries go (`settings_places`), how
they get there (`merging`), what runs (`program`).
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from noctuary.agents.events import (
    AGENTS,
    POST_COMPACT,
    PRE_COMPACT,
    PROMPT,
    SESSION_END,
    SESSION_START,
    STOP,
)
from noctuary.values import dataclass

CLAUDE, CODEX = AGENTS


@dataclass(frozen=True, slots=True)
class HookedEvent:
    """One event of the agents that runs `noctuary hook`.

    Attributes:
        name: The event, the same with both agents.
        timeout_s: Whole seconds after which the agent kills the hook, > 0. The hook ends itself
            long before (noctuary.agents.process): this is for a process that cannot start.
        matcher: Which kinds of the event, separated by "|"; None means all, or that the agent
            knows no kinds.
        in_background: The agent need not wait, where it can do without.
    """

    name: str
    timeout_s: int
    matcher: str | None = None
    in_background: bool = False


EVENTS = (
    # Agents kill a prompt's hook after 30 s at the latest and drop what it said without a word.
    HookedEvent(PROMPT, timeout_s=10),
    HookedEvent(SESSION_START, timeout_s=10, matcher="startup|resume|clear|compact"),
    HookedEvent(PRE_COMPACT, timeout_s=5),
    HookedEvent(POST_COMPACT, timeout_s=5),
    # Reads the transcript; a first time may find megabytes.
    HookedEvent(STOP, timeout_s=30, in_background=True),
    # All of these hooks share 1.5 s with Claude and have 3 s at most with Codex: whole seconds.
    HookedEvent(SESSION_END, timeout_s=1),
)


def hook_groups(
    agent: str, program: Sequence[str], store: str | None = None
) -> dict[str, dict[str, Any]]:
    """Return the matcher group of every event as the agent's settings hold it.

    Claude gets the exec form (`command` and `args`): no shell reads the path. Codex knows a shell
    command only; it is quoted. Codex in the background would be skipped by its older versions, so
    its hook detaches by itself.

    Args:
        agent: One of `noctuary.agents.events.AGENTS`.
        program: The words that start noctuary (`program.find_program`), at least one.
        store: Passed on as --store; None lets the hook find the store.

    Returns:
        By event, in the table's order: {"matcher"?: ..., "hooks": [entry]}.

    Raises:
        ValueError: The agent is unknown or the program is empty.
    """
    if agent not in AGENTS or not program:
        raise ValueError(f"agent {agent!r} and program {program!r}: want one of {AGENTS}, words")
    words = [*program, "hook", "--agent", agent, *(["--store", store] if store else [])]
    return {
        event.name: {
            **({"matcher": event.matcher} if event.matcher else {}),
            "hooks": [_claude(event, words) if agent == CLAUDE else _codex(event, words)],
        }
        for event in EVENTS
    }


def _claude(event: HookedEvent, words: list[str]) -> dict[str, Any]:
    entry = {
        "type": "command", "command": words[0], "args": words[1:], "timeout": event.timeout_s,
    }  # fmt: skip
    return {**entry, "async": True} if event.in_background else entry


def _codex(event: HookedEvent, words: list[str]) -> dict[str, Any]:
    return {"type": "command", "command": shlex.join(words), "timeout": event.timeout_s}
