from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.datasets import Dataset
from bench.phases.asking import Asking
from bench.phases.grid import Condition, Frame, Use, baseline_profile
from bench.phases.measure import measure_set
from bench.phases.past import Past
from bench.suite.loading import LoadedSet
from noctuary.evaluate.labels import Query
from noctuary.evaluate.statistics import Resampling
from noctuary.recall import phases
from noctuary.recall.engine import Recaller
from noctuary.recall.profile import RetrievalProfile
from tests.support.arms import as_rows, build_context
from tests.support.labelled_set import SmallSet, small_set
from tests.support.store import DAY_US, day_us, household

FEW_DRAWS = Resampling(draws=50)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> SmallSet:
    """A set of 60 memories and 16 queries over a published store. Not to be changed."""
    return small_set(tmp_path_factory.mktemp("phases"))


@pytest.fixture
def talk(tmp_path: Path) -> LoadedSet:
    """Questions about a conversation of which the snapshot holds a summary."""
    rows = as_rows(household())
    queries = (
        Query("q0", "morning flight", "a", ("110",), wing="home"),
        Query("q1", "boiler valve", "a", ("105",), wing="home"),
    )
    return LoadedSet(Dataset("talk", tmp_path), rows, queries, ())


def found(asking: Asking, query: Query, use: Use = "none", **flags: Any) -> list[str]:
    profile = baseline_profile().replaced(**flags)
    retriever = asking.retriever(Condition("c", "use", profile, use))
    return [memory_id for memory_id, _ in retriever.retrieve_hits(query, 10)]


def test_a_past_counts_what_was_logged_and_how_often(small: SmallSet, tmp_path: Path) -> None:
    past = Past(tmp_path / "past", Recaller.open(small.store))
    past.log([["101", "102"], [], ["102"]], times=5)
    usage = past.world().usage_of(["101", "102", "103"])
    assert usage.recent.tolist() == [5, 10, 0]
    assert past.world().co_retrieved(["101", "102", "103"]).tolist() == [5, 5, 0]


def test_a_half_is_answered_with_the_past_of_the_other(small: SmallSet, tmp_path: Path) -> None:
    """The right answers to one half lift themselves only for the other half, or when asked again.

    Every query of the set has its own two right answers, so the two halves share none.
    """
    asking = Asking(small.loaded, Recaller.open(small.store), tmp_path / "scratch")
    gained: dict[Use, int] = {"labels_five": 0, "again_labels": 0}
    for query in asking.queries:
        before = found(asking, query)
        for use in gained:
            after = found(asking, query, use, ltp_enabled=True)
            both = [label for label in query.relevant_ids if label in before and label in after]
            gained[use] += sum(before.index(label) - after.index(label) for label in both)
    assert gained["again_labels"] > 0
    assert gained["labels_five"] <= 0


def test_a_log_that_feeds_itself_differs_from_one_that_does_not(
    small: SmallSet, tmp_path: Path
) -> None:
    asking = Asking(small.loaded, Recaller.open(small.store), tmp_path / "scratch")
    profile = baseline_profile().replaced(ltp_enabled=True)
    five = asking.retriever(Condition("five", "use", profile, "five"))
    rounds = asking.retriever(Condition("rounds", "use", profile, "rounds"))
    assert any(
        five.retrieve_hits(query, 10) != rounds.retrieve_hits(query, 10) for query in asking.queries
    )


def test_questions_of_the_other_half_expand_a_question(
    small: SmallSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phases, "LEAST_QUERY_SIMILARITY", 0.1)
    monkeypatch.setattr(phases, "EXPANSION_BOOST", 1.0)
    asking = Asking(small.loaded, Recaller.open(small.store), tmp_path / "scratch")
    # Else a small store is found whole, and there is nothing to add.
    few: dict[str, Any] = {"depth": 4, "graph_weight": 0.0}
    flags: dict[str, Any] = {**few, "query_expansion_enabled": True}
    expanding: dict[Use, bool] = {"queries": True, "none": False}
    for use, expected in expanding.items():
        changed = [
            found(asking, query, use, **flags) != found(asking, query, **few)
            for query in asking.queries
        ]
        assert any(changed) is expected


