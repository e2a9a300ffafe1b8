"""How well the words of live rows fit a query, on the scale of the snapshot's postings.

What belongs here: BM25 with the snapshot's own statistics. What does not: cutting rows into words
(`judging`), joining the result with the snapshot's leg (noctuary.recall.overlay).

How rare a term is and how long a memory is on average are the snapshot's, so that scores of both
compare (the formula: noctuary.lexical.bm25). The average length is no part of a pack; it is read
off one posting, whose score, term frequency and length determine it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from noctuary.lexical.bm25 import K1, B, idf, saturation
from noctuary.lexical.fields import document_tokens
from noctuary.live.state import LiveState, token_digest


class HoldsPostings(Protocol):
    """A snapshot's postings."""

    count: int
    posting_positions: NDArray[np.int32]
    posting_scores: NDArray[np.float32]

    def look_up(
        self, table: str, key: str, columns: str, values: Sequence[str]
    ) -> list[tuple[Any, ...]]:
        """Return columns of the rows of a table whose key is one of the values."""
        ...


def document_frequencies(snapshot: HoldsPostings, terms: Sequence[str]) -> dict[str, int]:
    """Return in how many memories of the snapshot each term stands; 0 for an unknown one."""
    found = snapshot.look_up("terms", "term", "term, start, stop", terms)
    return {**dict.fromkeys(terms, 0), **{term: stop - start for term, start, stop in found}}


def score_rows(
    state: LiveState, tokens: Sequence[str], frequencies: Mapping[str, int], count: int, mean: float
) -> NDArray[np.float32]:
    """Return the BM25 score of every live row for a query, >= 0, shape (rows,).

    Args:
        state: The rows.
        tokens: Of the query; a token counts once.
        frequencies: By token, in how many of the snapshot's memories it stands.
        count: Memories of the snapshot.
        mean: Their mean length in tokens, above 0.
    """
    scores = np.zeros(len(state.rows), dtype=np.float32)
    lengths = np.array([row.length for row in state.rows], dtype=np.float64)
    for token in sorted(set(tokens)):
        held = _counts(state, token)
        # float32 as in the pack, where every posting is rounded before they are added up.
        weights = saturation(held, lengths, mean) * idf(np.array(frequencies[token]), count)
        scores += weights.astype(np.float32)
    return scores


def held_words(state: LiveState, tokens: Sequence[str]) -> NDArray[np.bool_]:
    """Tell which row holds which token, shape (tokens, rows)."""
    held = np.zeros((len(tokens), len(state.rows)), dtype=np.bool_)
    for place, token in enumerate(tokens):
        held[place] = _counts(state, token) > 0
    return held


def _counts(state: LiveState, token: str) -> NDArray[np.float64]:
    key = token_digest(token) if state.hashed else token
    return np.array([row.counts.get(key, 0) for row in state.rows], dtype=np.float64)


def mean_length(snapshot: HoldsPostings) -> float:
    """Return the mean length of a snapshot's memories in tokens, above 0.

    Solves score = idf * tf / (tf + k1 * (1 - b + b * length / mean)) for the mean, over the terms
    of one memory that has some, and takes the middle one: float32 scores are exact to seven digits.
    1 for a snapshot without a word, where it has no effect.
    """
    if not snapshot.posting_positions.size:
        return 1.0
    position = int(snapshot.posting_positions[0])
    columns = "content, tags, expanded_keywords, category"
    ((content, tags, keywords, category),) = snapshot.look_up(
        "memories", "position", columns, [str(position)]
    )
    tokens = document_tokens(content, tags, keywords, category)
    counts = Counter(tokens)
    found: list[float] = []
    for term, start, stop in snapshot.look_up("terms", "term", "term, start, stop", list(counts)):
        held = snapshot.posting_positions[start:stop]
        score = float(snapshot.posting_scores[start + int(np.searchsorted(held, position))])
        rarity = float(idf(np.array(stop - start), snapshot.count))
        norm = counts[term] * (rarity / score - 1.0)
        share = (norm / K1 - (1.0 - B)) / B
        if share > 0:
            found.append(len(tokens) / share)
    # Not np.median: its first call imports numpy.ma, which costs a one-shot hook 10 ms.
    return sorted(found)[len(found) // 2] if found else 1.0
