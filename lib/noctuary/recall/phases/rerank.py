"""Stage 2: the head of the list in a cross-encoder's order. A permutation, nothing else.

What belongs here: giving the head's own scores to its members in their new order. What does not:
the model and its time limit (`noctuary.recall.reranking`), and when it runs: the engine asks for it
with sort_by="relevance" only.

A cross-encoder's scores are on its own scale (logits, probabilities, anything), so they decide the
order and never become scores: the head keeps its multiset of fused scores, what follows stays where
it was, and every later phase works on numbers of the same meaning.

Source: hybrid-recall design A.6.
"""

from __future__ import annotations

import numpy as np

from noctuary.recall.phases.base import Candidates, PhaseContext, PhaseOutcome, unchanged
from noctuary.recall.result import RecallWarning

LEAST_HEAD = 2
"""One memory has only one order."""


def rerank(candidates: Candidates, context: PhaseContext) -> PhaseOutcome:
    """Put the first `rerank_depth` candidates in the cross-encoder's order; ties keep theirs."""
    size = min(context.profile.rerank_depth, candidates.size)
    if size < LEAST_HEAD:
        return unchanged(candidates)
    head = candidates.positions[:size]
    answer = context.lookups.rerank_scores(head)
    if isinstance(answer, RecallWarning):
        return PhaseOutcome(candidates, notes={"fallback": answer.code}, warnings=(answer,))
    order = np.concatenate([np.argsort(-answer, kind="stable"), np.arange(size, candidates.size)])
    moved = Candidates(
        positions=candidates.positions[order],
        scores=candidates.scores,
        expanded=candidates.expanded[order],
    )

    def reason_of(position: int) -> str:
        before = int(np.flatnonzero(head == position)[0])
        after = int(np.flatnonzero(moved.positions == position)[0])
        return (
            f"cross-encoder moved it from place {before + 1} to {after + 1} "
            f"(score {float(answer[before]):.2f})"
        )

    places_changed = int(np.count_nonzero(order != np.arange(candidates.size)))
    return PhaseOutcome(moved, reason_of=reason_of, notes={"read": size, "moved": places_changed})
