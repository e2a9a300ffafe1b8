"""Live rows as candidates of one recall."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from noctuary.core.types import UNDATED_US, MemoryRecord, to_micros
from noctuary.lexical.search import K1, MIN_EXACT_TOKENS, B, idf, saturation
from noctuary.recall.candidates import Positions
from noctuary.recall.hidden import Summaries, join_legs
from noctuary.recall.legs import Leg, find_exact_matches
from noctuary.recall.query import Facet, Mask, Scope, aware
from noctuary.recall.reader import SnapshotReader, Words
from noctuary.recall.result import RecallWarning
from noctuary.sources.live import LiveRow, LiveState, token_digest
from noctuary.text.tokens import document_tokens, tokenize

if TYPE_CHECKING:
    from noctuary.graph.successors import SupersessionIndex
    from noctuary.recall.engine import Answer
    from noctuary.recall.inputs import World
    from noctuary.recall.query import RecallRun, Request


# How well the words of live rows fit a query, on the scale of the snapshot's postings.
#
# How rare a term is and how long a memory is on average are the snapshot's, so that scores of both
# compare (the formula: noctuary.lexical.search). The average length is no part of a pack; it is
# read off one posting, whose score, term frequency and length determine it.


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


# A snapshot with live rows behind its memories and summaries, looked up like one snapshot.
#
# Made per recall, and only where there are live rows.


_FACETS = ("wing", "room", "category", "user", "session_id")


class OverlaidReader(SnapshotReader):
    """Answers for live rows itself and hands everything else to the snapshot.

    Attributes:
        base: The snapshot alone.
        rows: The live rows; row i stands at position first_live + i.
        first_live: Memories plus summaries of the snapshot.
        vectors_live: Unit vectors of the rows, (l, d); zeros where there is none (yet).
    """

    def __init__(self, base: SnapshotReader, rows: Sequence[MemoryRecord]) -> None:
        """Share everything that the snapshot has opened; it stays the owner."""
        self.__dict__.update(base.__dict__)
        self.base = base
        self.rows = tuple(rows)
        self.first_live = base.end
        dim = 0 if base.vectors is None else base.vectors.shape[1]
        self.vectors_live: NDArray[np.float32] = np.zeros((len(rows), dim), dtype=np.float32)
        self._created = np.array([r.created_at_us for r in rows], dtype=np.int64)
        self._importance = np.array([r.importance for r in rows], dtype=np.float32)
        self._live_codes: dict[str, NDArray[np.int32]] = {}
        self.facets = {name: self._widened(name, facet) for name, facet in base.facets.items()}

    @property
    def end(self) -> int:
        """The first position that nothing has."""
        return self.first_live + len(self.rows)

    @cached_property
    def summaries(self) -> Summaries:
        """The snapshot's summaries; a live row has full confidence, like a memory."""
        return _SummariesAndLive(self.base.summaries, self.first_live)

    @cached_property
    def summary_vectors(self) -> NDArray[np.float32] | None:
        """Unit vectors of the summaries and of the live rows behind them."""
        known = self.base.summary_vectors
        return None if known is None else np.concatenate([known, self.vectors_live])

    @cached_property
    def summary_words(self) -> Words:
        """Postings of the snapshot's summaries, opened once for all recalls."""
        return self.base.summary_words

    @cached_property
    def superseded(self) -> SupersessionIndex:
        """Which memory of the snapshot replaces which, read once for all recalls."""
        return self.base.superseded

    def describe(self, positions: Iterable[int]) -> dict[int, dict[str, Any]]:
        """Return the rows by position; those of the store itself have "live"."""
        wanted = [int(p) for p in positions]
        rows = self.base.describe(p for p in wanted if p < self.first_live)
        return {p: rows[p] if p in rows else self._describe_live(p) for p in wanted}

    def memory_ids(self, positions: Iterable[int]) -> dict[int, str]:
        """Return the id, as text, of each position."""
        wanted = [int(p) for p in positions]
        found = self.base.memory_ids(p for p in wanted if p < self.first_live)
        return {p: found[p] if p in found else self._at(p).memory_id for p in wanted}

    def public_ids(self, positions: Iterable[int]) -> dict[int, int | str]:
        """Return the public id of each position."""
        wanted = [int(p) for p in positions]
        found = self.base.public_ids(p for p in wanted if p < self.first_live)
        live = {p: self.public_id(self._at(p).memory_id) for p in wanted if p not in found}
        return {**found, **live}

    def created_at(self, positions: Positions) -> NDArray[np.int64]:
        """Return creation times."""
        return self._both(self.base.created_at, self._created, positions)

    def importance_at(self, positions: Positions) -> NDArray[np.float32]:
        """Return importance."""
        return self._both(self.base.importance_at, self._importance, positions)

    def codes_at(self, facet: str, positions: Positions) -> NDArray[np.int32]:
        """Return facet codes into `facets`, which knows the live rows' values as well."""
        return self._both(partial(self.base.codes_at, facet), self._live_codes[facet], positions)

    def _at(self, position: int) -> MemoryRecord:
        return self.rows[position - self.first_live]

    def _describe_live(self, position: int) -> dict[str, Any]:
        row = self._at(position)
        tags = tuple(t.strip() for t in row.tags.split(",") if t.strip())
        names = ("memory_id", "content", "category", "importance", "created_at_us", *_FACETS[:2])
        return {
            **{name: getattr(row, name) for name in names},
            "position": position,
            "tags": tags,
            "session_id": row.session_id,
            "user": row.user,
            "is_turn": int(row.is_turn),
            "sources": (),
            "live": True,
        }

    def _both(self, of_snapshot: Any, of_live: NDArray[Any], positions: Positions) -> NDArray[Any]:
        """Return values of snapshot and live positions, in the order asked."""
        live = positions >= self.first_live
        if not live.any():
            return of_snapshot(positions)
        found = np.empty(positions.shape, dtype=of_live.dtype)
        found[~live] = of_snapshot(positions[~live])
        found[live] = of_live[positions[live] - self.first_live]
        return found

    def _widened(self, name: str, facet: Facet) -> Facet:
        """Return a facet that also knows the values of live rows, behind the snapshot's."""
        values = list(facet.values)
        places = {value: code for code, value in enumerate(values)}
        codes: list[int] = []
        for row in self.rows:
            value = getattr(row, name)
            if value is not None and value not in places:
                places[value] = len(values)
                values.append(value)
            codes.append(-1 if value is None else places[value])
        self._live_codes[name] = np.array(codes, dtype=np.int32)
        return facet._replace(values=tuple(values))


