"""What one MCP server may see, and what it answers about memories and relations."""

from __future__ import annotations

import difflib
import gc
import logging
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary import __version__
from noctuary.agents.mcp_schemas import (
    ClusterAnswer,
    ConceptBeside,
    Item,
    Memory,
    Neighbour,
    RecallAnswer,
    Recalled,
    RelatedAnswer,
    Relation,
    StatusAnswer,
    Step,
    Warned,
    cluster_uri,
    concept_uri,
    item_uri,
)
from noctuary.context.inject import wordings_of
from noctuary.core.errors import NoctuaryError, SnapshotCorruptError, StoreError
from noctuary.core.store import StorePaths, find_home, find_store, last_night_hours
from noctuary.graph.view import (
    ConceptView,
    GraphSource,
    NameBook,
    RelationView,
    describe_concept,
    evidence_line,
    open_graph,
)
from noctuary.graph.walk import OPEN_END_US, ROLES
from noctuary.recall.api import find_serving, recall, staleness
from noctuary.recall.engine import Recaller
from noctuary.recall.explain import expand_from
from noctuary.recall.profile import RetrievalProfile, current_settings
from noctuary.recall.query import Mask, Scope, build_mask
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.result import RecallWarning
from noctuary.sources.injection_log import append_injection
from noctuary.text.marks import iso

# What one server may see: a store, a user and a wing, fixed when it starts.
#
# Who calls the server chooses nothing of the view; default deny as in every recall
# (`noctuary.recall.query`).


FACETS = ("wing", "room", "category")
"""What a recall may be narrowed to."""

_NEAR_SHOWN = 3
"""Similar values offered where one is unknown."""


def is_text(name: str) -> bool:
    """Say whether a name can be one of anything: half a character outside of UTF-8 cannot."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


class UnknownItemError(StoreError):
    """Nothing of this id or name is there for this server."""


class OutsideViewError(NoctuaryError, ValueError):
    """A call asks for what this server was not started for."""


class Seen(NamedTuple):
    """A pinned snapshot, and what of it may be seen."""

    recaller: Recaller
    allowed: Mask  # which memories, shape (n,)
    user: str | None  # whose they are besides those of nobody
    warnings: tuple[RecallWarning, ...]

    def position_of(self, item_id: str) -> int | None:
        """Return where a memory or a summary stands; None where it may not be seen or is not there.

        A summary may be seen where every memory that it stands for may.
        """
        reader = self.recaller.reader
        if not is_text(item_id):
            return None
        position = reader.positions_of([item_id]).get(item_id)
        if position is None:
            position = reader.summaries.position_of(item_id)
        if position is None:
            return None
        stands_for = [position]
        if position >= reader.count:
            stands_for = list(reader.summaries.at(position).sources)
        return position if bool(self.allowed[stands_for].all()) else None

    def find(self, item_id: str) -> int:
        """Return where a memory or a summary stands, or raise an `UnknownItemError`."""
        position = self.position_of(item_id)
        if position is None:
            raise UnknownItemError(
                f"there is no memory {item_id!r} here: ids are those that recall returns. It may "
                "be newer than the last night, forgotten since, or not for this server to see"
            )
        return position

    def unknown_facets(self, asked: Mapping[str, str | None]) -> tuple[RecallWarning, ...]:
        """Return a warning for every value that no visible memory has, with similar ones that are.

        Recall's own warnings judge and suggest by the whole snapshot: they would tell that others
        have a wing of this name, and what their wings are called.
        """
        warnings: list[RecallWarning] = []
        for facet, wanted in asked.items():
            values = {} if wanted is None else self.count_by(facet)
            if wanted is None or wanted in values:
                continue
            near = difflib.get_close_matches(wanted, sorted(values), n=_NEAR_SHOWN, cutoff=0.5)
            hint = f"near: {', '.join(near)}" if near else f"there are {len(values)}"
            message = f"no memory here has {facet} {wanted!r}; {hint}"
            warnings.append(RecallWarning(f"unknown_{facet}", message))
        return tuple(warnings)

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
        self._guessed: tuple[RecallWarning, ...] = ()
        self._snapshot_id: str | None = None
        self._lock = threading.Lock()

    def store(self) -> Path:
        """Return the store directory: the first one found, for as long as the server runs.

        Another store that publishes later must not take this one's place between two calls.
        """
        with self._lock:
            if self._directory is None:
                directory, guessed = find_store(self._asked, home=find_home())
                if guessed:
                    message = (
                        f"several stores exist; this server answers for {directory.name}, which "
                        "published last when it was first asked: start it with --store"
                    )
                    self._guessed = (RecallWarning("store_guessed", message),)
                self._directory = directory
            return self._directory

    def store_warnings(self) -> tuple[RecallWarning, ...]:
        """Return what is to be said about the choice of the store."""
        return self._guessed

    @contextmanager
    def open(self) -> Generator[Seen]:
        """Pin what serves now, for one call; a `StoreError` says that nothing can be read."""
        recaller, warnings = find_serving(self.store())
        self.release_after_swap(recaller.snapshot_id)
        reader = recaller.reader
        scope = Scope(wing=self.wing, user=self.user)
        mask, _ = build_mask(scope, reader.facets, reader.created_at_us)
        if mask is None:
            mask = np.ones(reader.count, dtype=np.bool_)
        try:
            yield Seen(recaller, mask, self.user, (*self.store_warnings(), *warnings))
        except (NoctuaryError, OSError):
            raise
        # Damage below the reach of the quick check raises whatever the step that meets it raises.
        except Exception as error:
            raise SnapshotCorruptError(
                f"{type(error).__name__} in {recaller.snapshot_id}: run `noctuary doctor`"
            ) from error

    def release_after_swap(self, snapshot_id: str | None) -> None:
        """Close the files of a snapshot that was replaced.

        A sqlite3 connection is part of a reference cycle: in a process that allocates little, the
        collector may come by only after many nights, and removed snapshots would keep their space.
        """
        with self._lock:
            replaced = self._snapshot_id not in (None, snapshot_id)
            self._snapshot_id = snapshot_id
        if replaced:
            gc.collect()

    def narrowed_to(self, wing: str | None) -> str | None:
        """Return the wing that a call searches; an `OutsideViewError` for another one's."""
        if self.wing is None or wing is None or wing == self.wing:
            return self.wing if wing is None else wing
        raise OutsideViewError(
            f"this server answers for the wing {self.wing!r} only, and {wing!r} was asked for: "
            "leave wing out"
        )


