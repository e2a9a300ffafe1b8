"""Stage abstention_calibration: below which score tonight's snapshot has no answer.

What belongs here: asking the pack what calibrates it, and what the snapshot then carries. What does
not: the score (noctuary.recall.answerability_score), what everyday prompts come to
(`prompt_scores`), the rule for the threshold (noctuary.evaluate.calibration).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

from noctuary.errors import EncoderError
from noctuary.evaluate.abstention import Abstention
from noctuary.evaluate.calibration import (
    MAX_RECALL_LOSS,
    MIN_ANSWERABLE,
    Calibrated,
    calibrate,
    floor_score,
    reached_by,
)
from noctuary.evaluate.labels.queries import Query
from noctuary.evaluate.run import Run
from noctuary.evaluate.scores import score_run
from noctuary.files import write_text
from noctuary.hashing import hash_text
from noctuary.night.context import ABSTENTION, Night
from noctuary.night.decision import FUSION_DECISION
from noctuary.night.evaluation import (
    HEADLINE_METRIC,
    PLAN,
    RECALL_EVALUATION,
    SERVED,
    read_runs,
    served_profile,
    words_only,
)
from noctuary.night.own_questions import make_questions, read_everyday
from noctuary.night.prompt_scores import Prompted, ask_prompts, find_asker, scope_mask
from noctuary.night.query_vectors import fetch_query_vectors
from noctuary.night.questions import LABELLED, USER_KEY, Questions, read_questions
from noctuary.night.serving import SERVING_PACK, pack_path
from noctuary.recall.answerability import WORDS, WORDS_AND_VECTORS, Calibration
from noctuary.recall.engine import Recaller
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query_encoder import warm_up
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.scope import Scope
from noctuary.work.stage import Stage, StageResult

ABSTENTION_CALIBRATION = Stage("abstention_calibration", "3", (ABSTENTION,))

LET_THROUGH = 0.015
"""Share of everyday prompts that may reach the threshold: more injects noise, less loses answers.
"""

LENIENT = 0.02
"""The same for the sake of questions that the night made itself. Those repeat words, so for words
alone, which are weaker evidence, they have no say."""

MOST_LET_THROUGH = {WORDS_AND_VECTORS: 0.1, WORDS: 0.05}
"""The same for the sake of the owner's labels, which weigh more."""

BAR_SHARE = 0.5
"""Share of everyday prompts whose best memory reaches the bar of a single memory."""

OWN_METRIC = "recall@3 of its own questions"
"""What is kept of the questions that a night makes: as many memories as a hook injects."""

_OWN_K = 3

_WORDS_ARM = "lexical"
"""The evaluation's arm that answers as a recall without a dense leg does."""


def calibrate_abstention(night: Night) -> StageResult:
    """Choose tonight's thresholds: by everyday prompts, own questions and labels if there are."""
    decision = night.result_of(FUSION_DECISION)
    inputs = {
        "pack": night.result_of(SERVING_PACK).facts["digest"],
        "evaluation": night.result_of(RECALL_EVALUATION).digest,
        "decision": decision.digest,
        "profile": served_profile(night).to_json(),
        "prompts": hash_text(*read_everyday()),
    }

    def body() -> tuple[int, dict[str, Any]]:
        ranking = decision.facts["ranking"]
        profile = served_profile(night, ranking["adopted"] if ranking else None)
        with closing(SnapshotReader.open(pack_path(night))) as reader:
            # Some 600 texts: loaded now and for good, so that no clock decides who encodes them.
            with suppress(EncoderError):
                warm_up(night.paths, reader.manifest)
            recaller = Recaller(night.paths, reader, "candidate", may_warm=True)
            if not reader.count:
                return _write(night, {}, ["nothing abstains: the store is empty"])
            return _write(night, *_calibrate(night, recaller, profile, decision.facts))

    return night.finish(night.run(ABSTENTION_CALIBRATION, inputs, body))


def read_judged(night: Night) -> Mapping[str, Abstention]:
    """Return AUROC and risk-coverage of every signal that queries calibrated."""
    document = read_calibration(night)
    signals = document["sealed"]["signals"] if document["sealed"] else {}
    return {name: Abstention.from_json(raw) for name, raw in signals.items() if "auroc" in raw}


def read_calibration(night: Night) -> dict[str, Any]:
    """Return `sealed` (what the snapshot carries, or None) and `said` (one sentence per signal)."""
    document: dict[str, Any] = json.loads(night.work(ABSTENTION).read_text(encoding="utf-8"))
    return document


