"""What a store says about its memories, as findings of the memories that stand behind it.

What belongs here: links, concepts and edges of a source as additions to `Extraction`s, so that what
a memory contributes to the graph comes and goes with it and with what its store says. What does
not: asking the store (`noctuary.corpus.evidence`), the sums (`state`), whether a memory is
superseded (`supersession`).

Everything told here stands at no place of a text: NO_SPAN. What a text states has one, so that the
two can be told apart everywhere (`is_told`). It is evidence and not truth (research/peers.md 2.2:
a server's concepts were found by a model), which is why what a store tells of concepts supersedes
no memory; only its links between memories do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from noctuary.corpus.evidence import (
    PART_OF,
    RESOLVED_BY,
    SEE_ALSO,
    SUPERSEDES,
    KnownConcept,
    KnownEdge,
    KnownMention,
    MemoryLink,
)
from noctuary.graph.extraction import Extraction, Found, Stated
from noctuary.graph.fold import fold_name
from noctuary.graph.merge import found_order, sort_stated
from noctuary.graph.model import NO_SPAN, StatedRelation
from noctuary.graph.relation_words import map_relation

TOLD_VERSION = "1"
"""Raised when the same tables may give other findings; part of the stage's inputs."""

ID_MARK = "#"
"""Begins an object that is a memory, as in `Stated`."""

LINK_RELATIONS: Mapping[str, StatedRelation] = {
    SUPERSEDES: "supersedes",
    PART_OF: "part_of",
    SEE_ALSO: "has",
    RESOLVED_BY: "resolved_by",
}
"""What a link states, by its type. `has` between memories is a plain link, as in a text."""

OTHER_RELATION: StatedRelation = "related_to"
"""What an edge states whose relation the graph has no word for."""

ALIAS_DETAIL = "the store's own alias"


def is_told(stated: Stated) -> bool:
    """Say whether a statement is its store's and not the text's."""
    return stated.start == NO_SPAN


def findings_told(
    links: Iterable[MemoryLink],
    concepts: Iterable[KnownConcept],
    mentions: Iterable[KnownMention],
    edges: Iterable[KnownEdge],
) -> dict[str, Extraction]:
    """Return what is told, by the id of the memory that stands behind it.

    - A link is a statement of the memory that points ("" relation "#id").
    - A mention makes the concept's name and aliases tags of its memory, and says that they are one.
    - An edge is a statement of each memory that is evidence of it.

    Names that fold to nothing, and edges whose ends are one name, say nothing.

    Args:
        links: Between memories.
        concepts: Names and aliases; those that nothing below names are of no use.
        mentions: Which memory is about which concept.
        edges: Between concepts, with the memories that say so.
    """
    known = {concept.name: concept for concept in concepts}
    found: defaultdict[str, set[Found]] = defaultdict(set)
    stated: defaultdict[str, set[Stated]] = defaultdict(set)
    named: defaultdict[str, set[str]] = defaultdict(set)
    for link in links:
        stated[link.from_id].add(_link(link))
    for mention in mentions:
        concept = known.get(mention.concept)
        # An alias is a name by which other texts may mean it: it is looked for as well.
        for name in (mention.concept, *(concept.aliases if concept is not None else ())):
            if folded := fold_name(name):
                tag = Found("author", "tag", folded, NO_SPAN, NO_SPAN, name)
                found[mention.memory_id].add(tag)
        named[mention.memory_id].add(mention.concept)
    for edge in edges:
        statement = _edge(edge)
        if statement is None:
            continue
        for memory_id in edge.evidence:
            stated[memory_id].add(statement)
            named[memory_id] |= {edge.source, edge.target}
    return {
        memory_id: Extraction(
            tuple(sorted(found.get(memory_id, ()), key=found_order)),
            sort_stated(stated.get(memory_id, ())),
            tuple(sorted(_aliases(known[n] for n in named.get(memory_id, ()) if n in known))),
        )
        for memory_id in sorted(found.keys() | stated.keys())
    }


def _link(link: MemoryLink) -> Stated:
    target = f"{ID_MARK}{link.to_id}"
    return Stated("", LINK_RELATIONS[link.link_type], target, NO_SPAN, NO_SPAN, "", target)


def _edge(edge: KnownEdge) -> Stated | None:
    relation, is_swapped = map_relation(edge.relation) or (OTHER_RELATION, False)
    ends = (edge.target, edge.source) if is_swapped else (edge.source, edge.target)
    subject, thing = map(fold_name, ends)
    if not subject or not thing or subject == thing:
        return None
    return Stated(subject, relation, thing, NO_SPAN, NO_SPAN, *ends)


def _aliases(concepts: Iterable[KnownConcept]) -> set[tuple[str, str, str]]:
    folded = {
        (fold_name(alias), fold_name(concept.name))
        for concept in concepts
        for alias in concept.aliases
    }
    return {
        (alias, name, ALIAS_DETAIL) for alias, name in folded if alias and name and alias != name
    }
