from __future__ import annotations

import numpy as np
import pytest

from noctuary.core.types import UNDATED_US
from noctuary.graph.successors import NO_SUCCESSOR, SupersessionIndex, SupersessionRow
from tests.support.supersession import heads_of


def row(older: int, newer: int, valid_to_us: int, confidence: int = 2) -> SupersessionRow:
    return SupersessionRow(older, newer, newer, "explicit", confidence, None, 0, valid_to_us)


CHAIN = SupersessionIndex([row(4, 6, 300, 0), row(1, 4, 200), row(0, 1, 100)])
ALL = np.arange(8)


def heads(index: SupersessionIndex, as_of_us: int | None = None, **rules: object) -> list[int]:
    return heads_of(index, ALL, as_of_us, **rules).tolist()


def test_successors_are_direct() -> None:
    found = CHAIN.successors(np.array([4, 0, 7, 0]))
    assert found.tolist() == [6, 1, NO_SUCCESSOR, 1]


def test_heads_end_the_chain_and_stand_for_themselves() -> None:
    assert heads(CHAIN) == [6, 6, 2, 3, 6, 5, 6, 7]


@pytest.mark.parametrize(
    ("as_of_us", "head"), [(99, 0), (100, 1), (199, 1), (200, 4), (300, 6), (10**15, 6)]
)
def test_a_successor_that_came_later_does_not_count(as_of_us: int, head: int) -> None:
    assert heads(CHAIN, as_of_us)[0] == head


def test_a_successor_without_a_date_always_counts() -> None:
    index = SupersessionIndex([row(0, 1, UNDATED_US)])
    assert heads(index, UNDATED_US + 1)[0] == 1


def test_a_successor_that_the_reader_may_not_see_does_not_exist() -> None:
    visible = np.ones(8, dtype=np.bool_)
    visible[4] = False
    assert heads(CHAIN, visible=visible) == [1, 1, 2, 3, 6, 5, 6, 7]
    assert CHAIN.successors(np.array([1]), visible=visible).tolist() == [NO_SUCCESSOR]


def test_less_sure_links_can_be_left_out() -> None:
    assert heads(CHAIN, least_confidence=1) == [4, 4, 2, 3, 4, 5, 6, 7]


def test_an_empty_index_answers() -> None:
    empty = SupersessionIndex([])
    assert (len(empty), heads(empty)) == (0, ALL.tolist())
    assert empty.successors(ALL).tolist() == [NO_SUCCESSOR] * 8


def test_rows_are_found_by_their_older_memory() -> None:
    found = CHAIN.row_of(1)
    assert found is not None
    assert found.newer == 4
    assert CHAIN.row_of(6) is None
    assert len(CHAIN) == 3


def test_two_rows_of_one_memory_are_refused() -> None:
    with pytest.raises(ValueError, match="one each"):
        SupersessionIndex([row(0, 1, 1), row(0, 2, 2)])
