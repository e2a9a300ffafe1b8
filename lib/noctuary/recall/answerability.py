"""The score behind an abstention: is there a memory that answers the query."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.graph.fold import Link, fold_name, link_query
from noctuary.graph.sessions import spoken_by
from noctuary.lexical.search import idf
from noctuary.recall.legs import SnapshotGraph, pool_candidates
from noctuary.recall.query import Mask, query_tokens
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.result import (
    COSINE,
    LIKENESS,
    WORDS,
    WORDS_AND_VECTORS,
    Measure,
)
from noctuary.recall.support import (
    BEST_TURNS,
    DOUBT,
    above_usual,
    combine,
    idf_of,
    script_of_prompt,
    word_support,
)  # fmt: skip
from noctuary.text.marks import ROLES

if TYPE_CHECKING:
    from noctuary.recall.search import BaseRanking

Floats = NDArray[np.float64]


_FEW_TIMES = 10  # of all memories, one is looked up in that much more time than written


class QueryWords(NamedTuple):
    """Words of a query; t of them occur in some visible memory."""

    holders: tuple[NDArray[np.int32], ...]  # by word: visible memories that contain it, ascending
    weights: tuple[float, ...]  # (t,) idf of each, > 0
    total: float  # idf of all words of the query, unknown ones included; >= 0

    def coverage_at(self, positions: NDArray[np.int64], count: int) -> Floats:
        """Return the share of the query, weighted by idf, in each memory of `count`, in [0, 1]."""
        if count < _FEW_TIMES * positions.size:
            return self.coverage(count)[positions]
        held = np.zeros(positions.size)
        for holders, weight in zip(self.holders, self.weights, strict=True):
            places = np.minimum(np.searchsorted(holders, positions), holders.size - 1)
            held += weight * (holders[places] == positions)
        return self._share(held)

    def coverage(self, count: int) -> Floats:
        """Return the same for all memories, shape (count,); 0 for hidden ones."""
        held = np.zeros(count)
        for holders, weight in zip(self.holders, self.weights, strict=True):
            held[holders] += weight
        return self._share(held)

    def _share(self, held: Floats) -> Floats:
        return np.minimum(held / self.total, 1.0) if self.total > 0.0 else held


def read_words(reader: SnapshotReader, terms: Collection[str], mask: Mask | None) -> QueryWords:
    """Read the words of a query, weighted by BM25's idf over the n visible memories."""
    asked = sorted(set(terms))
    visible = reader.count if mask is None else int(np.count_nonzero(mask))
    holders: list[NDArray[np.int32]] = []
    for start, stop in reader.look_up_terms(asked):
        positions = reader.posting_positions[start:stop]
        seen = positions if mask is None else positions[mask[positions]]
        # A word that occurs in hidden memories only counts exactly as an unknown one.
        if seen.size:
            holders.append(seen)
    weights = tuple(idf_of(found.size, visible) for found in holders)
    unknown = len(asked) - len(holders)
    return QueryWords(tuple(holders), weights, sum(weights) + unknown * idf_of(0, visible))


def cover_live(reader: SnapshotReader, terms: Sequence[str], mask: Mask | None) -> Floats:
    """Return the share (l,) of a query in each live row, weighted as in `read_words`."""
    asked = sorted(set(terms))
    if reader.live is None or not asked:
        return np.zeros(reader.end - reader.first_live)
    seen: list[int] = []
    visible = reader.count if mask is None else int(np.count_nonzero(mask))
    for token in asked:
        held = [reader.posting_positions[a:b] for a, b in reader.look_up_terms([token])]
        seen.append(sum(p.size if mask is None else int(mask[p].sum()) for p in held))
    weights = idf(np.array(seen, dtype=np.int64), visible)
    return np.minimum(weights @ reader.live.held(asked) / weights.sum(), 1.0)


_NONE = np.empty(0, dtype=np.int64)


class Features(NamedTuple):
    """Features of the m memories that may answer a query."""

    signal: str  # one of `result.SIGNALS`
    script: str  # of most letters of the query; Chinese, Japanese and Korean count as one
    positions: NDArray[np.int64]  # of the memories, ascending, distinct
    cosines: Floats  # in [0, 1], shape (m,); zeros without a dense leg
    coverage: Floats  # share of the query's words in each, with DOUBT, in [0, 1], shape (m,)
    known: float  # share of them in any memory, with DOUBT, in [0, 1]


class Scored(NamedTuple):
    """A score and its parts."""

    score: float  # in [0, 1]
    signal: str  # kind of support, one of `result.SIGNALS`
    support: float  # of the best memory, in weighted deviations above everyday prompts; -inf: none
    attribution: float  # in [-1, 1]; 0 if the query names no speaker
    memories: tuple[float, ...] = ()  # scores of the positions in `shown`, in [0, 1]


def score_answer(
    reader: SnapshotReader,
    graph: SnapshotGraph,
    query: str,
    mask: Mask | None,
    ranking: BaseRanking,
    *,
    measures: Mapping[str, Measure],
    vector: NDArray[np.float32] | None = None,
    shown: NDArray[np.int64] = _NONE,
) -> Scored | None:
    """Return how likely the snapshot holds an answer; None for a signal without a measure.

    Only memories that the scope allows (`mask`, shape (n,)) count, so that memories of other users
    move no score. Memories behind an archive or a summary count, because they can be read. Without
    dense hits the score rests on words alone. `measures` are by signal; `vector` is the query's, if
    it has one; `shown` are the positions, of summaries and live rows too, to score one by one.
    """
    found = read_features(reader, query, mask, ranking, shown)
    measure = measures.get(found.signal)
    if measure is None:
        return None
    likeness = None
    if vector is not None and measure.direction and found.signal == WORDS_AND_VECTORS:
        likeness = find_likeness(vector, measure)
    supports = find_supports(found, measure, likeness)
    attribution = _attribute(reader, graph, query, mask, ranking.links)
    best = float(supports.max(initial=-math.inf))
    own = _best_of(found.positions, supports, [reader.sources_at(p) for p in shown.tolist()])
    return Scored(
        combine(best, attribution), found.signal, best, attribution,
        tuple(combine(support, attribution) for support in own),
    )  # fmt: skip


