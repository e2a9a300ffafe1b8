"""Stages recall_evaluation, fusion_decision and recall_comparison."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from noctuary.core.errors import SnapshotCorruptError, SnapshotMissingError
from noctuary.core.files import hash_file, hash_json, write_text
from noctuary.core.manifest import read_pointer
from noctuary.core.types import SILENT, Progress
from noctuary.evaluate.decide import (
    CHALLENGERS,
    Abstention,
    Challenger,
    Decision,
    Guard,
    decide,
    judge_abstention,
)
from noctuary.evaluate.labels import Query
from noctuary.evaluate.run import Run, RunPlan, run_retriever
from noctuary.evaluate.scores import Comparison, Difference, Scores, compare, score_run, summarize
from noctuary.evaluate.statistics import Resampling, holm
from noctuary.night.context import (
    COMPARISON,
    DECISION,
    EVALUATION,
    EVALUATION_QUERIES,
    EVALUATION_RUNS,
    GENERATED,
    Night,
    store_profile,
)
from noctuary.night.questions import (
    EXACT,
    GENERATED_GROUP,
    LABELLED,
    UNANSWERABLE,
    USER_KEY,
    Questions,
    fetch_query_vectors,
    gather_questions,
    labelled_path,
    read_questions,
    write_questions,
)
from noctuary.night.serving import SERVING_PACK, candidate_digest, candidate_path, pack_path
from noctuary.recall.engine import Recaller
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Scope
from noctuary.recall.reader import SnapshotReader
from noctuary.snapshot.checks import Drop, DropReport
from noctuary.work.stage import Memo, Stage, StageResult, load_result

# One snapshot and one profile as a retriever: what the night's evaluation asks.
#
# No metric, no stage.


KEPT_PER_WRITE = 64
"""Answers that a stop costs at most; a durable write each would cost more than most answers."""


@dataclass(frozen=True, slots=True)
class ProfileRetriever:
    """Asks a snapshot with one profile.

    Everything that the query's user may see is searched, whatever wing the query names, as far as
    it existed at the query's moment: finding the right wing is part of the work.

    Attributes:
        name: What reports call it.
        recaller: The pinned snapshot.
        profile: How it ranks.
    """

    name: str
    recaller: Recaller
    profile: RetrievalProfile

    def retrieve_hits(self, query: Query, k: int) -> list[tuple[str, float]]:
        """Return ids with their final scores, best first."""
        scope = Scope(as_of=query.as_of, user=query.extras.get(USER_KEY))
        found = self.recaller.recall(query.text, k, profile=self.profile, scope=scope)
        return [(str(memory.id), memory.final_score) for memory in found.memories]

    def retrieve(self, query: str, k: int) -> list[str]:
        """Return ids, best first."""
        found = self.recaller.recall(query, k, profile=self.profile)
        return [str(memory.id) for memory in found.memories]


class KeptAnswers:
    """What retrievers answered, written down as it comes: a night that is stopped asks none again.

    Ids and scores under a hash of what was asked; never a text. Publishing prunes it.

    Attributes:
        reused: Answers of an earlier night, so far.
    """

    def __init__(self, memo: Memo, kind: str) -> None:
        """Open what is kept.

        Args:
            memo: Where; what of this kind is not listed as alive there is pruned.
            kind: Which stage in which version asks.
        """
        self._memo = memo
        self._kind = kind
        self.reused = 0

    def ask(
        self,
        retriever: ProfileRetriever,
        queries: Sequence[Query],
        plan: RunPlan,
        progress: Progress,
    ) -> Run:
        """Ask every query that nobody has asked this snapshot, profile and archive."""
        recaller = retriever.recaller
        archived = recaller.live_world().archive()
        asker = hash_json(
            [
                recaller.reader.manifest.digest,
                retriever.profile.to_json(),
                None if archived is None else archived.key,
                plan.depth,
            ]
        )
        keys = [hash_json([asker, q.text, str(q.as_of), q.extras.get(USER_KEY)]) for q in queries]
        known = self._memo.get_many(self._kind, keys)
        self.reused += len(known)
        missing = [(key, q) for key, q in zip(keys, queries, strict=True) if key not in known]
        for start in range(0, len(missing), KEPT_PER_WRITE):
            chunk = missing[start : start + KEPT_PER_WRITE]
            run = run_retriever(retriever, [query for _, query in chunk], plan)
            found = zip(chunk, run.top_scores, run.rankings, strict=True)
            fresh = {key: json.dumps([best, *ids]).encode() for (key, _), best, ids in found}
            self._memo.put_many(self._kind, fresh)
            known |= fresh
            done = len(queries) - len(missing) + start + len(chunk)
            progress.update("evaluate", done, len(queries))
        answers = [json.loads(known[key]) for key in keys]
        return Run(
            name=retriever.name,
            k=plan.depth,
            depth=plan.depth,
            query_ids=tuple(query.query_id for query in queries),
            rankings=tuple(tuple(ids) for _, *ids in answers),
            top_scores=tuple(best for best, *_ in answers),
            latency_ms=None,
            build_ms=None,
            index_bytes=None,
            unstable_prefixes=0,
        )


# Stage recall_evaluation: tonight's pack answers tonight's queries, with every arm.


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


# Stage fusion_decision: which fusion and graph weight tonight's snapshot serves with, and why.


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


# Stage recall_comparison: does tonight's candidate recall worse than what serves?


RECALL_COMPARISON = Stage("recall_comparison", "1", (COMPARISON,))
DROP_METRICS = ("recall@10", "ndcg@10")
"""What a drop is told by: whether the answer is there at all, and where it stands."""

Pair = tuple[Run, Run, Sequence[Query]]


def compare_with_serving(night: Night) -> StageResult:
    """Ask the candidate and the serving snapshot the same queries and keep the differences."""
    digest = candidate_digest(night)
    serving = _serving(night)
    known = load_result(night.paths.work, RECALL_COMPARISON)
    if serving and serving[1] == digest and known and known.facts.get("candidate") == digest:
        # It serves by now; what was found before it did is the answer that is worth keeping.
        return night.finish(known)
    inputs = {
        "candidate": digest,
        "serving": serving[1] if serving else None,
        "evaluation": night.result_of(RECALL_EVALUATION).digest,
        "profile": served_profile(night).to_json(),
        "on_drop": night.settings.evaluation.on_drop,
    }

    def body() -> tuple[int, dict[str, Any]]:
        note = _nothing_to_compare(night, digest, serving)
        if serving is None or note:
            return _write_comparison(night, digest, [], DropReport(note=note))
        try:
            found, report = _compare(night, serving[0])
        except SnapshotCorruptError as error:
            note = f"the serving snapshot is damaged: {error}"
            return _write_comparison(night, digest, [], DropReport(note=note))
        return _write_comparison(night, digest, found, report)

    return night.finish(night.run(RECALL_COMPARISON, inputs, body))


def read_drops(night: Night) -> DropReport:
    """Return what the stage found.

    Raises:
        StoreError: If it has not run for tonight's candidate.
    """
    night.result_of(RECALL_COMPARISON)
    raw = json.loads(night.work(COMPARISON).read_text(encoding="utf-8"))["report"]
    fields: dict[str, Any] = {**raw, "drops": tuple(Drop(**drop) for drop in raw["drops"])}
    return DropReport(**fields)


def read_comparisons(night: Night) -> dict[str, Comparison]:
    """Return the differences to the serving snapshot by group; empty if none were made."""
    raw = json.loads(night.work(COMPARISON).read_text(encoding="utf-8"))["groups"]
    return {group: Comparison.from_json(found) for group, found in raw.items()}


def find_drops(
    comparisons: Sequence[tuple[str, Comparison]],
    resampling: Resampling = Resampling(),  # noqa: B008
) -> tuple[list[Drop], int]:
    """Return the significant losses and how many pairs were tested.

    A loss is significant if its paired interval lies below zero and its permutation p, corrected
    over every group, stratum and metric together (Holm), is below alpha.

    Args:
        comparisons: Group name and candidate against serving snapshot.
        resampling: Where alpha comes from.
    """
    tested = [
        (name, metric, difference)
        for group, comparison in comparisons
        for name, metric, difference in _differences(group, comparison)
    ]
    corrected = holm([difference.p_value for _, _, difference in tested])
    drops = [
        Drop(name, metric, d.mean, d.interval.low, d.interval.high, d.n, p)
        for (name, metric, d), p in zip(tested, corrected, strict=True)
        if d.interval is not None and d.interval.high < 0.0 and p < resampling.alpha
    ]
    return drops, len(tested)


def _differences(group: str, comparison: Comparison) -> Iterator[tuple[str, str, Difference]]:
    parts = {group: comparison.overall}
    if len(comparison.strata) > 1:
        parts |= {f"{group}: {stratum}": part for stratum, part in comparison.strata.items()}
    for name, part in parts.items():
        for metric in DROP_METRICS:
            yield name, metric, part[metric]


def _serving(night: Night) -> tuple[Path, str] | None:
    """Return directory and digest of what serves."""
    try:
        pointer = read_pointer(night.paths)
    except (SnapshotMissingError, SnapshotCorruptError):
        return None
    return night.paths.snapshots / pointer.snapshot_id, pointer.digest


def _nothing_to_compare(night: Night, digest: str, serving: tuple[Path, str] | None) -> str:
    if not night.settings.evaluation.enabled:
        return "the evaluation is switched off"
    if serving is None:
        return "nothing serves yet"
    if serving[1] == digest:
        return "the serving snapshot is this candidate"
    if not read_questions(night).groups:
        return "there is no query to ask"
    return ""


def _compare(
    night: Night, serving_directory: Path
) -> tuple[list[tuple[str, Comparison]], DropReport]:
    candidate = SnapshotReader.open(candidate_path(night))
    with closing(candidate), closing(SnapshotReader.open(serving_directory)) as serving:
        pairs = {
            group: pair
            for group, queries in read_questions(night).groups.items()
            if (pair := _ask_both(night, candidate, serving, queries)) is not None
        }
    found = [
        (group, compare([(score_run(ours, queries), score_run(theirs, queries))])[0])
        for group, (ours, theirs, queries) in pairs.items()
    ]
    drops, tested = find_drops(found)
    return found, DropReport(
        drops=tuple(drops),
        tested=tested,
        queries=sum(len(queries) for _, _, queries in pairs.values()),
        note="" if found else "no query can be answered by both snapshots",
        on_drop=night.settings.evaluation.on_drop,
    )


def _ask_both(
    night: Night, candidate: SnapshotReader, serving: SnapshotReader, queries: Sequence[Query]
) -> Pair | None:
    """Run both snapshots on the queries whose relevant memories stand unchanged in both."""
    labels = {i for query in queries for i in query.relevant_ids}
    here, there = candidate.content_hashes(labels), serving.content_hashes(labels)
    kept = [
        query
        for query in queries
        if all(i in there and there[i] == here.get(i) for i in query.relevant_ids)
    ]
    if not kept:
        return None
    runs: list[Run] = []
    for name, reader in (("candidate", candidate), ("serving", serving)):
        recaller = Recaller(night.paths, reader, name)
        retriever = ProfileRetriever(name, recaller, served_profile(night, reader.adopted))
        runs.append(run_retriever(retriever, kept, PLAN, progress=night.progress))
    return runs[0], runs[1], kept


def _write_comparison(
    night: Night, digest: str, found: Sequence[tuple[str, Comparison]], report: DropReport
) -> tuple[int, dict[str, Any]]:
    document = {
        "report": asdict(report),
        "groups": {group: comparison.to_json() for group, comparison in found},
    }
    write_text(night.work(COMPARISON), json.dumps(document, indent=1) + "\n")
    facts: dict[str, Any] = {
        "candidate": digest,
        "tested": report.tested,
        "dropped": len(report.drops),
    }
    if report.note:
        facts["note"] = report.note
    for group, comparison in found:
        difference = comparison.overall[DROP_METRICS[0]]
        facts[f"{group} {DROP_METRICS[0]}"] = round(difference.mean, 4)
    return report.queries, facts
