"""What a recall does not search: archived memories, and turns behind their summaries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.embed.funnel import cosines_at
from noctuary.lexical.search import hold_every_token, score, top_positions
from noctuary.recall.candidates import Positions, Successor, SummaryView
from noctuary.recall.legs import Leg
from noctuary.recall.profile import SUMMARIES
from noctuary.recall.query import Mask
from noctuary.recall.reader import SnapshotReader
from noctuary.snapshot.arrays import OF_TURNS, SummaryArrays
from noctuary.text.tokens import tokenize

if TYPE_CHECKING:
    from noctuary.compact.archive import ArchiveReader


# The accepted summaries of a snapshot as candidates: positions from the memory count on.


_NONE = -1
"""In `_summary_of`: a memory that no summary of turns covers."""


class Summaries:
    """All accepted summaries, in order of their ids; safe to share between threads.

    Attributes:
        count: Memories of the snapshot; summary i stands at position count + i.
        arrays: Which memories each stands for.
        plans: Compaction plans by their number in `arrays.plans`.
        ids: The summaries' ids.
    """

    def __init__(
        self, count: int, arrays: SummaryArrays, plans: Sequence[str], ids: Sequence[str]
    ) -> None:
        if not arrays.is_aligned(count) or len(ids) != arrays.size:
            raise ValueError("arrays of summaries of different lengths")
        self.count = count
        self.arrays = arrays
        self.plans = tuple(plans)
        self.ids = tuple(ids)

    @property
    def size(self) -> int:
        """How many summaries there are."""
        return self.arrays.size

    @cached_property
    def views(self) -> tuple[SummaryView, ...]:
        """What phases see of each."""
        return tuple(self.at(self.count + i) for i in range(self.size))

    @cached_property
    def of_turns(self) -> NDArray[np.bool_]:
        """Which of them the night made of clusters of turns, shape (s,)."""
        return self.arrays.plans == OF_TURNS

    def at(self, position: int) -> SummaryView:
        """Return the summary at a position."""
        i = position - self.count
        sources = tuple(self.arrays.sources_of(i).tolist())
        return SummaryView(position, sources, float(self.arrays.confidences[i]))

    def position_of(self, summary_id: str) -> int | None:
        """Return where a summary stands, or None for an unknown id."""
        return self.count + self.ids.index(summary_id) if summary_id in self.ids else None

    def plan_of(self, position: int) -> str | None:
        """Return the compaction plan that a summary belongs to; None for one of turns."""
        number = int(self.arrays.plans[position - self.count])
        return None if number == OF_TURNS else self.plans[number]

    def of_sources(self, positions: Positions) -> dict[int, SummaryView]:
        """Return the summary of turns of every position that is a source of one."""
        memories = positions[positions < self.count]
        found = self._summary_of[memories]
        held = found != _NONE
        pairs = zip(memories[held].tolist(), found[held].tolist(), strict=True)
        return {position: self.at(self.count + i) for position, i in pairs}

    def confidences(self, positions: Positions) -> NDArray[np.float64]:
        """Return confidences in [0, 1], shape as given; a memory has 1."""
        found = np.ones(positions.size, dtype=np.float64)
        inside = positions >= self.count
        found[inside] = self.arrays.confidences[positions[inside] - self.count]
        return found

    def first_source(self, positions: Positions) -> NDArray[np.int64]:
        """Return the positions with every summary replaced by its first source."""
        replaced = positions.copy()
        inside = positions >= self.count
        replaced[inside] = self.arrays.first_sources()[positions[inside] - self.count]
        return replaced

    def largest(self, values: NDArray[np.generic], positions: Positions) -> NDArray[np.generic]:
        """Return the memories' own values (n,), and of summaries the largest of their sources'.

        Of creation times that is the latest, of importance the most important.
        """
        found = values[np.minimum(positions, self.count - 1)]
        inside = positions >= self.count
        if inside.any():
            ordinals = positions[inside] - self.count
            starts = self.arrays.indptr[ordinals]
            sizes = self.arrays.indptr[ordinals + 1] - starts
            firsts = np.cumsum(sizes) - sizes
            places = np.arange(int(sizes.sum())) + np.repeat(starts - firsts, sizes)
            found[inside] = np.maximum.reduceat(values[self.arrays.sources[places]], firsts)
        return found

    @cached_property
    def _summary_of(self) -> NDArray[np.int32]:
        """Index of the summary of turns of every memory, _NONE where there is none, (count,)."""
        found = np.full(self.count, _NONE, dtype=np.int32)
        owners = np.repeat(np.arange(self.size, dtype=np.int32), np.diff(self.arrays.indptr))
        held = self.of_turns[owners]
        found[self.arrays.sources[held]] = owners[held]
        return found


# What one recall searches: turns or the summaries of them, without what is archived.
#
# Nothing is lost and nothing is shown twice, whatever a recall may see:
#
# - An archived memory is hidden from a recall that sees the memory that stands for it.
# - A summary is searched where the recall may see every one of its sources and none of them is
#   searched itself. So a summary of turns is searched in the view "summaries", and its turns are
#   not; where one of its turns is out of scope or archived, the others are searched themselves.
#   The summary of a compaction plan is searched where all that it stands for is hidden by the
#   archive.


ContentHashes = Callable[[Sequence[str]], Mapping[str, str]]


class ArchiveState(NamedTuple):
    """What is archived at the moment of a recall.

    Attributes:
        key: Names the answers: two states of one key hide alike in one snapshot.
        plans: Compaction plans in force, at least one.
        hidden_in: Content hashes of a snapshot -> ids of its archived memories to the ids of the
            memories that stand for them.
    """

    key: str
    plans: frozenset[str]
    hidden_in: Callable[[ContentHashes], Mapping[str, str]]


class Archived(NamedTuple):
    """The archived memories of one snapshot; arrays of one length.

    Attributes:
        positions: int64, the archived memories, distinct.
        successors: int64, what stands for each.
    """

    positions: NDArray[np.int64]
    successors: NDArray[np.int64]

    def seen_by(self, allowed: Mask | None) -> Archived:
        """Return those that are hidden from a recall which may see `allowed` (None: all)."""
        if allowed is None:
            return self
        kept = allowed[self.positions] & allowed[self.successors]
        return Archived(self.positions[kept], self.successors[kept])

    def successor_of(self, position: int) -> int | None:
        """Return what stands for a memory; None where it is not archived."""
        found = np.flatnonzero(self.positions == position)
        return int(self.successors[found[0]]) if found.size else None


class Searched(NamedTuple):
    """What the legs, the graph and the phases of one recall search.

    Attributes:
        allowed: Memories that the scope allows, shape (n,); None for all.
        memories: Memories that are searched, shape (n,); None for all. Never more than `allowed`.
        archived: Allowed memories that the archive hides; None for none.
        covered: Allowed memories that a searched summary of turns stands for, (n,); None for none.
        summaries: Summaries that are searched, shape (s,); None where none is.
    """

    allowed: Mask | None
    memories: Mask | None
    archived: Archived | None = None
    covered: Mask | None = None
    summaries: NDArray[np.bool_] | None = None

    @property
    def is_empty(self) -> bool:
        """Say whether nothing at all is searched."""
        if self.summaries is not None and self.summaries.any():
            return False
        return self.memories is not None and not self.memories.any()


def state_of(reader: ArchiveReader, moment_us: int | None) -> ArchiveState | None:
    """Return what an archive hides at a moment, or None where no plan is in force then.

    Args:
        reader: The archive.
        moment_us: Microseconds since the epoch; None: now.
    """
    plans = reader.applied_plans_at(moment_us)
    if not plans:
        return None

    def hidden_in(hashes: ContentHashes) -> Mapping[str, str]:
        return reader.hidden_in(hashes, moment_us)

    return ArchiveState(f"{reader.digest} {moment_us}", plans, hidden_in)


def find_archived(reader: SnapshotReader, state: ArchiveState) -> Archived:
    """Return what the archive hides in a snapshot from recalls that see the successors."""
    hidden = state.hidden_in(reader.content_hashes)
    places = reader.positions_of([*hidden, *hidden.values()])
    return Archived(
        np.array([places[memory] for memory in hidden], dtype=np.int64),
        np.array([places[successor] for successor in hidden.values()], dtype=np.int64),
    )


def find_searched(
    reader: SnapshotReader,
    allowed: Mask | None,
    turn_view: str,
    archived: Archived | None,
    plans: frozenset[str],
) -> Searched:
    """Apply the rules of this module.

    Args:
        reader: The snapshot.
        allowed: What the scope allows, shape (n,); None for everything.
        turn_view: "raw" or "summaries".
        archived: What the archive hides; None: nothing, or archived memories are asked for.
        plans: Compaction plans whose summaries may be searched.
    """
    archived = None if archived is None else archived.seen_by(allowed)
    memories, hidden = allowed, None
    if archived is not None and archived.positions.size:
        hidden = np.zeros(reader.count, dtype=np.bool_)
        hidden[archived.positions] = True
        memories = ~hidden if allowed is None else allowed & ~hidden
    shown = _of_plans(reader, hidden, plans)
    covered = None
    if turn_view == SUMMARIES and reader.summaries.size:
        summaries = reader.summaries
        of_turns = summaries.of_turns
        if memories is not None:
            of_turns = of_turns & summaries.arrays.where_all(memories)
        if of_turns.any():
            covered = summaries.arrays.covered(of_turns, reader.count)
            memories = ~covered if memories is None else memories & ~covered
            shown = of_turns if shown is None else shown | of_turns
    return Searched(allowed, memories, None if hidden is None else archived, covered, shown)


def _of_plans(
    reader: SnapshotReader, hidden: Mask | None, plans: frozenset[str]
) -> NDArray[np.bool_] | None:
    """Return the summaries of these plans that stand for hidden memories only, or None."""
    if hidden is None or not plans:
        return None
    summaries: Summaries = reader.summaries
    numbers = [number for number, plan in enumerate(summaries.plans) if plan in plans]
    if not numbers:
        return None
    shown = np.isin(summaries.arrays.plans, numbers) & summaries.arrays.where_all(hidden)
    return shown if shown.any() else None


# Successors that a recall does not search, passed through to what stands in for them.


def through_hidden(
    links: Mapping[int, Successor], searched: Searched, summaries: Summaries
) -> dict[int, Successor]:
    """Return the links with every successor that is not searched replaced.

    By that one's own successor, as far as needed and with the least confidence on the way; at the
    end of the chain by the summary that covers it. Where nothing stands in, nothing is superseded:
    a memory never gives way to one that the recall would not show.

    Args:
        links: Direct successors of memories that the scope allows, and of these in turn.
        searched: What the recall searches.
        summaries: Of the snapshot.
    """
    if searched.memories is None:
        return dict(links)
    found: dict[int, Successor] = {}
    for older, link in links.items():
        newer, confidence = link.newer, link.confidence
        for _ in links:
            if searched.memories[newer] or newer not in links:
                break
            confidence = min(confidence, links[newer].confidence)
            newer = links[newer].newer
        if not searched.memories[newer]:
            summary = _summary_of(newer, searched, summaries)
            if summary is None:
                continue
            newer = summary
        found[older] = link._replace(newer=newer, confidence=confidence)
    return found


def _summary_of(position: int, searched: Searched, summaries: Summaries) -> int | None:
    if searched.covered is None or not searched.covered[position]:
        return None
    return summaries.of_sources(np.array([position], dtype=np.int64))[position].position


# How near a summary's turns are to a query: the mean of the nearest two.
#
# One vector for a text of twenty turns is near to what the turns have in common and to nothing
# that one of them says. The turns' own vectors are in the pack anyway, because turns are never
# dropped; comparing the query with them is late interaction (Khattab and Zaharia 2020) with turns
# in the place of tokens. docs/decisions/0017 has the numbers.


SHORTLIST_FACTOR = 4
"""Summaries whose turns are read, as a multiple of the depth, where the turns have not all been
scored; more reads more rows, fewer loses summaries whose own vector says little."""

Shown = NDArray[np.bool_]


def mean_of_best_two(values: NDArray[np.float32], sizes: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return, per group, the mean of its two largest values; of one value, that value.

    Args:
        values: The groups' values one after the other, shape (sum of sizes,).
        sizes: Values per group, each at least 1, shape (g,).
    """
    if not sizes.size:
        return np.zeros(0, dtype=np.float32)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    ordered = values[np.lexsort((-values, np.repeat(np.arange(sizes.size), sizes)))]
    best, second = ordered[starts], ordered[np.minimum(starts + 1, ends - 1)]
    return np.asarray((best + second) / 2.0, dtype=np.float32)


