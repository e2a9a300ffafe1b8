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
from noctuary.core import store as layout
from noctuary.core.errors import NoctuaryError, SnapshotCorruptError, StoreError
from noctuary.core.store import find_home, find_store, last_night_hours
from noctuary.core.types import from_micros
from noctuary.graph.view import (
    ConceptView,
    GraphFiles,
    GraphSource,
    Looking,
    NameBook,
    RelationView,
    evidence_line,
    open_graph,
)
from noctuary.graph.view_paths import describe_concept
from noctuary.graph.walk import OPEN_END_US, ROLES
from noctuary.recall.api import recall
from noctuary.recall.engine import Recaller, find_serving, staleness
from noctuary.recall.expand import expand_from
from noctuary.recall.profile import RetrievalProfile, current_settings
from noctuary.recall.query import Mask, Scope, build_mask
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.result import RecallWarning
from noctuary.sources.injections import append_injection
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
    """A pinned snapshot, and what of it may be seen.

    Attributes:
        recaller: The snapshot.
        allowed: Which memories, shape (n,).
        user: Whose they are besides those of nobody, or None.
        warnings: What is to be said about the snapshot.
    """

    recaller: Recaller
    allowed: Mask
    user: str | None
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
        """Return where a memory or a summary that may be seen stands.

        Raises:
            UnknownItemError: There is none.
        """
        position = self.position_of(item_id)
        if position is None:
            raise UnknownItemError(
                f"there is no memory {item_id!r} here: ids are those that recall returns. It may "
                "be newer than the last night, forgotten since, or not for this server to see"
            )
        return position

    def values_of(self, facet: str) -> tuple[str, ...]:
        """Return the values of a facet that visible memories have, sorted."""
        found = self.recaller.reader.facets[facet]
        codes: NDArray[np.int32] = np.unique(found.codes[self.allowed])
        return tuple(sorted(found.values[code] for code in codes[codes >= 0].tolist()))

    def unknown_facets(self, asked: dict[str, str | None]) -> tuple[RecallWarning, ...]:
        """Return a warning for every value that no visible memory has, with similar ones that are.

        Recall's own warnings judge and suggest by the whole snapshot: they would tell that others
        have a wing of this name, and what their wings are called.
        """
        warnings: list[RecallWarning] = []
        for facet, wanted in asked.items():
            values = () if wanted is None else self.values_of(facet)
            if wanted is None or wanted in values:
                continue
            near = difflib.get_close_matches(wanted, values, n=_NEAR_SHOWN, cutoff=0.5)
            hint = f"near: {', '.join(near)}" if near else f"there are {len(values)}"
            message = f"no memory here has {facet} {wanted!r}; {hint}"
            warnings.append(RecallWarning(f"unknown_{facet}", message))
        return tuple(warnings)

    @contextmanager
    def graph(self) -> Generator[tuple[GraphSource, NameBook]]:
        """Open the graph as far as it may be seen; for one thread.

        Raises:
            StoreError: The snapshot is too old for it.
        """
        reader = self.recaller.reader
        looking = Looking(
            self.allowed, reader.created_at_us, reader.relations, reader.id_kind == "int"
        )
        files = GraphFiles.locate(
            reader.directory, layout.ROWS_FILE, layout.mention_file, layout.graph_file
        )
        with open_graph(files, looking) as source:
            yield source, NameBook(source)


