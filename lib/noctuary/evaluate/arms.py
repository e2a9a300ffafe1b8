"""The rankings that a night compares: which they are, what they answered and what it scored."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from noctuary.core.files import hash_json
from noctuary.core.types import SILENT, Progress
from noctuary.evaluate.decide import (
    CHALLENGERS,
    SERVED,
    Abstention,
    find_drops,
    judge_abstention,
)
from noctuary.evaluate.labels import USER_KEY, Query
from noctuary.evaluate.questions import UNANSWERABLE, Questions
from noctuary.evaluate.run import Run, RunPlan, run_retriever
from noctuary.evaluate.scores import (
    HEADLINE_METRIC,
    Comparison,
    Scores,
    compare,
    score_run,
    summarize,
)
from noctuary.recall.engine import Recaller
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Scope
from noctuary.snapshot.checks import DropReport
from noctuary.work.content import ContentStore

PLAN = RunPlan(k=10, depth=50, timed=False)
"""The same for every arm, or their first ten would come from lists of different depth. Up to the
profile's own depth (50) a longer list does not change its head."""

WORDS_ARM = "lexical"
"""The arm that answers as a recall without a dense leg does."""

Runs = Mapping[str, Mapping[str, Run]]
"""Runs by group and arm."""


def list_arms(served: RetrievalProfile) -> dict[str, RetrievalProfile]:
    """Return the arms by name: as configured (first), each leg alone, challengers that differ."""
    others = {
        WORDS_ARM: words_only(served),
        "dense": replace(served, lexical_weight=0.0, dense_weight=1.0, graph_weight=0.0),
        **{challenger.name: challenger.apply(served) for challenger in CHALLENGERS},
    }
    return {SERVED: served, **{name: arm for name, arm in others.items() if arm != served}}


def words_only(profile: RetrievalProfile) -> RetrievalProfile:
    """Return a profile as it answers without a dense leg, by the words of the query alone."""
    return replace(profile, lexical_weight=1.0, dense_weight=0.0, graph_weight=0.0)


# One snapshot and one profile as a retriever, and what is kept of its answers.


def scope_of(query: Query) -> Scope:
    """Return what a query may find.

    Everything that its user may see, whatever wing the query names, as far as it existed at the
    query's moment: finding the right wing is part of the work.
    """
    return Scope(as_of=query.as_of, user=query.extras.get(USER_KEY))


@dataclass(frozen=True, slots=True)
class ProfileRetriever:
    """Asks a snapshot with one profile.

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
        return self.recaller.rank(query.text, k, profile=self.profile, scope=scope_of(query))

    def retrieve(self, query: str, k: int) -> list[str]:
        """Return ids, best first."""
        return [name for name, _ in self.recaller.rank(query, k, profile=self.profile)]


KEPT_PER_WRITE = 64
"""Answers that a stop costs at most; a durable write each would cost more than most answers."""


class KeptAnswers:
    """What retrievers answered, written down as it comes: a night that is stopped asks none again.

    Ids and scores under a hash of what was asked; never a text. Publishing prunes it.

    Attributes:
        reused: Answers of an earlier night, so far.
    """

    def __init__(self, store: ContentStore) -> None:
        self._store = store
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
        archived = recaller.inputs_now().archive()
        asker = hash_json(
            [
                recaller.reader.manifest.digest,
                retriever.profile.to_json(),
                None if archived is None else archived.key,
                plan.depth,
            ]
        )
        keys = [
            bytes.fromhex(hash_json([asker, q.text, str(q.as_of), q.extras.get(USER_KEY)]))
            for q in queries
        ]
        known = self._store.get(keys)
        self.reused += len(known)
        missing = [(key, q) for key, q in zip(keys, queries, strict=True) if key not in known]
        for start in range(0, len(missing), KEPT_PER_WRITE):
            chunk = missing[start : start + KEPT_PER_WRITE]
            run = run_retriever(retriever, [query for _, query in chunk], plan)
            found = zip(chunk, run.top_scores, run.rankings, strict=True)
            fresh = {key: json.dumps([best, *ids]).encode() for (key, _), best, ids in found}
            self._store.put(list(fresh), list(fresh.values()))
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


def ask_arms(
    recaller: Recaller,
    questions: Questions,
    served: RetrievalProfile,
    kept: KeptAnswers,
    progress: Progress = SILENT,
) -> dict[str, dict[str, Run]]:
    """Ask every arm all ranked queries, and the served one those that nothing answers."""
    arms = [ProfileRetriever(name, recaller, arm) for name, arm in list_arms(served).items()]
    runs = {
        group: {arm.name: kept.ask(arm, queries, PLAN, progress) for arm in arms}
        for group, queries in questions.groups.items()
    }
    if questions.unanswerable:
        found = kept.ask(arms[0], questions.unanswerable, PLAN, SILENT)
        runs[UNANSWERABLE] = {SERVED: found}
    return runs


# What runs come to, and how they are written down.


TOP_SCORE_DIGITS = 5
"""Kept of a top score: equal nights leave equal files, whatever the machine was doing."""


def runs_to_json(runs: Runs) -> dict[str, dict[str, Any]]:
    """Return runs as plain values, their scores cut to what no number of threads changes."""
    return {
        group: {name: _rounded(run).to_json() for name, run in arms.items()}
        for group, arms in runs.items()
    }


def runs_from_json(raw: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Run]]:
    """Read back what `runs_to_json` returned; ValueError if it is damaged."""
    return {
        group: {name: Run.from_json(run) for name, run in arms.items()}
        for group, arms in raw.items()
    }


def _rounded(run: Run) -> Run:
    scores = (None if s is None else round(s, TOP_SCORE_DIGITS) for s in run.top_scores)
    return replace(run, top_scores=tuple(scores))


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


def report_arms(questions: Questions, runs: Runs) -> dict[str, Any]:
    """Return what every arm scored and how it differs from the served one, as plain values."""
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


def served_means(report: Mapping[str, Any]) -> dict[str, float]:
    """Return the headline metric of the served arm on every group of a report."""
    return {
        f"{HEADLINE_METRIC} {group}": round(arm["overall"][HEADLINE_METRIC]["mean"], 4)
        for group, found in report["groups"].items()
        for arm in found["reports"]
        if arm["name"] == SERVED
    }


# A candidate against what serves, on the queries whose answers stand unchanged in both.


def compare_snapshots(
    candidate: ProfileRetriever,
    serving: ProfileRetriever,
    questions: Questions,
    progress: Progress = SILENT,
) -> tuple[dict[str, Comparison], DropReport]:
    """Ask two snapshots the same queries; return the differences by group and what was lost."""
    found: dict[str, Comparison] = {}
    asked = 0
    for group, queries in questions.groups.items():
        labels = {i for query in queries for i in query.relevant_ids}
        here = candidate.recaller.reader.content_hashes(labels)
        there = serving.recaller.reader.content_hashes(labels)
        kept = [
            query
            for query in queries
            if all(i in there and there[i] == here.get(i) for i in query.relevant_ids)
        ]
        if kept:
            runs = (run_retriever(r, kept, PLAN, progress=progress) for r in (candidate, serving))
            ours, theirs = (score_run(run, kept) for run in runs)
            (found[group],) = compare([(ours, theirs)])
            asked += len(kept)
    drops, tested = find_drops(list(found.items()))
    note = "" if found else "no query can be answered by both snapshots"
    return found, DropReport(tuple(drops), tested, asked, note)
