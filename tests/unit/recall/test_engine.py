from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from noctuary.core.types import UNDATED_US, content_hash
from noctuary.graph.state import LOWER_CASE_WORTH
from noctuary.recall.engine import Recaller
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Scope
from noctuary.recall.result import RecalledMemory, RecallResult
from tests.support.store import Store, day_us, household, memory, new_store, renumber

LEXICAL = RetrievalProfile(dense_weight=0.0, graph_weight=0.0, importance_prior=0.0)
DENSE = RetrievalProfile(lexical_weight=0.0, graph_weight=0.0, importance_prior=0.0)
PLAIN = RetrievalProfile(graph_weight=0.0, importance_prior=0.0)
FUSIONS = ("cc", "rrf")


@pytest.fixture
def dense(dense_store: Store) -> Recaller:
    return Recaller.open(dense_store.root)


@pytest.fixture
def plain(plain_store: Store) -> Recaller:
    return Recaller.open(plain_store.root)


def ids(result: RecallResult) -> list[int | str]:
    return [m.id for m in result.memories]


def scored(result: RecallResult) -> list[tuple[int | str, float]]:
    return [(m.id, m.final_score) for m in result.memories]


def by_id(result: RecallResult, wanted: int) -> RecalledMemory:
    (found,) = (m for m in result.memories if m.id == wanted)
    return found


def test_the_lexical_leg_finds_words_and_says_what_it_did(dense: Recaller) -> None:
    result = dense.recall("spare key", profile=LEXICAL)
    best = result.memories[0]
    assert (best.id, best.final_score, best.relevance) == (101, 1.0, 1.0)
    assert best.lexical is not None
    assert best.lexical.rank == 1
    assert best.lexical.score > 0
    assert best.dense is None
    assert best.graph is None


def test_the_dense_leg_finds_a_paraphrase_that_the_lexical_leg_misses(dense: Recaller) -> None:
    assert ids(dense.recall("cat", profile=LEXICAL)) == []
    best = dense.recall("cat", profile=DENSE).memories[0]
    assert best.id == 102
    assert best.dense is not None
    assert best.dense.rank == 1
    assert 0.9 < best.dense.score <= 1.0
    assert best.lexical is None


@pytest.mark.parametrize("fusion", FUSIONS)
def test_both_legs_together_find_what_either_finds(dense: Recaller, fusion: str) -> None:
    found = ids(dense.recall("blue cat", profile=PLAIN.replaced(fusion=fusion)))
    assert {101, 102} <= set(found)


def test_the_graph_leg_lifts_the_memory_that_another_one_names(dense: Recaller) -> None:
    without = dense.recall("Nina", profile=LEXICAL)
    assert ids(without) == [104]
    result = dense.recall("Nina", profile=LEXICAL.replaced(graph_weight=1.0))
    assert ids(result)[:2] == [104, 103]
    hit = by_id(result, 103).graph
    assert hit is not None
    assert (hit.seed_id, hit.relation, hit.concept) == (
        104,
        "mentions_subject",
        "Atlas migration",
    )
    # Seed score 1, rank 1, one arriving edge of a name that shows no capital in its second word:
    # its worth / 2^0.25; over 1 + weight.
    assert hit.score == pytest.approx(LOWER_CASE_WORTH * 2**-0.25)
    assert hit.shares == {"mentions_subject": hit.score}
    assert by_id(result, 103).final_score == pytest.approx(hit.score / 2)
    assert by_id(result, 104).final_score == pytest.approx(0.5)


@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize("query", ["spare key", "flight", "door code", "Atlas migration"])
def test_graph_weight_zero_is_plain_fusion(dense: Recaller, query: str, fusion: str) -> None:
    off = PLAIN.replaced(fusion=fusion)
    alone = off.replaced(depth=200)
    assert scored(dense.recall(query, 20, profile=off)) == scored(
        dense.recall(query, 20, profile=alone)
    )
    assert all(m.graph is None for m in dense.recall(query, 20, profile=off).memories)


@pytest.mark.parametrize("fusion", FUSIONS)
@pytest.mark.parametrize("query", ["flight", "the morning flight", "door code", "Ana", "spare key"])
def test_with_dense_and_graph_empty_the_order_is_the_lexical_order(
    plain: Recaller, query: str, fusion: str
) -> None:
    """No vectors and no arrivals: every leg is on, only one has something to say."""
    quiet = PLAIN.replaced(fusion=fusion)
    result = plain.recall(query, 14, profile=quiet)
    lexical = plain.recall(query, 14, profile=LEXICAL.replaced(fusion=fusion))
    assert scored(result) == scored(lexical)
    hits = [m.lexical for m in result.memories]
    assert [hit.rank for hit in hits if hit] == list(range(1, len(result.memories) + 1))


