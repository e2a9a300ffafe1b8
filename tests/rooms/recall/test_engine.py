"""One recall from question to answer."""

from __future__ import annotations

import itertools
import math
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noctuary.core.settings import FUSIONS
from noctuary.core.types import UNDATED_US, MemoryRecord, content_hash
from noctuary.graph.state import LOWER_CASE_WORTH
from noctuary.recall.engine import PHASES, Recaller
from noctuary.recall.inputs import encode_query
from noctuary.recall.legs import fuse_convex, fuse_rrf, pool_candidates, rank_dense, rank_lexical
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import SORT_ORDERS, Scope, build_mask
from noctuary.recall.result import RecalledMemory, RecallResult
from noctuary.recall.rows import Rows
from tests.support.cross_encoder import MARKER, write_cross_encoder
from tests.support.store import Store, day_us, household, memory, renumber

LEXICAL = RetrievalProfile(dense_weight=0.0, graph_weight=0.0, importance_prior=0.0)
DENSE = RetrievalProfile(lexical_weight=0.0, graph_weight=0.0, importance_prior=0.0)
PLAIN = RetrievalProfile(graph_weight=0.0, importance_prior=0.0)

QUERIES = (
    "spare key", "flight", "the morning flight", "door code", "Atlas migration", "cat boiler",
)  # fmt: skip


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


def test_each_leg_finds_what_the_other_misses_and_says_what_it_did(dense: Recaller) -> None:
    best = dense.recall("spare key", profile=LEXICAL).memories[0]
    assert (best.id, best.final_score, best.relevance) == (101, 1.0, 1.0)
    assert best.lexical is not None
    assert best.lexical.rank == 1
    assert best.lexical.score > 0
    assert (best.dense, best.graph) == (None, None)
    assert ids(dense.recall("cat", profile=LEXICAL)) == []
    best = dense.recall("cat", profile=DENSE).memories[0]
    assert (best.id, best.lexical) == (102, None)
    assert best.dense is not None
    assert best.dense.rank == 1
    assert 0.9 < best.dense.score <= 1.0
    for fusion in FUSIONS:
        found = ids(dense.recall("blue cat", profile=PLAIN.replaced(fusion=fusion)))
        assert {101, 102} <= set(found)


@pytest.mark.parametrize("fusion", FUSIONS)
def test_a_query_that_the_encoder_hardly_reads_is_left_to_its_words(
    dense: Recaller, fusion: str
) -> None:
    profile = PLAIN.replaced(fusion=fusion, explain=True)
    read, hardly = (dense.recall(q, profile=profile) for q in ("spare cat", "spare cat 猫犬"))
    lead, trailing = ({m.id: m.relevance for m in found.memories} for found in (read, hardly))
    assert trailing[101] - trailing[102] > lead[101] - lead[102]  # 101 has the word, 102 the axis
    assert "; the encoder reads part of it (weight x 0.25)" in str(hardly.memories)
    assert "the encoder reads" not in str(read.memories)
    # Where no word is found either, the vectors are all there is.
    assert ids(dense.recall("猫 cat", profile=profile))[0] == 102


def test_the_graph_leg_lifts_the_memory_that_another_one_names(dense: Recaller) -> None:
    without = dense.recall("Nina", profile=LEXICAL)
    assert ids(without) == [104]
    result = dense.recall("Nina", profile=LEXICAL.replaced(graph_weight=1.0))
    assert ids(result)[:2] == [104, 103]
    hit = by_id(result, 103).graph
    assert hit is not None
    assert (hit.seed_id, hit.relation, hit.concept) == (104, "mentions_subject", "Atlas migration")
    # Seed score 1, rank 1, one arriving edge of a name that shows no capital in its second word:
    # its worth / 2^0.25; over 1 + weight.
    assert hit.score == pytest.approx(LOWER_CASE_WORTH * 2**-0.25)
    assert hit.shares == {"mentions_subject": hit.score}
    assert by_id(result, 103).final_score == pytest.approx(hit.score / 2)
    assert by_id(result, 104).final_score == pytest.approx(0.5)


