"""The score behind an abstention: is there such a memory, and is it about who is asked about.

Two factors, multiplied. Support: does one memory both lie close to the query and hold its words?
Attribution: where the query names a person who speaks in the store, do that person's turns hold
the words more than the turns of the others in the same place? A question with the wrong person in
it has all the support in the world: everything else in it was said, by somebody else.

What belongs here: the two factors and their constants. What does not: thresholds (`answerability`,
chosen per snapshot), the words themselves (`answerability_words`). Source of the constants:
docs/decisions/0048, measured by `python -m bench.abstention`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mnemon.graph.fold import fold_name
from mnemon.graph.linking import Link, link_query
from mnemon.recall.answerability import WORDS, WORDS_AND_VECTORS
from mnemon.recall.answerability_words import Floats, read_words
from mnemon.recall.base_ranking import BaseRanking
from mnemon.recall.reader import SnapshotReader
from mnemon.recall.scope import Mask
from mnemon.recall.snapshot_graph import SnapshotGraph
from mnemon.text.speaker import ROLES
from mnemon.text.tokens import tokenize

if TYPE_CHECKING:
    from mnemon.recall.overlay import Overlay

CLOSENESS_WEIGHT = 2.0
"""What a cosine of 1 counts beside all of the query's words: more trusts vectors, which know
paraphrases; less trusts words, which know that a detail is missing. Flat between 1 and 4."""

SUPPORT_SLOPE = 1.9
SUPPORT_MIDDLE = 1.4
"""Where support is even odds, and how fast it turns: they only weigh it against attribution."""

WORDS_SLOPE = 3.1
WORDS_MIDDLE = 0.4
"""The same for words alone."""

ATTRIBUTION_SLOPE = 9.0
"""How fast attribution turns: more lets who is asked about outweigh what."""

BEST_TURNS = 5
"""Turns of a side that are compared: one is luck, many tell who likes the topic at large."""


class Scored(NamedTuple):
    """A score and what it is made of.

    Attributes:
        score: In [0, 1].
        signal: Which kind of support it rests on, one of `answerability.SIGNALS`.
        support: The best memory's coverage plus weighted cosine; >= 0.
        attribution: In [-1, 1]; 0 where nobody is asked about.
    """

    score: float
    signal: str
    support: float
    attribution: float


def score_answer(
    reader: SnapshotReader,
    graph: SnapshotGraph,
    query: str,
    mask: Mask | None,
    ranking: BaseRanking,
    overlay: Overlay | None = None,
) -> Scored:
    """Return how sure the snapshot may be that it holds an answer.

    Only what the mask shows counts: memories of others move no score. What an archive or a summary
    hides counts, because it can be had.

    Args:
        reader: The snapshot.
        graph: Its names and speakers.
        query: Any text.
        mask: What the scope allows, shape (n,); None for everything.
        ranking: The candidates of this query; a dense leg that ranked nothing leaves words alone.
        overlay: The live rows among the candidates; None for none.
    """
    terms = tokenize(query)
    candidates = _memories(reader, ranking.positions[ranking.positions < reader.end])
    covered = read_words(reader, terms, mask).coverage_at(candidates)
    signal, cosines = WORDS, np.zeros(candidates.size)
    if ranking.dense.ranking.size:
        signal = WORDS_AND_VECTORS
        # fmax passes NaN over.
        cosines = np.minimum(np.fmax(ranking.dense.scores_at(candidates), 0.0), 1.0)
    support = find_support(covered, cosines)
    if overlay is not None:
        held = overlay.coverage(terms, mask)
        near = np.minimum(np.fmax(overlay.cosines(ranking.dense), 0.0), 1.0)
        support = max(support, find_support(held, near))
    attribution = _attribute(reader, graph, query, terms, mask)
    return Scored(combine(support, attribution, signal), signal, support, attribution)


def find_support(coverage: Floats, cosines: Floats) -> float:
    """Return the best memory's coverage + CLOSENESS_WEIGHT * cosine; 0 without a memory.

    Args:
        coverage: Share of the query's words, in [0, 1], shape (m,).
        cosines: In [0, 1], shape (m,); zeros where there is no dense leg.
    """
    return float((coverage + CLOSENESS_WEIGHT * cosines).max()) if coverage.size else 0.0


def find_attribution(said: Floats, others: Floats) -> float:
    """Return by how much one side's best turns hold more of the query than the other side's.

    The mean of the BEST_TURNS best of each; as many of both, so that who says more gains nothing
    by it. In [-1, 1]; 0 where a side is empty.

    Args:
        said: Coverage of the turns of who is asked about, in [0, 1], shape (a,).
        others: The same of those who speak beside them, shape (b,).
    """
    best = min(BEST_TURNS, said.size, others.size)
    if best == 0:
        return 0.0
    return _mean_of_best(said, best) - _mean_of_best(others, best)


def combine(support: float, attribution: float, signal: str) -> float:
    """Return the score in [0, 1], rising in both factors; 0 where nothing supports it.

    Args:
        support: As `find_support` returns it.
        attribution: In [-1, 1].
        signal: One of `answerability.SIGNALS`.
    """
    if not support > 0.0:
        return 0.0
    alone = signal == WORDS
    slope, middle = (
        (WORDS_SLOPE, WORDS_MIDDLE) if alone else (SUPPORT_SLOPE, SUPPORT_MIDDLE)
    )  # fmt: skip
    return _logistic(slope * (support - middle)) * _logistic(ATTRIBUTION_SLOPE * attribution)


def _logistic(value: float) -> float:
    return 1.0 / (1.0 + math.exp(-value))


def _mean_of_best(values: Floats, best: int) -> float:
    return float(np.partition(values, values.size - best)[-best:].mean())


def _memories(reader: SnapshotReader, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the candidates with every summary replaced by all that it stands for."""
    if not positions.size or int(positions.max()) < reader.count:
        return positions
    found = {int(p) for p in positions if p < reader.count}
    for position in positions[positions >= reader.count].tolist():
        found.update(reader.summaries.at(position).sources)
    return np.array(sorted(found), dtype=np.int64)


def _attribute(
    reader: SnapshotReader,
    graph: SnapshotGraph,
    query: str,
    terms: Sequence[str],
    mask: Mask | None,
) -> float:
    """Return `find_attribution` for the persons that the query names, if any of them speaks."""
    persons = _persons(graph, query, mask)
    if not persons:
        return 0.0
    names = {t for link in persons for t in tokenize(query[link.start : link.end])}
    asked = set(terms) - names
    if not asked:
        return 0.0
    speakers = reader.sessions.speakers
    said = np.isin(speakers, np.array([link.ordinal for link in persons], dtype=np.int32))
    others = (speakers >= 0) & ~said
    if mask is not None:
        said, others = said & mask, others & mask
    coverage = read_words(reader, asked, mask).coverage(reader.count)
    return find_attribution(coverage[said], coverage[others & _in_company(reader, said)])


def _persons(graph: SnapshotGraph, query: str, mask: Mask | None) -> list[Link]:
    """Return who of those that the query names speaks; a role ("user") names nobody."""
    return [
        link
        for link in link_query(query, graph.names_seen(mask))
        if graph.speaks(link.ordinal, mask) and fold_name(query[link.start : link.end]) not in ROLES
    ]


def _in_company(reader: SnapshotReader, said: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which memories stand in a wing in which they speak; without a wing is a place too."""
    facet = reader.facets["wing"]
    entered = np.zeros(len(facet.values) + 1, dtype=np.bool_)
    entered[facet.codes[said]] = True  # -1, no wing, is the last place
    return entered[facet.codes]
