from __future__ import annotations

import numpy as np
import pytest

from noctuary.recall.engine import Recaller
from noctuary.recall.phases import keyword_coverage
from noctuary.recall.reader import SnapshotReader
from noctuary.text.tokens import tokenize
from tests.support.store import memory, new_store, renumber

MEMORIES = [
    "The billing API fails on refunds",
    "Refunds are paid on Fridays",
    "周末去杭州西湖散步",
    "Встреча с врачом в четверг",
    "",
]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> SnapshotReader:
    store = new_store(tmp_path_factory.mktemp("coverage"))
    store.publish(renumber([memory(text, category="") for text in MEMORIES]))
    return Recaller.open(store.root).reader


def coverage_of(reader: SnapshotReader, query: str, positions: list[int]) -> list[float]:
    return keyword_coverage(reader, tokenize(query), np.array(positions, dtype=np.int64)).tolist()


def test_it_is_the_share_of_the_querys_content_words(reader: SnapshotReader) -> None:
    assert coverage_of(reader, "why do the refunds of billing fail", [0, 1, 2, 4]) == pytest.approx(
        [1.0, 1 / 3, 0.0, 0.0]
    )


def test_the_order_asked_is_the_order_answered(reader: SnapshotReader) -> None:
    assert coverage_of(reader, "refund Friday", [1, 4, 0]) == [1.0, 0.0, 0.5]


@pytest.mark.parametrize(("query", "held_by"), [("西湖", 2), ("врачом", 3)])
def test_queries_in_other_scripts_have_keywords(
    reader: SnapshotReader, query: str, held_by: int
) -> None:
    expected = [1.0 if position == held_by else 0.0 for position in range(5)]
    assert coverage_of(reader, query, list(range(5))) == expected


@pytest.mark.parametrize("query", ["", "?!", "zzzz"])
def test_a_query_without_known_words_is_covered_by_nobody(
    reader: SnapshotReader, query: str
) -> None:
    assert coverage_of(reader, query, [0, 1]) == [0.0, 0.0]


def test_repeats_count_once(reader: SnapshotReader) -> None:
    assert coverage_of(reader, "refunds refunds refunds Friday", [0]) == [0.5]
