"""Detect proven gains over the configured ranking, and proven losses of a candidate."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.core.files import hash_json, hash_text
from noctuary.core.manifest import pack_digest
from noctuary.core.types import SILENT, Progress
from noctuary.evaluate.labels import USER_KEY, Query
from noctuary.evaluate.metrics import (
    HEADLINE_METRIC,
    Comparison,
    Difference,
    Scores,
    compare,
    difference_columns,
    score_run,
    subtract,
)
from noctuary.evaluate.queries import EXACT, LABELLED, UNANSWERABLE, Questions
from noctuary.evaluate.run import Run, RunPlan, run_retriever
from noctuary.evaluate.statistics import STANDARD, Resampling, Result, holm
from noctuary.recall.engine import Recaller
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Scope
from noctuary.snapshot.checks import Drop, DropReport
from noctuary.work.content import ContentStore

# Whether another ranking than the configured one is proven to be better. The queries are cut in two
# halves by a hash of their id, so that no gain is overstated by having been chosen for its size; a
# difference that n queries would show needs about 2 n of them.
#
# 1. Selection half: the challenger with the largest mean gain is chosen, among those that do not
#    lose significantly on a guard.
# 2. Confirmation half: the 95 % BCa interval of its paired difference lies above zero and its
#    permutation p is below alpha. This alone bounds false adoptions by alpha / 2.
# 3. All queries: the same, with p after Holm's correction across all challengers.

DECISION_METRIC = "ndcg@10"
"""Looks at the order of the first ten, so it also sees the effect of a changed weight inside them;
recall@10 would move only where a memory crosses rank ten, and needs more queries for it."""

MIN_HALF = 25  # queries per half to adopt (Voorhees and Buckley 2002): lower trusts a few
SERVED = "served"  # name of the configured ranking among the arms

Guards = Mapping[str, Mapping[str, Scores]]
"""Scores by arm on queries that may veto a challenger but never adopt one, by their stratum."""

CHALLENGERS: Mapping[str, Mapping[str, Any]] = {
    "rrf": {"fusion": "rrf"},
    "cc_dense_0.3": {"fusion": "cc", "dense_share": 0.3},
    "cc_dense_0.5": {"fusion": "cc", "dense_share": 0.5},
    "cc_dense_0.7": {"fusion": "cc", "dense_share": 0.7},
    "cc_dense_0.9": {"fusion": "cc", "dense_share": 0.9},
    "graph_0": {"graph_weight": 0.0},
    "graph_0.5": {"graph_weight": 0.5},
    "graph_1": {"graph_weight": 1.0},
    "graph_2": {"graph_weight": 2.0},
    "sessions_0": {"session_weight": 0.0},
}
"""Changes to the configured ranking by name, which joins reports and kept runs;
`dense_share` is that of the dense leg in the sum of both legs' weights. One step each way, and one
long one towards the dense leg, for stores whose questions share no words with their answers
(prefeval and locomo_plus gain most there). The one that equals the configured ranking is not to be
passed to `decide`. More challengers cost power (Holm) and time."""


def challenge(name: str, served: RetrievalProfile) -> dict[str, Any]:
    """Return the fields of the configured profile that a challenger replaces."""
    fields = dict(CHALLENGERS[name])
    if (share := fields.pop("dense_share", None)) is not None:
        total = (served.lexical_weight + served.dense_weight) or 1.0
        fields["dense_weight"] = round(total * share, 6)
        fields["lexical_weight"] = round(total * (1.0 - share), 6)
    return fields


@dataclass(frozen=True, slots=True)
class Tested(Result):
    """The result for one challenger."""

    name: str
    difference: Difference  # challenger minus default; `p_holm` is over all challengers
    selection_gain: float  # mean difference on the selection half
    confirmation: Difference | None = None  # of the chosen one, on the other half; raw `p_holm`
    vetoes: tuple[str, ...] = ()  # why guards reject it


@dataclass(frozen=True, slots=True)
class Decision(Result):
    """The night's decision and its reason."""

    adopted: str | None  # a challenger, or None to keep the configured ranking
    reason: str  # one plain sentence with the numbers
    tested: tuple[Tested, ...]  # in the order given
    n: int  # queries that could decide (guards apart)
    metric: str  # the metric of the differences