def test_importance_prior_zero_means_importance_is_ignored(dense: Recaller) -> None:
    result = dense.recall("door", 14, profile=LEXICAL, scope=Scope(user="ana"))
    assert all(m.final_score == m.relevance for m in result.memories)
    weighed = dense.recall("door", 14, profile=LEXICAL.replaced(importance_prior=0.3))
    for m in weighed.memories:
        assert m.final_score == pytest.approx(m.relevance * (0.7 + 0.3 * m.importance))


@pytest.mark.parametrize("sort_by", ["relevance", "importance", "recency"])
@pytest.mark.parametrize("fusion", FUSIONS)
def test_final_score_is_the_ranking_key_and_lies_in_the_unit_interval(
    dense: Recaller, sort_by: str, fusion: str
) -> None:
    for query in ("door", "flight key", "cat", "Atlas migration"):
        result = dense.recall(query, 14, sort_by=sort_by, profile=RetrievalProfile(fusion=fusion))
        scores = [m.final_score for m in result.memories]
        assert scores == sorted(scores, reverse=True)
        assert all(0.0 <= s <= 1.0 for s in scores)
        assert all(0.0 <= m.relevance <= 1.0 for m in result.memories)


def test_sort_by_importance_blends_relevance_and_importance(dense: Recaller) -> None:
    result = dense.recall("door", 14, sort_by="importance", profile=LEXICAL)
    for m in result.memories:
        assert m.final_score == pytest.approx(0.4 * m.relevance + 0.6 * m.importance)
    assert ids(result)[0] == 101


def test_sort_by_recency_is_newest_first_and_undated_last(dense: Recaller) -> None:
    result = dense.recall("door", 14, sort_by="recency", profile=LEXICAL, scope=Scope(user="ben"))
    assert ids(result) == [107, 101, 108]
    # The household spans day 2 to day 20 (and five minutes).
    span = day_us(20) + 5 * 60_000_000 - day_us(2)
    assert by_id(result, 108).final_score == 0.0
    assert by_id(result, 101).final_score == pytest.approx(1 / span)
    assert by_id(result, 107).final_score == pytest.approx((day_us(8) - day_us(2)) / span)


def test_ties_are_broken_by_relevance_then_position(empty_store: Store) -> None:
    same = {"importance": 0.5, "created_at_us": day_us(1)}
    texts = ("boat", "boat", "boat boat", "boat", "boat")
    empty_store.publish(renumber([memory(text, **same) for text in texts]))
    recaller = Recaller.open(empty_store.root)
    for sort_by in ("relevance", "importance", "recency"):
        result = recaller.recall("boat", profile=LEXICAL, sort_by=sort_by)
        assert ids(result) == [103, 101, 102, 104, 105]


def test_a_store_without_any_date_sorts_by_recency(empty_store: Store) -> None:
    empty_store.publish(renumber([memory("boat", created_at_us=UNDATED_US) for _ in range(3)]))
    result = Recaller.open(empty_store.root).recall("boat", sort_by="recency")
    assert scored(result) == [(101, 0.0), (102, 0.0), (103, 0.0)]
    assert all(m.created_at is None for m in result.memories)


def test_a_row_comes_back_as_it_was(dense: Recaller) -> None:
    record = household()[0]
    found = dense.recall("spare key").memories[0]
    assert found.content == record.content
    assert (found.wing, found.room, found.category) == ("home", "hall", "fact")
    assert found.tags == ("key", "wing:home")
    assert found.importance == pytest.approx(0.9)
    assert found.created_at is not None
    assert found.created_at.isoformat() == "2026-01-02T00:00:00+00:00"
    assert (found.session_id, found.user) == (None, None)


def test_text_ids_stay_text(empty_store: Store) -> None:
    record = household()[0]._replace(memory_id="007")
    empty_store.publish([record._replace(content_hash=content_hash(record))], id_kind="str")
    assert ids(Recaller.open(empty_store.root).recall("spare key")) == ["007"]


