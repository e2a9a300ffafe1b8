"""From kept rankings to the numbers of a result file: the same rankings give the same numbers.

No retrieval, no clock, no file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from bench.suite.decided import DECIDED, decide_crosswise
from bench.suite.holes import measure_holes
from bench.suite.kept import KeptRankings
from bench.suite.loading import LoadedSet
from bench.suite.plan import METRICS, STRATUM_METRICS
from noctuary.evaluate.abstain import Abstention, judge_abstention
from noctuary.evaluate.labels import Query
from noctuary.evaluate.metrics import Comparison, Report, Scores, compare, score_run, summarize
from noctuary.evaluate.run import Run
from noctuary.evaluate.statistics import DIGITS, Resampling

COMPUTED = ("metrics", "scopes", "decided", "holes", "abstention")
"""Keys of a result file that follow from the kept rankings and the labels alone."""

BASELINES_AGAINST = ("fts_seed", "noctuary")
DECIDED_AGAINST = ("fts_seed", "hybrid_seed", "noctuary")

_Found = TypeVar("_Found", Report, Comparison)

Described = Mapping[str, Mapping[str, Any]]
"""What is known of each arm apart from its runs: group, description, against, settings."""


def score_set(
    kept: KeptRankings,
    loaded: LoadedSet,
    arms: Described,
    resampling: Resampling | None = None,
) -> dict[str, Any]:
    """Return the `COMPUTED` part of a set's result file.

    Args:
        kept: Its rankings.
        loaded: Its queries and labels.
        arms: Group and `against` of every arm.
        resampling: Draws, seed and levels; the defaults of the library if not given.
    """
    chosen = resampling or Resampling()
    against = {name: compared_with(name, arm) for name, arm in arms.items()}
    runs = dict(kept.scopes["all"])
    decided = decide_crosswise(runs, loaded.queries, arms)
    if decided is not None:
        runs[DECIDED] = decided.run
        against[DECIDED] = list(DECIDED_AGAINST)
    scopes = {"all": _score_scope(runs, loaded.queries, against, chosen)}
    if "wing" in kept.scopes:
        scopes["wing"] = _score_scope(kept.scopes["wing"], loaded.queries, against, chosen)
    return {
        "metrics": list(METRICS),
        "scopes": scopes,
        "decided": decided.to_json() if decided else None,
        "holes": measure_holes(runs, loaded.queries, arms, chosen),
        "abstention": _judge_abstention(kept, loaded.queries),
    }


def compared_with(name: str, arm: Mapping[str, Any]) -> list[str]:
    """Return what an arm is compared with; baselines with the seed's search and with noctuary."""
    more = BASELINES_AGAINST if arm["group"] == "baseline" else ()
    return [other for other in dict.fromkeys((*arm["against"], *more)) if other != name]


def _score_scope(
    runs: Mapping[str, Run],
    queries: Sequence[Query],
    against: Mapping[str, Sequence[str]],
    resampling: Resampling,
) -> dict[str, Any]:
    scores = {name: score_run(run, queries, METRICS) for name, run in runs.items()}
    pairs = [
        (scores[name], scores[baseline])
        for name in scores
        for baseline in against.get(name, ())
        if baseline in scores and baseline != name
    ]
    comparisons: dict[str, dict[str, Any]] = {}
    for found in compare(pairs, resampling) if pairs else []:
        document = _few_strata_numbers(found).to_json()
        comparisons.setdefault(found.ours, {})[found.baseline] = document
    reports = summarize(list(scores.values()), resampling)
    return {
        "reports": {report.name: _few_strata_numbers(report).to_json() for report in reports},
        "comparisons": comparisons,
    }


def _few_strata_numbers(found: _Found) -> _Found:
    """Keep `STRATUM_METRICS` of every stratum; the rest can be computed again at any time."""
    strata: Any = {
        name: {metric: value for metric, value in part.items() if metric in STRATUM_METRICS}
        for name, part in found.strata.items()
    }
    return replace(found, strata=strata)


def _judge_abstention(kept: KeptRankings, queries: Sequence[Query]) -> dict[str, Any]:
    """Judge top scores against the questions that the corpus does not answer, if there are any."""
    found: dict[str, Any] = {}
    for name, run in kept.scopes.get("unanswerable", {}).items():
        answerable = kept.scopes["all"].get(name)
        if answerable is None:
            continue
        scores: Scores = score_run(answerable, queries, METRICS)
        judged = judge_abstention(answerable, run, scores, "recall@10")
        if judged is not None:
            found[name] = _without_curve(judged)
    return found


def _without_curve(judged: Abstention) -> dict[str, Any]:
    """Return an abstention without the thousand points of its curve, which the runs still hold."""
    document = dict(judged.to_json())
    del document["curve"]
    return {
        **document,
        "area": round(judged.curve.area, DIGITS),
        "risk_at_full_coverage": round(judged.curve.risk[-1], DIGITS),
    }
