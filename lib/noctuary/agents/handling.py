"""One event in, one answer and exit code 0 out, whatever happens: what every hook event does.

What belongs here: decisions. What does not: files, processes and clocks (`outside`), the shape of
the answer (`encoders`).

    UserPromptSubmit   memories that answer the prompt and are not before the model yet
    SessionStart       after a compaction: what was injected before it, best first; else nothing
    PreCompact         one line in the journal, nothing else
    PostCompact        the same
    Stop               a line in the journal, and the transcript's new turns are kept
    SessionEnd         a line in the journal
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from noctuary.agents.encoders import CONTEXT_TOKENS, TELLING, encode
from noctuary.agents.events import (
    POST_COMPACT,
    PRE_COMPACT,
    PROMPT,
    SESSION_END,
    SESSION_START,
    STOP,
    HookEvent,
    parse_event,
)
from noctuary.agents.journal import JournalEntry
from noctuary.agents.prompts import MAX_PROMPT_CHARS, query_of
from noctuary.agents.sessions import hash_content
from noctuary.agents.world import Failure, HookWorld
from noctuary.injection.choosing import worth_injecting

if TYPE_CHECKING:
    from noctuary.settings.sections import HookSettings

BLOCKING_WARNINGS = frozenset({"no_snapshot", "store_unreadable", "snapshot_damaged"})
"""Warnings of a recall after which there was nothing to answer from."""

MAX_MESSAGE_CHARS = 400
"""Characters of a message for the user; paths in it may be long."""


class Reply(NamedTuple):
    """What handling an event came to.

    Attributes:
        context: For the model; "" for nothing.
        failure: What could not be done, or None.
        is_counted: Whether there was anything to do: a skipped prompt is no success that would end
            an outage.
    """

    context: str = ""
    failure: Failure | None = None
    is_counted: bool = True


SKIPPED = Reply(is_counted=False)


def handle(event: object, world: HookWorld) -> tuple[dict[str, Any], int]:
    """Return what to print for an event, {} for nothing, and the exit code, which is 0.

    Never raises an `Exception`, whatever the event is and whatever the world does.

    Args:
        event: The JSON value that the agent sent, of any type.
        world: The outside.
    """
    found = parse_event(event)
    handler = _HANDLERS.get(found.name)
    if handler is None:
        return {}, 0
    try:
        reply = handler(found, world)
    except Exception as error:
        # Whatever it is, the agent must go on; the counters and `noctuary doctor` say what it was.
        reply = Reply(failure=Failure("internal", f"{type(error).__name__} in the hook"))
    message = _message(found.name, reply, world)
    return encode(found.name, reply.context, message), 0


def _message(event: str, reply: Reply, world: HookWorld) -> str:
    """Count the call; return what the user is told of its failure, "" for nothing."""
    if not reply.is_counted:
        return ""
    try:
        tell = world.count(event, reply.failure)
    except Exception:
        return ""
    if not tell or reply.failure is None or event not in TELLING:
        return ""
    said = " ".join(reply.failure.message.split())[:MAX_MESSAGE_CHARS]
    return f"noctuary could not recall: {said}. This is said once; `noctuary doctor` says more."


def _on_prompt(event: HookEvent, world: HookWorld) -> Reply:
    """Return the memories that answer a prompt and that the model has not before it."""
    query = query_of(event.prompt, event.source)
    if query is None:
        return SKIPPED
    settings = world.settings()
    if isinstance(settings, Failure):
        return Reply(failure=settings)  # whose memories, and of which project, is not known
    wing = _wing(event, settings, world)
    if (event.is_subagent and not settings.in_subagents) or wing == "" or settings.memories == 0:
        return SKIPPED
    result = world.recall(
        query,
        k=settings.memories,
        user=settings.user or None,
        wing=wing,
        session_id=event.session_id or None,
    )
    failure = result if isinstance(result, Failure) else _failure_of(result)
    if failure is not None or isinstance(result, Failure):
        return Reply(failure=failure)
    if not settings.abstain:
        result = {**result, "answerability": None}  # without a judgement nothing is left out
    return Reply(_inject_new(event, settings, world, result))


def _inject_new(
    event: HookEvent, settings: HookSettings, world: HookWorld, result: Mapping[str, Any]
) -> str:
    """Return the block of what is new to the session, and remember it."""
    state = world.read_session(event.session_id)
    new = [
        memory
        for memory in worth_injecting(result)
        if not state.knows(memory)
        # What was said in this session is before the model, until it is compacted.
        and (state.compactions or not _is_of(memory, event.session_id))
    ]
    shown = {**result, "memories": new, "query": event.prompt[:MAX_PROMPT_CHARS]}
    block = world.inject(shown, max_tokens=_budget(settings.budget_tokens, world.agent))
    if block.memories:
        world.write_session(event.session_id, state.with_injected(new[: block.memories]))
    return block.text


def _on_session_start(event: HookEvent, world: HookWorld) -> Reply:
    """Return what a compaction took from the model; prepare for the prompts to come."""
    if event.is_subagent:
        return SKIPPED
    if event.source != "compact":
        world.prepare()
        # A session that is resumed still has what was injected into it; one that begins has asked
        # nothing yet, and memories that answer nothing only fill its context.
        return Reply()
    state = world.read_session(event.session_id).compacted()
    if not state.injected:
        world.write_session(event.session_id, state)
        return Reply()
    settings = world.settings()
    if isinstance(settings, Failure):
        return Reply(failure=settings)
    best = state.best_first()
    result = world.fetch([i.memory_id for i in best], user=settings.user or None)
    if isinstance(result, Failure):
        world.write_session(event.session_id, state)
        return Reply(failure=result)
    scores = {(i.memory_id, i.text_hash): i.score for i in best}
    found = {_key(memory): memory for memory in _memories(result)}
    restored = [
        {**found[key], "final_score": score} for key, score in scores.items() if key in found
    ]
    budget = _budget(settings.restore_tokens, world.agent)
    block = world.inject({**result, "memories": restored, "query": ""}, max_tokens=budget)
    world.write_session(event.session_id, state.with_injected(restored[: block.memories]))
    return Reply(block.text)


def _on_compaction(event: HookEvent, world: HookWorld) -> Reply:
    return Reply(failure=_note(event, world, event.trigger))


def _on_end(event: HookEvent, world: HookWorld) -> Reply:
    return Reply(failure=_note(event, world, event.reason))


def _on_stop(event: HookEvent, world: HookWorld) -> Reply:
    failure = _note(event, world, "")
    settings = world.settings()
    if isinstance(settings, Failure):
        return Reply(failure=settings)
    if settings.capture and event.transcript_path:
        failure = world.capture(event.transcript_path) or failure
    return Reply(failure=failure)


def _note(event: HookEvent, world: HookWorld, detail: str) -> Failure | None:
    size = world.size_bytes(event.transcript_path) if event.transcript_path else None
    return world.append(
        JournalEntry(
            at_us=world.now_us(),
            agent=world.agent,
            event=event.name,
            session_id=event.session_id,
            transcript_path=event.transcript_path,
            offset_bytes=size,
            cwd=event.cwd,
            detail=detail,
        )
    )


def _wing(event: HookEvent, settings: HookSettings, world: HookWorld) -> str | None:
    """Return the wing to ask, None for all, "" where there is none: then nothing is asked."""
    if settings.scope == "store":
        return None
    return world.project_of(event.cwd) if event.cwd else ""


def _failure_of(result: Mapping[str, Any]) -> Failure | None:
    """Return the warning after which a recall had nothing to answer from, or None."""
    for warning in cast("list[Mapping[str, Any]]", result.get("warnings") or ()):
        if warning.get("code") in BLOCKING_WARNINGS:
            return Failure(str(warning["code"]), str(warning.get("message", "")))
    return None


def _memories(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(cast("list[Mapping[str, Any]]", result.get("memories") or ()))


def _is_of(memory: Mapping[str, Any], session_id: str) -> bool:
    return bool(session_id) and memory.get("session_id") == session_id


def _key(memory: Mapping[str, Any]) -> tuple[str, str]:
    return str(memory.get("id")), hash_content(memory)


def _budget(tokens: int, agent: str) -> int:
    return min(tokens, CONTEXT_TOKENS.get(agent, tokens))


_HANDLERS: Mapping[str, Callable[[HookEvent, HookWorld], Reply]] = {
    PROMPT: _on_prompt,
    SESSION_START: _on_session_start,
    PRE_COMPACT: _on_compaction,
    POST_COMPACT: _on_compaction,
    STOP: _on_stop,
    SESSION_END: _on_end,
}