def note_handed_out(view: View, memories: Sequence[Mapping[str, Any]], query: str = "") -> None:
    """Put hashes of some memories, and of the question, on the store's record; never raises.

    An agent's transcript holds what its tools returned; read as a memory store, it would bring
    every recalled memory back as a new one.
    """
    if not memories:
        return
    try:
        path = StorePaths(view.store()).injections
    except StoreError:
        return
    fault = append_injection(path, wordings_of(memories, query), now_us=time.time_ns() // 1000)
    if fault is not None:
        logging.getLogger(__name__).warning("%s", fault)


# What is connected with a memory or with a concept, inside a view.


SUPERSEDES = "supersedes"
SUPERSEDED_BY = "superseded_by"
SUMMARIZES = "summarizes"
"""Relations that are no steps of the graph: what replaces what, what stands for what."""


class AskedWronglyError(NoctuaryError, ValueError):
    """Neither or both of a memory and a concept were asked about."""


class Joined(NamedTuple):
    """A connection with another memory."""

    position: int
    relation: str
    outward: bool  # it leads to the other memory, and not from it
    weight: float  # in (0, 1]
    concept: int  # ordinal of what connects them, -1 where it is their conversation


def relate(seen: Seen, item_id: str | None, concept: str | None, limit: int) -> RelatedAnswer:
    """Return what is connected with a memory or summary, or with a concept: one of the two.

    Raises:
        AskedWronglyError: Neither or both are given.
        UnknownItemError: There is no such memory or concept for this server.
    """
    if concept is not None and item_id is None:
        return _relate_concept(seen, concept, limit)
    if item_id is None or concept is not None:
        raise AskedWronglyError("give either the id of a memory or a concept, not both or neither")
    return _relate_memory(seen, item_id, limit)


def _relate_memory(seen: Seen, item_id: str, limit: int) -> RelatedAnswer:
    """Return what is beside a memory, strongest first; of a summary its sources by time."""
    position = seen.find(item_id)
    reader = seen.recaller.reader
    with seen.graph() as (source, book):
        concepts: list[ConceptBeside] = []
        if position >= reader.count:
            sources = reader.summaries.at(position).sources
            steps = [Joined(int(p), SUMMARIZES, True, 1.0, -1) for p in sources]
        else:
            steps = joined_with(source, position)
            concepts = _name_concepts(source, book, position, None)
        return RelatedAnswer(
            about=item_id,
            kind="memory",
            memories=_neighbours(source, book, steps[:limit]),
            concepts=concepts[:limit],
            relations=[],
            totals={"memories": len(steps), "concepts": len(concepts), "relations": 0},
            warnings=_warned(seen.warnings),
            snapshot_id=seen.recaller.snapshot_id,
        )


def _relate_concept(seen: Seen, name: str, limit: int) -> RelatedAnswer:
    """Return the memories, concepts and stated relations around a concept; none names similar."""
    with seen.graph() as (source, book):
        ordinal = book.find(name) if is_text(name) else None
        if ordinal is None:
            near = book.nearest(name) if is_text(name) else ()
            hint = f"; near: {', '.join(near)}" if near else ""
            raise UnknownItemError(f"no concept here has the name {name!r}{hint}")
        view = describe_concept(source, book, ordinal, limit)
    return _of_concept(seen, view, limit)


def _name_concepts(
    source: GraphSource, book: NameBook, position: int, limit: int | None
) -> list[ConceptBeside]:
    """Return the concepts that a memory holds, by role, then by how few memories share them."""
    places = np.flatnonzero(source.mentions["positions"] == position)
    owners = np.searchsorted(source.mentions["indptr"], places, side="right") - 1
    roles = source.mentions["roles"][places]
    strongest: dict[int, int] = {}
    for ordinal, role in zip(owners.tolist(), roles.tolist(), strict=True):
        strongest[ordinal] = min(role, strongest.get(ordinal, role))
    held = {ordinal: int(source.holders(ordinal).size) for ordinal in strongest}
    order = sorted(strongest, key=lambda o: (strongest[o], held[o], o))
    found: list[ConceptBeside] = []
    for ordinal in order:
        if len(found) == limit:
            break
        name = book.shown(ordinal)
        if name is not None:
            role = ROLES[strongest[ordinal]]
            uri = concept_uri(name)
            found.append(ConceptBeside(name=name, uri=uri, role=role, shared=held[ordinal]))
    return found


def joined_with(source: GraphSource, position: int) -> list[Joined]:
    """Return the visible memories that steps or supersessions join with one, strongest first.

    One line per memory: its strongest connection; supersessions come before steps.
    """
    indptr, steps = source.steps["indptr"], source.steps
    outward = np.arange(int(indptr[position]), int(indptr[position + 1]))
    inward = np.flatnonzero(steps["targets"] == position)
    rows = source.query(
        "SELECT older, newer FROM supersessions WHERE older = ? OR newer = ?", [position, position]
    )
    ends = [(n, SUPERSEDED_BY) if o == position else (o, SUPERSEDES) for o, n in rows]
    found = [Joined(int(p), name, True, 1.0, -1) for p, name in ends if source.seen[p]]
    for i in np.concatenate([outward, inward]).tolist():
        leads_out = int(steps["targets"][i]) != position
        other = int((steps["targets"] if leads_out else source.step_sources)[i])
        holds = int(steps["valid_to_us"][i]) == OPEN_END_US
        if holds and other != position and source.seen[other]:
            relation = source.relations[int(steps["relations"][i])]
            weight, concept = float(steps["weights"][i]), int(steps["concepts"][i])
            found.append(Joined(other, relation, leads_out, weight, concept))
    strongest: dict[int, Joined] = {}
    for step in sorted(found, key=_by_strength):
        strongest.setdefault(step.position, step)
    return list(strongest.values())


def _by_strength(step: Joined) -> tuple[bool, float, int, bool, str]:
    replaces = step.relation in (SUPERSEDES, SUPERSEDED_BY)
    return not replaces, -step.weight, step.position, not step.outward, step.relation


def _neighbours(source: GraphSource, book: NameBook, steps: Sequence[Joined]) -> list[Neighbour]:
    positions = [step.position for step in steps]
    ids, contents = source.ids(positions), source.contents(positions)
    created = source.created_at_us(positions)
    return [
        Neighbour(
            id=ids[step.position],
            uri=item_uri(ids[step.position]),
            relation=step.relation,
            direction="out" if step.outward else "in",
            line=evidence_line(contents[step.position], -1, -1).text,
            created_at=iso(created[step.position]),
            # Shared out over all memories about the concept: it would tell how many others have.
            weight=None if source.hides else round(step.weight, 6),
            concept=book.shown(step.concept) if step.concept >= 0 else None,
        )
        for step in steps
    ]


def _of_concept(seen: Seen, view: ConceptView, limit: int) -> RelatedAnswer:
    """Return a concept's view: memories that hold it, then memories that others lead to over it."""
    return RelatedAnswer(
        about=view.name,
        kind="concept",
        aliases=list(view.aliases) or None,
        memories=[
            Neighbour(
                id=held.memory_id,
                uri=item_uri(held.memory_id),
                relation=held.role,
                line=held.line,
                created_at=iso(held.created_at_us),
                superseded_by=held.replaced_by,
            )
            for held in view.memories[:limit]
        ],
        concepts=[
            ConceptBeside(name=n.name, uri=concept_uri(n.name), kind=n.kind, shared=n.shared)
            for n in view.neighbours[:limit]
        ],
        relations=[_relation(view.name, relation) for relation in view.relations[:limit]],
        totals={
            "memories": view.totals["memories"],
            "concepts": view.totals["neighbours"],
            "relations": view.totals["relations"],
        },
        warnings=_warned(seen.warnings),
        snapshot_id=seen.recaller.snapshot_id,
    )


def _relation(name: str, relation: RelationView) -> Relation:
    ends = (name, relation.other) if relation.outward else (relation.other, name)
    return Relation(
        subject=ends[0],
        relation=relation.relation,
        object=ends[1],
        open=relation.valid_to_us is None,
        valid_from=iso(relation.valid_from_us),
        valid_to=iso(relation.valid_to_us),
        evidence=list(relation.evidence),
    )


def _warned(warnings: Sequence[RecallWarning]) -> list[Warned]:
    return [Warned(code=w.code, message=w.message) for w in warnings]


# One memory in full, or one summary with all that it stands for.


CONCEPTS_SHOWN = 12
"""Concepts named beside a memory: its own come before those that it only mentions."""


def read_item(seen: Seen, item_id: str) -> Item:
    """Return a memory or a summary in full, with what is known about it."""
    position = seen.find(item_id)
    reader = seen.recaller.reader
    own: dict[str, Any] = _standing(seen, position) if position < reader.count else {}
    with seen.graph() as (source, book):
        held = _name_concepts(source, book, position, CONCEPTS_SHOWN) if own else []
    return Item(
        **_memory_fields(reader, position),
        snapshot_id=seen.recaller.snapshot_id,
        concepts=[concept.name for concept in held] or None,
        **own,
    )


def read_cluster(seen: Seen, item_id: str) -> ClusterAnswer:
    """Return a summary, by its own id or its cluster's, and every memory that it stands for."""
    reader = seen.recaller.reader
    if not is_text(item_id):
        raise UnknownItemError(f"{item_id!r} is no id of a cluster: it is no text")
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
        memories=[Memory(**_memory_fields(reader, position)) for position in known.values()],
        snapshot_id=whole.snapshot_id,
    )


