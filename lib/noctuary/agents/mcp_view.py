"""What one MCP server may see and answers: the shapes of its answers, and what fills them."""

from __future__ import annotations

import difflib
import logging
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from noctuary import __version__
from noctuary.agents.hooks import visible_positions
from noctuary.context.assemble import assemble
from noctuary.context.inject import wordings_of
from noctuary.core.errors import NoctuaryError, StoreError
from noctuary.core.files import hash_json
from noctuary.core.store import StorePaths, find_home, find_store, last_night_hours
from noctuary.core.types import MemoryRecord
from noctuary.graph.view import GraphSource, NameBook, describe_concept, evidence_line, open_graph
from noctuary.graph.walk import OPEN_END_US, ROLES
from noctuary.recall.api import find_serving, recall, staleness
from noctuary.recall.engine import Recaller
from noctuary.recall.explain import expand_from, explain_memory
from noctuary.recall.profile import (
    RetrievalProfile,
    current_settings,
    resolve_for_recall,
)
from noctuary.recall.query import Mask, Query, Scope, build_mask, check_arguments
from noctuary.recall.reader import SnapshotReader, telling_damage
from noctuary.recall.result import RecallWarning
from noctuary.recall.rows import see
from noctuary.sources.injected import TAG, append_injection
from noctuary.sources.own_store import remember
from noctuary.text.marks import iso, visible

# The shapes of the answers: what a client finds in `structured_content`.

MemoryId = int | str
Fields = dict[str, Any]

ITEM_URI = "memory://item/{id}"
CLUSTER_URI = "memory://cluster/{id}"
CONCEPT_URI = "memory://concept/{name}"


def _address(template: str, value: MemoryId) -> str:
    return template[: template.index("{")] + quote(str(value), safe="")


item_uri = partial(_address, ITEM_URI)
cluster_uri = partial(_address, CLUSTER_URI)
concept_uri = partial(_address, CONCEPT_URI)


def plain(answer: BaseModel) -> Fields:
    """Return an answer as JSON values: hidden characters marked, no fields that hold nothing."""
    return marked(answer.model_dump(mode="json", exclude_none=True))


def marked(value: Any) -> Any:
    """Return JSON values with every hidden character in them marked."""
    return _each(value, lambda found: visible(found) if isinstance(found, str) else found)


