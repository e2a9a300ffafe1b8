from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.recall.legs import Leg, rank_dense, rank_lexical
from noctuary.recall.reader import SnapshotReader
from noctuary.snapshot.pack import build_candidate
from tests.support.store import Store, household, memory, pack_inputs, provenance, renumber

VECTORS = np.array([[1, 0, 0], [0.6, 0.8, 0], [0, 1, 0], [-1, 0, 0]], dtype=np.float32)
FINGERPRINT = {"model": "by hand", "dimension": 3}


@pytest.fixture
def reader(empty_store: Store) -> SnapshotReader:
    """Four memories whose vectors were written by hand; no encoder is needed to rank them."""
    records = renumber([memory(t) for t in ("boat", "boat boat house", "house", "tree")])
    inputs = replace(pack_inputs(records), vectors=VECTORS)
    known = replace(provenance(), encoder=FINGERPRINT, encoder_digest="by-hand")
    return SnapshotReader.open(build_candidate(empty_store.paths, inputs, known))


def scores_of(leg: Leg, count: int) -> list[float]:
    return leg.scores_at(np.arange(count, dtype=np.int64)).tolist()


def query(*values: float) -> NDArray[np.float32]:
    return np.array(values, dtype=np.float32)


def test_dense_scores_are_cosines_and_only_positive_ones_rank(reader: SnapshotReader) -> None:
    leg = rank_dense(reader, query(1, 0, 0), None, 10)
    assert scores_of(leg, 4) == pytest.approx([1.0, 0.6, 0.0, -1.0])
    assert leg.ranking.tolist() == [0, 1]
    assert leg.rank_of() == {0: 1, 1: 2}


def test_dense_depth_and_mask_come_before_the_ranks(reader: SnapshotReader) -> None:
    assert rank_dense(reader, query(0, 1, 0), None, 1).ranking.tolist() == [2]
    mask = np.array([True, True, False, True])
    assert rank_dense(reader, query(0, 1, 0), mask, 1).ranking.tolist() == [1]


def test_a_query_of_another_dimension_is_an_error(reader: SnapshotReader) -> None:
    with pytest.raises(ValueError, match="mismatch"):
        rank_dense(reader, query(1, 0), None, 10)


def test_a_snapshot_without_vectors_has_an_empty_dense_leg(empty_store: Store) -> None:
    bare = SnapshotReader.open(empty_store.candidate(household()))
    leg = rank_dense(bare, query(1, 0, 0), None, 10)
    assert leg.ranking.tolist() == []
    assert scores_of(leg, 14) == [0.0] * 14


def test_lexical_ranks_by_bm25_and_ties_by_position(reader: SnapshotReader) -> None:
    leg = rank_lexical(reader, "boat house", None, 10)
    assert leg.ranking.tolist()[0] == 1
    assert scores_of(leg, 4)[3] == 0.0
    assert sorted(leg.ranking.tolist()) == [0, 1, 2]


def test_lexical_depth_and_mask_come_before_the_ranks(reader: SnapshotReader) -> None:
    assert rank_lexical(reader, "boat house", None, 1).ranking.tolist() == [1]
    mask = np.array([True, False, True, True])
    assert rank_lexical(reader, "house", mask, 1).ranking.tolist() == [2]


def test_a_query_without_known_words_has_an_empty_lexical_leg(reader: SnapshotReader) -> None:
    leg = rank_lexical(reader, "unheard of", None, 10)
    assert leg.ranking.tolist() == []
    assert not any(scores_of(leg, 4))


def test_an_empty_leg_scores_everything_zero() -> None:
    leg = Leg.empty()
    assert scores_of(leg, 3) == [0.0, 0.0, 0.0]
    assert leg.rank_of() == {}


def test_words_that_hold_little_of_a_question_count_less(reader: SnapshotReader) -> None:
    # 'house' in two of four memories; nothing holds the other four words.
    query = "house of cedar birch maple willow"
    leg = rank_lexical(reader, query, None, 10, coverage=0.25)
    best = float(leg.scores_at(leg.ranking[:1])[0])
    idf = [math.log(1 + (4 - df + 0.5) / (df + 0.5)) for df in (2, 0, 0, 0, 0)]
    assert best / sum(idf) < 0.25
    assert leg.trust == pytest.approx((best / sum(idf) / 0.25) ** 2)
    assert rank_lexical(reader, "boat house", None, 10, coverage=0.25).trust == 1.0
    assert rank_lexical(reader, query, None, 10).trust == 1.0, "off"
    assert rank_lexical(reader, f"{query} 家", None, 10, coverage=0.25).trust == 1.0, "n-grams"
    assert rank_lexical(reader, "cedar", None, 10, coverage=0.25).trust == 1.0, "nothing found"
    # Only the rarest words of a long question are asked for.
    longer = f"{query} alder aspen hazel linden larch"
    idf_of_rarest = 6 * math.log(1 + 4.5 / 0.5)
    found = rank_lexical(reader, longer, None, 10, coverage=0.25).trust
    assert found == pytest.approx((best / idf_of_rarest / 0.25) ** 2)