def _best_of(
    positions: NDArray[np.int64], supports: Floats, groups: Sequence[Sequence[int]]
) -> list[float]:
    """Return the largest support in each group of positions; -inf where none is among those."""
    asked = np.array([position for group in groups for position in group], dtype=np.int64)
    places = np.minimum(positions.searchsorted(asked), positions.size - 1)
    values = np.where(positions[places] == asked, supports[places], -math.inf)
    starts = list(accumulate(map(len, groups[:-1]), initial=0))
    return np.maximum.reduceat(values, starts).tolist() if groups else []


def read_features(
    reader: SnapshotReader,
    query: str,
    mask: Mask | None,
    ranking: BaseRanking,
    shown: NDArray[np.int64] = _NONE,
) -> Features:
    """Return the features of a score; arguments as for `score_answer`."""
    terms = query_tokens(query)
    positions = pool_candidates([ranking.positions, shown])
    memories = _memories(reader, positions[positions < reader.first_live])
    words = read_words(reader, terms, mask)
    trust = words.total / (words.total + DOUBT)
    covered = words.coverage_at(memories, reader.count)
    known = sum(words.weights) / (words.total + DOUBT)
    is_dense = ranking.dense.ranking.size > 0
    cosines = ranking.dense.scores_at(memories) if is_dense else np.zeros(memories.size)
    if reader.live is not None:
        held = cover_live(reader, terms, mask)
        live = np.arange(reader.first_live, reader.end, dtype=np.int64)
        near = ranking.dense.scores_at(live) if is_dense else np.zeros(live.size)
        memories, covered = np.concatenate([memories, live]), np.concatenate([covered, held])
        cosines = np.concatenate([cosines, near])
        known = max(known, trust * float(held.max(initial=0.0)))
    return Features(
        WORDS_AND_VECTORS if is_dense else WORDS,
        script_of_prompt(query),
        memories,
        np.minimum(np.fmax(cosines, 0.0), 1.0),  # fmax passes NaN over
        trust * covered,
        known,
    )


def find_likeness(vector: NDArray[np.float32], measure: Measure) -> float:
    """Return how much more a query resembles the store than everyday prompts."""
    direction = np.array(measure.direction)
    return float(vector @ direction[:-1] + direction[-1])


def find_supports(found: Features, measure: Measure, likeness: float | None) -> Floats:
    """Return every memory's support, shape (m,): weighted deviations above everyday prompts."""
    signal, usual = found.signal, measure.usual_of(found.script)
    supports = word_support(signal, found.coverage, found.known, usual)
    if signal == WORDS_AND_VECTORS:
        supports = supports + above_usual(signal, COSINE, found.cosines, usual)
        supports += 0.0 if likeness is None else above_usual(signal, LIKENESS, likeness, usual)
    return supports


def find_attribution(said: Floats, others: Floats) -> float:
    """Return, in [-1, 1], how much more of the query one side's BEST_TURNS contain."""
    best = min(BEST_TURNS, said.size, others.size)
    if best == 0:
        return 0.0
    return _mean_of_best(said, best) - _mean_of_best(others, best)


def _mean_of_best(values: Floats, best: int) -> float:
    # Among many equal zeros np.partition takes ten times as long.
    return float(np.sort(values[values > 0.0])[-best:].sum()) / best


def _memories(reader: SnapshotReader, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the candidates with every summary replaced by its sources."""
    if not positions.size or int(positions.max()) < reader.count:
        return positions
    found = {source for p in positions.tolist() for source in reader.sources_at(p)}
    return np.array(sorted(found), dtype=np.int64)


def _attribute(
    reader: SnapshotReader,
    graph: SnapshotGraph,
    query: str,
    mask: Mask | None,
    links: Sequence[Link] | None,
) -> float:
    """Return `find_attribution` for the speakers that the query names; 0 without one."""
    persons: dict[int, str] = {}
    for link in link_query(query, graph.names_seen(mask)) if links is None else links:
        words = query[link.start : link.end]
        # A role ("user") is not a person.
        if graph.speaks(link.ordinal, mask) and fold_name(words) not in ROLES:
            persons[link.ordinal] = f"{persons.get(link.ordinal, '')} {words}".lstrip()
    named = {token for words in persons.values() for token in query_tokens(words)}
    asked = set(query_tokens(query)) - named
    if not persons or not asked:
        return 0.0
    speakers = reader.sessions.speakers
    said = spoken_by(speakers, persons)
    others = (speakers >= 0) & ~said
    if mask is not None:
        said, others = said & mask, others & mask
    # Compare within the wings where they speak; no wing (code -1, the last entry) is one as well.
    facet = reader.facets["wing"]
    entered = np.zeros(len(facet.values) + 1, dtype=np.bool_)
    entered[facet.codes[said]] = True
    coverage = read_words(reader, asked, mask).coverage(reader.count)
    return find_attribution(coverage[said], coverage[others & entered[facet.codes]])
