"""Rows of the store itself as rows of the table, and how well their words fit a query."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from noctuary.core.types import MemoryRecord
from noctuary.lexical.search import idf, saturation
from noctuary.recall.query import Facet
from noctuary.sources.live import token_digest

if TYPE_CHECKING:
    from noctuary.sources.live import LiveState


# How well the words of live rows fit a query, on the scale of the snapshot's postings: how rare a
# term is and how long a memory is on average are the snapshot's (noctuary.lexical.search).


def score_rows(
    state: LiveState, tokens: Sequence[str], frequencies: Mapping[str, int], count: int, mean: float
) -> NDArray[np.float32]:
    """Return the BM25 score of every live row, (rows,); the statistics are the snapshot's."""
    scores = np.zeros(len(state.rows), dtype=np.float32)
    lengths = np.array([row.length for row in state.rows], dtype=np.float64)
    for token in sorted(set(tokens)):
        # float32 as in the pack, where every posting is rounded before they are added up.
        weights = saturation(_counts(state, token), lengths, mean)
        scores += (weights * idf(np.array(frequencies[token]), count)).astype(np.float32)
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


Vectors = Callable[[Sequence[MemoryRecord]], Mapping[str, NDArray[np.float32]]]
"""Memories, the most wanted first -> unit vectors by content hash, of as many as there was time."""

_FACETS = ("wing", "room", "category", "user", "session_id")


class LiveRows:
    """The live rows of one recall; row i has the position first_live + i of the snapshot."""

    def __init__(self, state: LiveState, first_live: int, dim: int, encode: Vectors) -> None:
        """Take rows that the recall may see, and the width of vectors; nothing is computed yet."""
        self.state = state
        self.rows = tuple(row.memory for row in state.rows)
        # By name, one value per row; facets as codes into `SnapshotReader.facets`.
        self.columns: dict[str, NDArray[Any]] = {
            "created_at_us": np.array([r.created_at_us for r in self.rows], dtype=np.int64),
            "importance": np.array([r.importance for r in self.rows], dtype=np.float32),
        }
        # Unit vectors; zeros where there is none (yet).
        self.vectors: NDArray[np.float32] = np.zeros((len(self.rows), dim), dtype=np.float32)
        self.first_live, self._encode = first_live, encode
        self.is_encoded = False

    def widened(self, name: str, facet: Facet) -> Facet:
        """Return a facet that also knows the values of these rows, behind the snapshot's."""
        places = {value: code for code, value in enumerate(facet.values)}
        values = [getattr(row, name) for row in self.rows]
        codes = [-1 if v is None else places.setdefault(v, len(places)) for v in values]
        self.columns[name] = np.array(codes, dtype=np.int32)
        return facet._replace(values=tuple(places))

    def describe(self, position: int) -> dict[str, Any]:
        """Return a row as `SnapshotReader.describe` does."""
        row = self.rows[position - self.first_live]
        names = ("memory_id", "content", "importance", "created_at_us", "origin", *_FACETS)
        tags = tuple(t.strip() for t in row.tags.split(",") if t.strip())
        rest = {"position": position, "tags": tags, "is_turn": int(row.is_turn), "sources": ()}
        return {**{name: getattr(row, name) for name in names}, **rest, "live": True}

    def held(self, tokens: Sequence[str]) -> NDArray[np.bool_]:
        """Tell which row holds which token, shape (tokens, rows)."""
        return held_words(self.state, tokens)

    def encode(self, word_scores: NDArray[np.float32]) -> None:
        """Encode as many rows as there is time for: the best by words first, then the newest."""
        self.is_encoded = True
        # Rows are sorted by id.
        order = np.lexsort((-np.arange(word_scores.size), -word_scores))
        found = self._encode([self.rows[i] for i in order.tolist()])
        for place, row in enumerate(self.rows):
            if row.content_hash in found:
                self.vectors[place] = found[row.content_hash]
