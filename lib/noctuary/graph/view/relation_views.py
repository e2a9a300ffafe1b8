"""A stated relation as it is shown from one of its two concepts."""

from __future__ import annotations

from collections.abc import Mapping

from noctuary.graph.view.model import MemoryId, RelationView
from noctuary.graph.view.relations import SeenRelation


def positions_of(relation: SeenRelation) -> list[int]:
    """Return the memories that a shown relation names."""
    closer = [] if relation.closer is None else [relation.closer]
    return [*relation.positions, *closer]


def view_relation(
    relation: SeenRelation, seen_from: int, other_name: str, ids: Mapping[int, MemoryId]
) -> RelationView:
    """Return a relation as seen from a concept.

    Args:
        relation: The relation.
        seen_from: The concept, one of the relation's two.
        other_name: Name of the other one.
        ids: Public ids of at least `positions_of(relation)`.
    """
    outward = relation.src == seen_from
    return RelationView(
        relation=relation.relation,
        outward=outward,
        other=other_name,
        other_ordinal=relation.dst if outward else relation.src,
        weight=relation.weight,
        evidence=tuple(ids[p] for p in relation.positions),
        valid_from_us=relation.valid_from_us,
        valid_to_us=relation.valid_to_us,
        closed_by=None if relation.closer is None else ids[relation.closer],
    )