@pytest.mark.parametrize("fusion", FUSIONS)
def test_with_dense_and_graph_empty_the_order_is_lexical(plain: Recaller, fusion: str) -> None:
    """No vectors and no arrivals: every leg is on, only one has something to say."""
    for query in QUERIES:
        result = plain.recall(query, 14, profile=PLAIN.replaced(fusion=fusion))
        lexical = plain.recall(query, 14, profile=LEXICAL.replaced(fusion=fusion))
        assert scored(result) == scored(lexical)
        hits = [m.lexical for m in result.memories]
        assert [hit.rank for hit in hits if hit] == list(range(1, len(result.memories) + 1))


@pytest.mark.parametrize("sort_by", SORT_ORDERS)
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


@pytest.mark.parametrize(
    ("prior", "sort_by", "relevance", "product", "importance"),
    [(0.0, "relevance", 1.0, 0.0, 0.0), (0.3, "relevance", 0.7, 0.3, 0.0),
     (0.0, "importance", 0.4, 0.0, 0.6)],
)  # fmt: skip
def test_importance_is_a_prior_or_the_order_asked_for(
    dense: Recaller, prior: float, sort_by: str, relevance: float, product: float, importance: float
) -> None:
    profile = LEXICAL.replaced(importance_prior=prior)
    result = dense.recall("door", 14, sort_by=sort_by, profile=profile)
    assert 101 in ids(result)
    for m in result.memories:
        expected = (relevance + product * m.importance) * m.relevance + importance * m.importance
        assert m.final_score == pytest.approx(expected)


def test_sort_by_recency_is_newest_first_and_undated_last(dense: Recaller) -> None:
    result = dense.recall("door", 14, sort_by="recency", profile=LEXICAL, scope=Scope(user="ben"))
    # The household spans day 2 to day 20 (and five minutes).
    span = day_us(20) + 5 * 60_000_000 - day_us(2)
    expected = [(107, (day_us(8) - day_us(2)) / span), (101, 1 / span), (108, 0.0)]
    assert ids(result) == [i for i, _ in expected]
    assert dict(scored(result)) == pytest.approx(dict(expected))


def test_ties_are_broken_by_relevance_then_position(empty_store: Store) -> None:
    texts = ("boat", "boat", "boat boat", "boat", "boat")
    undated = {"importance": 0.5, "created_at_us": UNDATED_US}
    for same in ({**undated, "created_at_us": day_us(1)}, undated):
        empty_store.publish(renumber([memory(text, **same) for text in texts]))
        recaller = Recaller.open(empty_store.root)
        for sort_by in SORT_ORDERS:
            result = recaller.recall("boat", profile=LEXICAL, sort_by=sort_by)
            assert ids(result) == [103, 101, 102, 104, 105]
    by_date = Recaller.open(empty_store.root).recall("boat", sort_by="recency").memories
    assert {(m.created_at, m.final_score) for m in by_date} == {(None, 0.0)}, "without any date"


def test_a_row_comes_back_as_it_was(dense: Recaller) -> None:
    record = household()[0]
    found = dense.recall("spare key").memories[0]
    assert (found.content, found.tags) == (record.content, ("key", "wing:home"))
    assert (found.wing, found.room, found.category) == ("home", "hall", "fact")
    assert found.importance == pytest.approx(0.9)
    assert found.created_at is not None
    assert found.created_at.isoformat() == "2026-01-02T00:00:00+00:00"
    assert (found.session_id, found.user) == (None, None)


def test_text_ids_stay_text(empty_store: Store) -> None:
    record = household()[0]._replace(memory_id="007")
    empty_store.publish([record._replace(content_hash=content_hash(record))], id_kind="str")
    assert ids(Recaller.open(empty_store.root).recall("spare key")) == ["007"]


