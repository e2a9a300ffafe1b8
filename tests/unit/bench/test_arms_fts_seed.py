from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from bench.arms.fts_seed import IMPORTANCE_BLEND, FtsSeed, SeedMode

ROWS = [
    (0, "the cat sat", "facts", "pets", "feline", 0.5),
    (1, "the dog sat", "facts", "", "", 0.5),
    (2, "the cat and the dog", "decisions", "", "", 0.9),
    (3, "the cats \ud800 100%", "facts", "", "", 0.1),
]


@pytest.fixture
def seed() -> FtsSeed:
    return FtsSeed.build(ROWS)


def positions(found: list[tuple[int, float]]) -> list[int]:
    return [position for position, _ in found]


def test_or_searches_the_content_without_stems(seed: FtsSeed) -> None:
    assert set(positions(seed.search("cat", 10))) == {0, 2}
    assert set(positions(seed.search("cat dog", 10))) == {0, 1, 2}
    assert positions(seed.search("feline pets decisions", 10)) == []


def test_or_counts_a_word_once_whatever_its_case(seed: FtsSeed) -> None:
    assert seed.search("Cat cat CAT dog", 10) == seed.search("cat dog", 10)


def test_seed_wants_every_word_then_any(seed: FtsSeed) -> None:
    assert positions(seed.search("cat dog", 10, "and_then_or")) == [2]
    assert set(positions(seed.search("cat zebra", 10, "and_then_or"))) == {0, 2}


def test_seed_searches_all_fields(seed: FtsSeed) -> None:
    assert positions(seed.search("feline pets facts cat", 10, "and_then_or")) == [0]


def test_seed_blends_importance() -> None:
    seed = FtsSeed.build([(i, "same words", "", "", "", w) for i, w in enumerate((0.2, 0.9, 0.9))])
    found = seed.search("same", 10, "and_then_or")
    assert positions(found) == [1, 2, 0]
    assert found[0][1] - found[2][1] == pytest.approx(0.3 * 0.7)


def test_the_blend_decides_how_much_importance_counts() -> None:
    # Row 0 matches better, row 1 is more important: their order turns with the blend.
    others = [(i, "nothing of it", "", "", "", 0.5) for i in range(2, 8)]
    rows = [(0, "word word word", "", "", "", 0.0), (1, "word and more text", "", "", "", 1.0)]
    seed = FtsSeed.build([*rows, *others])
    by_relevance = seed.search("word", 2, "and_then_or")
    by_importance = seed.search("word", 2, "and_then_or", IMPORTANCE_BLEND)
    assert positions(by_relevance) == [0, 1]
    assert positions(by_importance) == [1, 0]
    bm25 = by_relevance[0][1] / 0.7
    assert dict(by_importance)[0] == pytest.approx(0.4 * bm25)


def test_the_size_of_an_index_grows_with_what_it_holds() -> None:
    small, large = (FtsSeed.build([(i, f"w{i} text", "", "tag", "", 0.5) for i in range(n)])
                    for n in (1, 500))  # fmt: skip
    for mode in ("or", "and_then_or"):
        assert 0 < small.index_bytes(mode) < large.index_bytes(mode)
    assert large.index_bytes("or") < large.index_bytes("and_then_or")


def test_a_filter_acts_before_the_limit(seed: FtsSeed) -> None:
    best = positions(seed.search("the sat", 4))
    assert positions(seed.search("the sat", 1, allowed=lambda p: p != best[0])) == [best[1]]
    assert seed.search("the sat", 4, allowed=lambda p: False) == []


def test_a_filter_that_hides_every_full_match_lets_partial_ones_in(seed: FtsSeed) -> None:
    found = seed.search("cat dog", 10, "and_then_or", allowed=lambda p: p != 2)
    assert set(positions(found)) == {0, 1}


def test_seed_falls_back_to_like_when_fts_refuses(seed: FtsSeed) -> None:
    assert positions(seed.search("cat", 1, "and_then_or")) == [2]
    refused = FtsSeed.build([(0, "a\x00b", "", "", "", 0.4), (1, "x a\x00b y", "", "", "", 0.8)])
    # FTS5 ends the query at a NUL: "unterminated string".
    assert positions(refused.search("a\x00b", 5, "and_then_or")) == [1, 0]


@pytest.mark.parametrize("mode", ["or", "and_then_or"])
@pytest.mark.parametrize("query", ["", " ", '"', "\ud800", "NEAR(cat", "cat AND", "a*", "col:x"])
def test_odd_queries_do_not_raise(seed: FtsSeed, query: str, mode: SeedMode) -> None:
    assert isinstance(seed.search(query, 5, mode), list)
    assert seed.search("cat", 0, mode) == []


def test_reproduces_the_published_baseline_of_locomo() -> None:
    home = Path(os.environ.get("NOCTUARY_SHARED", Path(__file__).parents[4] / "shared"))
    folder = home / "data" / "locomo"
    if not folder.is_dir():
        pytest.skip(f"no evaluation data at {folder}; set NOCTUARY_SHARED")
    with gzip.open(folder / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        corpus = [json.loads(line) for line in lines]
    with (folder / "queries.jsonl").open(encoding="utf-8") as lines:
        queries = [json.loads(line) for line in lines]
    seed = FtsSeed.build(
        (row["id"], row["content"], row["category"], row["tags"], "", row["importance"])
        for row in corpus
    )
    recall_at_5, recall_at_10 = 0.0, 0.0
    for query in queries:
        found, relevant = positions(seed.search(query["text"], 10)), set(query["relevant_ids"])
        recall_at_5 += len(relevant & set(found[:5])) / len(relevant) / len(queries)
        recall_at_10 += len(relevant & set(found)) / len(relevant) / len(queries)
    assert round(recall_at_5, 3) == 0.429
    assert round(recall_at_10, 3) == 0.495
