from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.recall.legs import quota_positions


def naive(codes: list[int], scores: list[float], quota: int, mask: list[bool]) -> list[int]:
    kept: list[int] = []
    for wing in set(codes):
        rows = [i for i, c in enumerate(codes) if c == wing and mask[i] and scores[i] > 0]
        kept += sorted(rows, key=lambda i: (-scores[i], i))[:quota]
    return sorted(kept)


@given(
    st.lists(
        st.tuples(
            st.integers(-1, 4),
            st.sampled_from([-1.0, 0.0, 0.25, 0.5, 0.5, 1.0, float("nan"), float("inf")]),
            st.booleans(),
        ),
        max_size=40,
    ),
    st.sampled_from([-1, 0, 1, 2, 3, 16, 17, 40]),
)
def test_equals_sorting_every_wing(rows: list[tuple[int, float, bool]], quota: int) -> None:
    codes, scores, mask = [r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows]
    found = quota_positions(
        np.array(codes, dtype=np.int32),
        np.array(scores, dtype=np.float32),
        quota,
        np.array(mask, dtype=np.bool_),
    )
    assert found.tolist() == naive(codes, scores, max(quota, 0), mask)


@pytest.mark.parametrize("quota", [1, 20])
def test_a_small_wing_is_never_forgotten(quota: int) -> None:
    codes = np.zeros(5_000, dtype=np.int32)
    codes[[17, 4_711]] = 1
    scores = np.linspace(1.0, 0.5, 5_000).astype(np.float32)
    found = quota_positions(codes, scores, quota)
    assert 17 in found
    assert (codes[found] == 0).sum() == quota


def test_no_wing_at_all_is_one_wing() -> None:
    codes = np.full(4, -1, dtype=np.int32)
    scores = np.array([0.1, 0.4, 0.3, 0.2], dtype=np.float32)
    assert quota_positions(codes, scores, 2).tolist() == [1, 2]


def test_scores_are_left_alone() -> None:
    scores = np.array([0.1, 0.4], dtype=np.float32)
    quota_positions(np.zeros(2, dtype=np.int32), scores, 2)
    assert scores.tolist() == np.array([0.1, 0.4], dtype=np.float32).tolist()
