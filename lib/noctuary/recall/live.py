"""Rows of the store itself as rows of the table: who may see them, and what each leg says of them.

Loaded where the store has something that the snapshot lacks.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.core.types import UNDATED_US, MemoryRecord, to_micros
from noctuary.lexical.search import K1, B, idf, saturation
from noctuary.recall.candidates import Facet, Mask, Scope, aware
from noctuary.recall.result import RecallWarning
from noctuary.sources.live import LiveState, token_digest
from noctuary.text.tokens import document_tokens, tokenize

if TYPE_CHECKING:
    from noctuary.recall.engine import Search
    from noctuary.recall.reader import SnapshotReader


# How well the words of live rows fit a query, on the scale of the snapshot's postings: how rare a
# term is and how long a memory is on average are the snapshot's (noctuary.lexical.search).


def document_frequencies(snapshot: SnapshotReader, terms: Sequence[str]) -> dict[str, int]:
    """Return in how many memories of the snapshot each term stands; 0 for an unknown one."""
    found = snapshot.look_up("terms", "term", "term, start, stop", terms)
    return {**dict.fromkeys(terms, 0), **{term: stop - start for term, start, stop in found}}


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


def mean_length(snapshot: SnapshotReader) -> float:
    """Return the mean length of a snapshot's memories in tokens, above 0; 1 for one without a word.

    It is no part of a pack: score = idf * tf / (tf + k1 * (1 - b + b * length / mean)) is solved
    for it, over the terms of one memory, and the middle one taken: float32 scores are exact to
    seven digits.
    """
    if not snapshot.posting_positions.size:
        return 1.0
    position = int(snapshot.posting_positions[0])
    columns = "content, tags, expanded_keywords, category"
    (texts,) = snapshot.look_up("memories", "position", columns, [str(position)])
    tokens = document_tokens(*texts)
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


Vectors = Callable[[Sequence[MemoryRecord]], Mapping[str, NDArray[np.float32]]]
"""Memories, the most wanted first -> unit vectors by content hash, of as many as there was time."""

FROM_STORE = "live_overlay"
"""Warning code: how old the snapshot is and how many rows were read from the store itself."""

_FACETS = ("wing", "room", "category", "user", "session_id")
_UNKNOWN_VALUES = frozenset({"unknown_wing", "unknown_room", "unknown_category"})
_HOUR_US = 3_600_000_000

_means: weakref.WeakKeyDictionary[SnapshotReader, float] = weakref.WeakKeyDictionary()


class LiveRows:
    """The live rows of one recall; row i stands at the snapshot's first_live + i."""

    def __init__(self, reader: SnapshotReader, state: LiveState, encode: Vectors) -> None:
        """Take rows that the recall may see; nothing is computed yet."""
        self.state = state
        self.rows = tuple(row.memory for row in state.rows)
        # By name, one value per row; facets as codes into `SnapshotReader.facets`.
        self.columns: dict[str, NDArray[Any]] = {
            "created_at_us": np.array([r.created_at_us for r in self.rows], dtype=np.int64),
            "importance": np.array([r.importance for r in self.rows], dtype=np.float32),
        }
        dim = 0 if reader.vectors is None else reader.vectors.shape[1]
        # Unit vectors; zeros where there is none (yet).
        self.vectors: NDArray[np.float32] = np.zeros((len(self.rows), dim), dtype=np.float32)
        self._reader, self._encode = reader, encode
        self._is_encoded = False

    def widened(self, name: str, facet: Facet) -> Facet:
        """Return a facet that also knows the values of these rows, behind the snapshot's."""
        places = {value: code for code, value in enumerate(facet.values)}
        values = [getattr(row, name) for row in self.rows]
        codes = [-1 if v is None else places.setdefault(v, len(places)) for v in values]
        self.columns[name] = np.array(codes, dtype=np.int32)
        return facet._replace(values=tuple(places))

    def describe(self, position: int) -> dict[str, Any]:
        """Return a row as `SnapshotReader.describe` does."""
        row = self.rows[position - self._reader.first_live]
        names = ("memory_id", "content", "importance", "created_at_us", *_FACETS)
        tags = tuple(t.strip() for t in row.tags.split(",") if t.strip())
        rest = {"position": position, "tags": tags, "is_turn": int(row.is_turn), "sources": ()}
        return {**{name: getattr(row, name) for name in names}, **rest, "live": True}

    def word_scores(self, query: str) -> NDArray[np.float32]:
        """Return the BM25 score of every row, on the scale of the snapshot's."""
        tokens, reader = tokenize(query), self._reader
        if reader not in _means:
            _means[reader] = mean_length(reader)
        frequencies = document_frequencies(reader, sorted(set(tokens)))
        return score_rows(self.state, tokens, frequencies, reader.count, _means[reader])

    def held(self, tokens: Sequence[str]) -> NDArray[np.bool_]:
        """Tell which row holds which token, shape (tokens, rows)."""
        return held_words(self.state, tokens)

    def coverage(self, tokens: Sequence[str], mask: Mask | None) -> NDArray[np.float64]:
        """Return the share (l,) of a query in each row, weighed as by `read_words`."""
        asked = sorted(set(tokens))
        if not asked:
            return np.zeros(len(self.rows))
        reader, seen = self._reader, list[int]()
        visible = reader.count if mask is None else int(np.count_nonzero(mask))
        for token in asked:
            held = [reader.posting_positions[a:b] for a, b in reader.look_up_terms([token])]
            seen.append(sum(p.size if mask is None else int(mask[p].sum()) for p in held))
        weights = idf(np.array(seen, dtype=np.int64), visible)
        return np.minimum(weights @ self.held(asked) / weights.sum(), 1.0)

    def encode(self, query: str) -> None:
        """Encode the rows, once: as many as there is time for, what fits the query best first."""
        if self._is_encoded:
            return
        self._is_encoded = True
        scores = self.word_scores(query)
        # Then the newest: rows stand by ascending id.
        order = np.lexsort((-np.arange(scores.size), -scores))
        found = self._encode([self.rows[i] for i in order.tolist()])
        for place, row in enumerate(self.rows):
            if row.content_hash in found:
                self.vectors[place] = found[row.content_hash]


