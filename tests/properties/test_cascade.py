from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from noctuary.embed.funnel import PrefixTier, search
from noctuary.embed.rotation import (
    MIN_EXITS,
    TARGET_PRECISION,
    build_prefix_tier,
    choose_threshold,
    fit,
)
from tests.support.vectors import exact_positions, topical_vectors

DIM = 12
Floats = NDArray[np.float32]
SEEDS = st.integers(0, 2**16)
COSINES = st.floats(-1, 1, width=32)


def store(rows: int, seed: int, per_cell: int, short: int) -> tuple[Floats, PrefixTier, Floats]:
    """Vectors with some equal rows, their tier, and a query."""
    full = topical_vectors(rows, DIM, seed)
    full[rows // 2 :: 3] = full[0]
    tier = build_prefix_tier(full, fit(full, "e"), short, rows_per_cell=per_cell)
    return full, tier, topical_vectors(1, DIM, seed + 1)[0]


def mask_of(rows: int, seed: int, share: float) -> NDArray[np.bool_]:
    return np.random.default_rng(seed).random(rows) < share


@given(st.integers(1, 90), SEEDS, st.integers(1, 40), st.integers(1, DIM), st.integers(0, 120),
       st.none() | st.floats(0, 1))  # fmt: skip
def test_with_every_row_on_the_shortlist_the_funnel_is_an_exact_search(
    rows: int, seed: int, per_cell: int, short: int, depth: int, share: float | None
) -> None:
    full, tier, query = store(rows, seed, per_cell, short)
    mask = None if share is None else mask_of(rows, seed, share)
    found = search(tier, full, query, depth, mask, shortlist=rows, probe_rows=rows)
    assert found.positions.tolist() == exact_positions(full, query, depth, mask)


@settings(deadline=None)
@given(SEEDS, st.integers(1, 60), st.floats(0.75, 1), st.integers(1, 9), st.integers(1, 3_000))
def test_results_are_allowed_distinct_ordered_cosines(
    seed: int, per_cell: int, share: float, depth: int, probe_rows: int
) -> None:
    """With more allowed rows than are scored exactly, so that the tier is in play."""
    rows = 3_000
    full, tier, query = store(rows, seed, per_cell * 10, 4)
    mask = mask_of(rows, seed, share)
    options: dict[str, Any] = {"shortlist": 40, "probe_rows": probe_rows, "probe_share": 0.0}
    for exit_at in (None, 0.5, -1.0):
        found = search(tier, full, query, depth, mask, exit_at=exit_at, **options)
        assert mask[found.positions].all()
        assert len(set(found.positions.tolist())) == len(found.positions) <= depth
        assert (found.cosines > 0).all()
        assert (found.cosines <= 1 + 1e-6).all()
        assert (np.diff(found.cosines) <= 0).all()
        assert exit_at != -1.0 or found.exited
        if not found.exited:
            exact = full[found.positions].astype(np.float64) @ query.astype(np.float64)
            np.testing.assert_allclose(found.cosines, exact, atol=1e-6)


@given(SEEDS, st.integers(1, 12), st.integers(1, 12))
def test_looking_at_more_never_loses_a_better_memory(seed: int, few: int, more: int) -> None:
    """The sum of the found cosines grows with the rows that are looked at."""
    full, tier, query = store(80, seed, 5, 4)
    sums = [
        float(search(tier, full, query, 1, shortlist=80, probe_rows=rows, probe_share=0.0)
              .cosines.sum())
        for rows in sorted((4 * few, 4 * few + 4 * more))
    ]  # fmt: skip
    assert sums[0] <= sums[1]


@given(st.integers(1, 200).flatmap(
    lambda n: st.tuples(arrays(np.float32, n, elements=COSINES), arrays(np.bool_, n))
))  # fmt: skip
def test_a_derived_threshold_keeps_its_promise(
    sample: tuple[Floats, NDArray[np.bool_]],
) -> None:
    best, right = sample
    found = choose_threshold(64, best, right)
    if found.exit_at is None:
        assert (found.precision, found.exits) == (None, 0.0)
        for at in np.unique(best):
            leaving = best >= at
            assert leaving.sum() < MIN_EXITS or right[leaving].mean() < TARGET_PRECISION
    else:
        leaving = best >= found.exit_at
        assert leaving.sum() >= MIN_EXITS
        assert right[leaving].mean() >= TARGET_PRECISION - 1e-12
