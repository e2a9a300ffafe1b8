"""A model's words for a relation, mapped onto those of the graph. One table, no guessing."""

from __future__ import annotations

import re
from typing import cast, get_args

from noctuary.graph.model import StatedRelation

RELATION_NAMES: tuple[StatedRelation, ...] = tuple(
    name
    for name in cast("tuple[StatedRelation, ...]", get_args(StatedRelation))
    if name != "related_to"
)
"""All but the one for relations that have no word: a model is asked for the others."""

_SAME: dict[str, StatedRelation] = {
    "replaces": "supersedes", "replaced": "supersedes", "superseded": "supersedes",
    "requires": "depends_on", "needs": "depends_on", "relies_on": "depends_on",
    "dependent_on": "depends_on", "depended_on": "depends_on",
    "belongs_to": "part_of", "component_of": "part_of", "member_of": "part_of",
    "instance_of": "is_a", "type_of": "is_a", "kind_of": "is_a", "an": "is_a", "a": "is_a",
    "now": "is_now", "became": "is_now", "renamed_to": "is_now", "changed_to": "is_now",
    "preferred": "prefers", "likes": "prefers", "favors": "prefers",
    "employed_by": "works_at", "works_for": "works_at", "worked_at": "works_at",
    "resides_in": "lives_in", "lived_in": "lives_in", "located_in": "lives_in",
    "based_in": "lives_in",
    "owns": "has", "have": "has", "had": "has",
    "property_of": "owned_by", "maintained_by": "owned_by",
    "fixed_by": "resolved_by", "solved_by": "resolved_by", "closed_by": "resolved_by",
}  # fmt: skip
_INVERSE: dict[str, StatedRelation] = {
    "replaced_by": "supersedes", "superseded_by": "supersedes",
    "required_by": "depends_on", "needed_by": "depends_on",
    "has_part": "part_of", "contains": "part_of", "consists_of": "part_of",
    "has_member": "part_of",
    "employs": "works_at", "preferred_by": "prefers",
    "fixes": "resolved_by", "fixed": "resolved_by", "resolves": "resolved_by",
    "resolved": "resolved_by", "solves": "resolved_by",
    "owner_of": "owned_by", "maintains": "owned_by",
}  # fmt: skip
_NO_LETTERS = re.compile(r"[^a-z]+")
_AUXILIARY = re.compile(r"^(?:is|was|are|were|has_been|been)_")


def map_relation(text: str) -> tuple[StatedRelation, bool] | None:
    """Return the relation that is meant and whether its ends are swapped; None for any other.

    Case, punctuation and a leading "is" make no difference: "Is replaced by" is `supersedes`,
    swapped.
    """
    name = _NO_LETTERS.sub("_", text.casefold()).strip("_")
    for candidate in (name, _AUXILIARY.sub("", name)):
        if candidate in RELATION_NAMES:
            return candidate, False
        if candidate in _INVERSE:
            return _INVERSE[candidate], True
        if candidate in _SAME:
            return _SAME[candidate], False
    return None