class View:
    """What a server answers for; safe to share between threads.

    Attributes:
        user: Whose memories besides those of nobody; None: only those of nobody.
        wing: The only wing, or None for all.
    """

    def __init__(
        self, store: str | Path | None = None, *, user: str | None = None, wing: str | None = None
    ) -> None:
        self.user = user
        self.wing = wing
        self._asked = store
        self._directory: Path | None = None
        self._guessed: tuple[RecallWarning, ...] = ()
        self._snapshot_id: str | None = None
        self._lock = threading.Lock()

    @property
    def scope(self) -> Scope:
        """What may be seen, as a recall's filters."""
        return Scope(wing=self.wing, user=self.user)

    def store(self) -> Path:
        """Return the store directory: the first one found, for as long as the server runs.

        Another store that publishes later must not take this one's place between two calls.

        Raises:
            StoreError: There is none yet.
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
        """Pin what serves now, for one call.

        Raises:
            StoreError: There is no store, or nothing published that can be read: also where
                damage shows while it is read.
        """
        serving, warnings = find_serving(self.store())
        recaller = serving.recaller
        self.release_after_swap(recaller.snapshot_id)
        reader = recaller.reader
        mask, _ = build_mask(self.scope, reader.facets, reader.created_at_us)
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
        """Return the wing that a call searches.

        Raises:
            OutsideViewError: It asks for another one than the server's.
        """
        if self.wing is None or wing is None or wing == self.wing:
            return self.wing if wing is None else wing
        raise OutsideViewError(
            f"this server answers for the wing {self.wing!r} only, and {wing!r} was asked for: "
            "leave wing out"
        )


# The record of what was handed to an agent, so that no night takes it for something new.
#
# An agent's transcript holds what its tools returned; read as a memory store, it would bring every
# recalled memory back as a new one.


_logger = logging.getLogger(__name__)


def note_handed_out(view: View, memories: Sequence[Mapping[str, Any]], query: str = "") -> None:
    """Put hashes of some memories, and of the question, on the store's record; never raises.

    Args:
        view: Of the server that handed them out.
        memories: With id, content, created_at, session_id and user, as plain values.
        query: What was asked, or nothing.
    """
    if not memories:
        return
    try:
        from noctuary.core.store import StorePaths

        path = StorePaths(view.store()).injections
    except StoreError:
        return
    fault = append_injection(path, wordings_of(memories, query), now_us=time.time_ns() // 1000)
    if fault is not None:
        _logger.warning("%s", fault)


# What is connected with a memory or with a concept, inside a view.


SUPERSEDES = "supersedes"
SUPERSEDED_BY = "superseded_by"
SUMMARIZES = "summarizes"
"""Relations that are no steps of the graph: what replaces what, what stands for what."""


class AskedWronglyError(NoctuaryError, ValueError):
    """Neither or both of a memory and a concept were asked about."""


class Joined(NamedTuple):
    """A connection between two memories.

    Attributes:
        position: The other memory.
        relation: Its name.
        outward: Whether it leads to the other memory, and not from it.
        weight: In (0, 1].
        concept: Ordinal of what connects them, -1 where it is their conversation.
    """

    position: int
    relation: str
    outward: bool
    weight: float
    concept: int


def relate(seen: Seen, item_id: str | None, concept: str | None, limit: int) -> RelatedAnswer:
    """Return what is connected with a memory or a concept.

    Args:
        seen: What may be seen.
        item_id: A memory's or summary's id as text, or None.
        concept: A concept's name or alias, or None; one of the two is given.
        limit: Longest list, >= 1.

    Raises:
        AskedWronglyError: Neither or both are given.
        UnknownItemError: There is no such memory or concept for this server.
    """
    if (item_id is None) == (concept is None):
        raise AskedWronglyError("give either the id of a memory or a concept, not both or neither")
    if concept is not None:
        return relate_concept(seen, concept, limit)
    assert item_id is not None
    return relate_memory(seen, item_id, limit)


def relate_memory(seen: Seen, item_id: str, limit: int) -> RelatedAnswer:
    """Return the memories and concepts beside one memory, strongest first.

    Of a summary: the memories that it stands for, in order of time.

    Raises:
        UnknownItemError: There is no such memory for this server.
    """
    position = seen.find(item_id)
    reader = seen.recaller.reader
    with seen.graph() as (source, book):
        concepts: list[ConceptBeside] = []
        if position >= reader.count:
            sources = reader.summaries.at(position).sources
            steps = [Joined(int(p), SUMMARIZES, True, 1.0, -1) for p in sources]
        else:
            steps = joined_with(source, position)
            concepts = name_concepts(source, book, position, None)
        memories = _neighbours(source, book, steps[:limit])
        return RelatedAnswer(
            about=item_id,
            kind="memory",
            memories=memories,
            concepts=concepts[:limit],
            relations=[],
            totals={"memories": len(steps), "concepts": len(concepts), "relations": 0},
            warnings=_warned(seen),
            snapshot_id=seen.recaller.snapshot_id,
        )


def relate_concept(seen: Seen, name: str, limit: int) -> RelatedAnswer:
    """Return the memories, concepts and stated relations around a concept.

    Raises:
        UnknownItemError: No concept that this server may see has the name; similar ones are named.
    """
    with seen.graph() as (source, book):
        ordinal = book.find(name) if is_text(name) else None
        if ordinal is None:
            near = book.nearest(name) if is_text(name) else ()
            hint = f"; near: {', '.join(near)}" if near else ""
            raise UnknownItemError(f"no concept here has the name {name!r}{hint}")
        view = describe_concept(source, book, ordinal, limit)
    return _of_concept(seen, view, limit)


def name_concepts(
    source: GraphSource, book: NameBook, position: int, limit: int | None
) -> list[ConceptBeside]:
    """Return the concepts that a memory holds, by role, then by how few memories share them.

    Args:
        source: The graph.
        book: Its names.
        position: The memory.
        limit: How many at most; None for all.
    """
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
    found = _supersession_steps(source, position)
    for i in np.concatenate([outward, inward]).tolist():
        leads_out = int(steps["targets"][i]) != position
        other = int((steps["targets"] if leads_out else source.step_sources)[i])
        holds = int(steps["valid_to_us"][i]) == OPEN_END_US
        if holds and other != position and source.sight.seen[other]:
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


def _supersession_steps(source: GraphSource, position: int) -> list[Joined]:
    rows = source.query(
        "SELECT older, newer FROM supersessions WHERE older = ? OR newer = ?", [position, position]
    )
    ends = [(n, SUPERSEDED_BY) if o == position else (o, SUPERSEDES) for o, n in rows]
    return [Joined(int(p), name, True, 1.0, -1) for p, name in ends if source.sight.seen[p]]


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
            weight=None if source.sight.hides else round(step.weight, 6),
            concept=book.shown(step.concept) if step.concept >= 0 else None,
        )
        for step in steps
    ]


def _of_concept(seen: Seen, view: ConceptView, limit: int) -> RelatedAnswer:
    """Return a concept's view: memories that hold it, then memories that others lead to over it."""
    memories = [
        Neighbour(
            id=held.memory_id,
            uri=item_uri(held.memory_id),
            relation=held.role,
            line=held.line,
            created_at=iso(held.created_at_us),
            superseded_by=held.replaced_by,
        )
        for held in view.memories
    ]
    beside = [
        ConceptBeside(name=n.name, uri=concept_uri(n.name), kind=n.kind, shared=n.shared)
        for n in view.neighbours
    ]
    totals = {
        "memories": view.totals["memories"],
        "concepts": view.totals["neighbours"],
        "relations": view.totals["relations"],
    }
    return RelatedAnswer(
        about=view.name,
        kind="concept",
        aliases=list(view.aliases) or None,
        memories=memories[:limit],
        concepts=beside[:limit],
        relations=[_relation(view.name, relation) for relation in view.relations[:limit]],
        totals=totals,
        warnings=_warned(seen),
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


def _warned(seen: Seen) -> list[Warned]:
    return [Warned(code=w.code, message=w.message) for w in seen.warnings]


# One memory in full, or one summary with all that it stands for.


CONCEPTS_SHOWN = 12
"""Concepts named beside a memory: its own come before those that it only mentions."""


def read_item(seen: Seen, item_id: str) -> Item:
    """Return a memory or a summary in full, with what is known about it.

    Args:
        seen: What may be seen.
        item_id: As a recall returns it, as text.

    Raises:
        UnknownItemError: There is none of this id for this server.
    """
    position = seen.find(item_id)
    reader = seen.recaller.reader
    own: dict[str, Any] = _standing(seen, position) if position < reader.count else {}
    with seen.graph() as (source, book):
        held = name_concepts(source, book, position, CONCEPTS_SHOWN) if own else []
    return Item(
        **memory_fields(reader, position),
        snapshot_id=seen.recaller.snapshot_id,
        concepts=[concept.name for concept in held] or None,
        **own,
    )


def read_cluster(seen: Seen, item_id: str) -> ClusterAnswer:
    """Return a summary and every memory that it stands for, in full.

    Args:
        seen: What may be seen.
        item_id: Id of the summary, or of the cluster that it was made of.

    Raises:
        UnknownItemError: There is none of this id for this server, or its cluster has no accepted
            summary: what is in it is then found as turns.
    """
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
        first_at=_iso(whole.first_at),
        last_at=_iso(whole.last_at),
        confidence=whole.confidence,
        plan_id=whole.plan_id,
        memories=[Memory(**memory_fields(reader, position)) for position in known.values()],
        snapshot_id=whole.snapshot_id,
    )