def _write(
    night: Night, signals: Mapping[str, Mapping[str, Any]], said: Sequence[str]
) -> tuple[int, dict[str, Any]]:
    rule = {"max_recall_loss": MAX_RECALL_LOSS, "let_through": LET_THROUGH}
    sealed = {"rule": rule, "signals": dict(signals)} if signals else None
    document = {"sealed": sealed, "said": list(said)}
    write_text(night.work(ABSTENTION), json.dumps(document, indent=1, sort_keys=True) + "\n")
    facts = {f"threshold {name}": found["threshold"] for name, found in signals.items()}
    return len(signals), {**facts, "reason": "; ".join(said)}


def _calibrate(
    night: Night, recaller: Recaller, profile: RetrievalProfile, decision: Mapping[str, Any]
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return what the snapshot carries by signal, and one sentence for each."""
    questions = read_questions(night)
    profiles = {WORDS_AND_VECTORS: profile, WORDS: words_only(profile)}
    asker = find_asker(recaller.reader)
    asked = ask_prompts(night, recaller, profiles, asker)
    # Of both signals: a query that another one answers must show it.
    recaller.calibration = Calibration.observing({s: p.measure for s, p in asked.items()})
    sealed: dict[str, dict[str, Any]] = {}
    said: list[str] = []
    for signal, prompted in asked.items():
        profile, scores = profiles[signal], prompted.scores
        chosen = by_labels = _by_labels(night, recaller, profile, questions, decision, prompted)
        if isinstance(by_labels, str) and signal == WORDS_AND_VECTORS:
            chosen = _by_own(night, recaller, profile, asker, prompted)
        threshold = reached_by(scores, LET_THROUGH)
        if isinstance(by_labels, Calibrated):
            told = [by_labels.describe(), by_labels.describe_unanswerable()]
        elif isinstance(chosen, Calibrated):
            told = [chosen.describe("questions that the night made"), by_labels]
        else:
            told = [f"{signal}: below {threshold:.3f} nothing is an answer"]
            told += (
                [by_labels]
                if chosen is by_labels
                else [by_labels, f"by its own questions: {chosen}"]
            )
        if isinstance(chosen, Calibrated):
            threshold = chosen.threshold
        let = sum(score >= threshold for score in scores)
        said.append("; ".join([*told, f"{let} of {len(scores)} everyday prompts reach it"]))
        sealed[signal] = {
            **(chosen.to_json() if isinstance(chosen, Calibrated) else {}),
            "threshold": threshold,
            "bar": reached_by(scores, BAR_SHARE),
            "measure": prompted.measure.to_json(),
            "prompts": len(scores),
            "prompts_let_through": let,
        }
    return sealed, said


def _by_labels(
    night: Night,
    recaller: Recaller,
    profile: RetrievalProfile,
    questions: Questions,
    decision: Mapping[str, Any],
    prompted: Prompted,
) -> Calibrated | str:
    labelled = questions.groups.get(LABELLED, ())
    if len(labelled) < MIN_ANSWERABLE:
        return f"there are {len(labelled)} labelled queries, and {MIN_ANSWERABLE} are needed"
    signal, ranking = prompted.signal, decision["ranking"]
    runs = read_runs(night)[LABELLED]
    run = runs[str(ranking["challenger"]) if ranking else SERVED]
    if signal == WORDS:
        run = runs.get(_WORDS_ARM, run)
    known = _scores(recaller, profile, labelled, signal)
    unknown = _scores(recaller, profile, questions.unanswerable, signal)
    if known is None or unknown is None:
        return "some labelled queries are answered by another signal"
    within = (reached_by(prompted.scores, MOST_LET_THROUGH[signal]), 1.0)
    return calibrate(
        signal, HEADLINE_METRIC, known, _recalls(run, labelled), unknown, within=within
    )


def _by_own(
    night: Night,
    recaller: Recaller,
    profile: RetrievalProfile,
    asker: str | None,
    prompted: Prompted,
) -> Calibrated | str:
    """Return the threshold that questions of the store's own memories lead to, or why none."""
    reader, scope = recaller.reader, Scope(user=asker)
    own = list(make_questions(reader, scope_mask(reader, asker)))
    fetch_query_vectors(night, reader.manifest, [text for text, _ in own])
    scores, recalls = list[float](), list[float]()
    for text, memory_id in own:
        found = recaller.recall(text, _OWN_K, profile=profile, scope=scope)
        judged = found.answerability
        scores.append(floor_score(judged.score) if judged is not None else 0.0)
        recalls.append(float(memory_id in {str(m.id) for m in found.memories}))
    strict = reached_by(prompted.scores, LET_THROUGH)
    within = (reached_by(prompted.scores, LENIENT), strict)
    return calibrate(prompted.signal, OWN_METRIC, scores, recalls, prompted.scores, within=within)


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