def test_a_result_says_whence_and_how_long(dense: Recaller, dense_store: Store) -> None:
    result = dense.recall("cat", profile=RetrievalProfile(fusion="rrf"))
    assert (result.query, result.store) == ("cat", str(dense_store.root))
    assert result.snapshot_id == dense.snapshot_id
    assert result.profile["fusion"] == "rrf"
    assert set(result.phase_timing_ms) == {
        "scope", "model_guard", "lexical", "encode", "dense", "fuse", "graph",
        "fetch", "total",
    }  # fmt: skip
    assert all(ms >= 0 for ms in result.phase_timing_ms.values())
    other = Recaller.open(dense_store.root).recall("Atlas flight door", 14)
    assert other.memories == dense.recall("Atlas flight door", 14).memories


def test_a_deadline_that_has_passed_leaves_the_lexical_leg(dense: Recaller) -> None:
    result = dense.recall("Nina cat", deadline_ms=0.0)
    assert ids(result) == [104]
    late = [w.code for w in result.warnings if w.code.startswith("deadline")]
    assert late == ["deadline_dense", "deadline_graph"]
    generous = dense.recall("Nina cat", 14, deadline_ms=60_000.0)
    assert scored(generous) == scored(dense.recall("Nina cat", 14))
    assert [w.code for w in generous.warnings] == ["user_required"]


@pytest.mark.parametrize("turn_view", ["raw", "summaries"])
def test_ranking_alone_gives_what_recall_returns(dense: Recaller, turn_view: str) -> None:
    profile = RetrievalProfile(turn_view=turn_view)
    asked = itertools.product(
        ("key", "where is the key of the shed", "", "zzz"), (0, 1, 50), (None, "ana", "nobody")
    )
    for query, k, user in asked:
        found = dense.recall(query, k, profile=profile, scope=Scope(user=user))
        expected = [(str(memory.id), memory.final_score) for memory in found.memories]
        assert dense.rank(query, k, profile=profile, scope=Scope(user=user)) == expected


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


def assert_sane(result: RecallResult, k: int) -> None:
    assert len(result.memories) <= k
    assert len({m.id for m in result.memories}) == len(result.memories)
    for m in result.memories:
        assert math.isfinite(m.final_score)
        assert 0.0 <= m.final_score <= 1.0
    result.to_json()


@pytest.mark.parametrize(
    "query", [*OPERATORS, *WRITING, *CONTROL], ids=lambda query: "-".join(ascii(query).split())
)
def test_any_text_is_a_question(dense: Recaller, query: str) -> None:
    for profile in (RetrievalProfile(), RetrievalProfile(fusion="rrf")):
        result = dense.recall(query, 14, profile=profile)
        assert_sane(result, 14)
        assert {w.code for w in result.warnings} <= {"user_required"}


@pytest.mark.parametrize(
    "query",
    ["key AND door", "'key' OR 1=1", "key*", "key\x00", "ｋｅｙ", "\ufeffkey", "KEY!",
     "where is the spare key? " * 4300,
     " ".join([*(f"word{n}" for n in range(5000)), "spare key"])],  # beyond SQLite's variables
    ids=lambda query: "-".join(ascii(query)[:20].split()),
)  # fmt: skip
def test_operators_disguises_and_lengths_do_not_hide_the_word(dense: Recaller, query: str) -> None:
    found = dense.recall(query, profile=RetrievalProfile(dense_weight=0.0, graph_weight=0.0))
    assert 101 in ids(found)


def test_a_blank_question_finds_nothing_and_says_so(dense: Recaller) -> None:
    for query in BLANK:
        result = dense.recall(query)
        assert result.memories == ()
        assert [w.code for w in result.warnings] == ["empty_query"]


def test_more_answers_only_add_to_fewer_up_to_all_that_match(dense: Recaller) -> None:
    nothing = dense.recall("key", 0)
    assert (nothing.memories, nothing.warnings) == ((), ())
    everything = ids(dense.recall("door flight key", 14))
    for k in range(len(everything)):
        assert ids(dense.recall("door flight key", k)) == everything[:k]
    by_meaning = RetrievalProfile(lexical_weight=0.0)
    for k in (14, 15, 1000, 10**30):
        found = dense.recall("cat", k, profile=by_meaning, scope=Scope(user="ana"))
        assert len(found.memories) == 13


