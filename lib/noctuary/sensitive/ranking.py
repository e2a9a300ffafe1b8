"""Which sensitive rows fit a question best: BM25 over them alone, in memory.

What belongs here: scores and order. What does not: reading rows (`rows`). How rare a word is is
counted over the rows that this user may see, so that a score says nothing of another user's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from noctuary.lexical.bm25 import idf, saturation
from noctuary.text.tokens import tokenize


def score_documents(query: str, documents: Sequence[Sequence[str]]) -> NDArray[np.float64]:
    """Return the BM25 score of each document for a query (noctuary.lexical.bm25).

    Args:
        query: Any text; a token counts once.
        documents: Tokens of each, repeats included.

    Returns:
        Shape (documents,), >= 0, 0 where no token of the query occurs.
    """
    scores = np.zeros(len(documents))
    counts = [Counter(tokens) for tokens in documents]
    lengths = np.array([len(tokens) for tokens in documents], dtype=np.float64)
    mean = float(lengths.mean()) if lengths.any() else 1.0
    for token in sorted(set(tokenize(query))):
        held = np.array([count[token] for count in counts], dtype=np.float64)
        frequency = np.array([np.count_nonzero(held)], dtype=np.int64)
        scores += idf(frequency, len(documents)) * saturation(held, lengths, mean)
    return scores
