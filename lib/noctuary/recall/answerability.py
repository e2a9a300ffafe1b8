"""The score behind an abstention: is there a memory that answers the query."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.graph.fold import fold_name
from noctuary.graph.sessions import spoken_by
from noctuary.graph.walk import Link, link_query
from noctuary.lexical.search import idf
from noctuary.recall.legs import SnapshotGraph, pool_candidates
from noctuary.recall.query import Mask, query_tokens
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.result import (
    COSINE,
    COVERAGE,
    KNOWN,
    LIKENESS,
    WORDS,
    WORDS_AND_VECTORS,
    Measure,
)
from noctuary.text.marks import ROLES
from noctuary.text.tokens import CJK, Script, dominant_script

if TYPE_CHECKING:
    from noctuary.recall.search import BaseRanking

Floats = NDArray[np.float64]


class QueryWords(NamedTuple):
    """Words of a query; t of them stand in some visible memory."""

    holders: tuple[NDArray[np.int32], ...]  # by word, visible memories that hold it, ascending
    weights: tuple[float, ...]  # (t,) idf of each, > 0
    total: float  # the idf of all words that were asked, those that nothing holds as well; >= 0

    def coverage_at(self, positions: NDArray[np.int64]) -> Floats:
        """Return the share, by idf, of the query that each memory holds, in [0, 1]."""
        held = np.zeros(positions.size)
        for holders, weight in zip(self.holders, self.weights, strict=True):
            places = np.minimum(np.searchsorted(holders, positions), holders.size - 1)
            held += weight * (holders[places] == positions)
        return self._share(held)

    def coverage(self, count: int) -> Floats:
        """Return the same for all memories at once, shape (count,); 0 for what is not visible."""
        held = np.zeros(count)
        for holders, weight in zip(self.holders, self.weights, strict=True):
            held[holders] += weight
        return self._share(held)

    def _share(self, held: Floats) -> Floats:
        return np.minimum(held / self.total, 1.0) if self.total > 0.0 else held


def read_words(reader: SnapshotReader, terms: Collection[str], mask: Mask | None) -> QueryWords:
    """Read the words of a query, weighed by BM25's idf over the n memories that may be seen."""
    asked = sorted(set(terms))
    visible = reader.count if mask is None else int(np.count_nonzero(mask))
    holders: list[NDArray[np.int32]] = []
    for start, stop in reader.look_up_terms(asked):
        positions = reader.posting_positions[start:stop]
        seen = positions if mask is None else positions[mask[positions]]
        # A word that only hidden memories hold is added up as an unknown one, to the last digit.
        if seen.size:
            holders.append(seen)
    weights = tuple(_idf(found.size, visible) for found in holders)
    unknown = len(asked) - len(holders)
    return QueryWords(tuple(holders), weights, sum(weights) + unknown * _idf(0, visible))


def cover_live(reader: SnapshotReader, terms: Sequence[str], mask: Mask | None) -> Floats:
    """Return the share (l,) of a query in each live row, weighed as by `read_words`."""
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


def _idf(df: int, count: int) -> float:
    return float(np.log1p((count - df + 0.5) / (df + 0.5)))


# The score behind an abstention: two factors, multiplied. Support: does one memory lie closer to
# the query and hold more of its words, and does the query read more like the store, than is usual
# for prompts that are nobody's memory, on this snapshot and in this script? Attribution: where the
# query names a person who speaks in the store, do that person's turns hold the words more than the
# turns of the others in the same place? Source of the constants: docs/decisions/0008.


WEIGHTS: Mapping[str, Mapping[str, float]] = {
    WORDS_AND_VECTORS: {COSINE: 1.25, COVERAGE: 0.95, KNOWN: 0.6, LIKENESS: 0.75},
    WORDS: {COVERAGE: 1.15, KNOWN: 0.9},
}
"""What one deviation above what is usual for everyday prompts counts, by signal and feature.
Rounded from logistic fits on the sample and on prefeval (docs/decisions/0008); `python -m
bench.silence` measures what they do, on those two and on five other sets."""

# Support at which chances are even and how fast they turn: they only weigh it against attribution,
# and keep scores apart near both ends.
MIDDLE, SLOPE = 4.0, 1 / 3

# Idf that is added to what a query asks, about one word and a half that nobody wrote: more trusts
# queries of one or two words less.
DOUBT = 10.0

ATTRIBUTION_SLOPE = 9.0  # how fast attribution turns: more lets who is asked about outweigh what

BEST_TURNS = 5  # of a side are compared: one is luck, many tell who likes the topic at large

_LOWEST = 700.0  # below its negative the exponential of a float overflows

_NONE = np.empty(0, dtype=np.int64)


