"""Which share of a query's words a memory holds, read from the postings of the lexical index.

What belongs here: counting. What does not: tokenizing, and what coverage is worth.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from noctuary.lexical.search import TermLookup


def keyword_coverage(
    query_tokens: Sequence[str],
    lookup: TermLookup,
    posting_positions: NDArray[np.int32],
    positions: NDArray[np.int64],
) -> NDArray[np.float64]:
    """Return |K and terms(d)| / max(|K|, 1) of every memory asked for.

    K are the distinct tokens of the query as the index has them: stems without stop words, n-grams
    of unspaced scripts. The reference keeps only a-z, 0-9 and underscores, so that a query in
    another script has no keywords there.

    Source: libravdb mathematics section 7.5; research/peers.md 1.5.

    Args:
        query_tokens: What noctuary.text.tokens.tokenize returned; none gives 0 throughout.
        lookup: Posting ranges of known tokens.
        posting_positions: Memory positions, ascending inside a range.
        positions: Memories to judge, shape (m,), any order.

    Returns:
        In [0, 1], shape (m,).
    """
    held = np.zeros(positions.size, dtype=np.float64)
    tokens = sorted(set(query_tokens))
    # Of the postings' own type: searching them by another one would copy them.
    wanted = positions.astype(posting_positions.dtype)
    for start, stop in lookup(tokens):
        holders = posting_positions[start:stop]
        if not holders.size:
            continue
        # A search for few candidates in a long, sorted list instead of a pass over all of it.
        places = np.minimum(np.searchsorted(holders, wanted), holders.size - 1)
        held += holders[places] == wanted
    return held / max(len(tokens), 1)