def memory_fields(reader: SnapshotReader, position: int) -> dict[str, Any]:
    """Return the fields of `Memory` of a position of an opened snapshot."""
    row = reader.describe([position])[position]
    public = reader.public_ids([position, *row["sources"]])
    summary = bool(row["sources"])
    shown = public[position]
    return {
        "id": shown,
        "uri": cluster_uri(str(shown)) if summary else item_uri(shown),
        "kind": "summary" if summary else "memory",
        "tags": list(row["tags"]),
        "created_at": _iso(from_micros(row["created_at_us"])),
        "sources": [public[p] for p in row["sources"]] or None,
        **{
            name: row[name]
            for name in (
                "content", "category", "importance", "wing", "room", "session_id", "user",
            )
        },
    }  # fmt: skip


def _standing(seen: Seen, position: int) -> dict[str, Any]:
    """Return what replaces, hides or summarises a memory, as far as it may be seen."""
    reader = seen.recaller.reader
    newer, older = _supersessions(seen, position)
    inputs = seen.recaller.inputs_now()
    behind = seen.recaller.find_rows(RetrievalProfile(), inputs, seen.allowed).stands_for(position)
    summary = reader.summaries.of_sources(np.array([position], dtype=np.int64)).get(position)
    if summary is not None and not seen.allowed[list(summary.sources)].all():
        summary = None
    others = [p for p in (newer, behind) if p is not None]
    ids = reader.public_ids([*others, *older])
    return {
        "superseded_by": None if newer is None else ids[newer],
        "supersedes": [ids[p] for p in older] or None,
        "archived_behind": None if behind is None else ids[behind],
        "summarized_by": None
        if summary is None
        else reader.summaries.ids[summary.position - reader.count],
    }


