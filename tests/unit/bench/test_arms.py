from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, cast

import pytest

from bench.arms import DESCRIPTIONS, PROFILES, distinct_words, fts_arms, mnemon_arm
from bench.datasets import find_shared, open_dataset, read_baseline, read_corpus
from mnemon.evaluate.labels.queries import Query, read_queries
from mnemon.evaluate.run import EvaluationPlan, evaluate
from mnemon.recall.engine import Recaller
from mnemon.recall.profile import Profile
from mnemon.recall.result import RecalledMemory, RecallResult, RecallWarning
from mnemon.recall.scope import Scope

ROWS: list[dict[str, Any]] = [
    {"id": 30, "content": "The red bicycle needs a new tyre.", "wing": "home"},
    {"id": 10, "content": "A red kettle and a red lamp.", "wing": "work"},
    {"id": 20, "content": "The bicycle shop closes at six.", "wing": "work"},
]


def ask(text: str, wing: str | None = None) -> Query:
    return Query("q", text, "a", ("30",), wing=wing)


def test_the_plain_baseline_returns_source_ids_by_any_word() -> None:
    plain, seed = fts_arms(ROWS, "all")
    assert (plain.name, seed.name) == ("fts_plain", "fts_seed")
    assert plain.retrieve(ask("red bicycle"), 3)[0] == "30"
    assert sorted(plain.retrieve(ask("red bicycle"), 3)) == ["10", "20", "30"]
    assert seed.retrieve(ask("red bicycle"), 3) == ["30"]
    assert plain.retrieve(ask("bicycle"), 1) == plain.retrieve(ask("bicycle"), 3)[:1]


def test_within_a_wing_only_its_rows_are_returned() -> None:
    plain, _ = fts_arms(ROWS, "wing")
    assert plain.retrieve(ask("red bicycle", "home"), 3) == ["30"]
    assert sorted(plain.retrieve(ask("red bicycle", "work"), 3)) == ["10", "20"]


def test_a_word_counts_once_however_often_the_query_says_it() -> None:
    assert distinct_words("Red, red RED kettle's") == "red kettle s"
    plain, _ = fts_arms(ROWS, "all")
    once, often = ask("shop bicycle red"), ask("shop red red red red red bicycle")
    assert plain.retrieve(often, 3) == plain.retrieve(once, 3)


@dataclass
class EchoRecaller:
    """Answers every query with the ids 1..k and remembers how it was asked."""

    asked: list[tuple[str, int, Profile, Scope | None]] = field(default_factory=list[Any])

    def recall(
        self, query: str, k: int, *, profile: Profile, scope: Scope | None = None
    ) -> RecallResult:
        self.asked.append((query, k, profile, scope))
        memories = tuple(
            RecalledMemory(n, "", "", (), 0.5, None, None, None, None, None, 1 / n, 1 / n)
            for n in range(1, k + 1)
        )
        return RecallResult(query, memories, (RecallWarning("dense_unavailable", "no model"),))


def test_an_arm_passes_its_profile_and_scope_and_counts_warnings() -> None:
    recaller = EchoRecaller()
    profile = PROFILES["dense"]
    whole = mnemon_arm(cast("Recaller", recaller), "dense", profile, "all")
    within = mnemon_arm(cast("Recaller", recaller), "dense", profile, "wing")
    assert whole.retrieve(ask("who", "home"), 3) == ["1", "2", "3"]
    within.retrieve(ask("who", "home"), 2)
    within.retrieve(ask("who", "home"), 2)
    assert recaller.asked[0] == ("who", 3, profile, None)
    assert recaller.asked[1] == ("who", 2, profile, Scope(wing="home"))
    assert dict(whole.warnings) == {"dense_unavailable": 1}
    assert dict(within.warnings) == {"dense_unavailable": 2}


def test_each_arm_switches_off_what_its_name_leaves_out() -> None:
    weights = {
        name: tuple(
            asdict(profile)[leg] > 0 for leg in ("lexical_weight", "dense_weight", "graph_weight")
        )
        for name, profile in PROFILES.items()
    }
    assert weights["lexical"] == (True, False, False)
    assert weights["dense"] == (False, True, False)
    assert weights["fused_rrf"] == weights["fused_cc"] == (True, True, False)
    assert weights["fused_cc_graph"] == (True, True, True)
    assert (PROFILES["fused_rrf"].fusion, PROFILES["fused_cc"].fusion) == ("rrf", "cc")
    assert PROFILES["mnemon"] == Profile()
    assert set(PROFILES) < set(DESCRIPTIONS)


@pytest.mark.parametrize(("scope", "search"), [("all", "all wings"), ("wing", "own wing")])
def test_the_plain_baseline_reproduces_the_figures_that_locomo_states(
    scope: Any,
    search: str,
) -> None:
    shared = find_shared()
    if shared is None or not (shared / "data" / "locomo").is_dir():
        pytest.skip("needs ../shared/data/locomo (or MNEMON_SHARED)")
    dataset = open_dataset(shared / "data" / "locomo")
    rows = read_corpus(dataset)
    queries = read_queries(dataset.queries, {str(row["id"]) for row in rows}).ranked
    plain = fts_arms(rows, scope)[0]
    # One deep search per query instead of two: FTS5's order does not depend on the depth.
    deep = {query.query_id: plain.retrieve(query, 100) for query in queries}
    plan = EvaluationPlan(draws=10, warm_up=0)
    report = evaluate(lambda query, k: deep[query.query_id][:k], queries, plan=plan)
    stated = read_baseline(dataset, search)
    for metric in report.metrics:
        mean = report.overall.metrics[metric].mean
        assert round(mean, 3) == stated["ALL"][metric], metric
        for stratum, part in report.strata.items():
            assert part.n_queries == stated[stratum]["n"]
            assert round(part.metrics[metric].mean, 3) == stated[stratum][metric], (stratum, metric)


def test_a_query_never_meets_its_own_cached_vector_from_another_arm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forgotten: list[str] = []
    monkeypatch.setattr("bench.arms.forget_query_vectors", lambda: forgotten.append("x"))
    recaller = cast("Recaller", EchoRecaller())
    first = mnemon_arm(recaller, "dense", PROFILES["dense"], "all")
    second = mnemon_arm(recaller, "fused_cc", PROFILES["fused_cc"], "all")
    one, two = Query("q1", "who", "a", ("1",)), Query("q2", "what", "a", ("1",))
    first.retrieve(one, 10)
    first.retrieve(one, 100)  # the untimed deeper call may reuse the vector
    assert len(forgotten) == 1
    first.retrieve(two, 10)
    second.retrieve(two, 10)
    assert len(forgotten) == 3