class Features(NamedTuple):
    """What is known of the memories that may answer a query, m of them."""

    signal: str  # one of `result.SIGNALS`
    script: str  # of most letters of the query; Chinese, Japanese and Korean are one
    positions: NDArray[np.int64]  # of the memories, ascending, distinct
    cosines: Floats  # in [0, 1], shape (m,); zeros without a dense leg
    coverage: Floats  # share of the query's words that each holds, doubted, in [0, 1], shape (m,)
    known: float  # share of them that any memory holds, doubted, in [0, 1]


class Scored(NamedTuple):
    """A score and what it is made of."""

    score: float  # in [0, 1]
    signal: str  # which kind of support it rests on, one of `result.SIGNALS`
    support: float  # the best memory's, in weighted deviations above everyday prompts; -inf: none
    attribution: float  # in [-1, 1]; 0 where nobody is asked about
    memories: tuple[float, ...] = ()  # scores of the positions that were asked for, in [0, 1]


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
    """Return how sure the snapshot may be that it holds an answer; None where none can tell.

    Only what the mask shows counts: memories of others move no score. What an archive or a summary
    hides counts, because it can be had.

    `mask` (n,) is what the scope allows; a dense leg that ranked nothing leaves words alone.
    `measures` says by signal what scores are measured by; another signal is not scored. `vector` is
    the query's, if it has one; `shown` are the positions, summaries and live rows among them, whose
    own scores are wanted.
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
    of = dict(zip(found.positions.tolist(), supports.tolist(), strict=True))
    own = [max(of.get(p, -math.inf) for p in reader.sources_at(q)) for q in shown.tolist()]
    return Scored(
        combine(best, attribution), found.signal, best, attribution,
        tuple(combine(support, attribution) for support in own),
    )  # fmt: skip


def read_features(
    reader: SnapshotReader,
    query: str,
    mask: Mask | None,
    ranking: BaseRanking,
    shown: NDArray[np.int64] = _NONE,
) -> Features:
    """Return what the score is made of; arguments as for `score_answer`."""
    terms = query_tokens(query)
    script = dominant_script(query)
    positions = pool_candidates([ranking.positions, shown])
    memories = _memories(reader, positions[positions < reader.first_live])
    words = read_words(reader, terms, mask)
    trust = words.total / (words.total + DOUBT)
    covered, known = words.coverage_at(memories), sum(words.weights) / (words.total + DOUBT)
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
        str(Script.HAN if script in CJK else script),
        memories,
        np.minimum(np.fmax(cosines, 0.0), 1.0),  # fmax passes NaN over
        trust * covered,
        known,
    )


def find_likeness(vector: NDArray[np.float32], measure: Measure) -> float:
    """Return how much a query reads like the store rather than like everyday prompts."""
    direction = np.array(measure.direction)
    return float(vector @ direction[:-1] + direction[-1])


def find_supports(found: Features, measure: Measure, likeness: float | None) -> Floats:
    """Return every memory's support, shape (m,): weighted deviations above everyday prompts."""
    weights, usual = WEIGHTS[found.signal], measure.usual_of(found.script)

    def above(feature: str, values: Any) -> Any:
        mean, deviation = usual[feature]
        return weights[feature] * (values - mean) / deviation

    supports = above(COVERAGE, found.coverage) + above(KNOWN, found.known)
    if found.signal == WORDS_AND_VECTORS:
        supports = supports + above(COSINE, found.cosines)
        supports += 0.0 if likeness is None else above(LIKENESS, likeness)
    return supports


def find_attribution(said: Floats, others: Floats) -> float:
    """Return, in [-1, 1], by how much one side's BEST_TURNS hold more of the query."""
    best = min(BEST_TURNS, said.size, others.size)
    if best == 0:
        return 0.0
    return _mean_of_best(said, best) - _mean_of_best(others, best)


def combine(support: float, attribution: float) -> float:
    """Return the score in [0, 1], rising in both factors; 0 where nothing supports it."""
    if not support > -math.inf:
        return 0.0
    return _logistic(SLOPE * (support - MIDDLE)) * _logistic(ATTRIBUTION_SLOPE * attribution)


def _logistic(value: float) -> float:
    return 1.0 / (1.0 + math.exp(-max(value, -_LOWEST)))


def _mean_of_best(values: Floats, best: int) -> float:
    return float(np.partition(values, values.size - best)[-best:].mean())


def _memories(reader: SnapshotReader, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the candidates with every summary replaced by all that it stands for."""
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
    """Return `find_attribution` for the persons that the query names, if any of them speaks."""
    persons: dict[int, str] = {}
    for link in link_query(query, graph.names_seen(mask)) if links is None else links:
        words = query[link.start : link.end]
        # A role ("user") names nobody.
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
    # In whose company: where somebody of them speaks; without a wing (-1, the last) is a place too.
    facet = reader.facets["wing"]
    entered = np.zeros(len(facet.values) + 1, dtype=np.bool_)
    entered[facet.codes[said]] = True
    coverage = read_words(reader, asked, mask).coverage(reader.count)
    return find_attribution(coverage[said], coverage[others & entered[facet.codes]])
