"""The exact-match bonus: who counts as a literal hit, and what it changes in a real recall."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.recall.engine import Recaller
from noctuary.recall.legs import add_exact_match, find_exact_matches
from noctuary.recall.profile import RetrievalProfile
from tests.support.store import Store, memory, renumber

RRF = RetrievalProfile(fusion="rrf", graph_weight=0.0, importance_prior=0.0)


@pytest.mark.parametrize(
    ("query", "holders"),
    [
        ("cat eats", [1, 3]),
        ("eats cat eats", [1, 3]),
        ("cat eats fish", [3]),
        ("cat", []),
        ("cat cat", []),
        ("cat unheard", []),
        ("", []),
    ],
)
def test_an_exact_match_holds_every_distinct_token(
    dense_store: Store, query: str, holders: list[int]
) -> None:
    texts = ["cat", "cat eats", "bird", "fish cat eats"]
    dense_store.publish(renumber([memory(text) for text in texts]))
    reader = Recaller.open(dense_store.root).reader
    found = find_exact_matches(reader, query, np.arange(4)[::-1])
    assert np.flatnonzero(found[::-1]).tolist() == holders


unit = st.floats(0, 1)
rows = st.lists(st.tuples(unit, st.booleans()), min_size=1, max_size=20)


@given(rows, st.floats(0, 100))
def test_the_bonus_stays_in_range_and_never_lowers_an_exact_match_below_its_peers(
    table: list[tuple[float, bool]], bonus: float
) -> None:
    base = np.array([score for score, _ in table])
    exact = np.array([held for _, held in table])
    lifted = add_exact_match(base, exact, bonus)
    assert ((lifted >= 0) & (lifted <= 1 + 1e-12)).all()
    for i, j in ((i, j) for i in range(len(table)) for j in range(len(table))):
        if exact[i] and not exact[j] and base[i] >= base[j]:
            assert lifted[i] >= lifted[j]


def test_without_a_bonus_or_an_exact_match_the_scores_are_the_same_object() -> None:
    base = np.array([0.5, 0.25])
    assert add_exact_match(base, np.array([True, False]), 0.0) is base
    assert add_exact_match(base, np.array([False, False]), 0.5) is base


def test_the_bonus_repairs_the_dip_of_rank_fusion(dense_store: Store) -> None:
    """The literal hit is first in one leg only; rank fusion puts what both legs half-like first."""
    dense_store.publish(
        renumber(
            [
                memory("The boiler valve code is 4417 in the winter cupboard of the doctor."),
                memory("The boiler and the valve need winter care."),
                memory("The boiler is loud."),
                memory("A valve for the boiler, before winter."),
            ]
        )
    )
    recaller = Recaller.open(dense_store.root)
    query = "boiler valve code 4417"
    plain = recaller.recall(query, 4, profile=RRF)
    lifted = recaller.recall(query, 4, profile=RRF.replaced(exact_match_bonus=1.0))
    assert lifted.memories[0].id == 101
    gains = {m.id: m.relevance for m in lifted.memories}
    before = {m.id: m.relevance for m in plain.memories}
    assert gains[101] == pytest.approx((before[101] + 1.0) / 2.0)
    assert all(gains[i] == pytest.approx(before[i] / 2.0) for i in gains if i != 101)
    assert "exact" in lifted.phase_timing_ms
    assert "exact" not in plain.phase_timing_ms
