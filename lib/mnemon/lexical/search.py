"""Reading pre-scored postings: scores of all memories, and the best of them.

What belongs here: the hot path of the lexical leg; standard library and numpy only. What does not:
building postings, opening files, tokenizing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

TermLookup = Callable[[list[str]], Sequence[tuple[int, int]]]
"""Posting ranges [start, stop) of terms; an unknown term is (0, 0) or left out."""

MIN_EXACT_TOKENS = 2
"""Fewest distinct tokens that an exact match is told by; one would lift every mention of a name."""


def score(
    query_tokens: Sequence[str],
    lookup: TermLookup,
    positions: NDArray[np.int32],
    scores: NDArray[np.float32],
    n_memories: int,
) -> NDArray[np.float32]:
    """Return the BM25 score of every memory for a query.

    A token counts once however often the query repeats it: prompts repeat words for reasons other
    than weight, and on the development sets counting repeats was no better.

    Args: query_tokens: What mnemon.text.tokens.tokenize returned for the query. lookup: Posting
        ranges of the distinct tokens, asked once, in code point order; scores are added in the
        order it returns, so that order decides the last float32 digit. positions: Postings' memory
        positions, distinct inside a term, shape (n_postings,). scores: Postings' scores, shape
        (n_postings,). n_memories: Length of the result.

    Returns:
        Shape (n_memories,), >= 0, 0 where no token occurs; a fresh array.
    """
    totals = np.zeros(n_memories, dtype=np.float32)
    for start, stop in lookup(sorted(set(query_tokens))):
        # At least as fast as bincount, without a copy of the postings; equal types keep it fast.
        np.add.at(totals, positions[start:stop], scores[start:stop])
    return totals


def hold_every_token(
    query_tokens: Sequence[str],
    lookup: TermLookup,
    positions: NDArray[np.int32],
    n_memories: int,
) -> NDArray[np.bool_]:
    """Tell which memories hold every token of a query.

    Args:
        query_tokens: As for `score`.
        lookup: As for `score`.
        positions: As for `score`.
        n_memories: Length of the result.

    Returns:
        Shape (n_memories,). All False for a query of fewer than two distinct tokens: one word that
        matches says nothing that its own score does not say already.
    """
    tokens = sorted(set(query_tokens))
    slices = [(start, stop) for start, stop in lookup(tokens) if stop > start]
    if len(tokens) < MIN_EXACT_TOKENS or len(slices) < len(tokens):
        return np.zeros(n_memories, dtype=np.bool_)
    held = np.zeros(n_memories, dtype=np.int32)
    for start, stop in slices:
        held[positions[start:stop]] += 1
    return held == len(tokens)


def top_positions(
    scores: NDArray[np.float32], depth: int, mask: NDArray[np.bool_] | None = None
) -> NDArray[np.int64]:
    """Return the positions of the best scores, best first, ties by lower position.

    Args:
        scores: Shape (n_memories,); only values > 0 can be returned (NaN cannot).
        depth: Most positions to return; none if it is not positive.
        mask: Shape (n_memories,), True where a memory may be returned; None for all.

    Returns:
        Shape (m,), m <= depth.
    """
    eligible = scores > 0
    if mask is not None:
        eligible &= mask
    candidates = np.flatnonzero(eligible)
    if depth <= 0:
        return candidates[:0]
    values = scores[candidates]
    if len(candidates) > depth:
        # Every tie of the last place stays in, so that the stable sort below decides by position.
        last_place = len(values) - depth
        kept = values >= np.partition(values, last_place)[last_place]
        candidates, values = candidates[kept], values[kept]
    return candidates[np.argsort(-values, kind="stable")[:depth]]
