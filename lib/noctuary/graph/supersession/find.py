"""Which memories a newer one replaces: the four sources together.

What belongs here: calling the sources and writing down what they found. What does not: the sources
(`explicit`, `values`, `memo`), choosing (`resolve`), consequences for edges (`intervals`).

Incremental use. Explicit links and values cost one pass over what was extracted, values are found
group by group (`values.links_of_group`), and choosing is linear in the links: all of that is done
every night. Only comparing vectors is expensive, and `known_near` takes over what did not change.

Turns of a conversation can be replaced by what is said (explicit, is_now, newer value), never for
being a near duplicate. A memory that is marked as superseded in its source replaces none
(`noctuary.text.tombstone`). Undated memories are replaced, and replace, by explicit "#id" links
alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.graph.model import NO_SPAN, Evidence, Supersession
from noctuary.graph.supersession.columns import MemoryColumns
from noctuary.graph.supersession.corpus import Corpus
from noctuary.graph.supersession.explicit import explicit_links
from noctuary.graph.supersession.grades import DAY_US, confidence_of
from noctuary.graph.supersession.links import Link
from noctuary.graph.supersession.memo import NearDuplicates, NearMemo, find_near_duplicates
from noctuary.graph.supersession.memories import is_dated
from noctuary.graph.supersession.near import NearPair
from noctuary.graph.supersession.resolve import resolve
from noctuary.graph.supersession.values import links_of_group, value_groups

_OF_A_VALUE = 1
"""Most confidence in another value of one sentence: "My friend is Ann" may have two answers."""


class Supersessions(NamedTuple):
    """What was found.

    Attributes:
        found: One per superseded memory, sorted by older position.
        others: Further contradictions of the same memories (one moved and changed jobs, told by two
            newer memories): not for recall, but `close_intervals` needs them. Sorted as above,
            then by strength.
        rejected: Statements and links that came to nothing, by reason, sorted: unknown_id, self,
            scope, undated, generic, no_target, many_values, cycle, chain_scope.
        near_memo: What to hand in as `known_near` next time.
        pairs_asked: Pairs of vectors that had to be considered.
    """

    found: tuple[Supersession, ...]
    others: tuple[Supersession, ...]
    rejected: Mapping[str, int]
    near_memo: NearMemo
    pairs_asked: int


def find_supersessions(
    corpus: Corpus,
    canonical_of: Mapping[str, str],
    vectors: NDArray[np.float32] | None,
    known_near: NearMemo | None = None,
) -> Supersessions:
    """Return which memories are superseded; the order of the input makes no difference.

    Args:
        corpus: The memories, and what they say.
        canonical_of: Folded names that were merged away, and what stands for them.
        vectors: Unit rows by position, shape (n, d); None leaves near duplicates out.
        known_near: `near_memo` of an earlier call with vectors of the same encoder.

    Raises:
        ValueError: There are fewer rows than memories.
    """
    memories = corpus.columns
    near = NearDuplicates((), {}, 0)
    if vectors is not None:
        _check_rows(vectors, memories)
        near = find_near_duplicates(memories, vectors, known_near)
    rejected: Counter[str] = Counter()
    links = [
        *explicit_links(corpus, canonical_of, rejected),
        *_value_links(corpus, canonical_of, rejected),
        *(_near_link(pair, memories) for pair in near.pairs),
    ]
    links = [link for link in links if not memories.tombstones[link.newer]]
    resolved = resolve(links, memories, rejected)
    chosen = [resolved.chosen[older] for older in sorted(resolved.chosen)]
    heads = resolved.head_of
    return Supersessions(
        tuple(_supersession(link, heads, memories) for link in chosen),
        tuple(_supersession(link, heads, memories) for link in resolved.others),
        dict(sorted(rejected.items())),
        near.memo,
        near.asked,
    )


def _check_rows(vectors: NDArray[np.float32], memories: MemoryColumns) -> None:
    needed = len(memories)
    if vectors.ndim != 2 or len(vectors) < needed:
        raise ValueError(
            f"found vectors of shape {vectors.shape}, expected ({needed}, d): one row per position"
        )


def _value_links(
    corpus: Corpus, canonical_of: Mapping[str, str], rejected: Counter[str]
) -> Iterator[Link]:
    groups = value_groups(corpus.stating, canonical_of, rejected)
    for key in sorted(groups):
        yield from links_of_group(groups[key], corpus.stating, rejected)


def _near_link(pair: NearPair, memories: MemoryColumns) -> Link:
    confidence = confidence_of(pair.similarity, _age_gap_days(pair.older, pair.newer, memories))
    is_same = memories.marks[pair.older] == memories.marks[pair.newer]
    return Link(
        pair.older,
        pair.newer,
        "near_duplicate" if is_same else "newer_value",
        confidence if is_same else min(confidence, _OF_A_VALUE),
        pair.similarity,
        "",
        Evidence(pair.newer, NO_SPAN, NO_SPAN),
    )


def _supersession(link: Link, heads: Mapping[int, int], memories: MemoryColumns) -> Supersession:
    created_at_us = memories.created_at_us
    return Supersession(
        older_position=link.older,
        newer_position=link.newer,
        head_position=heads.get(link.newer, link.newer),
        reason=link.reason,
        confidence=link.confidence,
        similarity=link.similarity,
        age_gap_days=_age_gap_days(link.older, link.newer, memories),
        concept_id=link.concept_id,
        evidence=link.evidence,
        # An explicit link may go against the dates; nothing ends before it began.
        valid_to_us=int(max(created_at_us[link.newer], created_at_us[link.older])),
        recorded_at_us=int(memories.updated_at_us[link.newer]),
    )


def _age_gap_days(older: int, newer: int, memories: MemoryColumns) -> int:
    one, other = memories.sighting(older), memories.sighting(newer)
    if not (is_dated(one) and is_dated(other)):
        return 0
    return max(other.created_at_us - one.created_at_us, 0) // DAY_US