def _memory_fields(reader: SnapshotReader, position: int) -> dict[str, Any]:
    """Return the fields of `Memory` of a position of an opened snapshot."""
    row = reader.describe([position])[position]
    public = reader.public_ids([position, *row["sources"]])
    summary = bool(row["sources"])
    shown = public[position]
    names = ("content", "category", "importance", "wing", "room", "session_id", "user")
    return {
        "id": shown,
        "uri": cluster_uri(str(shown)) if summary else item_uri(shown),
        "kind": "summary" if summary else "memory",
        "tags": list(row["tags"]),
        "created_at": iso(row["created_at_us"]),
        "sources": [public[p] for p in row["sources"]] or None,
        **{name: row[name] for name in names},
    }


def _standing(seen: Seen, position: int) -> dict[str, Any]:
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
    try:
        with view.open() as seen:
            return _state(view, seen)
    except (NoctuaryError, OSError) as error:
        return StatusAnswer(
            version=__version__,
            user=view.user,
            wing=view.wing,
            counts={},
            wings={},
            warnings=[Warned(code="no_snapshot", message=str(error))],
        )


def _state(view: View, seen: Seen) -> StatusAnswer:
    reader, paths = seen.recaller.reader, seen.recaller.paths
    settings, bad_settings = current_settings()
    stale = staleness(paths, settings.recall.stale_after_hours)
    encoder = reader.manifest.encoder
    hours = last_night_hours(paths)
    return StatusAnswer(
        version=__version__,
        store=str(paths.root),
        snapshot_id=seen.recaller.snapshot_id,
        built_at=reader.manifest.built_at,
        last_night_hours=None if hours is None else round(hours, 2),
        user=view.user,
        wing=view.wing,
        counts=_counts(seen),
        wings=seen.count_by("wing"),
        encoder=None if encoder is None else str(encoder["model"]),
        warnings=_warned((*seen.warnings, *bad_settings, *stale, *_empty(view, seen))),
    )


