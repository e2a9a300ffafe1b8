from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.evaluate.generated import measure_overlap
from tests.support.store import memory

MEMORY = memory("The boilers were repaired", expanded_keywords="copper plumber")


def test_stems_count_and_stop_words_do_not() -> None:
    # boiler, repair, copper, plumber against repair, boiler, winter.
    found = measure_overlap("Was the boiler repairing in winter?", MEMORY)
    assert found.jaccard == pytest.approx(2 / 5)
    assert found.shared == pytest.approx(2 / 3)
    assert found.n_tokens == 3


def test_keywords_count() -> None:
    assert measure_overlap("copper", MEMORY).shared == 1.0


def test_the_share_of_its_own_words_bounds_a_short_query_about_a_long_memory() -> None:
    words = [f"w{i}x" for i in range(200)]
    found = measure_overlap(" ".join(words[:8]), memory(" ".join(words)))
    assert found.jaccard == pytest.approx(8 / 200)  # the Jaccard index would let it pass
    assert found.shared == 1.0


@given(st.text(max_size=60), st.text(max_size=60))
def test_both_measures_lie_between_0_and_1(query: str, content: str) -> None:
    found = measure_overlap(query, memory(content))
    assert 0.0 <= found.jaccard <= found.shared <= 1.0
    assert measure_overlap(query, memory(query)).jaccard == (1.0 if found.n_tokens else 0.0)
