"""The legs of a recall, and the fusion of their scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.graph.fold import Link, Name, NameTable, link_query
from noctuary.graph.sessions import (
    ASKING_WEIGHT,
    BEFORE_WEIGHT,
    COMPANY_WEIGHT,
    CONTEXT_WEIGHT,
    FACT_COVERAGE_WEIGHT,
    SESSION_WEIGHT,
    SPEAKER_WEIGHT,
    Posting,
    Talk,
    best_neighbour,
    calibrate,
    lent_scores,
    listen,
)
from noctuary.graph.walk import (
    GraphArrays,
    Named,
    QueryWords,
    Room,
    Walk,
    bridge,
    name_subjects,
    subjects_of,
    walk,
)
from noctuary.lexical.search import add_scores, best_positions, idf, top_positions
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Mask, Positions, Scores, query_tokens
from noctuary.recall.reader import SnapshotReader
from noctuary.text.tokens import UNSPACED, script_of

# The lexical and dense legs over the rows of every kind in scope. All kinds compare: the words of a
# summary or of a live row weigh what they weigh in the corpus, their vectors are of one encoder.

ScoresAt = Callable[[NDArray[np.int64]], NDArray[np.float64]]


class Leg(NamedTuple):
    """One leg's view of a query."""

    ranking: NDArray[np.int64]  # its best allowed positions, best first, scores above 0 only
    scores_at: ScoresAt  # its own score of any positions, ranked or not; compared within the leg
    # The same for every row, shape (reader.end,), where the leg has scored them all.
    all_scores: NDArray[np.float32] | None = None
    enough: float = 0.0  # score of its best hit from which on it has its whole weight; 0: always
    readable: float = 1.0  # share of the query that it can read

    @property
    def trust(self) -> float:
        """Return the factor of its weight in the fusion, in [0, 1]: how much it has to say."""
        if not self.enough or not self.ranking.size:
            return self.readable
        return trust_words(float(self.scores_at(self.ranking[:1])[0]), self.enough)

    @staticmethod
    def empty() -> Leg:
        """Return a leg that found nothing."""

        def none(positions: NDArray[np.int64]) -> NDArray[np.float64]:
            return np.zeros(positions.shape)

        return Leg(np.empty(0, dtype=np.int64), none)

    @staticmethod
    def of_scores(scores: NDArray[np.float32], ranking: NDArray[np.int64]) -> Leg:
        """Return a leg that scored every row, shape (reader.end,)."""

        def own(positions: NDArray[np.int64]) -> NDArray[np.float64]:
            return scores[positions].astype(np.float64)

        return Leg(ranking, own, scores)

    def among(self, positions: NDArray[np.int64], depth: int) -> Leg:
        """Return the leg with a ranking of these positions alone."""
        scores = self.scores_at(positions)
        order = np.lexsort((positions, -scores))
        return self._replace(ranking=positions[order[scores[order] > 0.0]][:depth])

    def followed_by(self, positions: NDArray[np.int64], depth: int) -> Leg:
        """Return the leg with the best of these, as far as it has not ranked them, at its end."""
        late = self.among(positions[~np.isin(positions, self.ranking)], depth).ranking
        return self._replace(ranking=np.concatenate([self.ranking, late]))

    def rank_of(self) -> dict[int, int]:
        """Return the 1-based rank of every ranked position."""
        return {int(p): rank for rank, p in enumerate(self.ranking, start=1)}


RAREST_WORDS = 6
TRUST_POWER = 8  # steep: a hit that holds two thirds of what is enough has 4 % of its weight


