"""Stage abstention_calibration: below which score tonight's snapshot has no answer.

What belongs here: asking the pack the owner's labelled queries for their scores, and what the
snapshot then carries. What does not: the score (mnemon.recall.answerability_score), the rule for
the threshold (mnemon.evaluate.calibration).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

from mnemon.evaluate.abstention import Abstention
from mnemon.evaluate.calibration import (
    MAX_RECALL_LOSS,
    MIN_ANSWERABLE,
    Calibrated,
    calibrate,
    floor_score,
)
from mnemon.evaluate.labels.queries import Query
from mnemon.evaluate.run import Run
from mnemon.evaluate.scores import score_run
from mnemon.files import write_text
from mnemon.night.context import ABSTENTION, Night
from mnemon.night.decision import FUSION_DECISION
from mnemon.night.evaluation import (
    HEADLINE_METRIC,
    PLAN,
    RECALL_EVALUATION,
    SERVED,
    read_runs,
    served_profile,
)
from mnemon.night.questions import LABELLED, USER_KEY, Questions, read_questions
from mnemon.night.serving import SERVING_PACK, pack_path
from mnemon.recall.answerability import SIGNALS, WORDS, Calibration
from mnemon.recall.engine import Recaller
from mnemon.recall.profile import RetrievalProfile
from mnemon.recall.reader import SnapshotReader
from mnemon.recall.scope import Scope
from mnemon.work.stage import Stage, StageResult

ABSTENTION_CALIBRATION = Stage("abstention_calibration", "1", (ABSTENTION,))

_WORDS_ARM = "lexical"
"""The evaluation's arm that answers as a recall without a dense leg does."""


def calibrate_abstention(night: Night) -> StageResult:
    """Choose tonight's thresholds; without enough labelled queries nothing ever abstains."""
    decision = night.result_of(FUSION_DECISION)
    inputs = {
        "pack": night.result_of(SERVING_PACK).facts["digest"],
        "evaluation": night.result_of(RECALL_EVALUATION).digest,
        "decision": decision.digest,
        "profile": served_profile(night).to_json(),
    }

    def body() -> tuple[int, dict[str, Any]]:
        questions = read_questions(night)
        labelled = questions.groups.get(LABELLED, ())
        found: dict[str, Calibrated | str] = {}
        if len(labelled) >= MIN_ANSWERABLE:
            found = _calibrate(night, questions, decision.facts)
        chosen = {name: c for name, c in found.items() if isinstance(c, Calibrated)}
        said = [c.describe() if isinstance(c, Calibrated) else c for c in found.values()]
        few = f"{len(labelled)} labelled queries can calibrate and {MIN_ANSWERABLE} are needed"
        return _write(night, chosen, said or [f"nothing abstains: {few}"])

    return night.finish(night.run(ABSTENTION_CALIBRATION, inputs, body))


def read_judged(night: Night) -> Mapping[str, Abstention]:
    """Return AUROC and risk-coverage of every signal that was calibrated."""
    document = read_calibration(night)
    signals = document["sealed"]["signals"] if document["sealed"] else {}
    return {name: Abstention.from_json(raw) for name, raw in signals.items()}


def read_calibration(night: Night) -> dict[str, Any]:
    """Return `sealed` (what the snapshot carries, or None) and `said` (one sentence per signal)."""
    document: dict[str, Any] = json.loads(night.work(ABSTENTION).read_text(encoding="utf-8"))
    return document


def _write(
    night: Night, chosen: Mapping[str, Calibrated], said: Sequence[str]
) -> tuple[int, dict[str, Any]]:
    sealed = None
    if chosen:
        rule = {"metric": HEADLINE_METRIC, "max_recall_loss": MAX_RECALL_LOSS}
        sealed = {"rule": rule, "signals": {name: c.to_json() for name, c in chosen.items()}}
    document = {"sealed": sealed, "said": list(said)}
    write_text(night.work(ABSTENTION), json.dumps(document, indent=1, sort_keys=True) + "\n")
    facts = {f"threshold {name}": found.threshold for name, found in chosen.items()}
    return len(chosen), {**facts, "reason": "; ".join(said)}


def _calibrate(
    night: Night, questions: Questions, decision: Mapping[str, Any]
) -> dict[str, Calibrated | str]:
    labelled = questions.groups[LABELLED]
    ranking = decision["ranking"]
    served = served_profile(night, ranking["adopted"] if ranking else None)
    runs = read_runs(night)[LABELLED]
    arm = str(ranking["challenger"]) if ranking else SERVED
    found: dict[str, Calibrated | str] = {}
    reader = SnapshotReader.open(pack_path(night))
    with closing(reader):
        recaller = Recaller(night.paths, reader, "candidate")
        recaller.calibration = Calibration.observing()
        for signal in SIGNALS:
            alone = signal == WORDS
            profile = _words_only(served) if alone else served
            known = _scores(recaller, profile, labelled, signal)
            unknown = _scores(recaller, profile, questions.unanswerable, signal)
            if known is None or unknown is None:
                continue
            run = runs.get(_WORDS_ARM, runs[arm]) if alone else runs[arm]
            found[signal] = calibrate(
                signal, HEADLINE_METRIC, known, _recalls(run, labelled), unknown
            )
    return found


def _words_only(served: RetrievalProfile) -> RetrievalProfile:
    return replace(served, lexical_weight=1.0, dense_weight=0.0, graph_weight=0.0)


def _recalls(run: Run, queries: Sequence[Query]) -> list[float]:
    scores = score_run(run, queries)
    by_query = dict(
        zip(scores.query_ids, scores.column(HEADLINE_METRIC).tolist(), strict=True)
    )  # fmt: skip
    return [by_query[query.query_id] for query in queries]


def _scores(
    recaller: Recaller, profile: RetrievalProfile, queries: Sequence[Query], signal: str
) -> list[float] | None:
    """Return every query's score, asked as the evaluation asks; None if one has another signal."""
    scores: list[float] = []
    for query in queries:
        scope = Scope(as_of=query.as_of, user=query.extras.get(USER_KEY))
        found = recaller.recall(query.text, PLAN.k, profile=profile, scope=scope).answerability
        if found is not None and found.signal != signal:
            return None
        # Nothing was searched: a blank query, or a scope that shows nothing.
        scores.append(0.0 if found is None else floor_score(found.score))
    return scores
