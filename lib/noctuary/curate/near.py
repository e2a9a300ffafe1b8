"""Near duplicates: a newer memory that is much like an older one and holds everything it says.

What belongs here: pairs by shingles (MinHash over character trigrams, verified by Jaccard) and by
the night's cosines, and what to propose for each. What does not: the hashing
(`noctuary.graph.canonical.minhash`), the vectors' pairs (`noctuary.graph.supersession.near`), the
judgement of two texts (`holding`).

Likeness only chooses pairs: of 20 pairs of cosine .86 and more on realmem, 4 were lookalikes
(docs/decisions/0036). A tombstone asks for `holding.why_not_held` to find nothing missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.curate.exact import normalised
from noctuary.curate.holding import why_not_held
from noctuary.curate.model import Evidence, Proposal, named, target_of
from noctuary.curate.scopes import Claims, age_key, by_scope, scope_of
from noctuary.graph.canonical.grams import jaccard
from noctuary.graph.canonical.minhash import candidates, may_compare, signatures
from noctuary.graph.supersession.guards import differ
from noctuary.graph.supersession.near import exact_cosine
from noctuary.types import MemoryRecord

LEAST_SHINGLES = 0.8
"""Least Jaccard of the trigrams of two texts; a pair at .8 is found with odds of .99, one at .7 of
.86 (`minhash.BAND_ROWS`, `BANDS`). Lower looks at more pairs that say different things."""

LEFT_ALONE = 0.3
"""Confidence that a pair is one memory twice where the newer does not hold the older."""

NEAR_MAX_CHARS = 20_000
"""Longest text compared by shingles: longer ones are documents, and cost memory in proportion."""

_DIGITS = 6

Pair = tuple[int, int]
"""Positions of the older and the newer."""


class Likeness(NamedTuple):
    """How alike two memories are.

    Attributes:
        shingles: Jaccard of trigrams, in [0, 1]; None where a text is too long.
        cosine: Of the vectors, or None without vectors.
    """

    shingles: float | None
    cosine: float | None


def near_duplicates(
    records: Iterable[MemoryRecord],
    cosine_pairs: Iterable[Pair],
    vectors: NDArray[np.float32] | None,
    claims: Claims,
) -> Iterator[Proposal]:
    """Yield one proposal per older memory that is superseded, and a NOOP per other pair.

    Args:
        records: Open ones.
        cosine_pairs: Pairs that the night found by their vectors; those of other scopes, of turns
            and of taken memories are left out.
        vectors: Unit rows by position, shape (n, d), for the evidence; None leaves cosines out.
        claims: Takes note of what is superseded.
    """
    free = {r.position: r for r in claims.free(records)}
    pairs = {pair for pair in cosine_pairs if _is_pair(pair, free)}
    for scope in by_scope(free.values()):
        pairs.update(shingle_pairs(scope))
    # The newest first among those that may stand for an older one.
    ordered = sorted(pairs, key=lambda p: (p[0], [-k for k in age_key(free[p[1]])]))
    for older, newer in ordered:
        if claims.holds(older) or newer in claims.updated:
            continue
        yield _proposal(
            free[older], free[newer], _likeness(free[older], free[newer], vectors), claims
        )


def shingle_pairs(records: Sequence[MemoryRecord]) -> list[Pair]:
    """Return the pairs of one scope that share LEAST_SHINGLES of their trigrams, sorted.

    Args:
        records: Of one user and wing.
    """
    texts: list[str] = []
    chosen: list[MemoryRecord] = []
    for record in sorted(records, key=lambda r: r.position):
        text = _shingled(record)
        if text is not None:
            texts.append(text)
            chosen.append(record)
    found: list[Pair] = []
    # Of hundreds of texts that are all alike, each is compared with the first 64.
    crowded: Counter[str] = Counter()
    for one, other in candidates(texts, signatures(texts), crowded):
        if jaccard(texts[one], texts[other]) >= LEAST_SHINGLES:
            ends = sorted((chosen[one], chosen[other]), key=age_key)
            found.append((ends[0].position, ends[1].position))
    return sorted(found)


def _shingled(record: MemoryRecord) -> str | None:
    if len(record.content) > NEAR_MAX_CHARS:
        return None
    text = normalised(record.content).casefold()
    return text if may_compare(text) else None


def _is_pair(pair: Pair, free: Mapping[int, MemoryRecord]) -> bool:
    older, newer = (free.get(position) for position in pair)
    if older is None or newer is None:
        return False
    return scope_of(older) == scope_of(newer) and age_key(older) < age_key(newer)


def _likeness(
    older: MemoryRecord, newer: MemoryRecord, vectors: NDArray[np.float32] | None
) -> Likeness:
    one, other = _shingled(older), _shingled(newer)
    shingles = None if one is None or other is None else round(jaccard(one, other), _DIGITS)
    if vectors is None:
        return Likeness(shingles, None)
    return Likeness(shingles, exact_cosine(vectors[older.position], vectors[newer.position]))


def _proposal(
    older: MemoryRecord, newer: MemoryRecord, likeness: Likeness, claims: Claims
) -> Proposal:
    missing = why_not_held(older.content, newer.content)
    if missing is None and differ(older.content, newer.content):
        missing = "They differ in a number, an identifier, a date or a name."
    if missing is None and (older.room or "") != (newer.room or ""):
        missing = "They are of different rooms."
    if missing is None:
        claims.superseded.add(older.position)
    highest = max((score for score in likeness if score is not None), default=0.0)
    reason = missing or "The newer holds every word of the older in its order, and more like it."
    return named(
        Proposal(
            action="SUPERSEDE" if missing is None else "NOOP",
            kind="near_duplicate",
            # A cosine may leave [0, 1] by rounding, and an exact text is not asked here.
            confidence=min(max(highest, LEFT_ALONE), 0.99) if missing is None else LEFT_ALONE,
            user=newer.user,
            wing=newer.wing,
            targets=(
                target_of(older, "superseded" if missing is None else "looked_at"),
                target_of(newer, "kept" if missing is None else "looked_at"),
            ),
            evidence=Evidence(reason, (), likeness.cosine, likeness.shingles),
        )
    )