class _SummariesAndLive(Summaries):
    """Summaries among positions that may be those of live rows."""

    def __init__(self, base: Summaries, first_live: int) -> None:
        self.__dict__.update(base.__dict__)
        self._base, self._first_live = base, first_live

    def confidences(self, positions: Positions) -> NDArray[np.float64]:
        found = np.ones(positions.size, dtype=np.float64)
        inside = positions < self._first_live
        found[inside] = self._base.confidences(positions[inside])
        return found

    def of_sources(self, positions: Positions) -> Any:
        return self._base.of_sources(positions)


# Live rows as candidates of one recall: who may see them, and what each leg says of them.
#
# Loaded where the store has something that the snapshot lacks.


Vectors = Callable[[Sequence[MemoryRecord]], Mapping[str, NDArray[np.float32]]]
"""Memories, the most wanted first -> unit vectors by content hash, of as many as there was time."""

FROM_STORE = "live_overlay"
"""Warning code: how old the snapshot is and how many rows were read from the store itself."""

_UNKNOWN_VALUES = frozenset({"unknown_wing", "unknown_room", "unknown_category"})
_HOUR_US = 3_600_000_000

_means: weakref.WeakKeyDictionary[SnapshotReader, float] = weakref.WeakKeyDictionary()
"""Mean length of a snapshot's memories in tokens: read off its postings once."""


