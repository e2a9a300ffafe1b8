"""Stage recall_evaluation: tonight's pack answers tonight's queries, with every arm.

What belongs here: which arms, the runs that are kept, the report over them. What does not: what
follows from it (decision.py, comparison.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

from noctuary.evaluate.abstention import Abstention, judge_abstention
from noctuary.evaluate.comparison import compare
from noctuary.evaluate.decision import CHALLENGERS, Challenger
from noctuary.evaluate.report import summarize
from noctuary.evaluate.run import Run, RunPlan
from noctuary.evaluate.scores import Scores, score_run
from noctuary.files import write_text
from noctuary.hashing import hash_file
from noctuary.night.context import (
    EVALUATION,
    EVALUATION_QUERIES,
    EVALUATION_RUNS,
    GENERATED,
    Night,
)
from noctuary.night.profile import store_profile
from noctuary.night.query_vectors import fetch_query_vectors
from noctuary.night.questions import (
    UNANSWERABLE,
    Questions,
    gather_questions,
    labelled_path,
    write_questions,
)
from noctuary.night.retriever import KeptAnswers, ProfileRetriever
from noctuary.night.serving import SERVING_PACK, pack_path
from noctuary.progress import SILENT
from noctuary.recall.engine import Recaller
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.reader import SnapshotReader
from noctuary.work.memo import Memo
from noctuary.work.stage import Stage, StageResult

RECALL_EVALUATION = Stage(
    "recall_evaluation", "2", (EVALUATION, EVALUATION_QUERIES, EVALUATION_RUNS)
)
ANSWERS_KIND = f"{RECALL_EVALUATION.name}:{RECALL_EVALUATION.version}"
"""Kind of the memo: answers of a night that was stopped."""
SERVED = "served"
PLAN = RunPlan(k=10, depth=50, timed=False)
"""The same for every arm, or their first ten would come from lists of different depth. Up to the
profile's own depth (50) a longer list does not change its head."""
SCORE_DIGITS = 5
"""Kept of a top score: equal nights leave equal files, whatever the machine was doing."""
HEADLINE_METRIC = "recall@10"

Runs = Mapping[str, Mapping[str, Run]]
"""Runs by group and arm."""


def evaluation_profiles(night: Night) -> dict[str, RetrievalProfile]:
    """Return the arms by name: as configured, each leg alone, and the challengers."""
    served = served_profile(night)
    legs = {
        "lexical": words_only(served),
        "dense": replace(served, lexical_weight=0.0, dense_weight=1.0, graph_weight=0.0),
    }
    challengers = {c.name: challenger_profile(served, c) for c in CHALLENGERS}
    arms = {SERVED: served, **legs, **challengers}
    return {name: profile for name, profile in arms.items() if name == SERVED or profile != served}


def words_only(profile: RetrievalProfile) -> RetrievalProfile:
    """Return a profile as it answers without a dense leg, by the words of the query alone."""
    return replace(profile, lexical_weight=1.0, dense_weight=0.0, graph_weight=0.0)


def served_profile(night: Night, adopted: Mapping[str, Any] | None = None) -> RetrievalProfile:
    """Return what answers a call that asks for nothing special, as a snapshot adopted it.

    Without the flags that only watch: they change no result, and a night has no business in the
    replay log.

    Args:
        night: Its settings and its store's own profiles count.
        adopted: What that snapshot's evaluation adopted; None for the settings alone.
    """
    served = store_profile(night, adopted)
    return replace(served, explain=False, candidate_trace=False, replay_log=False)


def challenger_profile(served: RetrievalProfile, challenger: Challenger) -> RetrievalProfile:
    """Return the configured profile with what a challenger changes."""
    return replace(served, **challenger_fields(served, challenger))


def challenger_fields(served: RetrievalProfile, challenger: Challenger) -> dict[str, Any]:
    """Return the fields of a profile that a challenger replaces."""
    fields: dict[str, Any] = {}
    if challenger.fusion is not None:
        fields["fusion"] = challenger.fusion
    if challenger.dense_share is not None:
        total = (served.lexical_weight + served.dense_weight) or 1.0
        fields["dense_weight"] = round(total * challenger.dense_share, 6)
        fields["lexical_weight"] = round(total * (1.0 - challenger.dense_share), 6)
    if challenger.graph_weight is not None:
        fields["graph_weight"] = challenger.graph_weight
    if challenger.session_weight is not None:
        fields["session_weight"] = challenger.session_weight
    return fields


