"""How many words a written query shares with the memories it was written for.

What belongs here: the measure and its bounds. A query that repeats its memory's words would be
another exact query and reward lexical search.
"""

from __future__ import annotations

from dataclasses import dataclass

from noctuary.text.tokens import tokenize
from noctuary.types import MemoryRecord

MAX_JACCARD = 0.18
"""Bound of a paraphrase (hybrid-recall's evaluation set). Higher lets lexical search find what was
to be found by meaning; lower rejects queries for a name that cannot be paraphrased."""
MAX_JACCARD_MULTI_HOP = 0.3
"""Bound of a multi-hop question against each of its memories: it has to name what they share."""
MAX_SHARED = 1 / 3
"""Share of a paraphrase's own tokens that may stand in the memory. The Jaccard index alone does not
bound a short query about a long memory: eight words copied out of a hundred are .08."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """Shared words of a query and a memory, both as the index sees them (stems, no stop words).

    Attributes:
        jaccard: Shared tokens over all distinct tokens of both, in [0, 1].
        shared: Shared tokens over the query's distinct tokens, in [0, 1].
        n_tokens: Distinct tokens of the query.
    """

    jaccard: float
    shared: float
    n_tokens: int


def measure_overlap(query: str, record: MemoryRecord) -> Overlap:
    """Compare a query with a memory's content and keywords."""
    asked = frozenset(tokenize(query))
    held = frozenset(tokenize(f"{record.content}\n{record.expanded_keywords}"))
    common = len(asked & held)
    return Overlap(
        jaccard=common / max(len(asked | held), 1),
        shared=common / max(len(asked), 1),
        n_tokens=len(asked),
    )