class Seen(NamedTuple):
    """What one recall sees of a look into the store.

    Attributes:
        rows: Live rows in its scope.
        mask: What it sees of the snapshot, shape (n,); None for everything.
        gained: Rows that the snapshot lacks.
        changed: Rows that the snapshot has in another form.
        lost: Memories of the snapshot that it does not see any more.
    """

    rows: tuple[LiveRow, ...]
    mask: Mask | None
    gained: int
    changed: int
    lost: int


def lay_over(
    run: RecallRun,
    request: Request,
    world: World,
    reader: SnapshotReader,
    state: LiveState,
    mask: Mask | None,
    warnings: Sequence[RecallWarning],
    answer: Answer,
) -> tuple[Mask | None, Sequence[RecallWarning]]:
    """Add what a recall may see of the store to its answer, and say how much that is.

    Args:
        run: Gets the warnings about the look.
        request: Its scope says what may be seen.
        world: Where vectors and the clock come from.
        reader: The snapshot.
        state: What the look found.
        mask: What the scope allows of the snapshot, shape (n,); None for everything.
        warnings: The scope's own.
        answer: Gets the overlay, where there is a row to search.

    Returns:
        The mask without what the store changed or lost, and the scope's warnings that still hold.
    """
    for code, message in state.faults:
        run.warn(code, message)
    seen = see(state, reader, request.scope, mask)
    if seen.rows:

        def encode(rows: Sequence[MemoryRecord]) -> Mapping[str, NDArray[np.float32]]:
            return world.live_vectors(rows, run.left_ms())

        answer.overlay = Overlay(reader, state._replace(rows=seen.rows), encode)
        warnings = without_known(warnings, seen.rows)
    if seen.rows or seen.lost:
        run.warn(FROM_STORE, _say(seen, reader, world.now_us()))
    return seen.mask, warnings


def _say(seen: Seen, reader: SnapshotReader, now_us: int) -> str:
    built_us = to_micros(datetime.fromisoformat(reader.manifest.built_at))
    hours = max(now_us - built_us, 0) / _HOUR_US
    return (
        f"the snapshot is {hours:.1f} h old; read from the store itself: {seen.gained} new, "
        f"{seen.changed} changed, {seen.lost} gone"
    )