def _counts(seen: Seen) -> dict[str, int]:
    """Return how many memories, turns, summaries and concepts may be seen."""
    reader, allowed = seen.recaller.reader, seen.allowed
    held = reader.mentions
    starts, visible = held.indptr[:-1], allowed[held.positions].astype(np.int64)
    sums = np.concatenate([[0], np.cumsum(visible)])
    concepts = int(np.count_nonzero(sums[held.indptr[1:]] - sums[starts]))
    return {
        "memories": int(np.count_nonzero(allowed)),
        "turns": int(np.count_nonzero(reader.sessions.turns[allowed])),
        "summaries": int(np.count_nonzero(reader.summaries.arrays.where_all(allowed))),
        "concepts": concepts,
    }


def _empty(view: View, seen: Seen) -> list[RecallWarning]:
    if bool(seen.allowed.any()):
        return []
    asked = {"wing": view.wing, "user": view.user}
    named = [f"{name} {value!r}" for name, value in asked.items() if value]
    message = f"this server may see no memory at all ({', '.join(named) or 'no user named'})"
    return [RecallWarning("nothing_visible", message)]


# A recall inside a view, as an answer for the protocol.


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
    """What a call of the tool `recall` asks."""

    query: str
    k: int = 10
    wing: str | None = None
    room: str | None = None
    category: str | None = None
    as_of: str | None = None  # ISO-8601; naive times are UTC
    explain: bool = False