def _each(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return JSON values with every text, number and key in them changed."""
    if isinstance(value, list):
        return [_each(item, change) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {change(key): _each(item, change) for key, item in cast("Fields", value).items()}
    return change(value)


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
    uri: str = Field(
        description="Resource with the whole memory, or with all memories of a summary."
    )
    kind: str = Field(description='"memory" or "summary".')
    content: str
    truncated: bool | None = _optional("True if content is cut: `get` returns it whole.")
    category: str
    tags: list[str]
    importance: float
    created_at: str | None = None
    wing: str | None = None
    room: str | None = None
    session_id: str | None = None
    user: str | None = None
    sources: list[MemoryId] | None = _optional("Ids of the memories behind a summary.")


class Recalled(Memory):
    """A memory that answers a query, with its score in [0, 1]."""

    score: float
    support: float | None = _optional(
        "How sure it is that this one answers, in [0, 1]; below answerability.bar: rather not."
    )
    annotations: Fields | None = _optional('Findings about it, e.g. {"superseded_by": 7}.')
    legs: Fields | None = _optional("Rank and score by leg (lexical, dense, graph), with explain.")
    steps: list[Step] | None = _optional("The change of every step, in order, with explain.")


class RecallAnswer(_OfMemory):
    """Memories that answer a query, best first."""

    query: str
    memories: list[Recalled]
    warnings: list[Warned]
    snapshot_id: str | None = None
    elapsed_ms: float
    answerability: Fields | None = _optional(
        'Whether the memories answer the query at all; "abstain" true: rather not.'
    )
    explanation: Fields | None = _optional("Profile, phases and times of the recall, with explain.")


class Item(Memory, _OfMemory):
    """One memory in full, with what is known about it."""

    snapshot_id: str
    superseded_by: MemoryId | None = _optional("The newer version of it.")
    supersedes: list[MemoryId] | None = _optional("Older versions of it.")
    archived_behind: MemoryId | None = _optional(
        "It is archived; a recall returns this in its place."
    )
    summarized_by: str | None = _optional("Id of the summary of its part of the conversation.")
    concepts: list[str] | None = _optional("Its subjects and names.")


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
    weight: float | None = _optional("Strength in (0, 1]; absent if others share the store.")
    concept: str | None = _optional("The concept that connects them.")
    superseded_by: MemoryId | None = None


class ConceptBeside(_Shape):
    """A concept that stands beside what was asked about."""

    name: str
    uri: str
    kind: str | None = None
    role: str | None = _optional("The role of the concept in the memory.")
    shared: int | None = _optional("Memories with both.")


class Relation(_Shape):
    """A relation that memories state between two concepts."""

    subject: str
    relation: str
    object: str
    open: bool = Field(description="Whether it is still true.")
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
    plan_id: str | None = _optional("Its compaction plan, if any.")
    memories: list[Memory]
    snapshot_id: str


class SimilarMemory(_Shape):
    """A memory of the own store that says nearly the same as a new one."""

    id: MemoryId
    similarity: float = Field(description="Share of their words that both have; 1: the same text.")


class RememberAnswer(_Shape):
    """A memory that is on disk."""

    id: MemoryId
    supersedes: MemoryId | None = _optional("The memory that it replaces, as of the next night.")
    similar: list[SimilarMemory] = Field(
        description="Earlier memories that say nearly the same, nearest first."
    )
    recallable: bool = Field(
        description="Whether recall finds it from now on; otherwise note says when."
    )
    note: str | None = None


class WhyAnswer(_OfMemory):
    """Why a recall returned a memory or did not: the first stage that lost it."""

    id: MemoryId
    stage: str = Field(description='E.g. "returned", "below_limit", "dropped", "not_found".')
    sentences: list[str]
    facts: Fields | None = _optional("The numbers in the sentences, and more.")
    steps: list[Fields] | None = _optional("The change of every step of the ranking, in order.")
    warnings: list[Warned]
    snapshot_id: str


class ContextAnswer(_OfMemory):
    """Memories for a prompt, as one text within a budget of tokens."""

    query: str
    text: str = Field(description="The text, to be read as information; empty if nothing fits.")
    tokens: int = Field(description="Of the whole text, by token_counter.")
    budget_tokens: int
    token_counter: str
    memories: list[MemoryId] = Field(description="Ids of the memories in it, best first.")
    warnings: list[Warned]
    snapshot_id: str | None = None


class Forgotten(_Shape):
    """A memory that would be forgotten, or is."""

    id: str
    content: str
    truncated: bool | None = _optional("True if content is cut.")
    created_at: str | None = None
    wing: str | None = None
    user: str | None = None


class ForgetAnswer(_OfMemory):
    """What would be forgotten for good; with the token of this answer, it is."""

    forgotten: bool = Field(description="False: nothing is changed yet, this is the plan.")
    message: str
    token: str | None = _optional("Pass it on to forget exactly these, once the user agreed.")
    memories: list[Forgotten]
    unknown: list[str] | None = _optional("Ids of no memory that this server may forget.")
    summaries: int | None = _optional("Summaries that quote them: made again by the next night.")
    warnings: list[str]


class StatusAnswer(_Shape):
    """What serves; counts are of what this server may see."""

    version: str
    store: str | None = None
    snapshot_id: str | None = None
    built_at: str | None = None
    last_night_hours: float | None = _optional("Hours since the last successful nightly run.")
    user: str | None = None
    wing: str | None = None
    counts: dict[str, int]
    wings: dict[str, int]
    encoder: str | None = None
    warnings: list[Warned]


# What one server may see: a store, a user and a wing, fixed when it starts. Who calls the server
# chooses nothing of it; default deny as in every recall (`noctuary.recall.query`).

FACETS = ("wing", "room", "category")  # what a recall may be narrowed to
_NEAR_SHOWN = 3  # similar values offered where one is unknown


class UnknownItemError(StoreError):
    """Nothing of this id or name is there for this server."""


class AskedWronglyError(NoctuaryError, ValueError):
    """What no store could honour: another wing, no moment, neither or both of two arguments."""


class Seen(NamedTuple):
    """A pinned snapshot, and what of it may be seen."""

    recaller: Recaller
    allowed: Mask  # which memories, shape (n,)
    user: str | None  # whose they are besides those of nobody
    wing: str | None  # of which alone they are
    warnings: tuple[RecallWarning, ...]

    def position_of(self, item_id: str) -> int | None:
        """Return where a memory or a summary stands; None where it may not be seen."""
        if not _is_text(item_id):
            return None
        reader = self.recaller.reader
        found = visible_positions(reader, self.allowed, [item_id])
        # Another spelling of an id counts where it can mean one memory only.
        found = found or visible_positions(reader, self.allowed, reader.other_ids(item_id))
        return found[0] if len(found) == 1 else None

    def live_memory(self, item_id: str) -> MemoryRecord | None:
        """Return a memory that the store has gained since the snapshot, as recall finds it."""
        settings, _ = current_settings()
        reader = self.recaller.reader
        state = self.recaller.inputs_now(self.user).with_store(settings).live()
        if state is None or not _is_text(item_id):
            return None
        scope = Scope(wing=self.wing, user=self.user)
        rows = {
            row.memory.memory_id: row.memory for row in see(state, reader, scope, None).state.rows
        }
        found = [rows[one] for one in (item_id, *reader.other_ids(item_id)) if one in rows]
        return found[0] if found and (len(found) == 1 or item_id in rows) else None

    def find(self, item_id: str) -> int:
        """Return where a memory or a summary stands, or raise an `UnknownItemError`."""
        position = self.position_of(item_id)
        if position is None:
            raise UnknownItemError(
                f"there is no memory {item_id!r} here: ids are those that recall returns. It may "
                "be newer than the last night, forgotten since, or not for this server to see"
            )
        return position

    def unknown_facets(self, asked: Mapping[str, str | None]) -> list[RecallWarning]:
        """Return a warning for every value that no visible memory has, with similar ones."""
        # Recall's own warnings judge and suggest by the whole snapshot: they would tell that others
        # have a wing of this name, and what their wings are called.
        warnings: list[RecallWarning] = []
        for facet, wanted in asked.items():
            values = {} if wanted is None else self.count_by(facet)
            if wanted is None or wanted in values:
                continue
            near = difflib.get_close_matches(wanted, sorted(values), n=_NEAR_SHOWN, cutoff=0.5)
            hint = f"near: {', '.join(near)}" if near else f"there are {len(values)}"
            message = f"no memory here has {facet} {wanted!r}; {hint}"
            warnings.append(RecallWarning(f"unknown_{facet}", message))
        return warnings

    def count_by(self, facet: str) -> dict[str, int]:
        """Return how many visible memories have each value of a facet, most first."""
        found = self.recaller.reader.facets[facet]
        codes: NDArray[np.int32] = found.codes[self.allowed]
        counts = np.bincount(codes[codes >= 0], minlength=len(found.values)).tolist()
        held = [(value, n) for value, n in zip(found.values, counts, strict=True) if n]
        return dict(sorted(held, key=lambda pair: (-pair[1], pair[0])))

    @contextmanager
    def graph(self) -> Generator[tuple[GraphSource, NameBook]]:
        """Open the graph as far as it may be seen; for one thread. An old snapshot has none."""
        reader = self.recaller.reader
        with open_graph(
            reader.directory,
            self.allowed,
            reader.created_at_us,
            reader.relations,
            ids_are_integers=reader.id_kind == "int",
        ) as source:
            yield source, NameBook(source)


class View:
    """What a server answers for; safe to share between threads."""

    def __init__(
        self, store: str | Path | None = None, *, user: str | None = None, wing: str | None = None
    ) -> None:
        """Take the store, None for the configured or only one, whose memories, and which wing."""
        self.user = user
        self.wing = wing
        self._asked = store
        self._directory: Path | None = None
        self._lock = threading.Lock()
        self.store_warnings: tuple[RecallWarning, ...] = ()  # about the choice of the store

    def store(self) -> Path:
        """Return the store directory: the first one found, for as long as the server runs."""
        # Another store that publishes later must not take this one's place between two calls.
        with self._lock:
            if self._directory is None:
                directory, guessed = find_store(self._asked, home=find_home())
                if guessed:
                    message = (
                        f"several stores exist; this server answers for {directory.name}, which "
                        "published last when it was first asked: start it with --store"
                    )
                    self.store_warnings = (RecallWarning("store_guessed", message),)
                self._directory = directory
            return self._directory

    @contextmanager
    def open(self) -> Generator[Seen]:
        """Pin what serves now, for one call; a `StoreError` says that nothing can be read."""
        recaller, warnings = find_serving(self.store())
        reader = recaller.reader
        scope = Scope(wing=self.wing, user=self.user)
        mask, _ = build_mask(scope, reader.facets, reader.created_at_us)
        if mask is None:
            mask = np.ones(reader.count, dtype=np.bool_)
        with telling_damage(recaller.snapshot_id):
            yield Seen(recaller, mask, self.user, self.wing, (*self.store_warnings, *warnings))

    def narrowed_to(self, wing: str | None) -> str | None:
        """Return the wing that a call searches; an `AskedWronglyError` for another one's."""
        if self.wing is None or wing is None or wing == self.wing:
            return self.wing if wing is None else wing
        raise AskedWronglyError(
            f"this server answers for the wing {self.wing!r} only, and {wing!r} was asked for: "
            "leave wing out"
        )

    def note_handed_out(self, memories: Sequence[Mapping[str, Any]], query: str = "") -> None:
        """Put hashes of some memories, and of the question, on the store's record; never raises."""
        # An agent's transcript holds what its tools returned; read as a memory store, it would
        # bring every recalled memory back as a new one.
        if memories:
            path = StorePaths(self.store()).injections
            now_us = time.time_ns() // 1000
            fault = append_injection(path, wordings_of(memories, query), now_us=now_us)
            if fault is not None:
                logging.getLogger(__name__).warning("%s", fault)


def _is_text(name: str) -> bool:
    """Say whether a name can be one of anything: half a character outside of UTF-8 cannot."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


# What a view's agent remembers: in the own store, under the view's user and wing.


def remember_in_view(
    view: View,
    text: str,
    *,
    wing: str | None,
    room: str | None,
    tags: Sequence[str],
    importance: float,
    supersedes: MemoryId | None,
    wait_s: float,
) -> RememberAnswer:
    """Keep a memory, and say whether this view's recall finds it."""
    kept = remember(
        text, wing=view.narrowed_to(wing), room=room, user=view.user, tags=tags,
        importance=importance, supersedes=supersedes, wait_s=wait_s,
    )  # fmt: skip
    is_here, note = False, f"recall finds it after `noctuary nightly {kept.source}`"
    if kept.is_live:
        with suppress(NoctuaryError):
            is_here = view.store().resolve() == kept.store.resolve()
        note = f"this server reads another store: start one with --store {kept.source}"
    similar = [SimilarMemory(id=one.id, similarity=one.similarity) for one in kept.similar]
    return RememberAnswer(
        id=kept.id, supersedes=kept.supersedes, similar=similar, recallable=is_here,
        note=None if is_here else note,
    )  # fmt: skip


# What a view's agent forgets: what the view shows, by a plan that a person has seen.

_TOKEN_CHARS = 16


def forget_in_view(view: View, ids: Sequence[MemoryId], token: str | None) -> ForgetAnswer:
    """Return the plan of forgetting some memories; with its token, carry it out."""
    # Here: it takes as long to load as everything else, and few sessions forget.
    from noctuary.snapshot.forget import apply_forget, plan_forget

    def may_forget(record: MemoryRecord) -> bool:
        is_own = not record.user or record.user == view.user
        return is_own and view.wing in (None, record.wing)

    plan = plan_forget(view.store(), ids=ids, may_forget=may_forget)
    said: Fields = {
        "memories": [_forgotten(memory.record) for memory in plan.memories],
        "unknown": list(plan.unknown) or None,
    }
    if not plan.memories:
        message = "this server may forget no memory with these ids; nothing was changed"
        return ForgetAnswer(forgotten=False, message=message, warnings=list(plan.notes), **said)
    # The texts are what was agreed to: edited meanwhile, they are another plan.
    texts = [[m.record.memory_id, m.record.content] for m in plan.memories]
    own = hash_json(texts)[:_TOKEN_CHARS]
    if token is None:
        message = (
            f"{len(texts)} memories would be forgotten for good; nothing is changed yet. Show them "
            "to the user, and call forget again with the same ids and this token if they agree"
        )
        said |= {"summaries": plan.summaries, "token": own}
        return ForgetAnswer(forgotten=False, message=message, warnings=list(plan.notes), **said)
    if token != own:
        raise AskedWronglyError(
            "the token is of another plan, or a memory has changed since: call forget without a "
            "token, and show the user what would be forgotten; nothing was changed"
        )
    done = apply_forget(plan)
    warnings = [*plan.notes, *done.warnings]
    return ForgetAnswer(forgotten=True, message=done.message, warnings=warnings, **said)


def _forgotten(record: MemoryRecord) -> Forgotten:
    content = record.content
    return Forgotten(
        id=record.memory_id,
        content=content[:MAX_CONTENT_CHARS],
        truncated=True if len(content) > MAX_CONTENT_CHARS else None,
        created_at=iso(record.created_at_us),
        wing=record.wing,
        user=record.user,
    )


# What is connected with a memory or with a concept, inside a view.

SUPERSEDES = "supersedes"
SUPERSEDED_BY = "superseded_by"
SUMMARIZES = "summarizes"  # like the two above no step of the graph


class Joined(NamedTuple):
    """A connection with another memory."""

    position: int
    relation: str
    outward: bool = True  # it leads to the other memory, and not from it
    weight: float = 1.0  # in (0, 1]
    concept: int = -1  # ordinal of what connects them, -1 where it is their conversation


def relate(seen: Seen, item_id: str | None, concept: str | None, limit: int) -> RelatedAnswer:
    """Return what is connected with a memory or summary, or with a concept: one of the two."""
    said: Fields = {"warnings": _warned(seen.warnings), "snapshot_id": seen.recaller.snapshot_id}
    with seen.graph() as (source, book):
        if item_id is not None and concept is None:
            return RelatedAnswer(**_around_memory(seen, source, book, item_id, limit), **said)
        if concept is not None and item_id is None:
            return RelatedAnswer(**_around_concept(source, book, concept, limit), **said)
    raise AskedWronglyError("give either the id of a memory or a concept, not both or neither")


def _around_memory(
    seen: Seen, source: GraphSource, book: NameBook, item_id: str, limit: int
) -> Fields:
    """Return what is beside a memory, strongest first; of a summary its sources by time."""
    position, reader = seen.find(item_id), seen.recaller.reader
    if position >= reader.count:
        found = [Joined(int(p), SUMMARIZES) for p in reader.summaries.at(position).sources]
        concepts: list[ConceptBeside] = []
    else:
        found, concepts = joined_with(source, position), _concepts_of(source, book, position)
    shown = found[:limit]
    positions = [joined.position for joined in shown]
    ids, contents = source.ids(positions), source.column("content", positions)
    created = source.column("created_at_us", positions)
    memories = [
        Neighbour(
            id=ids[joined.position],
            uri=item_uri(ids[joined.position]),
            relation=joined.relation,
            direction="out" if joined.outward else "in",
            line=evidence_line(contents[joined.position], -1, -1)[0],
            created_at=iso(created[joined.position]),
            # Shared out over all memories about the concept: it would tell how many others have.
            weight=None if source.hides else round(joined.weight, 6),
            concept=book.shown(joined.concept) if joined.concept >= 0 else None,
        )
        for joined in shown
    ]
    totals = {"memories": len(found), "concepts": len(concepts), "relations": 0}
    return {
        "about": item_id, "kind": "memory", "memories": memories, "concepts": concepts[:limit],
        "relations": [], "totals": totals,
    }  # fmt: skip


def joined_with(source: GraphSource, position: int) -> list[Joined]:
    """Return the visible memories joined with one, each by its strongest connection, in order."""
    indptr, steps = source.steps["indptr"], source.steps
    outward = np.arange(int(indptr[position]), int(indptr[position + 1]))
    inward = np.flatnonzero(steps["targets"] == position)
    rows = source.query(
        "SELECT older, newer FROM supersessions WHERE older = ? OR newer = ?", [position, position]
    )
    ends = [(n, SUPERSEDED_BY) if o == position else (o, SUPERSEDES) for o, n in rows]
    found = [Joined(int(p), name) for p, name in ends if source.seen[p]]
    for i in np.concatenate([outward, inward]).tolist():
        leads_out = int(steps["targets"][i]) != position
        other = int((steps["targets"] if leads_out else source.step_sources)[i])
        holds = int(steps["valid_to_us"][i]) == OPEN_END_US
        if holds and other != position and source.seen[other]:
            relation = source.relations[int(steps["relations"][i])]
            weight, concept = float(steps["weights"][i]), int(steps["concepts"][i])
            found.append(Joined(other, relation, leads_out, weight, concept))
    strongest: dict[int, Joined] = {}
    for joined in sorted(found, key=_by_strength):
        strongest.setdefault(joined.position, joined)
    return list(strongest.values())


def _by_strength(joined: Joined) -> tuple[bool, float, int, bool, str]:
    is_step = joined.relation not in (SUPERSEDES, SUPERSEDED_BY)
    return is_step, -joined.weight, joined.position, not joined.outward, joined.relation


def _concepts_of(source: GraphSource, book: NameBook, position: int) -> list[ConceptBeside]:
    """Return the concepts that a memory holds, by role, then by how few memories share them."""
    places = np.flatnonzero(source.mentions["positions"] == position)
    owners = np.searchsorted(source.mentions["indptr"], places, side="right") - 1
    strongest: dict[int, int] = {}
    roles = source.mentions["roles"][places]
    for ordinal, role in zip(owners.tolist(), roles.tolist(), strict=True):
        strongest[ordinal] = min(role, strongest.get(ordinal, role))
    held = {ordinal: int(source.holders(ordinal).size) for ordinal in strongest}
    order = sorted(strongest, key=lambda o: (strongest[o], held[o], o))
    return [
        ConceptBeside(name=name, uri=concept_uri(name), role=ROLES[strongest[o]], shared=held[o])
        for o in order
        if (name := book.shown(o)) is not None
    ]


def _around_concept(source: GraphSource, book: NameBook, name: str, limit: int) -> Fields:
    """Return the memories, concepts and stated relations around a concept; none names similar."""
    ordinal = book.find(name) if _is_text(name) else None
    if ordinal is None:
        near = book.nearest(name) if _is_text(name) else ()
        hint = f"; near: {', '.join(near)}" if near else ""
        raise UnknownItemError(f"no concept here has the name {name!r}{hint}")
    shown = describe_concept(source, book, ordinal, limit)
    about, aliases = shown["concept"]["name"], shown["concept"]["aliases"]
    memories = [
        Neighbour(
            id=held["id"], uri=item_uri(held["id"]), relation=held["role"], line=held["line"],
            created_at=held["created_at"], superseded_by=held["replaced_by"],
        )
        for held in shown["memories"]
    ]  # fmt: skip
    same = ("relation", "open", "valid_from", "valid_to", "evidence")
    relations = [
        Relation(
            subject=about if stated["direction"] == "out" else stated["other"],
            object=stated["other"] if stated["direction"] == "out" else about,
            **{name: stated[name] for name in same},
        )
        for stated in shown["relations"]
    ]
    concepts = [
        ConceptBeside(
            name=n["name"], uri=concept_uri(n["name"]), kind=n["kind"], shared=n["shared"]
        )
        for n in shown["neighbours"]
    ]
    lists = {"memories": "memories", "concepts": "neighbours", "relations": "relations"}
    return {
        "about": about, "kind": "concept", "aliases": aliases or None,
        "memories": memories, "concepts": concepts, "relations": relations,
        "totals": {name: shown["totals"][of_shown] for name, of_shown in lists.items()},
    }  # fmt: skip


def _warned(warnings: Sequence[RecallWarning]) -> list[Warned]:
    return [Warned(code=w.code, message=w.message) for w in warnings]


# One memory in full, or one summary with all that it stands for.

CONCEPTS_SHOWN = 12  # beside a memory: its own come before those that it only mentions


def read_item(seen: Seen, item_id: str) -> Item:
    """Return a memory or a summary in full, with what is known about it."""
    reader = seen.recaller.reader
    if seen.position_of(item_id) is None and (live := seen.live_memory(item_id)) is not None:
        return Item(**live_fields(reader, live), snapshot_id=seen.recaller.snapshot_id)
    position = seen.find(item_id)
    own: Fields = {}
    if position < reader.count:
        with seen.graph() as (source, book):
            names = [c.name for c in _concepts_of(source, book, position)[:CONCEPTS_SHOWN]]
        own = {"concepts": names or None, **_standing(seen, position)}
    return Item(**memory_fields(reader, position), snapshot_id=seen.recaller.snapshot_id, **own)


def read_cluster(seen: Seen, item_id: str) -> ClusterAnswer:
    """Return a summary, by its own id or its cluster's, and every memory that it stands for."""
    reader = seen.recaller.reader
    if not _is_text(item_id):
        raise UnknownItemError(f"{item_id!r} is not the id of a cluster: it is not text")
    columns = "summary_id, cluster_id, session_id"
    found = [
        *reader.look_up("summaries", "summary_id", columns, [item_id]),
        *sorted(reader.look_up("summaries", "cluster_id", columns, [item_id])),
    ]
    visible = [row for row in found if seen.position_of(row[0]) is not None]
    if not visible:
        raise UnknownItemError(
            f"there is no summary or summarised cluster {item_id!r} here: ids are those of kind "
            '"summary" in a recall; they change when a night summarises anew'
        )
    summary_id, cluster_id, session_id = visible[0]
    whole = expand_from(reader, seen.recaller.snapshot_id, summary_id, seen.user)
    known = reader.positions_of(str(source.id) for source in whole.sources)
    return ClusterAnswer(
        id=summary_id,
        cluster_id=cluster_id,
        session_id=session_id,
        summary=whole.text,
        method=whole.method,
        first_at=None if whole.first_at is None else whole.first_at.isoformat(),
        last_at=None if whole.last_at is None else whole.last_at.isoformat(),
        confidence=whole.confidence,
        plan_id=whole.plan_id,
        memories=[Memory(**memory_fields(reader, position)) for position in known.values()],
        snapshot_id=whole.snapshot_id,
    )


def memory_fields(reader: SnapshotReader, position: int) -> Fields:
    """Return what a `Memory` holds, its content whole."""
    row = reader.describe([position])[position]
    public = reader.public_ids([position, *row["sources"]])
    is_summary, shown = bool(row["sources"]), public[position]
    names = ("content", "category", "importance", "wing", "room", "session_id", "user")
    return {
        "id": shown,
        "uri": cluster_uri(shown) if is_summary else item_uri(shown),
        "kind": "summary" if is_summary else "memory",
        "tags": list(row["tags"]),
        "created_at": iso(row["created_at_us"]),
        "sources": [public[p] for p in row["sources"]] or None,
        **{name: row[name] for name in names},
    }


def live_fields(reader: SnapshotReader, record: MemoryRecord) -> Fields:
    """Return what a `Memory` holds, of one that no snapshot has yet."""
    shown = reader.public_id(record.memory_id)
    names = ("content", "category", "importance", "wing", "room", "session_id", "user")
    return {
        "id": shown,
        "uri": item_uri(shown),
        "kind": "memory",
        "tags": [tag.strip() for tag in record.tags.split(",") if tag.strip()],
        "created_at": iso(record.created_at_us),
        **{name: getattr(record, name) for name in names},
    }


def _standing(seen: Seen, position: int) -> Fields:
    """Return what replaces, hides or summarises a memory, as far as it may be seen."""
    reader, allowed = seen.recaller.reader, seen.allowed

    def visible(table_column: str, other: str) -> list[int]:
        rows = reader.look_up("supersessions", table_column, other, [str(position)])
        return [int(p) for (p,) in rows if allowed[int(p)]]

    newer = next(iter(visible("older", "newer")), None)
    older = sorted(visible("newer", "older"))
    inputs = seen.recaller.inputs_now()
    behind = seen.recaller.find_rows(RetrievalProfile(), inputs, allowed).stands_for(position)
    summary = reader.summaries.of_sources(np.array([position], dtype=np.int64)).get(position)
    if summary is not None and not allowed[list(summary.sources)].all():
        summary = None
    ids = reader.public_ids([*(p for p in (newer, behind) if p is not None), *older])
    return {
        "superseded_by": None if newer is None else ids[newer],
        "supersedes": [ids[p] for p in older] or None,
        "archived_behind": None if behind is None else ids[behind],
        "summarized_by": None
        if summary is None
        else reader.summaries.ids[summary.position - reader.count],
    }


# What serves, as far as a view goes: for an agent that wants to know whether to trust answers.


def read_state(view: View) -> StatusAnswer:
    """Return the state of the store; what is wrong with it is a warning."""
    whose: Fields = {"version": __version__, "user": view.user, "wing": view.wing}
    try:
        with view.open() as seen:
            return StatusAnswer(**whose, **_state(view, seen))
    except (NoctuaryError, OSError) as error:
        warning = Warned(code="no_snapshot", message=str(error))
        return StatusAnswer(**whose, counts={}, wings={}, warnings=[warning])


def _state(view: View, seen: Seen) -> Fields:
    reader, paths, allowed = seen.recaller.reader, seen.recaller.paths, seen.allowed
    settings, bad_settings = current_settings()
    encoder = reader.manifest.encoder
    hours = last_night_hours(paths)
    warnings = [*seen.warnings, *bad_settings]
    warnings += staleness(paths, settings.recall.stale_after_hours)
    if not allowed.any():
        asked = {"wing": view.wing, "user": view.user}
        named = [f"{name} {value!r}" for name, value in asked.items() if value]
        whom = ", ".join(named) or "no user named"
        message = f"this server may see no memory at all ({whom})"
        warnings.append(RecallWarning("nothing_visible", message))
    ends = reader.mentions.indptr
    held = np.concatenate([[0], np.cumsum(allowed[reader.mentions.positions])])
    return {
        "store": str(paths.root),
        "snapshot_id": seen.recaller.snapshot_id,
        "built_at": reader.manifest.built_at,
        "last_night_hours": None if hours is None else round(hours, 2),
        "counts": {
            "memories": int(np.count_nonzero(allowed)),
            "turns": int(np.count_nonzero(reader.sessions.turns[allowed])),
            "summaries": int(np.count_nonzero(reader.summaries.arrays.where_all(allowed))),
            "concepts": int(np.count_nonzero(np.diff(held[ends]))),
        },
        "wings": seen.count_by("wing"),
        "encoder": None if encoder is None else str(encoder["model"]),
        "warnings": _warned(warnings),
    }


# A recall inside a view, as an answer for the protocol.

MAX_MEMORIES = 50  # of one recall: agents cut what a tool returns beyond some 25,000 tokens
MAX_CONTENT_CHARS = 4_000  # of one memory in a recall: one pasted file must not displace all others
DEADLINE_SHARE = 0.8  # of the time limit, so that what there is by then still arrives in time
_SCORE_DIGITS = 6  # decimals of a score that is sent; more cost tokens and tell nothing

MAX_CONTEXT_TOKENS = 20_000  # of one context, as of a recall

_FROM_THE_WHOLE_SNAPSHOT = frozenset(f"unknown_{facet}" for facet in FACETS)
"""Warnings of a recall that speak of memories beyond the view; `Seen.unknown_facets` does not."""

_USER_REQUIRED = (
    "this store holds memories of named users, and this server was started for none of them: "
    "`noctuary mcp --user NAME` shows that user's"
)


def recall_in_view(
    view: View,
    query: str,
    k: int = 10,
    *,
    wing: str | None = None,
    room: str | None = None,
    category: str | None = None,
    as_of: str | None = None,
    explain: bool = False,
    dry_run: bool = False,
    timeout_s: float = 30.0,
) -> tuple[RecallAnswer, Mapping[str, Any]]:
    """Return the memories that answer a question, and the recall's own result as plain values."""
    # A store that cannot answer is a warning, as in every recall; an `AskedWronglyError` or a
    # `ValueError` says what no store could honour. The recall answers before `timeout_s`.
    narrowed, moment = view.narrowed_to(wing), _read_moment(as_of)
    asked = {"wing": wing, "room": room, "category": category}
    unknown: list[RecallWarning] = []
    try:
        store = view.store()
        # Only where a call names a facet: the view's own wing may be one that nobody has yet.
        if any(value is not None for value in asked.values()):
            with view.open() as seen:
                unknown = seen.unknown_facets(asked)
    except StoreError as error:
        warning = Warned(code="no_snapshot", message=str(error))
        return RecallAnswer(query=query, memories=[], warnings=[warning], elapsed_ms=0.0), {}
    found = recall(
        query,
        k,
        wing=narrowed,
        room=room,
        category=category,
        user=view.user,
        as_of=moment,
        explain=explain,
        dry_run=dry_run,
        deadline_ms=timeout_s * 1000 * DEADLINE_SHARE,
        store=store,
    ).to_json()
    why = ("profile_used", "pipeline", "phase_timing_ms")
    answer = RecallAnswer(
        query=query,
        memories=[_recalled(memory) for memory in found["memories"]],
        warnings=_warned([*view.store_warnings, *unknown]) + _in_view(found["warnings"]),
        snapshot_id=found["snapshot_id"],
        elapsed_ms=found["phase_timing_ms"]["total"],
        answerability=found.get("answerability"),
        explanation={name: found[name] for name in why} if explain else None,
    )
    return answer, found


def _in_view(warnings: Sequence[Mapping[str, str]]) -> list[Warned]:
    """Return a recall's warnings as far as they are this view's, in its words."""
    return [
        Warned(**{**w, "message": _USER_REQUIRED} if w["code"] == "user_required" else w)
        for w in warnings
        if w["code"] not in _FROM_THE_WHOLE_SNAPSHOT
    ]


def explain_in_view(
    view: View,
    query: str,
    item_id: str,
    k: int,
    *,
    wing: str | None = None,
    room: str | None = None,
    category: str | None = None,
) -> WhyAnswer:
    """Return why a recall with these arguments returns a memory or does not."""
    scope = Scope(view.narrowed_to(wing), room, category, view.user)
    check_arguments(query, k, "relevance", scope, None)
    with view.open() as seen:
        recaller, (settings, bad_settings) = seen.recaller, current_settings()
        used = resolve_for_recall(settings, recaller.reader.adopted)
        inputs = recaller.inputs_now(view.user).with_store(settings)
        asked = Query(query, k, used.profile, used.used, scope, dry_run=True)
        found = explain_memory(recaller, asked, item_id, inputs)
        # Of the store's own rows it said what this view may see; else hidden is like not there.
        position = seen.find(item_id) if "live" not in found.facts else None
        shown = {} if position is None else recaller.reader.public_ids([position])
        warnings = [w.to_json() for w in (*seen.warnings, *bad_settings, *found.warnings)]
        return WhyAnswer(
            id=recaller.reader.public_id(found.memory_id) if position is None else shown[position],
            stage=found.stage,
            sentences=list(found.sentences),
            facts=_rounded(found.to_json()["facts"]) or None,
            steps=_rounded(found.to_json()["steps"]) or None,
            warnings=_in_view(warnings),
            snapshot_id=recaller.snapshot_id,
        )


def _rounded(value: Any) -> Any:
    return _each(
        value, lambda found: round(found, _SCORE_DIGITS) if isinstance(found, float) else found
    )


def assemble_in_view(
    view: View, query: str, budget_tokens: int, wing: str | None, timeout_s: float
) -> ContextAnswer:
    """Return the memories for a prompt about a question as one text, within a budget."""
    made = assemble(
        query, budget_tokens, wing=view.narrowed_to(wing), user=view.user, store=view.store(),
        deadline_ms=timeout_s * 1000 * DEADLINE_SHARE,
    )  # fmt: skip
    return ContextAnswer(
        query=query,
        text=made.text,
        tokens=made.tokens,
        budget_tokens=budget_tokens,
        token_counter=made.token_counter,
        memories=[part.id for part in made.parts],
        warnings=_warned(view.store_warnings) + _in_view([w.to_json() for w in made.warnings]),
        snapshot_id=made.snapshot_id,
    )


def _recalled(memory: Mapping[str, Any]) -> Recalled:
    content, events = str(memory["content"]), memory.get("score_events")
    uri = cluster_uri if memory["kind"] == "summary" else item_uri
    fields: Fields = {n: memory[n] for n in Recalled.model_fields if n in memory}
    fields |= {
        "uri": uri(memory["id"]),
        "content": content[:MAX_CONTENT_CHARS],
        "truncated": True if len(content) > MAX_CONTENT_CHARS else None,
        "score": round(memory["final_score"], _SCORE_DIGITS),
        "legs": None,
    }
    if events is not None:
        names = ("phase", "delta", "reason")
        steps = [{name: event[name] for name in names if name in event} for event in events]
        rounded = [{**step, "delta": round(float(step["delta"]), _SCORE_DIGITS)} for step in steps]
        fields |= {"legs": memory["legs"], "steps": rounded}
    return Recalled(**fields)


def _read_moment(text: str | None) -> datetime | None:
    try:
        return None if text is None else datetime.fromisoformat(text)
    except ValueError:
        raise AskedWronglyError(
            f"as_of {text!r} is not an ISO-8601 date or time, e.g. 2026-03-01T08:00:00Z"
        ) from None