def see(state: LiveState, reader: SnapshotReader, scope: Scope, mask: Mask | None) -> Seen:
    """Apply a recall's scope to live rows and hide from it what they replace.

    Rows of named users are denied by default, as `build_mask` denies memories. What a user shares
    is known to the next snapshot only: until then a live row is its owner's.

    Args:
        state: What the look found.
        reader: The snapshot.
        scope: What may be seen.
        mask: What the scope allows of the snapshot; None for everything.
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
    return Seen(rows, mask, len(rows) - changed, changed, len(before) - changed)


def _is_allowed(memory: MemoryRecord, scope: Scope) -> bool:
    if memory.user is not None and memory.user != scope.user:
        return False
    for name in ("wing", "room", "category"):
        wanted = getattr(scope, name)
        if wanted is not None and getattr(memory, name) != wanted:
            return False
    as_of: datetime | None = scope.as_of
    created_us = memory.created_at_us
    return as_of is None or created_us == UNDATED_US or created_us <= to_micros(aware(as_of))


def without_known(
    warnings: Sequence[RecallWarning], rows: Sequence[LiveRow]
) -> list[RecallWarning]:
    """Return the scope's warnings without "unknown" ones where a live row has the value.

    Rows are those in scope, so each of them has every value that was asked for.
    """
    return [w for w in warnings if not (rows and w.code in _UNKNOWN_VALUES)]


class Overlay:
    """The live rows of one recall as candidates; not shared between recalls.

    Attributes:
        view: The snapshot with the rows behind it.
        state: The rows.
    """

    def __init__(self, reader: SnapshotReader, state: LiveState, vectors: Vectors) -> None:
        """Take rows that the recall may see; nothing is computed yet."""
        self.state = state
        self.view = OverlaidReader(reader, [row.memory for row in state.rows])
        self._vectors = vectors
        self._has_vectors: Mask | None = None

    def add_lexical(self, query: str, leg: Leg, depth: int) -> Leg:
        """Return the lexical leg over snapshot and live rows, at most `depth` of both together."""
        return self._joined(leg, self.word_scores(query), depth)

    def add_dense(self, query: str, query_vector: NDArray[np.float32], leg: Leg, depth: int) -> Leg:
        """Return the dense leg over snapshot and live rows, at most `depth` of both together.

        A row whose vector there was no time for has no cosine, and so no place in this leg.
        """
        self._encode(query)
        scores = np.asarray(self.view.vectors_live @ query_vector, dtype=np.float32)
        return self._joined(leg, scores, depth)

    def find_exact_matches(self, query: str, positions: Positions) -> Mask:
        """Tell which of the positions hold every token of the query."""
        live = positions >= self.view.first_live
        found = np.zeros(positions.shape, dtype=np.bool_)
        found[~live] = find_exact_matches(self.view.base, query, positions[~live])
        tokens = sorted(set(tokenize(query)))
        if len(tokens) >= MIN_EXACT_TOKENS and live.any():
            held: Mask = np.logical_and.reduce(held_words(self.state, tokens))
            found[live] = held[positions[live] - self.view.first_live]
        return found

    def word_scores(self, query: str) -> NDArray[np.float32]:
        """Return the BM25 score of every live row, on the scale of the snapshot's."""
        tokens = tokenize(query)
        base = self.view.base
        mean = _means.get(base)
        if mean is None:
            mean = _means[base] = mean_length(base)
        frequencies = document_frequencies(base, sorted(set(tokens)))
        return score_rows(self.state, tokens, frequencies, base.count, mean)

    def share_of_words(self, tokens: Sequence[str]) -> NDArray[np.float64]:
        """Return which share of a query's distinct tokens each row holds, in [0, 1], shape (l,)."""
        asked = sorted(set(tokens))
        return held_words(self.state, asked).sum(axis=0) / max(len(asked), 1)

    def coverage(self, tokens: Sequence[str], mask: Mask | None) -> NDArray[np.float64]:
        """Return the share of a query that each row holds, by idf among what may be seen.

        As `answerability_words.read_words` weighs words: in [0, 1], shape (l,).
        """
        asked = sorted(set(tokens))
        if not asked:
            return np.zeros(len(self.state.rows))
        reader = self.view.base
        visible = reader.count if mask is None else int(np.count_nonzero(mask))
        seen: list[int] = []
        for token in asked:
            held = [reader.posting_positions[a:b] for a, b in reader.look_up_terms([token])]
            seen.append(sum(p.size if mask is None else int(mask[p].sum()) for p in held))
        weights = idf(np.array(seen, dtype=np.int64), visible)
        return np.minimum(weights @ held_words(self.state, asked) / weights.sum(), 1.0)

    def cosines(self, dense: Leg) -> NDArray[np.float64]:
        """Return every row's cosine to the query, shape (l,); zeros without a dense leg."""
        places = np.arange(self.view.first_live, self.view.end, dtype=np.int64)
        return dense.scores_at(places) if dense.ranking.size else np.zeros(places.size)

    def _encode(self, query: str) -> None:
        """Fill in the vectors, of the rows that share words with the query first."""
        if self._has_vectors is not None:
            return
        scores = self.word_scores(query)
        # Then the newest: rows stand by ascending id.
        order = np.lexsort((-np.arange(scores.size), -scores))
        rows = self.view.rows
        found = self._vectors([rows[i] for i in order.tolist()])
        self._has_vectors = np.array([r.content_hash in found for r in rows], dtype=np.bool_)
        for place, row in enumerate(rows):
            if row.content_hash in found:
                self.view.vectors_live[place] = found[row.content_hash]

    def _joined(self, leg: Leg, scores: NDArray[np.float32], depth: int) -> Leg:
        everyone = np.ones(scores.size, dtype=np.bool_)
        joined = join_legs(leg, scores, everyone, self.view.first_live, depth)
        # The quota of wings looks at snapshot and summaries alone.
        return replace(joined, all_scores=leg.all_scores)
