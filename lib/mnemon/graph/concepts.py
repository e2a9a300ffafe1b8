"""Concepts as the sum of what memories contribute to them. No extraction, no merging of names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from mnemon.graph.extraction import KINDS
from mnemon.graph.model import Concept, Mention

_STRENGTH = {kind: rank for rank, kind in enumerate(KINDS)}


class Contribution(NamedTuple):
    """One memory's support for a concept: where it holds it, and as what kind."""

    mention: Mention
    kind: str


@dataclass(slots=True)
class _Tally:
    positions: set[int] = field(default_factory=lambda: set[int]())
    surfaces: Counter[str] = field(default_factory=lambda: Counter[str]())
    kinds: set[str] = field(default_factory=lambda: set[str]())


def make_concepts(contributions: Iterable[Contribution]) -> tuple[Concept, ...]:
    """Return the concepts that the contributions add up to, sorted by concept_id.

    The order of the contributions makes no difference, and a concept without one does not exist.
    """
    tallies: dict[str, _Tally] = {}
    for mention, kind in contributions:
        tally = tallies.get(mention.concept_id)
        if tally is None:
            tally = tallies[mention.concept_id] = _Tally()
        tally.positions.add(mention.position)
        tally.surfaces[mention.surface] += 1
        tally.kinds.add(kind)
    return tuple(_concept(key, tallies[key]) for key in sorted(tallies))


def _concept(key: str, tally: _Tally) -> Concept:
    by_use = sorted(tally.surfaces, key=lambda surface: (-tally.surfaces[surface], surface))
    return Concept(
        concept_id=key,
        canonical_name=by_use[0],
        kind=min(tally.kinds, key=lambda kind: (_STRENGTH[kind], kind)),
        aliases=tuple(sorted(by_use[1:])),
        df=len(tally.positions),
    )
