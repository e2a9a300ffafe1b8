"""What is connected with a memory or with a concept, inside a view.

What belongs here: choosing and naming connections. What does not: walking the graph for a ranking
(noctuary.recall.graph_leg), describing a concept (noctuary.graph.view).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from noctuary.errors import NoctuaryError
from noctuary.graph.arrays import OPEN_END_US, ROLES
from noctuary.graph.view.display import iso
from noctuary.graph.view.lines import evidence_line
from noctuary.graph.view.model import ConceptView, RelationView
from noctuary.graph.view.names import NameBook
from noctuary.graph.view.show import describe_concept
from noctuary.graph.view.source import GraphSource
from noctuary.mcp_server.schemas import (
    ConceptBeside,
    Neighbour,
    RelatedAnswer,
    Relation,
    Warned,
    concept_uri,
    item_uri,
)
from noctuary.mcp_server.view import Seen, UnknownItemError, is_text

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