def rank_lexical(
    reader: SnapshotReader, query: str, mask: Mask | None, depth: int, coverage: float = 0.0
) -> Leg:
    """Score every row by BM25 over the query's tokens and rank the best that are searched.

    `mask` says which rows are searched, as `Rows.searched`.
    """
    asked = sorted(set(query_tokens(query)))
    slices = reader.look_up_terms(asked)
    scores = np.zeros(reader.end, dtype=np.float32)
    add_scores(scores, slices, reader.posting_positions, reader.posting_scores)
    if reader.summaries_in(mask) is not None:
        beyond = scores[reader.count :]
        add_scores(beyond, reader.look_up_summary_terms(asked), *reader.summary_postings)
    if reader.live is not None:
        scores[reader.first_live :] = reader.live_word_scores(query)
    leg = Leg.of_scores(
        scores, best_positions(scores, slices, reader.posting_positions, depth, mask)
    )
    if not coverage or not leg.ranking.size:
        return leg
    if not query.isascii() and any(script_of(char) in UNSPACED for char in query):
        return leg
    known = np.array([stop - start for start, stop in slices if stop > start], dtype=np.int64)
    if not known.size:
        return leg  # only live rows hold any of it
    rarest = np.sort(idf(known, reader.count))[-RAREST_WORDS:]
    return leg._replace(enough=coverage * float(rarest.sum()))


def trust_words(best: float, enough: float) -> float:
    """Return min(1, best / enough) ** TRUST_POWER: what BM25's best hit is worth, in [0, 1].

    A convex fusion gives the best hit of a leg 1, however little of the query it holds. `enough` is
    a share of the idf of the query's RAREST_WORDS rarest words, those that no memory holds left
    out: of a long prompt even a good hit holds a small part. Text without spaces is cut into
    n-grams and is not judged.
    """
    return min(1.0, best / enough) ** TRUST_POWER


def rank_dense(
    reader: SnapshotReader,
    query_vector: NDArray[np.float32],
    mask: Mask | None,
    depth: int,
    *,
    early_exit: bool = False,
) -> Leg:
    """Rank the rows that are searched by cosine to the query and return the best of them.

    From `noctuary.embed.funnel.FUNNEL_MIN_ROWS` memories on theirs is the ranking of the funnel
    (docs/decisions/0004); below, every row is scored and the leg has `all_scores`. `early_exit`
    lets the tier answer alone where the threshold derived for it is reached.
    """
    vectors, tier, count = reader.vectors, reader.tier, reader.count
    if vectors is None:
        return Leg.empty()
    if tier is None:
        scores = np.zeros(reader.end, dtype=np.float32)
        scores[:count] = vectors @ query_vector
        scores[count:] = _score_beyond(reader, query_vector, mask)
        return Leg.of_scores(scores, top_positions(scores, depth, mask))
    from noctuary.embed.funnel import cosines_at, search

    exit_at = reader.tier_exits.get(tier.vectors.shape[1]) if early_exit else None
    inside = None if mask is None else mask[:count]
    found = search(tier, vectors, query_vector, depth, inside, exit_at=exit_at).positions
    rest = _score_beyond(reader, query_vector, mask)

    def cosines(positions: NDArray[np.int64]) -> NDArray[np.float64]:
        values, is_memory = np.empty(positions.shape), positions < count
        values[is_memory] = cosines_at(vectors, positions[is_memory], query_vector)
        values[~is_memory] = rest[positions[~is_memory] - count]
        return values

    if rest.size:
        best = top_positions(rest, depth, None if mask is None else mask[count:])
        found = np.concatenate([found, best + count])
        found = found[np.lexsort((found, -cosines(found)))[:depth]]
    return Leg(found, cosines)


def _score_beyond(
    reader: SnapshotReader, query_vector: NDArray[np.float32], mask: Mask | None
) -> NDArray[np.float32]:
    """Return the scores of summaries, 0 where none is searched, and of live rows behind them."""
    scores = np.zeros(reader.end - reader.count, dtype=np.float32)
    summaries, live = np.split(scores, [reader.first_live - reader.count])
    if reader.summaries_in(mask) is not None:
        summaries[:] = reader.summary_vectors @ query_vector
    if reader.live is not None:
        live[:] = reader.live.vectors @ query_vector
    return scores


# An exact match needs this many distinct tokens: a single one would lift every mention of a name.
MIN_EXACT_TOKENS = 2