def score_all(arrays: SummaryArrays, cosines: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the score of every summary, shape (s,), where every memory has been scored.

    Args:
        arrays: Which memories each summary stands for.
        cosines: Of every memory to the query, shape (n,).
    """
    return mean_of_best_two(cosines[arrays.sources], np.diff(arrays.indptr).astype(np.int64))


def score_shortlist(
    arrays: SummaryArrays,
    vectors: NDArray[np.float32],
    query_vector: NDArray[np.float32],
    own: NDArray[np.float32],
    shown: Shown,
    depth: int,
) -> NDArray[np.float32]:
    """Return scores, shape (s,): by their turns for the best by their own vectors, 0 for others.

    Args:
        arrays: As above.
        vectors: Of every memory, unit rows; only those of the shortlist's turns are read.
        query_vector: Unit vector, shape (d,).
        own: Cosines of the summaries' own vectors, shape (s,).
        shown: Which summaries are searched, shape (s,).
        depth: Most summaries that will be ranked.
    """
    found = np.sort(top_positions(own, SHORTLIST_FACTOR * depth, shown))
    scores = np.zeros(own.size, dtype=np.float32)
    if found.size:
        sources = [arrays.sources_of(int(i)) for i in found]
        cosines = cosines_at(vectors, np.concatenate(sources).astype(np.int64), query_vector)
        sizes = np.array([len(s) for s in sources], dtype=np.int64)
        scores[found] = mean_of_best_two(cosines, sizes)
    return scores


# Summaries beside memories in the legs: their scores, and one ranking of both.
#
# Loaded where summaries are searched.
#
# Both kinds compare: a summary's words weigh what they weigh in the corpus
# (noctuary.lexical.build.build_postings_beside), and its vector comes from the same encoder.


def add_lexical(reader: SnapshotReader, query: str, leg: Leg, shown: Shown, depth: int) -> Leg:
    """Return the lexical leg over memories and summaries, at most `depth` of both together."""
    words = reader.summary_words
    scores = score(
        tokenize(query), reader.look_up_summary_terms, words.positions, words.scores, shown.size
    )
    return join_legs(leg, scores, shown, reader.count, depth)


def add_dense(
    reader: SnapshotReader,
    query_vector: NDArray[np.float32],
    leg: Leg,
    shown: Shown,
    depth: int,
    *,
    by_turns: bool = False,
) -> Leg:
    """Return the dense leg over memories and summaries, at most `depth` of both together.

    Summaries are compared exactly, however many there are: there is one for some dozen turns.

    Args:
        reader: The snapshot.
        query_vector: Unit vector, shape (d,).
        leg: Over the memories.
        shown: Which summaries are searched, shape (s,).
        depth: Most positions to rank.
        by_turns: Compare the query with a summary's turns instead of with its own vector.
    """
    vectors = reader.summary_vectors
    if vectors is None or reader.vectors is None:
        return leg
    arrays = reader.summaries.arrays
    if by_turns and leg.all_scores is not None:
        scores = score_all(arrays, leg.all_scores)
    else:
        scores = np.asarray(vectors @ query_vector, dtype=np.float32)
        if by_turns:
            scores = score_shortlist(arrays, reader.vectors, query_vector, scores, shown, depth)
    return join_legs(leg, scores, shown, reader.count, depth)


def join_legs(leg: Leg, scores: NDArray[np.float32], shown: Shown, count: int, depth: int) -> Leg:
    """Return one leg over memories and summaries.

    Args:
        leg: Over the memories, positions below `count`.
        scores: Of every summary on the same scale, shape (s,).
        shown: Which summaries are searched.
        count: Memories in the snapshot; summary i stands at count + i.
        depth: Most positions to rank.
    """
    best = top_positions(scores, depth, shown)
    ranking = np.concatenate([leg.ranking, best + count])
    values = np.concatenate([leg.scores_at(leg.ranking), scores[best].astype(np.float64)])
    ranking = ranking[np.lexsort((ranking, -values))[:depth]]

    def scores_at(positions: NDArray[np.int64]) -> NDArray[np.float64]:
        found = np.zeros(positions.shape, dtype=np.float64)
        inside = positions < count
        found[inside] = leg.scores_at(positions[inside])
        found[~inside] = scores[positions[~inside] - count]
        return found

    everyone = None if leg.all_scores is None else np.concatenate([leg.all_scores, scores])
    return Leg(ranking, scores_at, everyone)


def hold_every_word(reader: SnapshotReader, query: str) -> NDArray[np.bool_]:
    """Tell which summaries hold every token of the query, shape (s,)."""
    return hold_every_token(
        tokenize(query),
        reader.look_up_summary_terms,
        reader.summary_words.positions,
        reader.summaries.size,
    )