def test_the_result_says_where_it_comes_from_and_how_long_it_took(
    dense: Recaller, dense_store: Store
) -> None:
    result = dense.recall("cat", profile=RetrievalProfile(fusion="rrf"))
    assert result.query == "cat"
    assert result.snapshot_id == dense.snapshot_id
    assert result.store == str(dense_store.root)
    assert result.profile["fusion"] == "rrf"
    assert set(result.phase_timing_ms) == {
        "scope", "model_guard", "lexical", "encode", "dense", "fuse", "graph",
        "fetch", "total",
    }  # fmt: skip
    assert all(ms >= 0 for ms in result.phase_timing_ms.values())


def test_the_same_question_gets_the_same_answer(dense: Recaller, dense_store: Store) -> None:
    first = dense.recall("Atlas flight door", 14)
    other = Recaller.open(dense_store.root).recall("Atlas flight door", 14)
    assert first.memories == other.memories == dense.recall("Atlas flight door", 14).memories


@pytest.mark.parametrize(
    ("target", "scope"),
    [
        ({"user": "ben"}, Scope(user="ana")),
        ({"user": "ben"}, Scope()),
        ({"wing": "travel"}, Scope(wing="home")),
        ({"room": "luggage"}, Scope(room="hall")),
        ({"category": "plan"}, Scope(category="fact")),
        ({"created_at_us": day_us(5)}, Scope(as_of=datetime(2026, 1, 3, tzinfo=UTC))),
    ],
)
def test_the_graph_does_not_lead_out_of_the_scope(
    empty_store: Store, target: dict[str, Any], scope: Scope
) -> None:
    """An edge leads from 102 to 101; it is walked unless the scope hides its end."""
    source = {"wing": "home", "room": "hall", "created_at_us": day_us(2)}
    records = [
        memory("Lisbon trip\nPack the charger.", **{**source, **target}),
        memory("Somebody talked about the Lisbon trip today.", **source),
    ]
    empty_store.publish(renumber(records))
    recaller = Recaller.open(empty_store.root)
    walked = LEXICAL.replaced(graph_weight=1.0)
    free = recaller.recall("somebody talked", profile=walked, scope=Scope(user="ben"))
    assert ids(free) == [102, 101]
    assert ids(recaller.recall("somebody talked", profile=walked, scope=scope)) == [102]


def test_an_unknown_wing_is_an_empty_answer_with_a_warning(dense: Recaller) -> None:
    result = dense.recall("Nina", scope=Scope(wing="wrok"))
    assert result.memories == ()
    assert "unknown_wing" in [w.code for w in result.warnings]


def test_a_deadline_that_has_passed_leaves_the_lexical_leg(dense: Recaller) -> None:
    result = dense.recall("Nina cat", deadline_ms=0.0)
    assert ids(result) == [104]
    assert [w.code for w in result.warnings if w.code.startswith("deadline")] == [
        "deadline_dense",
        "deadline_graph",
    ]


def test_a_generous_deadline_changes_nothing(dense: Recaller) -> None:
    result = dense.recall("Nina cat", 14, deadline_ms=60_000.0)
    assert scored(result) == scored(dense.recall("Nina cat", 14))
    assert [w.code for w in result.warnings] == ["user_required"]


def test_two_stores_at_once_do_not_mix(dense: Recaller, dense_store: Store) -> None:
    other = new_store(dense_store.root.with_name("other"))
    other.publish(renumber([memory("The spare key is under the mat.")], first_id=901))
    second = Recaller.open(other.root)
    assert ids(second.recall("spare key")) == [901]
    assert ids(dense.recall("spare key", 1)) == [101]


@pytest.mark.parametrize("k", [0, 1, 3, 50])
@pytest.mark.parametrize("user", [None, "ana", "nobody"])
@pytest.mark.parametrize("query", ["key", "feline", "where is the key of the shed", "", "zzz"])
@pytest.mark.parametrize("turn_view", ["raw", "summaries"])
def test_ranking_alone_gives_what_recall_returns(
    dense_store: Store, query: str, user: str | None, k: int, turn_view: str
) -> None:
    recaller = Recaller.open(dense_store.root)
    profile = RetrievalProfile(turn_view=turn_view)
    scope = Scope(user=user)
    found = recaller.recall(query, k, profile=profile, scope=scope)
    expected = [(str(memory.id), memory.final_score) for memory in found.memories]
    assert recaller.rank(query, k, profile=profile, scope=scope) == expected