def test_more_answers_than_sqlite_takes_variables_are_fetched(empty_store: Store) -> None:
    empty_store.publish(renumber([memory(f"boat number {n}") for n in range(1203)]))
    found = Recaller.open(empty_store.root).recall("boat", 1203).memories
    assert len({m.id for m in found}) == 1203


@pytest.mark.parametrize(
    ("argument", "value", "said"),
    [("k", -1, "found -1"), *(("sort_by", order, "recency") for order in ("", "date", "Recency"))],
)
def test_what_cannot_be_honoured_is_an_error(
    dense: Recaller, argument: str, value: Any, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        dense.recall("key", **{argument: value})


def test_an_empty_store_answers_nothing(empty_store: Store) -> None:
    empty_store.publish([])
    recaller = Recaller.open(empty_store.root)
    for sort_by in SORT_ORDERS:
        assert recaller.recall("key", sort_by=sort_by).memories == ()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(query=st.text(st.characters(exclude_categories=()), max_size=60), k=st.integers(0, 20))
def test_no_text_breaks_a_recall(dense: Recaller, query: str, k: int) -> None:
    assert_sane(dense.recall(query, k), k)


def test_one_recaller_serves_many_threads(dense: Recaller) -> None:
    alone = [dense.recall(query).memories for query in QUERIES * 20]
    with ThreadPoolExecutor(8) as pool:
        together = pool.map(dense.recall, QUERIES * 20)
    assert [result.memories for result in together] == alone


WORDS = ("river", "stone", "paper", "lamp", "window", "quartz")
AMPLE_MS = 60_000.0
WORDS_ONLY = RetrievalProfile.off().replaced(dense_weight=0.0)


def notes() -> list[MemoryRecord]:
    """Thirty memories of eight words; every fifth says the marker three times."""
    rng = random.Random(6)
    return renumber(
        [
            memory(
                " ".join(["river", *([MARKER] * 3 if i % 5 == 4 else rng.choices(WORDS, k=3)),
                          *rng.choices(WORDS, k=4)]),
                tags=rng.choice(WORDS), wing="home" if i % 2 else "work",
                importance=rng.randint(0, 4) / 4,
            )
            for i in range(30)
        ]
    )  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_cross_encoder(tmp_path_factory.mktemp("cross-encoder"))


@pytest.fixture
def recaller(empty_store: Store) -> Recaller:
    empty_store.publish(notes())
    return Recaller.open(empty_store.root)


@pytest.fixture
def stage2(model: Path) -> RetrievalProfile:
    return WORDS_ONLY.replaced(reranker=str(model), rerank_timeout_ms=AMPLE_MS, rerank_depth=20)


def test_the_cross_encoder_lifts_what_it_was_trained_to_lift(
    recaller: Recaller, stage2: RetrievalProfile
) -> None:
    marked = {r.position + 101 for r in notes() if MARKER in r.content}
    fused = recaller.recall("river paper", 30, profile=WORDS_ONLY)
    found = recaller.recall("river paper", 30, profile=stage2)
    assert not found.warnings
    head = [i for i in ids(fused)[:20] if i in marked]
    assert 0 < len(head) < len(marked), "some marked memories are too far down to be read"
    assert set(ids(found)[: len(head)]) == set(head)
    assert ids(fused)[: len(head)] != ids(found)[: len(head)]
    assert sorted(score for _, score in scored(found)) == sorted(s for _, s in scored(fused))
    assert ids(found)[20:] == ids(fused)[20:]


@pytest.mark.parametrize(
    ("sort_by", "changes", "codes"),
    [
        ("importance", {}, set[str]()),
        ("recency", {}, set[str]()),
        ("relevance", {"rerank_timeout_ms": 1e-3}, {"reranker_loading", "reranker_timeout"}),
        ("relevance", {"reranker": "/nowhere"}, {"reranker_unavailable"}),
    ],
)
def test_another_order_is_not_reranked_and_without_an_answer_the_fused_one_stands(
    recaller: Recaller, stage2: RetrievalProfile, sort_by: str, changes: dict[str, object],
    codes: set[str],
) -> None:  # fmt: skip
    fused = recaller.recall("river paper", 30, profile=WORDS_ONLY, sort_by=sort_by)
    asked = stage2.replaced(**changes)
    found = recaller.recall("river paper", 30, profile=asked, sort_by=sort_by)
    assert scored(found) == scored(fused)
    assert {w.code for w in found.warnings} <= codes
    assert len(found.warnings) == bool(codes)


def fused_by_hand(
    recaller: Recaller, query: str, fusion: str, user: str
) -> list[tuple[str, float]]:
    """Legs, fusion, order: nothing else."""
    reader, profile = recaller.reader, RetrievalProfile.off()
    mask, _ = build_mask(Scope(user=user), reader.facets, reader.created_at_us)
    depth, searched = min(profile.depth, reader.count), Rows.of(reader, mask, mask).searched
    vector = encode_query(recaller.paths, reader.manifest, query)
    lexical = rank_lexical(reader, query, searched, depth)
    legs = (lexical, rank_dense(reader, vector, searched, depth))
    pool = pool_candidates([leg.ranking for leg in legs])
    weights = (profile.lexical_weight, profile.dense_weight)
    if fusion == "rrf":
        scores = fuse_rrf(pool, [leg.ranking for leg in legs], weights, profile.rrf_k)
    else:
        scores = fuse_convex([leg.scores_at(pool) for leg in legs], weights)
    order = np.lexsort((pool, -scores))
    ids = reader.memory_ids(pool.tolist())
    return [(ids[int(pool[i])], float(scores[i])) for i in order]


@pytest.mark.parametrize("fusion", FUSIONS)
def test_off_is_plain_fusion(dense: Recaller, fusion: str) -> None:
    off = RetrievalProfile.off().replaced(fusion=fusion)
    for query in QUERIES:
        result = dense.recall(query, 14, profile=off, scope=Scope(user="ana"))
        assert result.memories
        found = [(str(m.id), m.final_score) for m in result.memories]
        assert found == fused_by_hand(dense, query, fusion, "ana")
        assert result.pipeline["phases_applied"] == []
        assert result.pipeline["phases_skipped"] == [step.name for step in PHASES]
        assert result.pipeline["model_guard"] == "OFF"


def test_a_hit_leads_over_a_rare_name_to_the_rest_of_the_question(empty_store: Store) -> None:
    texts = (
        "Ada Quill keeps the harbour ledger.",
        "The strongbox of Ada Quill opens with a brass key.",
        "It rained when Ada Quill came home.",
    )
    empty_store.publish(renumber([memory(text) for text in texts]))
    found = Recaller.open(empty_store.root).recall("harbour ledger strongbox", 3)
    graphs = {str(m.id): m.graph for m in found.memories}
    led = graphs["102"]
    assert led is not None
    assert (led.relation, led.seed_id, led.concept) == ("shares_concept", 101, "Ada Quill")
    assert graphs.get("103") is None, "with it, the hit holds no more of the question"


def test_a_session_of_facts_lends_half_inside_a_wing(empty_store: Store) -> None:
    texts = ("The harbour ledger is blue.", "It lies beside the stove.", "The harbour is deep.")
    facts = [memory(text, session_id="s", wing="boats", is_turn=False) for text in texts[:2]]
    empty_store.publish(renumber([*facts, memory(texts[2], wing="boats")]))
    recaller, lent = Recaller.open(empty_store.root), list[float]()
    for wing in (None, "boats"):
        found = recaller.recall("harbour ledger", 3, scope=Scope(wing=wing))
        graph = next(m.graph for m in found.memories if str(m.id) == "102")
        assert graph is not None
        lent.append(graph.shares["in_session"])
    assert lent[1] == pytest.approx(lent[0] / 2)
    assert lent[1] > 0.0