def decide(
    default: Scores | None,
    challengers: Mapping[str, Scores],
    guards: Guards = MappingProxyType({}),
    resampling: Resampling = STANDARD,
    metric: str = DECISION_METRIC,
) -> Decision:
    """Choose at most one challenger by the rule above, all scored on the same queries."""
    # A guard rejects one whose interval on it lies below zero with p below alpha, uncorrected (a
    # veto should come too often rather than too late), and one that it has no scores of.
    n = 0 if default is None else len(default.query_ids)
    tested: tuple[Tested, ...] = ()
    adopted = None
    if default is None or n < 2 * MIN_HALF:
        reason = (
            f"{n} queries can decide and {2 * MIN_HALF} are needed, "
            f"{MIN_HALF} to choose a challenger and {MIN_HALF} to confirm it"
        )
    elif not challengers:
        reason = f"there is no challenger to test on {n} queries"
    else:
        tested = _test(default, challengers, guards, resampling, metric)
        adopted, reason = _judge(tested, resampling, metric)
    if adopted is None:
        reason = f"the configured ranking stays: {reason}"
    return Decision(adopted, reason, tested, n, metric)


def decide_by_groups(scored: Mapping[str, Mapping[str, Scores]]) -> Decision:
    """Choose at most one of CHALLENGERS by the scores of every arm, by group and arm."""
    deciding = scored.get(LABELLED, {})  # exact phrases can only veto
    guards = {EXACT: scored[EXACT]} if scored.get(EXACT) else {}
    challengers = {name: deciding[name] for name in CHALLENGERS if name in deciding}
    return decide(deciding.get(SERVED), challengers, guards)


def adopted_ranking(decision: Decision, served: RetrievalProfile) -> dict[str, Any] | None:
    """Return the part for the snapshot: the adopted fields and the evidence; None without any."""
    if (name := decision.adopted) is None:
        return None
    return {
        "adopted": challenge(name, served),
        "challenger": name,
        "reason": decision.reason,
        "evidence": hash_json(decision.to_json()),
    }