def test_a_summary_counts_as_its_turn_only_where_that_is_asked_for(
    talk: LoadedSet, tmp_path: Path
) -> None:
    asking = Asking(talk, build_context(tmp_path, household()).recaller, tmp_path / "scratch")
    query = next(q for q in asking.queries if q.query_id == "q0")
    profile = baseline_profile().replaced(consolidation_enabled=True)
    condition = Condition("c", "variety", profile)
    strict = asking.retriever(condition).retrieve_hits(query, 10)
    credited = asking.retriever(replace(condition, credit_summaries=True)).retrieve_hits(query, 10)
    assert "110" in found(asking, query)
    assert "110" not in [memory_id for memory_id, _ in strict]
    assert "110" in [memory_id for memory_id, _ in credited]
    assert [score for _, score in strict] == [score for _, score in credited]


def test_frames_ask_at_their_own_moment_and_place(talk: LoadedSet, tmp_path: Path) -> None:
    asking = Asking(talk, build_context(tmp_path, household()).recaller, tmp_path / "scratch")
    assert asking.frames() == {"everything", "after", "wing_after", "wing_newest"}
    query = asking.queries[0]
    boosted = baseline_profile().replaced(tagging_enabled=True)

    def scores(condition: Condition) -> list[tuple[str, float]]:
        return asking.retriever(condition).retrieve_hits(query, 10)

    acting: dict[Frame, bool] = {"wing_after": False, "wing_newest": True}
    for frame, acts in acting.items():
        plain = Condition("c", "age", baseline_profile(), frame=frame)
        assert (scores(plain) != scores(replace(plain, profile=boosted))) is acts
    everywhere = {memory_id for memory_id, _ in scores(Condition("c", "age", baseline_profile()))}
    at_home = Condition("c", "age", baseline_profile(), frame="wing_after")
    home = {str(101 + place) for place in (0, 1, 4, *range(8, 14))}
    assert {memory_id for memory_id, _ in scores(at_home)} <= home
    assert not everywhere <= home


def test_questions_with_a_moment_of_their_own_see_what_existed_then(
    talk: LoadedSet, tmp_path: Path
) -> None:
    from noctuary.core.types import from_micros

    moment = from_micros(day_us(6) + DAY_US // 2)
    dated = replace(talk, queries=tuple(replace(q, as_of=moment) for q in talk.queries))
    asking = Asking(dated, build_context(tmp_path, household()).recaller, tmp_path / "scratch")
    assert "asked" in asking.frames()
    asked = Condition("c", "age", baseline_profile(), frame="asked")
    answers = [asking.retriever(asked).retrieve_hits(query, 10) for query in asking.queries]
    ids = {memory_id for hits in answers for memory_id, _ in hits}
    assert "105" in ids
    assert not ids & {str(i) for i in range(109, 115)}  # the conversation of day 20


def test_a_set_becomes_a_document_and_its_store_stays_as_it_was(
    small: SmallSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {p: p.stat().st_mtime_ns for p in small.store.rglob("*") if p.is_file()}
    lines: list[str] = []
    document = measure_set(
        small.loaded, small.store, at_most=8, resampling=FEW_DRAWS, log=lines.append
    )
    after = {p: p.stat().st_mtime_ns for p in small.store.rglob("*") if p.is_file()}
    assert after == before
    conditions = {c["name"]: c for c in document["conditions"]}
    assert len(lines) == len(conditions)
    assert document["manifest"]["n_queries"] == 8
    unused = conditions["default"]
    plain, shipped = baseline_profile().to_json(), RetrievalProfile().to_json()
    assert unused["changes"] == {f: v for f, v in shipped.items() if v != plain[f]}
    assert unused["changed_rankings"] == 0
    assert unused["differences"]["ndcg@10"]["mean"] == 0.0
    again = conditions["ltp 2, again_labels"]
    assert again["changed_rankings"] > 0
    assert again["differences"]["ndcg@10"]["mean"] > 0.0
    means = [document["baselines"]["everything"]["means"]["ndcg@10"], again["means"]["ndcg@10"]]
    assert means[1] - means[0] == pytest.approx(again["differences"]["ndcg@10"]["mean"], abs=2e-6)
