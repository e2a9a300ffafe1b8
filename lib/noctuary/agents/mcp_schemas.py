"""The shapes of the MCP server's answers: what a client finds in `structured_content`."""

from __future__ import annotations

from typing import Any, Literal, cast
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field

from noctuary.sources.injected import TAG
from noctuary.text.marks import visible

MemoryId = int | str

ITEM_URI = "memory://item/{id}"
CLUSTER_URI = "memory://cluster/{id}"
CONCEPT_URI = "memory://concept/{name}"


def item_uri(item_id: MemoryId) -> str:
    """Return where a memory can be read in full."""
    return ITEM_URI.replace("{id}", quote(str(item_id), safe=""))


def cluster_uri(item_id: str) -> str:
    """Return where a summary can be read with all that it stands for."""
    return CLUSTER_URI.replace("{id}", quote(item_id, safe=""))


def concept_uri(name: str) -> str:
    """Return where a concept can be read."""
    return CONCEPT_URI.replace("{name}", quote(name, safe=""))


def plain(answer: BaseModel) -> dict[str, Any]:
    """Return an answer as JSON values, hidden characters marked, without fields that hold nothing.

    Clients show what they are told, to people and to models.
    """
    return marked(answer.model_dump(mode="json", exclude_none=True))


def marked(value: Any) -> Any:
    """Return a JSON value whose texts hold marks for hidden characters."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, list):
        return [marked(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {visible(key): marked(item) for key, item in cast("dict[str, Any]", value).items()}
    return value


def _optional(description: str) -> Any:
    """Return a field that is left out of an answer where it holds nothing."""
    return Field(default=None, description=description)


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _OfMemory(_Shape):
    """An answer with texts of memories; the field comes first, so that it is told when cut."""

    origin: Literal["noctuary-recall"] = Field(
        default=TAG, description="It comes from memory and is stored already: do not store it."
    )


class Warned(_Shape):
    """Something that went wrong or is worth knowing."""

    code: str
    message: str


class Step(_Shape):
    """What one step of the ranking made of a score."""

    phase: str
    delta: float
    reason: str = ""


class Memory(_Shape):
    """One memory, or a summary that stands for several."""

    id: MemoryId
    uri: str = Field(description="Resource with the whole memory, or with all that it stands for.")
    kind: str = Field(description='"memory" or "summary".')
    content: str
    truncated: bool | None = _optional("True where content is cut: `get` returns it whole.")
    category: str
    tags: list[str]
    importance: float
    created_at: str | None = None
    wing: str | None = None
    room: str | None = None
    session_id: str | None = None
    user: str | None = None
    sources: list[MemoryId] | None = _optional("Ids of the memories that a summary stands for.")


class Recalled(Memory):
    """A memory that answers a query, with its score in [0, 1]."""

    score: float
    support: float | None = _optional(
        "How sure it is that this one answers, in [0, 1]; below answerability.bar: rather not.",
    )
    annotations: dict[str, Any] | None = _optional(
        'What is known beside it, e.g. {"superseded_by": 7}.'
    )
    legs: dict[str, Any] | None = _optional(
        "Rank and score by leg (lexical, dense, graph), with explain."
    )
    steps: list[Step] | None = _optional("What every step changed, in order, with explain.")


class RecallAnswer(_OfMemory):
    """Memories that answer a query, best first."""

    query: str
    memories: list[Recalled]
    warnings: list[Warned]
    snapshot_id: str | None = None
    elapsed_ms: float
    answerability: dict[str, Any] | None = _optional(
        'Whether the memories answer the query at all; "abstain" true: rather not.',
    )
    explanation: dict[str, Any] | None = _optional(
        "Profile, phases and times of the recall, with explain."
    )


class Item(Memory, _OfMemory):
    """One memory in full, with what is known about it."""

    snapshot_id: str
    superseded_by: MemoryId | None = _optional("What replaces it.")
    supersedes: list[MemoryId] | None = _optional("What it replaces.")
    archived_behind: MemoryId | None = _optional("It is archived; this stands for it in a recall.")
    summarized_by: str | None = _optional("Id of the summary of its stretch of conversation.")
    concepts: list[str] | None = _optional("What it is about or names.")


class Neighbour(_Shape):
    """A memory that is connected with what was asked about."""

    id: MemoryId
    uri: str
    relation: str
    direction: str | None = _optional(
        '"out": the memory asked about leads to this one; "in": from it.'
    )
    line: str = Field(description="The line that shows the connection, or its first line.")
    created_at: str | None = None
    weight: float | None = _optional("Strength in (0, 1]; absent where others share the store.")
    concept: str | None = _optional("What connects them.")
    superseded_by: MemoryId | None = None


class ConceptBeside(_Shape):
    """A concept that stands beside what was asked about."""

    name: str
    uri: str
    kind: str | None = None
    role: str | None = _optional("How the memory holds it.")
    shared: int | None = _optional("Memories that hold both.")


class Relation(_Shape):
    """A relation that memories state between two concepts."""

    subject: str
    relation: str
    object: str
    open: bool = Field(description="Whether it still holds.")
    valid_from: str | None = None
    valid_to: str | None = None
    evidence: list[MemoryId] = Field(description="Ids of the memories that state it.")


class RelatedAnswer(_OfMemory):
    """What is connected with a memory or a concept; lists are cut to the limit, totals are not."""

    about: str
    kind: str = Field(description='"memory" or "concept".')
    aliases: list[str] | None = None
    memories: list[Neighbour]
    concepts: list[ConceptBeside]
    relations: list[Relation]
    totals: dict[str, int]
    warnings: list[Warned]
    snapshot_id: str


class ClusterAnswer(_OfMemory):
    """A stretch of conversation or a group of memories: its summary, and all of it in full."""

    id: str
    cluster_id: str
    session_id: str | None = None
    summary: str
    method: str
    first_at: str | None = None
    last_at: str | None = None
    confidence: float | None = None
    plan_id: str | None = _optional("Compaction plan, where it is of one.")
    memories: list[Memory]
    snapshot_id: str


class StatusAnswer(_Shape):
    """What serves; counts are of what this server may see."""

    version: str
    store: str | None = None
    snapshot_id: str | None = None
    built_at: str | None = None
    last_night_hours: float | None = _optional("How long ago a nightly run went through.")
    user: str | None = None
    wing: str | None = None
    counts: dict[str, int]
    wings: dict[str, int]
    encoder: str | None = None
    warnings: list[Warned]