def _supersessions(seen: Seen, position: int) -> tuple[int | None, list[int]]:
    """Return the visible memory that directly replaces one, and those that it replaces."""
    look_up = seen.recaller.reader.look_up
    asked = [str(position)]
    newer = [int(n) for (n,) in look_up("supersessions", "older", "newer", asked)]
    older = [int(o) for (o,) in look_up("supersessions", "newer", "older", asked)]
    visible = [n for n in newer if seen.allowed[n]]
    return (visible[0] if visible else None), sorted(o for o in older if seen.allowed[o])


def _iso(moment: Any) -> str | None:
    return None if moment is None else moment.isoformat()


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
        wings=_wings(seen),
        encoder=None if encoder is None else str(encoder["model"]),
        warnings=_warned_of_state((*seen.warnings, *bad_settings, *stale, *_empty(view, seen))),
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


def _wings(seen: Seen) -> dict[str, int]:
    """Return the memories of every wing that may be seen, most first."""
    facet = seen.recaller.reader.facets["wing"]
    codes = facet.codes[seen.allowed]
    counts = np.bincount(codes[codes >= 0], minlength=len(facet.values)).tolist()
    found = [(wing, n) for wing, n in zip(facet.values, counts, strict=True) if n]
    return dict(sorted(found, key=lambda pair: (-pair[1], pair[0])))


def _empty(view: View, seen: Seen) -> list[RecallWarning]:
    if bool(seen.allowed.any()):
        return []
    named = [f"{name} {value!r}" for name, value in view.scope._asdict().items() if value]
    message = f"this server may see no memory at all ({', '.join(named) or 'no user named'})"
    return [RecallWarning("nothing_visible", message)]


def _warned_of_state(warnings: tuple[RecallWarning, ...]) -> list[Warned]:
    return [Warned(code=w.code, message=w.message) for w in warnings]


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