def find_exact_matches(
    reader: SnapshotReader, query: str, positions: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Tell which of the positions hold every token of the query, shape of `positions`."""
    tokens = sorted(set(query_tokens(query)))
    if len(tokens) < MIN_EXACT_TOKENS:
        return np.zeros(positions.shape, dtype=np.bool_)
    return np.logical_and.reduce(reader.holding(tokens, positions))


# Fusion of the lexical and dense legs into one score in [0, 1]. Pure functions over arrays.

_LARGEST = float(np.finfo(np.float64).max)


def pool_candidates(rankings: Sequence[Positions]) -> Positions:
    """Return the union of the legs' candidates, ascending positions, each once."""
    kept = [ranking for ranking in rankings if ranking.size]
    if not kept:
        return np.empty(0, dtype=np.int64)
    merged = np.sort(np.concatenate(kept))
    # Not np.unique: its first call imports numpy.ma, which costs a one-shot hook 10 ms.
    first = np.ones(merged.size, dtype=bool)
    first[1:] = merged[1:] != merged[:-1]
    return merged[first]


def fuse_rrf(
    candidates: Positions, rankings: Sequence[Positions], weights: Sequence[float], k: int
) -> Scores:
    """Fuse by weighted reciprocal rank, scaled so that the best possible score is 1: in [0, 1].

    score(d) = sum_leg w_leg / (k + rank_leg(d)), divided by sum_leg w_leg / (k + 1); a leg that
    does not hold d adds 0 (Cormack, Clarke and Buettcher 2009). Candidates ascend, k >= 1.
    """
    scores = np.zeros(candidates.size, dtype=np.float64)
    best = 0.0
    for ranking, weight in zip(rankings, weights, strict=True):
        if weight <= 0 or not ranking.size:
            continue
        best += weight / (k + 1)
        places = np.searchsorted(candidates, ranking)
        scores[places] += weight / (k + 1 + np.arange(ranking.size))
    return scores / best if best > 0 else scores


def fuse_convex(leg_scores: Sequence[Scores], weights: Sequence[float]) -> Scores:
    """Fuse by a convex combination of the legs' scores, each divided by its maximum: in [0, 1].

    Negative scores count as 0, and the weights of the legs that have a positive one are scaled to
    sum to 1: a query that only one leg understands is scored by that leg alone (Bruch 2023).
    """
    size = leg_scores[0].size if leg_scores else 0
    fused = np.zeros(size, dtype=np.float64)
    total = 0.0
    for scores, weight in zip(leg_scores, weights, strict=True):
        # As nan_to_num and maximum(0) have it, in a third of the time: fmax passes NaN over.
        clipped = np.minimum(np.fmax(scores.astype(np.float64), 0.0), _LARGEST)
        peak = float(clipped.max()) if clipped.size else 0.0
        if weight <= 0 or peak <= 0:
            continue
        fused += weight * (clipped / peak)
        total += weight
    return np.minimum(fused / total, 1.0) if total > 0 else fused


def graph_scale(arriving: Scores, weight: float) -> float:
    """Return what base + weight * arriving (both >= 0) is divided by to stay in [0, 1]."""
    peak = float(arriving.max()) if arriving.size else 0.0
    return 1.0 + weight * max(1.0, peak) if weight > 0 and peak > 0 else 1.0


def add_graph(base: Scores, arriving: Scores, weight: float) -> Scores:
    """Return (base + weight * arriving) / scale, in [0, 1]."""
    scale = graph_scale(arriving, weight)
    return base if scale == 1.0 else (base + weight * arriving) / scale


def add_exact_match(base: Scores, exact: NDArray[np.bool_], bonus: float) -> Scores:
    """Return (base + bonus * exact) / (1 + bonus), in [0, 1] (hybrid-recall ADR 0005)."""
    if bonus <= 0 or not exact.any():
        return base
    return (base + bonus * exact.astype(np.float64)) / (1.0 + bonus)


def apply_importance(scores: Scores, importance: NDArray[np.floating], prior: float) -> Scores:
    """Multiply by (1 - prior) + prior * importance, all in [0, 1] (hybrid-recall design A.3)."""
    return scores * ((1.0 - prior) + prior * importance.astype(np.float64))


# The graph leg adds to the base score and is never ranked as a list of its own: an equal vote loses
# what the base score knows (research/probes.md section 1). Where the query names nothing, no hit
# leads anywhere and no candidate belongs to a session, it abstains.


class SnapshotGraph:
    """What the graph leg reads of one opened snapshot; safe to share between threads."""

    def __init__(self, reader: SnapshotReader) -> None:
        self._reader = reader
        self.mentions, self.rare = reader.mentions, reader.rare
        self.sessions = reader.sessions
        facet = reader.facets["wing"]
        # Wing codes, -1 for none; None where nothing has a wing.
        self.wings = facet.codes if facet.values else None

    @property
    def edges(self) -> GraphArrays:
        """Steps between memories."""
        return self._reader.graph_edges

    @cached_property
    def _speakers(self) -> frozenset[int]:
        spoken = self.sessions.speakers
        return frozenset(spoken[spoken >= 0].tolist())

    def names_seen(self, mask: Mask | None) -> NameTable:
        """Return the names of concepts that a visible memory is about, or that speak in one."""
        table = self._reader.name_table()
        if mask is None:
            return table

        def named(asked: Sequence[str]) -> Mapping[str, Name]:
            found = table.names(asked)
            return {name: f for name, f in found.items() if self._is_seen(f.ordinal, mask)}

        return NameTable(table.longest, named)

    def _is_seen(self, ordinal: int, mask: Mask) -> bool:
        return subjects_of(ordinal, self.mentions, mask).size > 0 or self.speaks(ordinal, mask)

    def speaks(self, ordinal: int, mask: Mask | None = None) -> bool:
        """Say whether a concept speaks in any memory that may be seen."""
        if mask is None or ordinal not in self._speakers:
            return ordinal in self._speakers
        return bool((mask & (self.sessions.speakers == ordinal)).any())

    def postings(self, terms: Sequence[str]) -> list[Posting]:
        """Return positions and scores of every known term."""
        reader = self._reader
        return [
            (reader.posting_positions[start:stop], reader.posting_scores[start:stop])
            for start, stop in reader.look_up_terms(terms)
        ]

    def near_postings(self, terms: Sequence[str]) -> list[tuple[int, Posting]]:
        """Return the index among the known terms, and postings, of every word near to one."""
        known = [term for term, df in self._reader.document_frequencies(terms).items() if df]
        return [
            (known.index(term), (positions, np.float32(share) * scores))
            for term, near, share in self._reader.near_words(known)
            for positions, scores in self.postings([near])
        ]

    def say_near(self, query: str, position: int) -> str:
        """Name the near words that a memory holds in the place of words of a query."""
        asked = sorted(set(query_tokens(query)))
        near = self._reader.near_words(asked)
        terms = sorted({term for one, other, _ in near for term in (one, other)})
        here = self._reader.holding(terms, np.array([position]))[:, 0]
        held = {term for term, is_held in zip(terms, here.tolist(), strict=True) if is_held}
        content = self._reader.rows_of([position])[position]["content"] if held else ""
        words = f"{query} {content}".split()
        written = {term: word.strip(".,:;!?'\"()") for word in words for term in query_tokens(word)}
        return ", ".join(
            f"{written.get(other, other)} near {written.get(term, term)}"
            for term, other, _ in near
            if other in held and term not in held
        )

    def asked_beside(
        self,
        query: str,
        links: Sequence[Link],
        positions: NDArray[np.int64],
        starts: NDArray[np.int32],
        ends: NDArray[np.int32],
    ) -> NDArray[np.float64]:
        """Return how much of what a query asks of what it names stands beside spans, in [0, 1].

        A span's share is the idf of the rarest asked word beside it / that of the rarest of all.
        """
        beside = np.zeros(positions.size)
        placed = np.flatnonzero(starts >= 0)  # a link of the store stands nowhere
        named = {t for link in links for t in query_tokens(query[link.start : link.end])}
        asked = sorted(set(query_tokens(query)) - named) if placed.size else []
        rows = self._reader.look_up("terms", "term", "term, start, stop", asked) if asked else []
        if not rows:
            return beside
        weights = idf(np.array([stop - start for _, start, stop in rows]), self._reader.count)
        worth = dict(zip([row[0] for row in rows], (weights / weights.max()).tolist(), strict=True))
        texts = self._reader.rows_of(set(positions[placed].tolist()))
        for place in placed.tolist():
            text = texts[int(positions[place])]["content"]
            words = words_beside(text, int(starts[place]), int(ends[place]))
            beside[place] = worth_of(words, worth)
        return beside

    def words_of(self, query: str) -> QueryWords:
        """Return the words of a query that some memory holds, as the graph asks for them."""
        reader = self._reader
        columns, asked = "term, start, stop", sorted(set(query_tokens(query)))
        rows = reader.look_up("terms", "term", columns, asked)
        frequencies = np.array([stop - start for _, start, stop in rows], dtype=np.int64)
        tokens = [term for term, *_ in rows]
        return QueryWords(idf(frequencies, reader.count), partial(reader.holding, tokens))


FuseAt = Callable[[Positions], Scores]  # base scores of any positions


class GraphRanking(NamedTuple):
    """A ranking with the graph's additions; arrays have length m."""

    positions: Positions  # ascending, distinct
    fused: Scores  # base scores, in [0, 1]
    scores: Scores  # with the graph, in [0, 1]
    walked: Walk
    named: Named
    talk: Talk | None
    # What sessions lend `talk.members`, times the session weight, before calibration, and the
    # scores that it is added to; empty without talk.
    lent: Scores
    before: Scores
    session_weight: float
    # Divisor of every score, >= 1, to stay in [0, 1]; other scores that are compared with these are
    # divided by it as well.
    scale: float = 1.0

    @property
    def added(self) -> Scores:
        """What the graph added to each score, before weight, scaling and calibration; >= 0."""
        added = _arriving(self.positions, self.walked, self.named)
        if self.talk is not None:
            added[np.searchsorted(self.positions, self.talk.members)] += self.lent
        return added

    def places_in_talk(self, position: int) -> tuple[int, int, int] | None:
        """Return a member's place before and after the exchange of scores, and of how many."""
        talk = self.talk
        if talk is None or not (found := np.flatnonzero(talk.members == position)).size:
            return None
        place, after = found[0], self.scores[np.searchsorted(self.positions, talk.members)]
        group = talk.is_turn == talk.is_turn[place]
        old, new = (1 + int((s[group] > s[place]).sum()) for s in (self.before, after))
        return old, new, int(group.sum())


WORDS_BEFORE, WORDS_AFTER = 4, 3  # looked at beside a name: "directed by Ray Taylor"
_BEFORE_CHARS, _AFTER_CHARS = 80, 60  # of a text that holds them
AKIN_MIN_CHARS = 4  # shortest beginning that makes two stems akin: direct, director


def words_beside(text: str, start: int, end: int) -> tuple[str, ...]:
    """Return the tokens of the words around a span, on its own line."""
    before = text[max(0, start - _BEFORE_CHARS) : start].rpartition("\n")[2].split()[-WORDS_BEFORE:]
    after = text[end : end + _AFTER_CHARS].partition("\n")[0].split()[:WORDS_AFTER]
    return query_tokens(" ".join([*before, *after]))


def worth_of(words: Sequence[str], worth: Mapping[str, float]) -> float:
    """Return the most that an asked word is worth that is akin to one of these, 0 for none."""
    return max(
        (worth[asked] for asked in worth if any(are_akin(asked, w) for w in words)), default=0.0
    )


def are_akin(one: str, other: str) -> bool:
    """Tell whether one of two stems begins with the other: "director", "direct"."""
    if min(len(one), len(other)) < AKIN_MIN_CHARS:
        return one == other
    return one.startswith(other) or other.startswith(one)


# How far an edge that is asked for may bring its target towards a seed that the query names. More
# puts the answer's memory level with the one that is named.
SEED_SHARE = 0.8


class GraphLeg(NamedTuple):
    """Adds the graph of one snapshot to rankings within one scope."""

    graph: SnapshotGraph
    mask: Mask | None
    weight: float  # on everything that is added, > 0
    session_weight: float = 1.0  # further factor on what sessions lend; 0 asks none
    as_of_us: int | None = None  # walk the edges that held then; None: those that still hold
    in_wing: bool = False  # whether one wing is searched

    def link(self, query: str) -> tuple[Link, ...]:
        """Return the concepts that a query names, as far as the mask shows them."""
        return link_query(query, self.graph.names_seen(self.mask))

    def rank(
        self,
        query: str,
        links: tuple[Link, ...],
        pool: Positions,
        fused: Scores,
        fuse_at: FuseAt,
        dense: Leg,
    ) -> GraphRanking | None:
        """Return the pool (ascending) with what the graph adds, or None for nothing to add."""
        named = name_subjects(links, self.graph.mentions, self.mask)
        walked = self._walk(query, links, named, pool, fused, fuse_at)
        positions, base, scores, scale = pool, fused, fused, 1.0
        if not walked.is_empty or named.positions.size:
            positions = pool_candidates([pool, walked.positions, named.positions])
            base = fuse_at(positions)
            arriving = _arriving(positions, walked, named)
            scale = graph_scale(arriving, self.weight)
            scores = add_graph(base, arriving, self.weight)
        lends = self.session_weight > 0.0
        talk = self._listen(query, links, positions, scores, dense) if lends else None
        if talk is None:
            none = np.empty(0)
            parts = (walked, named, None, none, none, self.session_weight, scale)
            return None if positions is pool else GraphRanking(positions, base, scores, *parts)
        everyone = pool_candidates([positions, talk.members])
        if everyone.size > positions.size:
            base = fuse_at(everyone)
            kept = np.searchsorted(everyone, positions)
            with_members = base / scale
            with_members[kept] = scores
            scores = with_members
        places = np.searchsorted(everyone, talk.members)
        before = scores[places]
        lent = self.session_weight * lent_scores(talk, before)
        raised, scores = before + self.weight * lent, scores.copy()
        for group in (talk.is_turn, ~talk.is_turn):  # each among themselves
            if group.any():
                scores[places[group]] = calibrate(before[group], raised[group])
        return GraphRanking(
            everyone, base, scores, walked, named, talk, lent, before, self.session_weight, scale
        )

    def _walk(
        self,
        query: str,
        links: Sequence[Link],
        named: Named,
        pool: Positions,
        fused: Scores,
        fuse_at: FuseAt,
    ) -> Walk:
        """Walk from the best hits and from memories of no session that the query names."""
        graph, seeds, scores = self.graph, pool, fused
        room: Room | None = None
        sessions = graph.sessions.codes
        alone = sessions[named.positions] < 0
        if alone.any():
            seeds = pool_candidates([pool, named.positions[alone]])
            arriving = np.zeros(seeds.size)
            arriving[np.searchsorted(seeds, named.positions[alone])] = named.scores[alone]
            # Undivided: a query that names something pushes its hits no less than another.
            totals = fuse_at(seeds) + self.weight * arriving
            scores = np.minimum(1.0, totals)

            def room_below(froms: Positions, targets: Positions) -> Scores:
                """Return how much may arrive at targets of seeds that the query names, else 0."""
                everyone, at = pool_candidates([seeds, targets]), np.searchsorted(seeds, froms)
                base = fuse_at(everyone)[np.searchsorted(everyone, targets)]
                return (arriving[at] > 0.0) * SEED_SHARE * (totals[at] - base) / self.weight

            room = room_below
        asked = partial(graph.asked_beside, query, links)
        walked = walk(
            seeds, scores, graph.edges, mask=self.mask, asked=asked, room=room,
            as_of_us=self.as_of_us,
        )  # fmt: skip
        words = partial(graph.words_of, query)
        return walked.beside(
            bridge(seeds, scores, graph.rare, graph.mentions, words, sessions, self.mask)
        )

    def _listen(
        self, query: str, links: tuple[Link, ...], positions: Positions, scores: Scores, dense: Leg
    ) -> Talk | None:
        speakers = [link for link in links if self.graph.speaks(link.ordinal, self.mask)]
        asked = set(query_tokens(query))
        # Speaking is a relation of its own; as a word, the name is in every turn of the speaker.
        spoken = {t for link in speakers for t in query_tokens(query[link.start : link.end])}
        words = sorted(asked - spoken or asked)
        terms, near = self.graph.postings(words), self.graph.near_postings(words)
        ordinals, wings = [link.ordinal for link in speakers], self.graph.wings
        return listen(
            positions, scores, self.graph.sessions, terms,
            near=near, likeness_at=_likeness(dense), mask=self.mask, speakers=ordinals, wings=wings,
            in_wing=self.in_wing,
        )  # fmt: skip


def _likeness(dense: Leg) -> Callable[[Positions], Scores] | None:
    """Return cosines over the best one, as far as the encoder reads the query."""
    if not dense.ranking.size:
        return None
    best = float(dense.scores_at(dense.ranking[:1])[0])
    return lambda positions: np.clip(dense.scores_at(positions) / best, 0.0, 1.0) * dense.readable


def _arriving(positions: Positions, walked: Walk, named: Named) -> Scores:
    arriving = np.zeros(positions.size)
    arriving[np.searchsorted(positions, walked.positions)] += walked.scores
    arriving[np.searchsorted(positions, named.positions)] += named.scores
    return arriving


NO_CONCEPT = -1


class GraphPath(NamedTuple):
    """How the graph reached one memory: seed -> relation -> concept -> memory."""

    # Everything that was added, before weight and scaling; a turn that asks may lose.
    score: float
    seed: int | None  # the memory that the strongest part came from; None: from the query
    relation: str  # of the strongest part
    concept: int  # ordinal of the concept on the way, NO_CONCEPT where it is the session
    evidence: tuple[int, ...]  # positions of the memories that hold it
    shares: Mapping[str, float]  # by relation, what each added
    asked: bool = False  # whether words of the query stand beside the evidence of the walk

    @property
    def reason(self) -> str:
        """Say it in a sentence; memories as {position}."""
        origin = "the query" if self.seed is None else f"{{{self.seed}}}"
        beside = ", beside words of the query" if self.asked else ""
        said = f"reached over the graph from {origin} by {self.relation}"
        if len(self.shares) == 1:
            return said + beside
        rest = sorted(self.shares.items(), key=lambda one: (one[0] != self.relation, -one[1]))
        own, *others = (f"{added:.3f}" if name == self.relation else f"{name} {added:.3f}"
                        for name, added in rest)  # fmt: skip
        return f"{said} ({own}), also {', '.join(others)}{beside}"


_Part = tuple[float, str, int | None, int, tuple[int, ...]]
"""Score, relation, seed, concept and evidence of one way on which the graph reached a memory."""


def path_of(ranking: GraphRanking, position: int) -> GraphPath | None:
    """Return the path to a memory, or None where the graph added nothing to it."""
    parts = [part for part in _parts(ranking, position) if part[0] != 0.0]
    if not parts:
        return None
    _, relation, seed, concept, evidence = max(parts, key=lambda part: part[0])
    shares: dict[str, float] = {}
    for added, name, *_ in parts:
        shares[name] = shares.get(name, 0.0) + added
    asked = bool((ranking.walked.asked[ranking.walked.positions == position] > 0.0).any())
    return GraphPath(sum(shares.values()), seed, relation, concept, evidence, shares, asked)


def _parts(ranking: GraphRanking, position: int) -> Iterator[_Part]:
    walked, named, talk = ranking.walked, ranking.named, ranking.talk
    for i in (walked.positions == position).nonzero()[0].tolist():
        relation, seed = walked.relation_at(i), int(walked.seeds[i])
        yield float(walked.scores[i]), relation, seed, int(walked.concepts[i]), (seed,)
    for i in (named.positions == position).nonzero()[0].tolist():
        score, concept = float(named.scores[i]), int(named.concepts[i])
        yield score, "named_by_query", None, concept, (position,)
    if talk is not None:
        for place in (talk.members == position).nonzero()[0].tolist():
            for lent, relation, seed, concept, held in _heard(ranking, talk, place):
                yield ranking.session_weight * lent, relation, seed, concept, held


def _heard(ranking: GraphRanking, talk: Talk, place: int) -> Iterator[_Part]:
    """Yield what the session of one member lends it, split by relation."""
    position = int(talk.members[place])
    owner = talk.owners[place]  # members are grouped by session
    same = slice(talk.owners.searchsorted(owner), talk.owners.searchsorted(owner, "right"))
    base = ranking.before[same]
    best = int(talk.members[same][base.argmax()])
    # The best member of a session got there by the query alone.
    origin = None if best == position else best
    if not talk.is_turn[place]:
        share = FACT_COVERAGE_WEIGHT * float(talk.coverage[place])
        yield share, "in_session", origin, NO_CONCEPT, (best,)
        return
    own, company = float(talk.own[place]), float(talk.company[place])
    said, speaker, itself = float(talk.said[place]), int(talk.speakers[place]), (position,)
    yield SESSION_WEIGHT * float(base.max()), "in_session", origin, NO_CONCEPT, (best,)
    yield SPEAKER_WEIGHT * said, "said_by", None, speaker, itself
    yield COMPANY_WEIGHT * company, "in_company_of", None, NO_CONCEPT, itself
    yield -ASKING_WEIGHT * float(talk.asking[place]), "asks", None, NO_CONCEPT, itself
    yield CONTEXT_WEIGHT * own, "own_words", None, NO_CONCEPT, itself
    lent = BEFORE_WEIGHT * float(talk.before[place])
    if place == same.start or not talk.is_turn[place - 1]:
        yield lent, "turn_before", None, NO_CONCEPT, itself
    else:
        earlier = int(talk.members[place - 1])
        yield lent, "turn_before", earlier, NO_CONCEPT, (earlier,)
    neighbour = best_neighbour(talk, place) if talk.context[place] > own else None
    if neighbour is not None:
        near = int(talk.members[neighbour])
        relation = "previous_turn" if neighbour > place else "next_turn"
        lent = CONTEXT_WEIGHT * (float(talk.context[place]) - own)
        yield lent, relation, near, NO_CONCEPT, (near,)


# The best memories of every wing, so that small wings enter the pool: a larger pool may still
# contain one wing only (research/mempalace.md section 3.4).


def quota_positions(
    wing_codes: NDArray[np.integer],
    scores: NDArray[np.floating],
    quota: int,
    mask: NDArray[np.bool_] | None = None,
) -> NDArray[np.int64]:
    """Return every wing's best memories of a score > 0, ascending; ties by lower position.

    Memories without a wing (code -1) are one wing of their own. One pass per place: 6 ms per
    million memories.
    """
    eligible = scores > 0
    if mask is not None:
        eligible &= mask
    places = np.flatnonzero(eligible)
    if quota <= 0 or not places.size:
        return np.empty(0, dtype=np.int64)
    # Codes from 0 on, so that they index.
    wings, values = wing_codes[places] + 1, scores[places].copy()
    wing_count = int(wings.max()) + 1
    taken: list[NDArray[np.int64]] = []
    for _ in range(quota):
        peaks = np.zeros(wing_count, dtype=values.dtype)
        np.maximum.at(peaks, wings, values)
        # Taken memories are 0, and so is the peak of a wing without any left.
        peaks[peaks == 0] = np.nan
        at_peak = np.flatnonzero(values == peaks[wings])
        if not at_peak.size:
            break
        winners = np.full(wing_count, -1, dtype=np.int64)
        # The last assignment stays, so backwards: the lowest position of equals.
        winners[wings[at_peak[::-1]]] = at_peak[::-1]
        winners = winners[winners >= 0]
        values[winners] = 0
        taken.append(winners)
    return np.sort(places[np.concatenate(taken)])


def fuse(positions: Positions, legs: tuple[Leg, Leg], profile: RetrievalProfile) -> Scores:
    """Fuse the legs' scores of some positions, in [0, 1]."""
    lexical, dense = legs
    weights = (profile.lexical_weight * lexical.trust, profile.dense_weight * dense.trust)
    if profile.fusion == "rrf":
        return fuse_rrf(positions, [leg.ranking for leg in legs], weights, profile.rrf_k)
    return fuse_convex([leg.scores_at(positions) for leg in legs], weights)


def importance_of(reader: SnapshotReader, positions: Positions) -> Scores:
    """Return importance in [0, 1] even where the file holds something else."""
    stored = reader.importance_at(positions).astype(np.float64)
    return np.minimum(np.fmax(stored, 0.0), 1.0)  # fmax passes NaN over
