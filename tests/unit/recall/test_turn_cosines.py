from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from noctuary.recall.legs import mean_of_best_two, score_all, score_shortlist
from noctuary.snapshot.arrays import SummaryArrays

cosines = st.floats(-1.0, 1.0, width=32)
groups = st.lists(st.lists(cosines, min_size=1, max_size=6), max_size=6)


def flat(found: list[list[float]]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    values = np.array([v for group in found for v in group], dtype=np.float32)
    return values, np.array([len(group) for group in found], dtype=np.int64)


def summaries(*sources: list[int]) -> SummaryArrays:
    sizes = [len(s) for s in sources]
    return SummaryArrays(
        indptr=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        sources=np.array([p for s in sources for p in s], dtype=np.int32),
        confidences=np.ones(len(sources), dtype=np.float64),
        plans=np.full(len(sources), -1, dtype=np.int32),
    )


@given(groups)
def test_the_mean_of_the_best_two_is_the_naive_one_and_stays_in_range(
    found: list[list[float]],
) -> None:
    expected = [np.float32(np.mean(sorted(group)[-2:])) for group in found]
    scores = mean_of_best_two(*flat(found))
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    assert (np.abs(scores) <= 1.0).all()


def test_a_summary_scores_as_its_two_nearest_turns() -> None:
    arrays = summaries([0, 2, 3], [1, 4])
    scored = score_all(arrays, np.array([0.9, 0.2, 0.1, 0.5, 0.4], dtype=np.float32))
    np.testing.assert_allclose(scored, [0.7, 0.3], atol=1e-6)


def test_the_shortlist_scores_what_scoring_all_would_and_leaves_out_the_rest() -> None:
    rng = np.random.default_rng(3)
    vectors = rng.normal(size=(40, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    arrays = summaries(*[list(range(i, i + 4)) for i in range(0, 40, 4)])
    own, shown = rng.random(10).astype(np.float32), np.ones(10, dtype=np.bool_)
    shown[3] = False
    query = vectors[5]
    everyone = score_all(arrays, vectors @ query)
    found = score_shortlist(arrays, vectors, query, own, shown, depth=1)
    kept = np.flatnonzero(found)
    best = [i for i in np.argsort(-own) if shown[i]][:4]
    assert sorted(best) == kept.tolist()
    np.testing.assert_allclose(found[kept], everyone[kept], atol=1e-6)
    none = score_shortlist(arrays, vectors, query, own, np.zeros(10, dtype=np.bool_), depth=1)
    assert not none.any()