class Seen(NamedTuple):
    """The rows in its scope, its mask (n,) of the snapshot, and how many rows differ."""

    state: LiveState
    mask: Mask | None
    gained: int
    changed: int
    lost: int


def lay_over(
    search: Search, state: LiveState, mask: Mask | None, warnings: Sequence[RecallWarning]
) -> tuple[Mask | None, Sequence[RecallWarning]]:
    """Put what a recall may see of the store behind its snapshot, and say how much that is.

    Returns the mask without what changed or is lost, and the scope's warnings that still hold.
    """
    run, reader = search.run, search.reader
    for code, message in state.faults:
        run.warn(code, message)
    seen = see(state, reader, search.query.scope, mask)
    if seen.state.rows:
        # Not `search` itself, which will hold these rows: a circle would keep the snapshot's files
        # open, removed ones too, until the collector comes by.
        inputs = search.inputs

        def encode(rows: Sequence[MemoryRecord]) -> Mapping[str, NDArray[np.float32]]:
            return inputs.live_vectors(rows, run.left_ms())

        search.reader = reader.beside(LiveRows(reader, seen.state, encode))
        warnings = [w for w in warnings if w.code not in _UNKNOWN_VALUES]
    if seen.state.rows or seen.lost:
        built_us = to_micros(datetime.fromisoformat(reader.manifest.built_at))
        hours = max(search.inputs.now_us() - built_us, 0) / _HOUR_US
        run.warn(
            FROM_STORE,
            f"the snapshot is {hours:.1f} h old; read from the store itself: {seen.gained} new, "
            f"{seen.changed} changed, {seen.lost} gone",
        )
    return seen.mask, warnings


def see(state: LiveState, reader: SnapshotReader, scope: Scope, mask: Mask | None) -> Seen:
    """Apply a recall's scope to live rows and hide from it what they replace.

    Rows of named users are denied by default, as `build_mask` denies memories. What a user shares
    is known to the next snapshot only: until then a live row is its owner's.
    """
    rows = tuple(row for row in state.rows if _is_allowed(row.memory, scope))
    places = reader.positions_of(state.hidden)
    hidden = np.array(sorted(places.values()), dtype=np.int64)
    seen = hidden if mask is None else hidden[mask[hidden]]
    before = {int(p) for p in seen.tolist()}
    # Of counts, too, only what the recall may see: a row of others changes none of them.
    held = [places.get(row.memory.memory_id) for row in rows]
    changed = sum(p is not None and p in before for p in held)
    if seen.size:
        mask = np.ones(reader.count, dtype=np.bool_) if mask is None else mask.copy()
        mask[seen] = False
    kept = state._replace(rows=rows)
    return Seen(kept, mask, len(rows) - changed, changed, len(before) - changed)


def _is_allowed(memory: MemoryRecord, scope: Scope) -> bool:
    if memory.user is not None and memory.user != scope.user:
        return False
    for name in ("wing", "room", "category"):
        wanted = getattr(scope, name)
        if wanted is not None and getattr(memory, name) != wanted:
            return False
    as_of, created_us = scope.as_of, memory.created_at_us
    return as_of is None or created_us == UNDATED_US or created_us <= to_micros(aware(as_of))
