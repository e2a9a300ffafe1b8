"""`assemble`: the context of one prompt, for agents that build their prompts themselves.

What belongs here: arguments, what is written about an answer. What does not: the assembly
(`assembling`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from noctuary.authored.documents import Authored, load_documents, require_hard_fits
from noctuary.context.assembling import Assembled, assemble_from, turn_id
from noctuary.context.counting import TokenCounter
from noctuary.context.profile import ContextProfile, profile_named
from noctuary.context.rendering import node_piece
from noctuary.context.store_search import open_search
from noctuary.context.values import Context, Turn
from noctuary.injection.injecting import wordings_of
from noctuary.injection.record import append_injection
from noctuary.recall.asking import check_arguments
from noctuary.recall.current_settings import current_settings
from noctuary.recall.engine import Recaller
from noctuary.recall.result import RecallWarning
from noctuary.recall.scope import Scope
from noctuary.usage.access_log import append_retrievals

_TARGETS_SHOWN = 3
"""Hop targets that a warning names."""

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1

Documents = Sequence[str | os.PathLike[str]] | Authored


def assemble(
    query: str,
    budget_tokens: int,
    *,
    session: Sequence[Turn] = (),
    documents: Documents = (),
    profile: str | ContextProfile = "default",
    store: str | Path | None = None,
    user: str | None = None,
    wing: str | None = None,
    as_of: datetime | None = None,
    deadline_ms: float | None = None,
    dry_run: bool = False,
) -> Context:
    """Return what goes into a prompt, within a token budget: rules, last turns, what is relevant.

    Hard nodes of the documents and the last turns are always whole. The rest is filled in order:
    soft nodes, more turns, then what the query finds among the documents' other nodes, earlier
    turns and the memories of the store, by one score.

    Args:
        query: Any text.
        budget_tokens: Tokens of the whole text, tags included, >= 0.
        session: The turns so far, oldest first.
        documents: Markdown files for the agent, in order, or what `load_documents` returned.
        profile: "default", "reference" (libravdb's constants) or a `ContextProfile`.
        store: As in `noctuary.recall`.
        user: Whose memories; those of other named users are never there.
        wing: Only memories of this wing.
        as_of: Only memories that existed at this moment, and ages as of it; naive times are UTC.
        deadline_ms: After this much wall time nothing more is looked up.
        dry_run: Write nothing: neither the access log nor the record of injections.

    Returns:
        Always a context: a missing or damaged store, no encoder and a passed deadline are warnings
        in it. Where hard nodes and the last turns exceed the budget, `degraded` says so and they
        are all there is.

    Raises:
        ValueError: For arguments that nothing could be assembled from, listing every fault.
        AuthoredError: A document that was given as a path cannot be read, or its hard nodes exceed
            the profile's `hard_fraction` of the budget. Documents that were loaded before make a
            degraded context in the latter case.
    """
    scope = Scope(wing=wing, user=user, as_of=as_of)
    _check(query, budget_tokens, session, documents, scope, deadline_ms)
    constants = profile_named(profile)
    opened = open_search(store, scope, deadline_ms)
    search = opened.search
    if isinstance(documents, Authored):
        authored = documents
    else:
        authored = load_documents(documents)
        if constants.hard_fraction > 0:
            costs = _costs(authored, search.counter)
            reserve = constants.hard_fraction * budget_tokens
            require_hard_fits(authored, costs.__getitem__, reserve)
    assembled = assemble_from(query, budget_tokens, session, authored, constants, search)
    context, recaller = assembled.context, opened.recaller
    warnings = [*opened.warnings, *context.warnings, *_dangling(authored)]
    if recaller is not None:
        context = replace(context, snapshot_id=recaller.snapshot_id, store=str(recaller.paths.root))
        if not dry_run:
            warnings += _record(recaller, assembled)
    return replace(context, warnings=tuple(dict.fromkeys(warnings)))


def _dangling(authored: Authored) -> list[RecallWarning]:
    """Say which hop targets name nothing that could come along: typing errors, mostly."""
    unknown = authored.dangling_targets
    if not unknown:
        return []
    shown = ", ".join(unknown[:_TARGETS_SHOWN])
    more = f" and {len(unknown) - _TARGETS_SHOWN} more" if len(unknown) > _TARGETS_SHOWN else ""
    message = f"hop targets name no variant node of the documents: {shown}{more}"
    return [RecallWarning("dangling_hop_targets", message)]


def _costs(authored: Authored, counter: TokenCounter) -> Mapping[str, int]:
    """Return what each hard node costs as it is written, by its text."""
    return {node.text: counter.count(node_piece(node)) for node in authored.hard}


def _record(recaller: Recaller, assembled: Assembled) -> list[RecallWarning]:
    """Log the memories in the context as retrieved and as injected; others were not shown."""
    memories, paths = assembled.memories, recaller.paths
    if not memories:
        return []
    faults: list[tuple[str, str | None]] = []
    ids = [str(m["id"]) for m in memories if m["kind"] == "memory"]
    if ids and current_settings()[0].recall.log_retrievals:
        logged = append_retrievals(
            paths.access_log, snapshot_id=recaller.snapshot_id, memory_ids=ids
        )
        faults.append(("access_log", logged))
    wordings = wordings_of(memories, assembled.context.query)
    recorded = append_injection(paths.injections, wordings, now_us=time.time_ns() // 1000)
    faults.append(("injection_log", recorded))
    return [RecallWarning(code, fault) for code, fault in faults if fault is not None]


def _check(
    query: Any, budget_tokens: Any, session: Any, documents: Any, scope: Scope, deadline_ms: Any
) -> None:
    """Refuse what nothing could be assembled from.

    Raises:
        ValueError: Listing every fault.
    """
    faults: list[str] = []
    try:
        check_arguments(query, 0, "relevance", scope, deadline_ms)
    except ValueError as error:
        faults.append(str(error))
    if type(budget_tokens) is not int or budget_tokens < 0:
        faults.append(f"budget_tokens must be a whole number >= 0, found {budget_tokens!r}")
    if isinstance(documents, str | os.PathLike):
        faults.append(f"documents must be a list of paths, found {documents!r} alone")
    faults += turn_faults(session)
    if faults:
        raise ValueError("; ".join(faults))


def turn_faults(session: Sequence[Turn]) -> list[str]:
    """Return what is wrong with the turns of a session, a sentence each."""
    faults: list[str] = []
    seen: set[str] = set()
    for place, turn in enumerate(session):
        if not isinstance(turn, Turn):  # pyright: ignore[reportUnnecessaryIsInstance]
            faults.append(f"turn {place}: expected a Turn, found {type(turn).__name__}")
            continue
        for name in ("role", "text"):
            value: object = getattr(turn, name)
            if not isinstance(value, str):
                faults.append(f"turn {place}: {name} must be a text, found {value!r}")
        for name in ("id", "bundle"):
            value = getattr(turn, name)
            if value is not None and not isinstance(value, str):
                faults.append(f"turn {place}: {name} must be a text or None, found {value!r}")
        at_us: object = turn.at_us
        if at_us is not None and (type(at_us) is not int or not _INT64_MIN < at_us <= _INT64_MAX):
            faults.append(f"turn {place}: at_us must be microseconds or None, found {at_us!r}")
        own = turn_id(place, turn)
        if own in seen:
            faults.append(f"turn {place}: its id {own!r} is that of a turn before")
        seen.add(own)
    return faults