def recall_in_view(
    view: View, question: Question, timeout_s: float
) -> tuple[RecallAnswer, Mapping[str, Any]]:
    """Return the memories that answer a question, and the recall's own result as plain values.

    A store that cannot answer is a warning, as in every recall. `timeout_s` is the call's; the
    recall answers with what there is before.

    Raises:
        OutsideViewError: The question asks for another wing than the server's.
        ValueError: For what no store could honour; a `BadMomentError` for `as_of`.
    """
    wing = view.narrowed_to(question.wing)
    as_of = _read_moment(question.as_of)
    asked = {facet: getattr(question, facet) for facet in FACETS}
    unknown: tuple[RecallWarning, ...] = ()
    try:
        store = view.store()
        # Only where a call names a facet: the view's own wing may be one that nobody has yet.
        if any(value is not None for value in asked.values()):
            with view.open() as seen:
                unknown = seen.unknown_facets(asked)
    except StoreError as error:
        warning = Warned(code="no_snapshot", message=str(error))
        return RecallAnswer(
            query=question.query, memories=[], warnings=[warning], elapsed_ms=0.0
        ), {}
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
    said = [
        Warned(code=w["code"], message=_USER_REQUIRED)
        if w["code"] == "user_required"
        else Warned(**w)
        for w in found["warnings"]
        if w["code"] not in _FROM_THE_WHOLE_SNAPSHOT
    ]
    why = ("profile_used", "pipeline", "phase_timing_ms")
    answer = RecallAnswer(
        query=question.query,
        memories=[_recalled(memory) for memory in found["memories"]],
        warnings=[*_warned((*view.store_warnings(), *unknown)), *said],
        snapshot_id=found["snapshot_id"],
        elapsed_ms=found["phase_timing_ms"]["total"],
        answerability=found.get("answerability"),
        explanation={name: found[name] for name in why} if question.explain else None,
    )
    return answer, found


def _recalled(memory: Mapping[str, Any]) -> Recalled:
    content = str(memory["content"])
    fields: dict[str, Any] = {n: memory[n] for n in _AS_MEMORY if memory.get(n) is not None}
    fields["content"] = content[:MAX_CONTENT_CHARS]
    events = memory.get("score_events")
    of_summary = memory["kind"] == "summary"
    return Recalled(
        **fields,
        id=memory["id"],
        uri=cluster_uri(memory["id"]) if of_summary else item_uri(memory["id"]),
        truncated=True if len(content) > MAX_CONTENT_CHARS else None,
        score=round(memory["final_score"], _SCORE_DIGITS),
        support=memory.get("support"),
        annotations=memory.get("annotations"),
        legs=None if events is None else memory["legs"],
        steps=None
        if events is None
        else [
            Step(
                phase=str(event["phase"]),
                delta=round(float(event["delta"]), _SCORE_DIGITS),
                reason=str(event.get("reason", "")),
            )
            for event in events
        ],
    )


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