def selection_half(query_ids: Sequence[str]) -> NDArray[np.bool_]:
    """Return which queries choose, shape (n,), by smaller hashes; the others confirm."""
    # A query that is added moves at most one other across.
    hashes = [hash_text(query_id) for query_id in query_ids]
    chosen = np.zeros(len(hashes), dtype=np.bool_)
    chosen[sorted(range(len(hashes)), key=hashes.__getitem__)[: len(hashes) // 2]] = True
    return chosen


def _test(
    default: Scores,
    challengers: Mapping[str, Scores],
    guards: Guards,
    resampling: Resampling,
    metric: str,
) -> tuple[Tested, ...]:
    """Compare every challenger over all queries and the chosen one on the confirmation half."""
    selecting = selection_half(default.query_ids)
    overall = _compare(default, challengers, resampling, metric)
    adjusted = holm([difference.p_value for difference in overall.values()])
    vetoes = _vetoes(challengers, guards, resampling, metric)
    gains = default.column(metric)[selecting]
    found = [
        Tested(
            name=name,
            difference=replace(overall[name], p_holm=p_holm),
            selection_gain=float((scores.column(metric)[selecting] - gains).mean()),
            vetoes=tuple(vetoes[name]),
        )
        for (name, scores), p_holm in zip(challengers.items(), adjusted, strict=True)
    ]
    eligible = [i for i, one in enumerate(found) if not one.vetoes and one.selection_gain > 0.0]
    if eligible:
        place = max(eligible, key=lambda i: found[i].selection_gain)
        name = found[place].name
        others = {name: challengers[name].select(~selecting)}
        confirmed = _compare(default.select(~selecting), others, resampling, metric)
        found[place] = replace(found[place], confirmation=confirmed[name])
    return tuple(found)


def _compare(
    default: Scores, challengers: Mapping[str, Scores], resampling: Resampling, metric: str
) -> dict[str, Difference]:
    """Return challenger minus default per challenger; all share one resampling."""
    gains = [subtract(scores, default).column(metric) for scores in challengers.values()]
    found = difference_columns(np.column_stack(gains), resampling) if gains else []
    return dict(zip(challengers, found, strict=True))


def _vetoes(
    names: Mapping[str, Scores], guards: Guards, resampling: Resampling, metric: str
) -> dict[str, list[str]]:
    vetoes: dict[str, list[str]] = {name: [] for name in names}
    for guard, scored in guards.items():
        if scored[SERVED].query_ids:
            known = {name: scored[name] for name in names if name in scored}
            found = _compare(scored[SERVED], known, resampling, metric)
            for name in names.keys() - known.keys():
                vetoes[name].append(f"it was not measured on the {guard} queries")
            for name, lost in found.items():
                if lost.significant and lost.mean < 0.0:
                    vetoes[name].append(f"it loses on the {guard} queries ({_numbers(lost)})")
    return vetoes


def _judge(tested: Sequence[Tested], resampling: Resampling, metric: str) -> tuple[str | None, str]:
    """Return the adopted challenger, if any, and why it is or none is."""
    best = max(tested, key=lambda one: one.selection_gain)
    gain = f"{best.name} with {metric} {best.selection_gain:+.3f}"
    if best.selection_gain <= 0.0:
        return None, (
            f"none of {len(tested)} challengers gains on the queries that choose, the best is "
            f"{gain}"
        )
    chosen = next((one for one in tested if one.confirmation is not None), None)
    if chosen is None or chosen.confirmation is None:
        return None, (
            f"every challenger that gains is vetoed, the best is {gain} on the queries that "
            f"choose: {best.vetoes[0]}"
        )
    name, overall = chosen.name, chosen.difference
    shown = f"{metric} {_numbers(chosen.confirmation)}"
    across = f"over all queries p after Holm across {len(tested)} challengers is"
    if not (chosen.confirmation.significant and chosen.confirmation.mean > 0.0):
        return None, (
            f"{name} was best on the queries that choose ({chosen.selection_gain:+.3f}) and is not "
            f"proven on the others: {shown}"
        )
    if not (overall.significant and overall.mean > 0.0):
        return None, (
            f"{name} gains on the confirming queries ({shown}), yet {across} {overall.p_holm:.3f}, "
            f"expected below {resampling.alpha:g} ({_numbers(overall)})"
        )
    return name, (
        f"{name} is adopted: on queries that it was not chosen on {shown}; {across} "
        f"{overall.p_holm:.4f}"
    )


def _numbers(difference: Difference) -> str:
    found = difference.interval
    between = f" [{found.low:+.3f}, {found.high:+.3f}]" if found else ""
    return f"{difference.mean:+.3f}{between}, p = {difference.p_value:.4f}, n = {difference.n}"


# Whether a candidate has lost recall against the serving snapshot.

DROP_METRICS = (HEADLINE_METRIC, "ndcg@10")  # is the answer there, and where


def find_drops(
    comparisons: Sequence[tuple[str, Comparison]], resampling: Resampling = STANDARD
) -> tuple[list[Drop], int]:
    """Return the significant losses by group and candidate, and how many pairs were tested."""
    # The interval lies below zero and p, corrected over everything tested (Holm), below alpha.
    parts: dict[str, Mapping[str, Difference]] = {}
    for group, comparison in comparisons:
        parts[group] = comparison.overall
        if len(comparison.strata) > 1:
            parts |= {f"{group}: {stratum}": part for stratum, part in comparison.strata.items()}
    tested = [(name, m, part[m]) for name, part in parts.items() for m in DROP_METRICS]
    corrected = holm([difference.p_value for _, _, difference in tested])
    drops = [
        Drop(name, metric, d.mean, d.interval.low, d.interval.high, d.n, p)
        for (name, metric, d), p in zip(tested, corrected, strict=True)
        if d.interval is not None and d.interval.high < 0.0 and p < resampling.alpha
    ]
    return drops, len(tested)


# The rankings that a night compares, and their results.

PLAN = RunPlan(k=10, depth=50, timed=False)
"""The same for every arm, or their first ten would come from lists of different depth. Up to the
profile's own depth (50) a longer list does not change its head."""

WORDS_ARM = "lexical"  # the arm that answers as a recall without a dense leg does
Runs = Mapping[str, Mapping[str, Run]]  # runs by group and arm


def list_arms(served: RetrievalProfile) -> dict[str, RetrievalProfile]:
    """Return the arms by name: as configured (first), each leg alone, challengers that differ."""
    others = {
        WORDS_ARM: words_only(served),
        "dense": served.replaced(lexical_weight=0.0, dense_weight=1.0, graph_weight=0.0),
        **{name: served.replaced(**challenge(name, served)) for name in CHALLENGERS},
    }
    return {SERVED: served, **{name: arm for name, arm in others.items() if arm != served}}


def words_only(profile: RetrievalProfile) -> RetrievalProfile:
    """Return a profile as it answers without a dense leg, by the words of the query alone."""
    return profile.replaced(lexical_weight=1.0, dense_weight=0.0, graph_weight=0.0)


# One snapshot and one profile as a retriever, and its saved answers.


def scope_of(query: Query) -> Scope:
    """Return the scope of the query's user and moment; finding the wing is part of the work."""
    return Scope(as_of=query.as_of, user=query.extras.get(USER_KEY))


@dataclass(frozen=True, slots=True)
class ProfileRetriever:
    """Asks a pinned snapshot with one profile."""

    name: str
    recaller: Recaller
    profile: RetrievalProfile
    shared: dict[Any, Any] | None = None  # with others that are asked the same query

    def retrieve_hits(self, query: Query, k: int) -> list[tuple[str, float]]:
        """Return ids with their final scores, best first."""
        scope, shared = scope_of(query), self.shared
        return self.recaller.rank(query.text, k, profile=self.profile, scope=scope, shared=shared)

    def retrieve(self, query: str, k: int) -> list[str]:
        """Return ids, best first."""
        return [name for name, _ in self.recaller.rank(query, k, profile=self.profile)]


KEPT_PER_WRITE = 512  # answers that a stop costs at most; a write each would cost more than most


class KeptAnswers:
    """Saved answers of retrievers, ids and scores alone: a night that is stopped repeats none."""

    def __init__(self, store: ContentStore) -> None:
        self._store = store
        self.reused = 0  # answers of an earlier night, so far

    def ask(
        self,
        arms: Sequence[ProfileRetriever],
        queries: Sequence[Query],
        plan: RunPlan,
        progress: Progress,
    ) -> dict[str, Run]:
        """Return every arm's run; queries with a saved answer of the arm are not asked again."""
        keys = {arm.name: self._keys(arm, queries, plan) for arm in arms}
        known = self._store.get([key for of_arm in keys.values() for key in of_arm])
        self.reused += len(known)
        fresh: dict[bytes, bytes] = {}
        for place, query in enumerate(queries):
            shared: dict[Any, Any] = {}  # the same legs, links and words for all
            for arm in arms:
                key = keys[arm.name][place]
                if key not in known and key not in fresh:
                    run = run_retriever(replace(arm, shared=shared), [query], plan)
                    answer = [run.top_scores[0], *run.rankings[0]]
                    fresh[key] = json.dumps(answer).encode()
            if len(fresh) >= KEPT_PER_WRITE or (fresh and place + 1 == len(queries)):
                self._store.put(list(fresh), list(fresh.values()))
                known |= fresh
                fresh = {}
            progress.update("evaluate", place + 1, len(queries))
        return {
            arm.name: _run_of(
                arm, queries, [json.loads(known[key]) for key in keys[arm.name]], plan
            )
            for arm in arms
        }

    def _keys(self, arm: ProfileRetriever, queries: Sequence[Query], plan: RunPlan) -> list[bytes]:
        """Return the keys of an arm's answers: by snapshot, profile, archive, depth and query."""
        archived = arm.recaller.inputs_now().archive()
        archive = None if archived is None else archived.key
        snapshot = pack_digest(arm.recaller.reader.manifest)  # what is sealed later ranks nothing
        asker = hash_json([snapshot, arm.profile.to_json(), archive, plan.depth])
        told = ([asker, q.text, str(q.as_of), q.extras.get(USER_KEY)] for q in queries)
        return [bytes.fromhex(hash_json(asked)) for asked in told]


def _run_of(
    arm: ProfileRetriever, queries: Sequence[Query], answers: Sequence[Any], plan: RunPlan
) -> Run:
    return Run(
        name=arm.name,
        k=plan.depth,
        depth=plan.depth,
        query_ids=tuple(query.query_id for query in queries),
        rankings=tuple(tuple(ids) for _, *ids in answers),
        top_scores=tuple(best for best, *_ in answers),
    )


def ask_arms(
    recaller: Recaller,
    questions: Questions,
    served: RetrievalProfile,
    kept: KeptAnswers,
    progress: Progress = SILENT,
) -> dict[str, dict[str, Run]]:
    """Ask every arm all ranked queries, and the served one those that nothing answers.

    With too few labelled queries for a decision only the served arm is asked, and words alone, by
    which words-only answers are judged.
    """
    decides = len(questions.groups.get(LABELLED, ())) >= 2 * MIN_HALF
    arms = [
        ProfileRetriever(name, recaller, arm)
        for name, arm in list_arms(served).items()
        if decides or name in (SERVED, WORDS_ARM)
    ]
    runs = {
        group: kept.ask(arms, queries, PLAN, progress)
        for group, queries in questions.groups.items()
    }
    if questions.unanswerable:
        runs[UNANSWERABLE] = kept.ask(arms[:1], questions.unanswerable, PLAN, SILENT)
    return runs


# Scores and JSON of runs.

TOP_SCORE_DIGITS = 5  # of a top score: equal nights leave equal files, whatever the machine does


def runs_to_json(runs: Runs) -> dict[str, dict[str, Any]]:
    """Return runs as plain values, their scores rounded so that thread counts do not matter."""

    def told(run: Run) -> dict[str, Any]:
        scores = [None if s is None else round(s, TOP_SCORE_DIGITS) for s in run.top_scores]
        return {**run.to_json(), "top_scores": scores}

    return {group: {name: told(run) for name, run in arms.items()} for group, arms in runs.items()}


def runs_from_json(raw: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Run]]:
    """Parse the output of `runs_to_json`; ValueError if it is damaged."""
    return {g: {name: Run.from_json(run) for name, run in arms.items()} for g, arms in raw.items()}


def score_group(questions: Questions, runs: Runs, group: str) -> dict[str, Scores]:
    """Return the scores of every arm on one group of queries."""
    return {name: score_run(run, questions.groups[group]) for name, run in runs[group].items()}


# A candidate against the serving snapshot, on queries whose answers are unchanged in both.


def compare_snapshots(
    candidate: ProfileRetriever,
    serving: ProfileRetriever,
    questions: Questions,
    answers: KeptAnswers,
    progress: Progress = SILENT,
) -> tuple[dict[str, Comparison], DropReport]:
    """Run the same queries on two snapshots; return the differences by group and the losses."""
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
            runs = [answers.ask([r], kept, PLAN, progress)[r.name] for r in (candidate, serving)]
            ours, theirs = (score_run(run, kept) for run in runs)
            (found[group],) = compare([(ours, theirs)])
            asked += len(kept)
    drops, tested = find_drops(list(found.items()))
    note = "" if found else "no query can be answered by both snapshots"
    return found, DropReport(tuple(drops), tested, asked, note)
