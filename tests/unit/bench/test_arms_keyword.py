from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from bench.arms import SearchScope, SetContext
from bench.arms.corpus_views import CorpusViews
from bench.arms.fts_seed import IMPORTANCE_BLEND, Blend, FtsSeed
from bench.arms.keyword import KeywordRetriever, distinct_words
from bench.datasets import Dataset, find_shared, open_dataset, read_baseline, read_corpus
from noctuary.evaluate.labels import Query, read_queries
from noctuary.evaluate.metrics import ndcg_at_k, recall_at_k, reciprocal_rank
from noctuary.recall.engine import Recaller
from tests.support.arms import ask, ids

ROWS: list[dict[str, Any]] = [
    {"id": 30, "content": "The red bicycle needs a new tyre.", "wing": "home"},
    {"id": 10, "content": "A red kettle and a red lamp.", "wing": "work", "importance": 0.9},
    {"id": 20, "content": "The bicycle shop closes at six.", "wing": "work", "importance": None},
]


def views(rows: list[dict[str, Any]], scope: SearchScope = "all") -> CorpusViews:
    """Views without a snapshot: keyword arms look at the rows alone."""
    nothing = cast("Recaller", None)
    return CorpusViews(SetContext(Dataset("tiny", Path()), rows, nothing, scope))


def plain(rows: list[dict[str, Any]], scope: SearchScope = "all") -> KeywordRetriever:
    return KeywordRetriever("fts_plain", views(rows, scope), "or")


def test_the_plain_baseline_finds_any_word_and_the_seed_every_word_first() -> None:
    found = ids(plain(ROWS), ask("red bicycle"), 3)
    assert found[0] == "30"
    assert sorted(found) == ["10", "20", "30"]
    seed = KeywordRetriever("fts_seed", views(ROWS), "and_then_or")
    assert ids(seed, ask("red bicycle"), 3) == ["30"]
    assert sorted(ids(seed, ask("red zebra"), 3)) == ["10", "30"]


def test_within_a_wing_the_whole_corpus_is_ranked_and_its_rows_are_kept() -> None:
    assert ids(plain(ROWS, "wing"), ask("red bicycle", "home"), 3) == ["30"]
    assert sorted(ids(plain(ROWS, "wing"), ask("red bicycle", "work"), 3)) == ["10", "20"]
    whole = dict(plain(ROWS).retrieve_hits(ask("red bicycle"), 3))
    assert dict(plain(ROWS, "wing").retrieve_hits(ask("red bicycle", "home"), 3)) == {
        "30": whole["30"]
    }
    # Row 30 has every word: the seed does not widen its search, so that the other wing gets none.
    seed = KeywordRetriever("fts_seed", views(ROWS, "wing"), "and_then_or")
    assert ids(seed, ask("red bicycle", "work"), 3) == []


def test_scores_are_the_blends_of_their_documents() -> None:
    index = FtsSeed.build([(0, "red red", "", "", "", 0.9), (1, "red lamp post", "", "", "", 0.2)])
    bm25 = dict(index.search("red", 2, "and_then_or", Blend(1.0, 0.0)))
    rows: list[dict[str, Any]] = [
        {"id": 1, "content": "red red", "importance": 0.9},
        {"id": 2, "content": "red lamp post", "importance": 0.2},
    ]
    seed = KeywordRetriever("fts_seed", views(rows), "and_then_or")
    by_importance = KeywordRetriever("fts_importance", views(rows), "and_then_or", IMPORTANCE_BLEND)
    assert dict(seed.retrieve_hits(ask("red"), 2)) == pytest.approx(
        {"1": 0.7 * bm25[0] + 0.3 * 0.9, "2": 0.7 * bm25[1] + 0.3 * 0.2}
    )
    assert dict(by_importance.retrieve_hits(ask("red"), 2)) == pytest.approx(
        {"1": 0.4 * bm25[0] + 0.6 * 0.9, "2": 0.4 * bm25[1] + 0.6 * 0.2}
    )


def test_an_index_built_apart_answers_like_the_shared_one() -> None:
    shared, own = plain(ROWS), plain([])
    own = KeywordRetriever("fts_plain", views(ROWS), "or")
    own.build_index(ROWS)
    assert own.retrieve_hits(ask("red"), 3) == shared.retrieve_hits(ask("red"), 3)
    assert own.index_size_bytes == shared.index_size_bytes > 0


def test_a_word_counts_once_however_often_the_query_says_it() -> None:
    assert distinct_words("Red, red RED kettle's") == "red kettle s"
    once, often = ask("shop bicycle red"), ask("shop red red red red red bicycle")
    assert ids(plain(ROWS), often, 3) == ids(plain(ROWS), once, 3)


@pytest.mark.parametrize(("scope", "search"), [("all", "all wings"), ("wing", "own wing")])
def test_the_plain_baseline_reproduces_the_figures_that_locomo_states(
    scope: SearchScope, search: str
) -> None:
    shared = find_shared()
    if shared is None or not (shared / "data" / "locomo").is_dir():
        pytest.skip("needs ../shared/data/locomo (or NOCTUARY_SHARED)")
    dataset = open_dataset(shared / "data" / "locomo")
    rows = read_corpus(dataset)
    queries = read_queries(dataset.queries, {str(row["id"]) for row in rows}).ranked
    baseline = plain(rows, scope)
    rankings = [ids(baseline, query, 100) for query in queries]
    for stratum, stated in read_baseline(dataset, search).items():
        chosen = [
            _values(query, ranking)
            for query, ranking in zip(queries, rankings, strict=True)
            if stratum in ("ALL", query.stratum)
        ]
        assert len(chosen) == stated["n"]
        means = [round(sum(column) / len(chosen), 3) for column in zip(*chosen, strict=True)]
        names = ("recall@5", "recall@10", "ndcg@10", "mrr@100")
        assert means == [stated[name] for name in names], stratum


def _values(query: Query, ranking: list[str]) -> tuple[float, ...]:
    relevant = query.relevant_ids
    return (
        recall_at_k(ranking, relevant, 5),
        recall_at_k(ranking, relevant, 10),
        ndcg_at_k(ranking, relevant, 10),
        reciprocal_rank(ranking, relevant, 100),
    )
