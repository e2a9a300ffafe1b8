"""Where one memory stands in each leg, over everything that a recall may see.

What belongs here: exact ranks for `why`. What does not: the ranking itself, which never looks that
far down.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from noctuary.errors import EncoderError
from noctuary.recall.base_ranking import BaseRanker
from noctuary.recall.engine import Recaller
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.run import Run
from noctuary.recall.searched import Searched
from noctuary.recall.snapshot_graph import SnapshotGraph

_ROWS_AT_ONCE = 1 << 16
"""Vectors multiplied at once: 100 MB of 384 dimensions. Fewer cost more calls, more cost memory."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One leg's view of one memory.

    Attributes:
        leg: "lexical" or "dense".
        rank: 1-based among the allowed memories that the leg scores above 0; None if it does not.
        score: The leg's own score; None where the leg could not be asked.
        ranked: How many allowed memories the leg scores above 0.
        fault: Why the leg could not be asked, or None.
    """

    leg: str
    rank: int | None
    score: float | None
    ranked: int
    fault: str | None = None


def lexical_standing(
    recaller: Recaller, profile: RetrievalProfile, searched: Searched, query: str, position: int
) -> Standing:
    """Rank everything that is searched by the words of the query.

    Args:
        recaller: The pinned snapshot.
        profile: Says whether there is a lexical leg.
        searched: What the recall searches.
        query: As asked.
        position: The memory or summary.
    """
    reader = recaller.reader
    if profile.lexical_weight <= 0:
        return Standing("lexical", None, None, 0, "off (lexical_weight 0)")
    alone = replace(
        profile, graph_weight=0.0, exact_match_bonus=0.0, dense_weight=0.0, mmr_enabled=False
    )
    summaries = searched.summaries
    ranker = BaseRanker(
        reader, SnapshotGraph(reader), alone, searched.memories, None, summaries=summaries
    )
    everything = reader.count + (0 if summaries is None else summaries.size)
    leg = ranker.rank(Run(time.perf_counter(), None), query, everything).lexical
    score = float(leg.scores_at(np.array([position], dtype=np.int64))[0])
    return Standing("lexical", leg.rank_of().get(position), score, int(leg.ranking.size))


def dense_standing(
    recaller: Recaller, profile: RetrievalProfile, searched: Searched, query: str, position: int
) -> Standing:
    """Rank everything that is searched by its exact cosine to the query.

    Args:
        recaller: The pinned snapshot.
        profile: Says whether there is a dense leg.
        searched: What the recall searches.
        query: As asked.
        position: The memory or summary.
    """
    vectors = recaller.reader.vectors
    if profile.dense_weight <= 0:
        return Standing("dense", None, None, 0, "off (dense_weight 0)")
    if vectors is None:
        return Standing("dense", None, None, 0, "the snapshot has no vectors")
    try:
        vector = recaller.live_world().query_vector(query)
        parts = [
            np.asarray(vectors[start : start + _ROWS_AT_ONCE] @ vector, dtype=np.float32)
            for start in range(0, recaller.reader.count, _ROWS_AT_ONCE)
        ]
        if searched.summaries is not None and recaller.reader.summary_vectors is not None:
            of_summaries = recaller.reader.summary_vectors @ vector
            parts.append(np.asarray(of_summaries, dtype=np.float32))
    except (EncoderError, OSError, ValueError) as error:
        return Standing("dense", None, None, 0, f"could not be asked: {error}")
    cosines = np.concatenate(parts)
    score = float(cosines[position])
    above = cosines > 0
    if searched.memories is not None:
        above[: recaller.reader.count] &= searched.memories
    if searched.summaries is not None:
        above[recaller.reader.count :] &= searched.summaries
    if score <= 0:
        return Standing("dense", None, score, int(above.sum()))
    # Ties go to the lower position, as in every leg.
    ahead = above & (cosines > cosines[position])
    ahead[:position] |= above[:position] & (cosines[:position] == cosines[position])
    return Standing("dense", int(ahead.sum()) + 1, score, int(above.sum()))


def say_standing(standing: Standing, allowed: int, depth: int) -> str:
    """Return where a memory stands in a leg, as a clause.

    Args:
        standing: Its place.
        allowed: Memories that the recall may see.
        depth: Candidates that a leg takes.
    """
    if standing.fault is not None:
        return standing.fault
    if standing.leg == "lexical":
        if standing.rank is None:
            return "shares no word with the query"
        return (
            f"rank {standing.rank:,} of {standing.ranked:,} that share a word with the query "
            f"(score {standing.score:.3f}); the best {depth:,} are taken"
        )
    if standing.rank is None:
        return f"points away from the query (cosine {standing.score:.3f}); only above 0 is taken"
    return (
        f"rank {standing.rank:,} of {allowed:,} (cosine {standing.score:.3f}); the best {depth:,} "
        "are taken"
    )
