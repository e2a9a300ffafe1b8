from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noctuary.recall.engine import Recaller
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import SORT_ORDERS, Scope
from noctuary.recall.result import RecalledMemory, RecallResult
from tests.support.store import Store, household, memory, renumber

OPERATORS = [
    "key AND door", "key OR door", "NOT key", 'key "blue door"', '"', "'", "''", "key*", "*",
    "NEAR(key door)", "content:key", "{key door}", "^key", "key -door", "key + door", "(key",
    "key)", "%", "_", "\\", ";", "'; DROP TABLE memories; --", "key' OR '1'='1",
    "SELECT * FROM memories",
    "1e999", "NaN", "-1", "[CLS]", "[MASK] [PAD]", "##ey", "../../etc/passwd", "$(reboot)",
    "{{key}}", "%s%n",
]  # fmt: skip
WRITING = [
    "🔑", "👩‍👩‍👧‍👦🏳️‍🌈", "备用钥匙在哪里", "ключ от двери", "¿dónde está la llave?",
    "أين المفتاح الاحتياطي",
    "איפה המפתח", "\u202ekey spare\u202c", "k\u0301e\u0301y", "ｋｅｙ", "key\u200bdoor",
    "ß ﬁ İ ı Σς", "e" * 5000, "\u0301" * 2000,
]  # fmt: skip
CONTROL = [
    "\x00", "key\x00door", "\x00" * 100, "\ud800", "key \udfff door", "\ud83d", "\x1b[31mkey",
    "\ufeffkey", "\uffff",
]  # fmt: skip
BLANK = ["", " ", "\n\t\r", "\u3000", "\u2003", "\u00a0", "\x85"]


@pytest.fixture
def dense(dense_store: Store) -> Recaller:
    return Recaller.open(dense_store.root)


def assert_sane(result: RecallResult, k: int) -> None:
    assert len(result.memories) <= k
    assert len({m.id for m in result.memories}) == len(result.memories)
    for m in result.memories:
        assert math.isfinite(m.final_score)
        assert 0.0 <= m.final_score <= 1.0
    result.to_json()


@pytest.mark.parametrize("query", [*OPERATORS, *WRITING, *CONTROL], ids=ascii)
def test_any_text_is_a_question(dense: Recaller, query: str) -> None:
    for profile in (RetrievalProfile(), RetrievalProfile(fusion="rrf")):
        result = dense.recall(query, 14, profile=profile)
        assert_sane(result, 14)
        assert {w.code for w in result.warnings} <= {"user_required"}


@pytest.mark.parametrize(
    "query", ["key AND door", "'key' OR 1=1", "key*", "key\x00", "ｋｅｙ", "\ufeffkey", "KEY!"]
)
def test_operators_and_disguises_do_not_hide_the_word(dense: Recaller, query: str) -> None:
    found = dense.recall(
        query, profile=RetrievalProfile(dense_weight=0.0, graph_weight=0.0)
    ).memories
    assert 101 in [m.id for m in found]


@pytest.mark.parametrize("query", BLANK, ids=ascii)
def test_a_blank_question_finds_nothing_and_says_so(dense: Recaller, query: str) -> None:
    result = dense.recall(query)
    assert result.memories == ()
    assert [w.code for w in result.warnings] == ["empty_query"]


def test_a_hundred_kilobytes_are_a_question(dense: Recaller) -> None:
    result = dense.recall("where is the spare key? " * 4300, 3)
    assert_sane(result, 3)
    assert result.memories[0].id == 101


def test_a_question_of_many_distinct_words_passes_sqlite_s_limits(dense: Recaller) -> None:
    words = " ".join(f"word{n}" for n in range(5000))
    by_words = RetrievalProfile(dense_weight=0.0)
    assert dense.recall(f"{words} spare key", 1, profile=by_words).memories[0].id == 101


def test_k_zero_is_an_empty_answer(dense: Recaller) -> None:
    result = dense.recall("key", 0)
    assert result.memories == ()
    assert result.warnings == ()


@pytest.mark.parametrize("k", [-1, -10])
def test_a_negative_k_is_an_error(dense: Recaller, k: int) -> None:
    with pytest.raises(ValueError, match=f"found {k}"):
        dense.recall("key", k)


@pytest.mark.parametrize("k", [14, 15, 1000, 10**30])
def test_k_beyond_the_store_returns_all_that_match(dense: Recaller, k: int) -> None:
    result = dense.recall(
        "cat", k, profile=RetrievalProfile(lexical_weight=0.0), scope=Scope(user="ana")
    )
    assert len(result.memories) == 13


def test_more_answers_only_add_to_fewer(dense: Recaller) -> None:
    everything = [m.id for m in dense.recall("door flight key", 14).memories]
    for k in range(len(everything)):
        assert [m.id for m in dense.recall("door flight key", k).memories] == everything[:k]


def test_more_answers_than_sqlite_takes_variables_are_fetched(empty_store: Store) -> None:
    empty_store.publish(renumber([memory(f"boat number {n}") for n in range(1203)]))
    found = Recaller.open(empty_store.root).recall("boat", 1203).memories
    assert len({m.id for m in found}) == 1203


@pytest.mark.parametrize("sort_by", ["", "Relevance", "date", "relevance "])
def test_an_unknown_order_is_an_error_that_names_the_known_ones(
    dense: Recaller, sort_by: str
) -> None:
    with pytest.raises(ValueError, match="recency"):
        dense.recall("key", sort_by=sort_by)


def test_an_empty_store_answers_nothing(empty_store: Store) -> None:
    empty_store.publish([])
    recaller = Recaller.open(empty_store.root)
    for sort_by in SORT_ORDERS:
        assert recaller.recall("key", sort_by=sort_by).memories == ()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(query=st.text(st.characters(exclude_categories=()), max_size=60), k=st.integers(0, 20))
def test_no_text_breaks_a_recall(dense: Recaller, query: str, k: int) -> None:
    assert_sane(dense.recall(query, k), k)


def test_one_recaller_serves_many_threads(dense: Recaller) -> None:
    queries = ["spare key", "cat", "Nina", "flight", "door code", "boiler"] * 20
    alone = [dense.recall(q).memories for q in queries]

    def ask(query: str) -> tuple[RecalledMemory, ...]:
        return dense.recall(query).memories

    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(ask, queries))
    assert together == alone


def test_every_record_is_found_by_its_own_words(dense: Recaller) -> None:
    for record in household():
        found = dense.recall(record.content, 14, scope=Scope(user=record.user)).memories
        assert record.memory_id in [str(m.id) for m in found]
