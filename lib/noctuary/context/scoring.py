"""One score for everything that the query found, and what comes along with it.

What belongs here: the order of the two passes and the hops over candidates. What does not: the
formulas of the passes (`noctuary.recall.scorers`), packing.

Source: libravdb mathematics 7.3 to 7.8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from noctuary.context.candidates import Candidate
from noctuary.context.profile import ContextProfile
from noctuary.recall.scorers import score_two_pass, unit_of

_SHOWN_DIGITS = 6
"""Digits of the numbers in `why`: what float32 can tell apart."""


class Scored(NamedTuple):
    """A candidate that stays.

    Attributes:
        candidate: What it is.
        score: sigma of 7.8, in [0, 1].
        why: The rule and its numbers.
    """

    candidate: Candidate
    score: float
    why: Mapping[str, Any]


def rank(
    candidates: Sequence[Candidate],
    nodes: Mapping[str, Candidate],
    now_us: int,
    profile: ContextProfile,
) -> list[Scored]:
    """Return what the passes and the hops leave, best first; ties in the order given, hops last.

    Args:
        candidates: All of V_rest that was compared; ids are distinct within a source.
        nodes: Every variant node by id, compared or not: what hops may reach.
        now_us: The moment that ages are taken at.
        profile: The constants.
    """
    direct = two_passes(candidates, now_us, profile)
    return sorted([*direct, *hops(direct, nodes, profile)], key=lambda found: -found.score)


def two_passes(
    candidates: Sequence[Candidate], now_us: int, profile: ContextProfile
) -> list[Scored]:
    """Return C2: the k1 most similar that reach theta1, of these the k2 of best score.

    A memory's score comes from the store, which knows its use; nodes and turns were never recalled,
    so their frequency is 0 whatever the store's largest count.
    """
    if not candidates:
        return []
    given = np.array([c.similarity for c in candidates], dtype=np.float64)
    similarities = np.clip(np.where(np.isfinite(given), given, 0.0), -1.0, 1.0)
    dates = np.array([c.created_at_us for c in candidates], dtype=np.int64)
    authored = np.array([c.authored for c in candidates], dtype=np.float64)
    coverage = np.array([c.coverage for c in candidates], dtype=np.float64)
    rows, scores = score_two_pass(
        similarities, dates, now_us, np.zeros(dates.size, dtype=np.int64), 0, authored, coverage,
        profile.retrieval(), profile.final_depth,
    )  # fmt: skip
    chosen = [candidates[row].score for row in rows.tolist()]
    known = np.array([np.nan if score is None else score for score in chosen], dtype=np.float64)
    scores = np.where(np.isnan(known), scores, unit_of(known))
    best = np.lexsort((rows, -scores))[: profile.final_depth]
    kept = list(zip(rows[best].tolist(), scores[best].tolist(), strict=True))
    return [
        Scored(candidates[row], score, _why(candidates[row], float(similarities[row])))
        for row, score in kept
    ]


def hops(
    direct: Sequence[Scored], nodes: Mapping[str, Candidate], profile: ContextProfile
) -> list[Scored]:
    """Return C_hop*: nodes that a node of C2 names, at eta times their best parent's score.

    One step only, so that a circle of targets ends. A target that is in C2 already is none.

    Source: libravdb mathematics 7.7.
    """
    taken = {found.candidate.id for found in direct if found.candidate.source == "authored"}
    parents: dict[str, Scored] = {}
    for found in direct:
        for target in found.candidate.hop_targets:
            known = parents.get(target)
            if (
                target in nodes
                and target not in taken
                and (known is None or known.score < found.score)
            ):
                parents[target] = found
    reached = [
        Scored(
            nodes[target],
            profile.hop_decay * parent.score,
            {"rule": "hop", "parent": parent.candidate.id, "decay": profile.hop_decay},
        )
        for target, parent in parents.items()
    ]
    return [found for found in reached if found.score >= profile.hop_threshold]


def _why(candidate: Candidate, similarity: float) -> dict[str, Any]:
    return {
        "rule": "two_pass",
        "similarity": round(similarity, _SHOWN_DIGITS),
        "coverage": round(candidate.coverage, _SHOWN_DIGITS),
    }
