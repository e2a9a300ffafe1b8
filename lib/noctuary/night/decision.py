"""Stage fusion_decision: which fusion and graph weight tonight's snapshot serves with, and why.

What belongs here: turning the kept runs into a decision, and the decision into what a snapshot
carries. What does not: the rule (noctuary.evaluate.decision).
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from noctuary.evaluate.decision import CHALLENGERS, Decision, Guard, decide
from noctuary.evaluate.scores import Scores
from noctuary.files import write_text
from noctuary.hashing import hash_json
from noctuary.night.context import DECISION, Night
from noctuary.night.evaluation import (
    RECALL_EVALUATION,
    SERVED,
    challenger_fields,
    read_runs,
    score_group,
    served_profile,
)
from noctuary.night.questions import EXACT, GENERATED_GROUP, LABELLED, read_questions
from noctuary.work.stage import Stage, StageResult

FUSION_DECISION = Stage("fusion_decision", "1", (DECISION,))
DECIDING_GROUPS = (LABELLED, GENERATED_GROUP)
"""Groups that can adopt; the exact one is built from the corpus's own words and can only veto."""


def decide_fusion(night: Night) -> StageResult:
    """Decide from the kept runs; without a query that can decide, the settings stay."""
    adopt = night.settings.evaluation.adopt
    evaluation = night.result_of(RECALL_EVALUATION)
    inputs = {"evaluation": evaluation.digest, "adopt": adopt}

    def body() -> tuple[int, dict[str, Any]]:
        decision = _decide(night) if adopt else None
        reason = decision.reason if decision else "the settings stay: evaluation.adopt is off"
        ranking = _ranking(night, decision) if decision and decision.adopted else None
        document = {"reason": reason, "decision": decision.to_json() if decision else None}
        write_text(night.work(DECISION), json.dumps(document, indent=1) + "\n")
        adopted = decision.adopted if decision else None
        tested = len(decision.tested) if decision else 0
        return tested, {"adopted": adopted, "reason": reason, "ranking": ranking}

    return night.finish(night.run(FUSION_DECISION, inputs, body))


def _decide(night: Night) -> Decision:
    questions, runs = read_questions(night), read_runs(night)
    scored = {group: score_group(questions, runs, group) for group in questions.groups}
    names = [challenger.name for challenger in CHALLENGERS]
    deciding = _joined([scored[group] for group in DECIDING_GROUPS if group in scored])
    guards: list[Guard] = []
    if EXACT in scored:
        found = scored[EXACT]
        guards.append(Guard(EXACT, found[SERVED], {n: found[n] for n in names if n in found}))
    served = deciding.get(SERVED)
    challengers = {name: deciding[name] for name in names if name in deciding}
    return decide(served, challengers, guards)


def _joined(groups: list[dict[str, Scores]]) -> dict[str, Scores]:
    """Put the groups' queries one after the other, arm by arm."""
    if not groups:
        return {}
    return {
        name: Scores(
            name=name,
            metrics=first.metrics,
            query_ids=tuple(i for group in groups for i in group[name].query_ids),
            strata=tuple(s for group in groups for s in group[name].strata),
            values=np.concatenate([group[name].values for group in groups]),
        )
        for name, first in groups[0].items()
    }


def _ranking(night: Night, decision: Decision) -> dict[str, Any]:
    """Return what the snapshot carries: the adopted fields and the evidence, numbers only."""
    (challenger,) = (c for c in CHALLENGERS if c.name == decision.adopted)
    return {
        "adopted": challenger_fields(served_profile(night), challenger),
        "challenger": challenger.name,
        "reason": decision.reason,
        "evidence": hash_json(decision.to_json()),
    }
