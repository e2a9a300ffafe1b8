from __future__ import annotations

import gc
import random
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from noctuary.lexical.fts_seed import FtsSeed
from noctuary.recall.fts5_leg import LEAST_SCORE, rank_fts5
from noctuary.recall.reader import SnapshotReader
from noctuary.types import MemoryRecord
from tests.support.store import Store, household, memory, new_store, renumber

WORDS = ["boat", "house", "river", "Köln", "北京", "x-1", "NOT", "🙂"]
COUNT = 40
ODD_QUERIES = (
    "", " ", '"', "\ud800", "NEAR(boat", "boat AND", "a*", "col:x", "-", "\x00", "b" * 10**5,
)  # fmt: skip
QUERY = st.lists(st.sampled_from([*WORDS, "nothing", '"', "boat*", "NEAR(", "col:"]), max_size=4)


def mixed(count: int = COUNT) -> list[MemoryRecord]:
    """Records whose words lie in every field, with different importance."""
    rng = random.Random(2)

    def some(most: int) -> str:
        return " ".join(rng.choices(WORDS, k=rng.randint(0, most)))

    return renumber(
        [
            memory(
                f"{some(6)} boat", tags=some(2), expanded_keywords=some(2),
                category=rng.choice(["fact", "river"]), importance=rng.randint(0, 4) / 4,
            )
            for _ in range(count)
        ]
    )  # fmt: skip


def seed_of(records: list[MemoryRecord]) -> FtsSeed:
    return FtsSeed.build(
        (r.position, r.content, r.category, r.tags, r.expanded_keywords, r.importance)
        for r in records
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_store(tmp_path_factory.mktemp("fts5") / "house").candidate(mixed())


@pytest.fixture
def reader(built: Path) -> SnapshotReader:
    return SnapshotReader.open(built)


def at(*positions: int) -> NDArray[np.int64]:
    return np.array(positions, dtype=np.int64)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=QUERY, depth=st.integers(1, COUNT + 2))
def test_the_order_is_the_seeds_own(reader: SnapshotReader, words: list[str], depth: int) -> None:
    seed = seed_of(mixed())
    expected = seed.search(" ".join(words), depth, "and_then_or")
    seed.close()
    leg = rank_fts5(reader, " ".join(words), None, depth)
    assert leg.ranking.tolist() == [position for position, _ in expected]
    values = leg.scores_at(leg.ranking)
    assert (values > 0).all()
    if expected and expected[-1][1] > 0:
        assert values.tolist() == pytest.approx([score for _, score in expected])
    unranked = np.setdiff1d(np.arange(COUNT), leg.ranking)
    assert not leg.scores_at(unranked).any()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=QUERY, depth=st.integers(1, 8), hidden=st.sets(st.integers(0, COUNT - 1)))
def test_a_filter_acts_before_the_limit_and_before_every_word_becomes_any(
    reader: SnapshotReader, words: list[str], depth: int, hidden: set[int]
) -> None:
    """Against a search of everything that is filtered afterwards, word by word where need be."""
    query = " ".join(words)
    mask = np.array([position not in hidden for position in range(COUNT)])
    seed = seed_of(mixed())
    every = [p for p, _ in seed.search(query, COUNT, "and_then_or") if mask[p]]
    found = rank_fts5(reader, query, mask, depth).ranking.tolist()
    if every:
        assert found == every[:depth]
    else:
        any_of = {p for word in words for p, _ in seed.search(word, COUNT, "and_then_or")}
        assert set(found) <= {p for p in any_of if mask[p]}
        assert len(found) == min(depth, sum(bool(mask[p]) for p in any_of))
    seed.close()


def test_if_all_with_every_word_are_hidden_any_word_is_enough(empty_store: Store) -> None:
    records = renumber([memory(t) for t in ("boat house", "boat", "house", "river")])
    reader = SnapshotReader.open(empty_store.candidate(records))
    assert rank_fts5(reader, "boat house", None, 9).ranking.tolist() == [0]
    mask = np.array([False, True, True, True])
    assert sorted(rank_fts5(reader, "boat house", mask, 9).ranking.tolist()) == [1, 2]
    assert rank_fts5(reader, "boat house", np.zeros(4, dtype=bool), 9).ranking.size == 0


def test_scores_that_are_not_above_zero_move_up_together(empty_store: Store) -> None:
    """FTS5 refuses a NUL; the seed then ranks by importance alone, which may be 0."""
    texts = [("a\x00b", 0.0), ("x a\x00b", 0.8), ("other", 1.0)]
    records = renumber([memory(text, importance=weight) for text, weight in texts])
    reader = SnapshotReader.open(empty_store.candidate(records))
    leg = rank_fts5(reader, "a\x00b", None, 9)
    assert leg.ranking.tolist() == [1, 0]
    assert leg.scores_at(at(1, 0, 2)).tolist() == pytest.approx([0.8 + LEAST_SCORE, LEAST_SCORE, 0])


@pytest.mark.parametrize("query", ODD_QUERIES)
@pytest.mark.parametrize("depth", [0, 1, 2**70])
def test_odd_queries_and_depths_do_not_raise(
    reader: SnapshotReader, query: str, depth: int
) -> None:
    leg = rank_fts5(reader, query, None, depth)
    assert leg.ranking.dtype == np.int64
    assert leg.ranking.size <= depth
    assert np.isfinite(leg.scores_at(leg.ranking)).all()


def test_threads_share_one_index(reader: SnapshotReader) -> None:
    queries = [f"{a} {b}" for a in WORDS for b in WORDS]
    alone = [rank_fts5(reader, query, None, 10).ranking.tolist() for query in queries]
    fresh = SnapshotReader(reader.directory, reader.manifest)
    with ThreadPoolExecutor(8) as pool:
        legs = [pool.submit(rank_fts5, fresh, query, None, 10) for query in queries]
        assert [leg.result().ranking.tolist() for leg in legs] == alone


def test_two_snapshots_have_two_indexes_that_go_with_their_readers(
    reader: SnapshotReader, empty_store: Store
) -> None:
    other = SnapshotReader.open(empty_store.candidate(household()))
    assert rank_fts5(reader, "feline", None, 9).ranking.size == 0
    assert rank_fts5(other, "feline", None, 9).ranking.tolist() == [1]
    gone = weakref.ref(other)
    other.close()
    del other
    gc.collect()
    assert gone() is None, "the index must not keep its reader alive"


def test_the_shape_of_what_is_asked_is_kept(reader: SnapshotReader) -> None:
    leg = rank_fts5(reader, "boat", None, 3)
    square = leg.ranking[:1].reshape(1, 1)
    assert leg.scores_at(square).shape == (1, 1)
