"""All proposals of a night: the finders one after the other, each on what the earlier ones left.

What belongs here: the order. Exact duplicates come first (they settle the most with the most
certainty), then fragments (their parts look alike and must not be taken for duplicates), then what
a newer memory replaces, near duplicates and contradictions. So no memory is to become a tombstone
twice, and one whose fields change is left alone otherwise until the next night.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.curate.contradictions import contradictions
from noctuary.curate.exact import exact_duplicates
from noctuary.curate.fragment_marks import read_mark
from noctuary.curate.fragments import fragment_sets
from noctuary.curate.model import KINDS, Evidence, Proposal, named, target_of
from noctuary.curate.near import near_duplicates
from noctuary.curate.replaced import NEAR, superseded_facts
from noctuary.curate.scopes import Claims, is_open
from noctuary.graph.extraction import Extraction
from noctuary.graph.model import Supersession
from noctuary.graph.supersession.memories import line_up
from noctuary.text.tombstone import is_tombstone
from noctuary.types import MemoryRecord

TOMBSTONE = 1.0
"""Confidence that a memory with the mark is a tombstone."""


class Materials(NamedTuple):
    """What a night knows of its memories.

    Attributes:
        records: Memories, with positions; turns are never proposed for anything.
        extractions: What was found in each, in the same order.
        supersessions: The night's table.
        canonical_of: Folded names that were merged away, and what stands for them.
        vectors: Unit rows by position, shape (n, d), or None.
    """

    records: Sequence[MemoryRecord]
    extractions: Sequence[Extraction]
    supersessions: Sequence[Supersession]
    canonical_of: Mapping[str, str]
    vectors: NDArray[np.float32] | None


def propose(materials: Materials) -> list[Proposal]:
    """Return every proposal, in the order of KINDS and positions; a pure function of its input.

    Raises:
        ValueError: Records and extractions do not line up.
    """
    memories = line_up(materials.records, materials.extractions)
    open_records = [r for r in materials.records if is_open(r)]
    claims = Claims()
    found = [
        *exact_duplicates(open_records, claims),
        *fragment_sets(open_records, claims),
        *superseded_facts(open_records, materials.supersessions, claims),
        # Parts look alike: whole or not, they are nobody's near duplicates.
        *near_duplicates(
            [r for r in open_records if read_mark(r.content) is None],
            _near_pairs(materials.supersessions),
            materials.vectors,
            claims,
        ),
        *contradictions(memories, materials.canonical_of, claims),
        *_tombstones(materials.records),
    ]
    return sorted(found, key=_order)


def _near_pairs(supersessions: Iterable[Supersession]) -> Iterator[tuple[int, int]]:
    for found in supersessions:
        if found.reason == NEAR:
            yield found.older_position, found.newer_position


def _tombstones(records: Iterable[MemoryRecord]) -> Iterator[Proposal]:
    for record in records:
        if not record.is_turn and is_tombstone(record.content):
            yield named(
                Proposal(
                    action="NOOP",
                    kind="tombstone",
                    confidence=TOMBSTONE,
                    user=record.user,
                    wing=record.wing,
                    targets=(target_of(record, "looked_at"),),
                    evidence=Evidence("It is superseded in the source already."),
                )
            )


def _order(proposal: Proposal) -> tuple[int, list[int], str]:
    positions = [target.position for target in proposal.targets]
    return KINDS.index(proposal.kind), positions, proposal.proposal_id
