from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.results import dump, read_result, write_result
from bench.suite.evaluation import EvaluatedSet
from bench.suite.kept import KeptRankings, write_kept
from bench.suite.plan import METRICS, STRATUM_METRICS, SuitePaths
from bench.suite.result import describe_result, differ, is_current, keep, rescore
from bench.suite.scoring import compared_with, score_set
from noctuary.evaluate.metrics import recall_at_k
from noctuary.evaluate.statistics import Resampling
from tests.support.labelled_set import SmallSet

FEW = Resampling(draws=200)


@pytest.fixture(scope="module")
def kept(small: SmallSet, evaluated: EvaluatedSet) -> KeptRankings:
    return keep(small.loaded, evaluated)


@pytest.fixture(scope="module")
def document(small: SmallSet, evaluated: EvaluatedSet, kept: KeptRankings) -> dict[str, Any]:
    night = {"status": "published", "seconds": 1.5, "load_average_1m": 0.1}
    found = describe_result(small.loaded, small.store, evaluated, night)
    return found | score_set(kept, small.loaded, found["arms"], FEW)


def test_every_arm_has_means_with_intervals_and_its_differences(
    document: dict[str, Any], evaluated: EvaluatedSet
) -> None:
    whole = document["scopes"]["all"]
    assert set(evaluated.catalogue) <= set(whole["reports"])
    for report in whole["reports"].values():
        assert list(report["overall"]) == list(METRICS)
        assert all(mean["low"] is not None for mean in report["overall"].values())
    for arm, described in document["arms"].items():
        for other in compared_with(arm, described):
            difference = whole["comparisons"][arm][other]["overall"]["recall@10"]
            assert {"mean", "low", "high", "p_value", "minimum_detectable"} <= difference.keys()
    assert set(document["scopes"]["wing"]["reports"]) == {"fts_seed", "hybrid_seed", "noctuary"}


def test_the_mean_is_that_of_the_kept_rankings(
    small: SmallSet, kept: KeptRankings, document: dict[str, Any]
) -> None:
    run = kept.scopes["all"]["hybrid_seed"]
    by_hand = [
        recall_at_k(ranking, query.relevant_ids, 10)
        for ranking, query in zip(run.rankings, small.loaded.queries, strict=True)
    ]
    report = document["scopes"]["all"]["reports"]["hybrid_seed"]
    assert report["overall"]["recall@10"]["mean"] == pytest.approx(np.mean(by_hand), abs=1e-6)


def test_strata_hold_the_metrics_that_their_tables_show(document: dict[str, Any]) -> None:
    whole = document["scopes"]["all"]
    for part in whole["reports"]["noctuary"]["strata"].values():
        assert tuple(part) == STRATUM_METRICS
    assert set(whole["comparisons"]["noctuary"]["fts_seed"]["strata"]) == {"exact", "other"}


def test_arms_of_the_pool_have_no_holes_and_the_pool_is_named(document: dict[str, Any]) -> None:
    holes = document["holes"]
    baselines = [n for n, arm in document["arms"].items() if arm["group"] == "baseline"]
    assert holes["pool_arms"] == baselines
    assert all(holes["arms"][name]["mean"] == 0.0 for name in baselines)
    assert holes["arms"]["no_dense"]["mean"] > 0.0
    assert holes["arms"]["noctuary"]["low"] is not None


def test_abstention_is_judged_where_a_set_has_unanswerable_questions(
    document: dict[str, Any],
) -> None:
    for judged in document["abstention"].values():
        assert 0.0 <= judged["auroc"] <= 1.0
        assert (judged["n_answerable"], judged["n_unanswerable"]) == (16, 3)
    assert "noctuary" in document["abstention"]


def test_few_queries_decide_nothing_and_the_decided_arm_is_then_the_shipped_one(
    document: dict[str, Any],
) -> None:
    assert [fold["adopted"] for fold in document["decided"]["folds"]] == [None, None]
    assert sum(fold["n"] for fold in document["decided"]["folds"]) == 16
    reports = document["scopes"]["all"]["reports"]
    assert reports["noctuary_decided"]["overall"] == reports["noctuary"]["overall"]
    assert document["decided"]["challengers_without_arm"] == []


def test_a_result_file_holds_no_text_of_the_set(small: SmallSet, document: dict[str, Any]) -> None:
    text = dump(document)
    assert not [row["content"] for row in small.loaded.rows if row["content"] in text]
    assert not [query.text for query in small.loaded.queries if query.text in text]


@pytest.fixture
def committed(
    tmp_path: Path, small: SmallSet, kept: KeptRankings, document: dict[str, Any]
) -> SuitePaths:
    paths = SuitePaths.below(tmp_path / "stores", tmp_path / "docs")
    write_kept(paths.kept("tiny"), kept)
    whole = {**document, **score_set(kept, small.loaded, document["arms"])}
    write_result(paths.result("tiny"), whole)
    return paths


def test_numbers_computed_again_from_the_kept_rankings_agree(
    small: SmallSet, committed: SuitePaths
) -> None:
    assert rescore(small.loaded, committed) == []


def test_a_number_that_was_changed_by_hand_is_found_and_can_be_replaced(
    small: SmallSet, committed: SuitePaths
) -> None:
    path = committed.result("tiny")
    before = path.read_bytes()
    changed = read_result(path)
    changed["scopes"]["all"]["reports"]["noctuary"]["overall"]["ndcg@10"]["mean"] += 0.001
    write_result(path, changed)
    (line,) = rescore(small.loaded, committed)
    assert "tiny: scopes.all.reports.noctuary.overall.ndcg@10.mean" in line
    assert rescore(small.loaded, committed, write=True) == [line]
    assert path.read_bytes() == before


def test_kept_rankings_of_other_queries_are_not_scored(
    small: SmallSet, committed: SuitePaths, kept: KeptRankings
) -> None:
    write_kept(committed.kept("tiny"), KeptRankings("tiny", "another", kept.scopes))
    (line,) = rescore(small.loaded, committed)
    assert "not those that the kept rankings answered" in line


def test_a_result_is_current_until_a_run_changes(
    evaluated: EvaluatedSet, committed: SuitePaths
) -> None:
    path = committed.result("tiny")
    assert is_current(path, evaluated)
    fewer = {part: dict(runs) for part, runs in evaluated.runs.items()}
    del fewer["all"]["dense"]
    assert not is_current(path, EvaluatedSet(evaluated.catalogue, fewer))
    assert not is_current(path.with_name("none.json"), evaluated)


def test_differences_are_named_by_their_place() -> None:
    old = {"a": {"b": [1.0, 2.0]}, "c": None, "d": [1]}
    new = {"a": {"b": [1.0, 2.5]}, "c": "x", "d": [1, 2], "e": 0}
    assert [line.split(" ")[0] for line in differ(old, new)] == ["a.b[1]", "c", "d", "e"]
    assert list(differ({"x": 0.5}, {"x": 0.5 + 1e-9})) == []
    assert len(list(differ({"x": 0.5}, {"x": 0.5 + 1e-5}))) == 1
