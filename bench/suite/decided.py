"""The arm noctuary_decided: what the night's decision is worth on queries that it has not seen.

The rule of fusion_decision is asked on one half of a set's queries and its choice scored on the
other half, and vice versa. Nothing is retrieved: every challenger is an arm with a run of its own.
The night also lets queries built from the corpus veto a challenger; that guard is not applied here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.evaluate.decide import CHALLENGERS, DECISION_METRIC, Decision, challenge, decide
from noctuary.evaluate.labels import Query
from noctuary.evaluate.metrics import Scores, score_run
from noctuary.evaluate.run import Run
from noctuary.recall.profile import RetrievalProfile

DECIDED = "noctuary_decided"
SERVED = "noctuary"
FOLDS = 2


@dataclass(frozen=True, slots=True)
class Crosswise:
    """The derived run and the decisions that it rests on.

    Attributes:
        run: Per query, the ranking of the arm that the other fold decided on.
        decisions: By fold: decided on the queries outside it.
        sizes: Queries per fold.
        without_arm: Challengers that no arm of the suite stands for.
    """

    run: Run
    decisions: tuple[Decision, ...]
    sizes: tuple[int, ...]
    without_arm: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "folds": [
                {"n": n, "adopted": d.adopted, "reason": d.reason}
                for n, d in zip(self.sizes, self.decisions, strict=True)
            ],
            "challengers_without_arm": list(self.without_arm),
        }


def fold_of(query_id: str) -> int:
    """Return the fold of a query: by a hash of its id, so that it never depends on the order."""
    return hashlib.sha256(query_id.encode("utf-8")).digest()[0] % FOLDS


def find_challengers(arms: Mapping[str, Mapping[str, Any]]) -> dict[str, str | None]:
    """Return by challenger the arm that is the shipped profile with the challenger's fields.

    A challenger that equals the shipped profile is none, and is left out; None where no arm of the
    suite stands for one.
    """
    shipped = RetrievalProfile()
    found: dict[str, str | None] = {}
    for challenger in CHALLENGERS:
        profile = shipped.replaced(**challenge(challenger, shipped))
        if profile != shipped:
            same = [
                name for name, arm in arms.items() if dict(arm["settings"]) == profile.to_json()
            ]
            found[challenger] = same[0] if same else None
    return found


def decide_crosswise(
    runs: Mapping[str, Run], queries: Sequence[Query], arms: Mapping[str, Mapping[str, Any]]
) -> Crosswise | None:
    """Decide on one fold, take rankings for the other.

    Args:
        runs: Runs of all arms over these queries.
        queries: With labels.
        arms: Settings by arm.

    Returns:
        None if the served arm has no run, or a fold would be empty.
    """
    folds = np.array([fold_of(query.query_id) for query in queries])
    if SERVED not in runs or len(np.unique(folds)) < FOLDS:
        return None
    challengers = find_challengers(arms)
    arm_of = {name: arm for name, arm in challengers.items() if arm is not None and arm in runs}
    scores = {
        arm: score_run(runs[arm], queries, (DECISION_METRIC,)) for arm in (SERVED, *arm_of.values())
    }
    decisions = tuple(_decide(scores, arm_of, folds != fold) for fold in range(FOLDS))
    chosen = [arm_of.get(d.adopted or "", SERVED) for d in decisions]
    rows = {query_id: row for row, query_id in enumerate(runs[SERVED].query_ids)}
    picked = [
        (runs[chosen[fold]], rows[query.query_id])
        for query, fold in zip(queries, folds.tolist(), strict=True)
    ]
    run = replace(
        runs[SERVED],
        name=DECIDED,
        query_ids=tuple(query.query_id for query in queries),
        rankings=tuple(found.rankings[row] for found, row in picked),
        top_scores=tuple(None for _ in picked),
    )
    missing = tuple(name for name in challengers if name not in arm_of)
    sizes = tuple(int((folds == fold).sum()) for fold in range(FOLDS))
    return Crosswise(run, decisions, sizes, missing)


def _decide(
    scores: Mapping[str, Scores], arm_of: Mapping[str, str], keep: NDArray[np.bool_]
) -> Decision:
    """Apply the night's rule to some queries; without its guard, which is not kept here."""
    challengers = {
        name: replace(scores[arm].select(keep), name=name) for name, arm in arm_of.items()
    }
    return decide(scores[SERVED].select(keep), challengers)