def evaluate_pack(night: Night) -> StageResult:
    """Measure tonight's pack; without a query to ask, say so."""
    labels = labelled_path(night) if night.settings.evaluation.enabled else None
    generated = night.work(GENERATED)
    inputs = {
        "pack": night.result_of(SERVING_PACK).facts["digest"],
        "queries": hash_file(labels) if labels is not None and labels.is_file() else None,
        "generated": hash_file(generated) if generated.is_file() else None,
        "profile": served_profile(night).to_json(),
        "enabled": night.settings.evaluation.enabled,
        "exact_queries": night.settings.evaluation.exact_queries,
    }
    reused = 0

    def body() -> tuple[int, dict[str, Any]]:
        nonlocal reused
        if not night.settings.evaluation.enabled:
            return _write(night, Questions(notes=("the evaluation is switched off",)), {})
        questions = gather_questions(night)
        reader = SnapshotReader.open(pack_path(night))
        with closing(reader):
            recaller = Recaller(night.paths, reader, "candidate")
            runs, reused = _ask(night, recaller, questions)
            return _write(night, questions, runs)

    result = night.run(RECALL_EVALUATION, inputs, body)
    return night.finish(result.with_notes(answers_reused=reused) if reused else result)


def read_runs(night: Night) -> dict[str, dict[str, Run]]:
    """Return the runs that the last evaluation kept."""
    raw = json.loads(night.work(EVALUATION_RUNS).read_text(encoding="utf-8"))
    return {
        group: {name: Run.from_json(run) for name, run in arms.items()}
        for group, arms in raw.items()
    }


def score_group(questions: Questions, runs: Runs, group: str) -> dict[str, Scores]:
    """Return the scores of every arm on one group of queries."""
    return {name: score_run(run, questions.groups[group]) for name, run in runs[group].items()}


def measure_abstention(questions: Questions, runs: Runs) -> Abstention | None:
    """Say how well the top score tells answerable from unanswerable queries, if there are both."""
    group = next(iter(questions.groups), None)
    if group is None or UNANSWERABLE not in runs:
        return None
    answerable = runs[group][SERVED]
    scores = score_run(answerable, questions.groups[group])
    return judge_abstention(answerable, runs[UNANSWERABLE][SERVED], scores)


def _ask(
    night: Night, recaller: Recaller, questions: Questions
) -> tuple[dict[str, dict[str, Run]], int]:
    """Return the runs, and how many answers a stopped night had found already."""
    asked = [*questions.groups.values(), questions.unanswerable]
    texts = [query.text for queries in asked for query in queries]
    fetch_query_vectors(night, recaller.reader.manifest, texts)
    profiles = evaluation_profiles(night)
    runs: dict[str, dict[str, Run]] = {}
    with Memo.open(night.paths.memo) as memo:
        kept = KeptAnswers(memo, ANSWERS_KIND)
        for group, queries in questions.groups.items():
            runs[group] = {}
            for name, profile in profiles.items():
                retriever = ProfileRetriever(name, recaller, profile)
                runs[group][name] = kept.ask(retriever, queries, PLAN, night.progress)
        if questions.unanswerable:
            retriever = ProfileRetriever(SERVED, recaller, profiles[SERVED])
            found = kept.ask(retriever, questions.unanswerable, PLAN, SILENT)
            runs[UNANSWERABLE] = {SERVED: found}
    return runs, kept.reused


def _write(night: Night, questions: Questions, runs: Runs) -> tuple[int, dict[str, Any]]:
    """Keep queries, runs and report; return the row count and facts of the stage."""
    write_questions(night, questions)
    kept = {
        group: {name: _rounded(run).to_json() for name, run in arms.items()}
        for group, arms in runs.items()
    }
    write_text(night.work(EVALUATION_RUNS), json.dumps(kept, ensure_ascii=False) + "\n")
    report = _report(questions, runs)
    write_text(night.work(EVALUATION), json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    n = sum(len(queries) for queries in questions.groups.values())
    served = {
        f"{HEADLINE_METRIC} {group}": _served_mean(found["reports"])
        for group, found in report["groups"].items()
    }
    notes = {"note": "; ".join(questions.notes)} if questions.notes else {}
    return n, {"queries": questions.counts(), **served, **notes}


def _served_mean(reports: list[dict[str, Any]]) -> float:
    (found,) = (report for report in reports if report["name"] == SERVED)
    return round(float(found["overall"][HEADLINE_METRIC]["mean"]), 4)


def _rounded(run: Run) -> Run:
    """Cut scores to what does not depend on how many threads multiplied the matrices."""
    scores = (None if score is None else round(score, SCORE_DIGITS) for score in run.top_scores)
    return replace(run, top_scores=tuple(scores))


def _report(questions: Questions, runs: Runs) -> dict[str, Any]:
    groups: dict[str, Any] = {}
    for group in questions.groups:
        scores = score_group(questions, runs, group)
        others = [(arm, scores[SERVED]) for name, arm in scores.items() if name != SERVED]
        groups[group] = {
            "reports": [report.to_json() for report in summarize(list(scores.values()))],
            "comparisons": [found.to_json() for found in compare(others)],
        }
    abstention = measure_abstention(questions, runs)
    return {
        "queries": questions.counts(),
        "notes": list(questions.notes),
        "groups": groups,
        "abstention": abstention.to_json() if abstention else None,
    }
