"""A recall inside a view, as an answer for the protocol.

What belongs here: the view's user and wing put on every recall, what a call may ask for, texts cut
to a length. What does not: ranking (noctuary.recall).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from noctuary.errors import NoctuaryError, StoreError
from noctuary.mcp_server.schemas import (
    RecallAnswer,
    Recalled,
    Step,
    Warned,
    cluster_uri,
    item_uri,
)
from noctuary.mcp_server.view import FACETS, View
from noctuary.recall.api import recall
from noctuary.recall.result import RecallWarning

MAX_MEMORIES = 50
"""Most memories of one recall: agents cut what a tool returns beyond some 25,000 tokens."""

MAX_CONTENT_CHARS = 4_000
"""Characters of one memory in a recall; longer ones are marked as cut and `get` returns them whole.
More lets one pasted file take the place of all others."""

DEADLINE_SHARE = 0.8
"""Share of the time limit after which a recall answers with what there is, so that it still arrives
in time; less gives a slow leg less time."""

_SCORE_DIGITS = 6
"""Decimals of a score that is sent; more cost tokens and tell nothing."""

_FROM_THE_WHOLE_SNAPSHOT = frozenset(f"unknown_{facet}" for facet in FACETS)
"""Warnings of a recall that speak of memories beyond the view; `Seen.unknown_facets` does not."""

_USER_REQUIRED = (
    "this store holds memories of named users, and this server was started for none of them: "
    "`noctuary mcp --user NAME` shows that user's"
)
_AS_MEMORY = (
    "kind", "content", "category", "tags", "importance", "created_at", "wing", "room", "session_id",
    "user", "sources",
)  # fmt: skip


class BadMomentError(NoctuaryError, ValueError):
    """A moment that is no ISO-8601 date or time."""


class Question(NamedTuple):
    """What a call of the tool `recall` asks.

    Attributes:
        query: Any text.
        k: How many memories at most, 1 to MAX_MEMORIES.
        wing: Only memories of this wing.
        room: Only memories of this room.
        category: Only memories of this category.
        as_of: Only what existed at this moment, ISO-8601; naive times are UTC.
        explain: Say what every step made of every score.
    """

    query: str
    k: int = 10
    wing: str | None = None
    room: str | None = None
    category: str | None = None
    as_of: str | None = None
    explain: bool = False


def recall_in_view(
    view: View, question: Question, timeout_s: float
) -> tuple[RecallAnswer, Mapping[str, Any]]:
    """Return the memories that answer a question, and the recall's own result as plain values.

    A store that cannot answer is a warning, as in every recall.

    Args:
        view: What may be seen.
        question: What is asked.
        timeout_s: Time limit of the call; the recall answers with what there is before.

    Raises:
        OutsideViewError: The question asks for another wing than the server's.
        BadMomentError: `as_of` is no moment.
        ValueError: For what no store could honour.
    """
    wing = view.narrowed_to(question.wing)
    as_of = _read_moment(question.as_of)
    try:
        store, unknown = view.store(), _unknown_facets(view, question)
    except StoreError as error:
        return _nothing(question, error), {}
    found = recall(
        question.query,
        question.k,
        wing=wing,
        room=question.room,
        category=question.category,
        user=view.user,
        as_of=as_of,
        explain=question.explain,
        deadline_ms=timeout_s * 1000 * DEADLINE_SHARE,
        store=store,
    ).to_json()
    view.release_after_swap(found["snapshot_id"])
    said = [Warned(**w) for w in _in_view(found["warnings"])]
    own = [Warned(code=w.code, message=w.message) for w in (*view.store_warnings(), *unknown)]
    answer = RecallAnswer(
        query=question.query,
        memories=[_recalled(memory) for memory in found["memories"]],
        warnings=[*own, *said],
        snapshot_id=found["snapshot_id"],
        elapsed_ms=found["phase_timing_ms"]["total"],
        answerability=found.get("answerability"),
        explanation=_explanation(found) if question.explain else None,
    )
    return answer, found


def _unknown_facets(view: View, question: Question) -> tuple[RecallWarning, ...]:
    """Look only where a call names a facet: the view's own wing may be one that nobody has yet."""
    asked = {"wing": question.wing, "room": question.room, "category": question.category}
    if not any(value is not None for value in asked.values()):
        return ()
    with view.open() as seen:
        return seen.unknown_facets(asked)


def _in_view(warnings: list[dict[str, str]]) -> list[dict[str, str]]:
    kept: list[dict[str, str]] = []
    for warning in warnings:
        if warning["code"] in _FROM_THE_WHOLE_SNAPSHOT:
            continue
        said = _USER_REQUIRED if warning["code"] == "user_required" else warning["message"]
        kept.append({"code": warning["code"], "message": said})
    return kept


def _recalled(memory: Mapping[str, Any]) -> Recalled:
    content = str(memory["content"])
    cut = len(content) > MAX_CONTENT_CHARS
    fields: dict[str, Any] = {n: memory[n] for n in _AS_MEMORY if memory.get(n) is not None}
    fields["content"] = content[:MAX_CONTENT_CHARS]
    events = memory.get("score_events")
    of_summary = memory["kind"] == "summary"
    return Recalled(
        **fields,
        id=memory["id"],
        uri=cluster_uri(memory["id"]) if of_summary else item_uri(memory["id"]),
        truncated=True if cut else None,
        score=round(memory["final_score"], _SCORE_DIGITS),
        support=memory.get("support"),
        annotations=memory.get("annotations"),
        legs=None if events is None else memory["legs"],
        steps=None if events is None else [_step(event) for event in events],
    )


def _step(event: Mapping[str, Any]) -> Step:
    return Step(
        phase=str(event["phase"]),
        delta=round(float(event["delta"]), _SCORE_DIGITS),
        reason=str(event.get("reason", "")),
    )


def _explanation(found: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "profile_used": found["profile_used"],
        "pipeline": found["pipeline"],
        "phase_timing_ms": found["phase_timing_ms"],
    }


def _nothing(question: Question, error: StoreError) -> RecallAnswer:
    warning = Warned(code="no_snapshot", message=str(error))
    return RecallAnswer(query=question.query, memories=[], warnings=[warning], elapsed_ms=0.0)


def _read_moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadMomentError(
            f"as_of {text!r} is no ISO-8601 date or time, e.g. 2026-03-01 or 2026-03-01T08:00:00Z"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
