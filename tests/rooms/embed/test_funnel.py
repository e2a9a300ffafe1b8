from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.core.files import read_array, write_array
from noctuary.embed import funnel as cascade
from noctuary.embed.funnel import PrefixTier, cosines_at, search
from noctuary.embed.rotation import build_prefix_tier, fit, rotated_prefix
from tests.support.descriptors import mapped_kb
from tests.support.vectors import exact_positions, topical_vectors

ROWS, DIM, SHORT = 6_000, 96, 32
Floats = NDArray[np.float32]


@pytest.fixture(scope="module")
def full() -> Floats:
    return topical_vectors(ROWS, DIM)


@pytest.fixture(scope="module")
def tier(full: Floats) -> PrefixTier:
    return build_prefix_tier(full, fit(full, "e"), SHORT, rows_per_cell=100)


@pytest.fixture(scope="module")
def queries() -> Floats:
    return topical_vectors(30, DIM, seed=7)


def recall_at_10(tier: PrefixTier, full: Floats, queries: Floats, **options: Any) -> float:
    shared = 0
    for query in queries:
        found = search(tier, full, query, 10, **options)
        shared += len(set(found.positions.tolist()) & set(exact_positions(full, query, 10)))
    return shared / (10 * len(queries))


def test_the_shortlist_finds_the_true_neighbours(
    tier: PrefixTier, full: Floats, queries: Floats
) -> None:
    assert recall_at_10(tier, full, queries) >= 0.97


def test_fewer_cells_and_a_shorter_list_find_less(
    tier: PrefixTier, full: Floats, queries: Floats, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards the test above against a search that looks at everything anyway."""
    whole = recall_at_10(tier, full, queries, probe_share=1.0)
    few_cells = recall_at_10(tier, full, queries, probe_rows=1, probe_share=0.0, shortlist=40)
    monkeypatch.setattr(cascade, "SHORTLIST_PER_RESULT", 1)
    short_list = recall_at_10(tier, full, queries, probe_share=1.0, shortlist=10)
    assert few_cells < whole
    assert short_list < whole


def test_the_full_matrix_is_only_read_at_the_shortlist(
    tier: PrefixTier, full: Floats, queries: Floats
) -> None:
    class Watched(np.ndarray):
        rows_read: int = 0

        def __getitem__(self, key: Any) -> Any:
            assert isinstance(key, np.ndarray), "no slice, no whole matrix"
            Watched.rows_read += len(key)
            return np.asarray(self).__getitem__(key)

        def __matmul__(self, other: Any) -> Any:
            raise AssertionError("scans everything")

    search(tier, full.view(Watched), queries[0], 10, shortlist=50)
    assert Watched.rows_read == 50


def test_only_the_nearest_cells_of_the_tier_are_read(
    tier: PrefixTier, full: Floats, queries: Floats
) -> None:
    class Watched(np.ndarray):
        rows_read: int = 0

        def __getitem__(self, key: Any) -> Any:
            part = np.asarray(self)[key]
            Watched.rows_read += len(part)
            return part

    watched = PrefixTier(
        tier.vectors.view(Watched), tier.positions, tier.starts, tier.centroids, tier.rotation
    )
    search(watched, full, queries[0], 10, probe_rows=500, probe_share=0.0, shortlist=20)
    assert 500 <= Watched.rows_read < 1_500


def test_cosines_are_exact_and_the_same_in_any_company(
    tier: PrefixTier, full: Floats, queries: Floats
) -> None:
    nobody = np.zeros(ROWS, dtype=np.bool_)
    assert search(tier, full, queries[0], 0).positions.size == 0
    assert search(tier, full, queries[0], 10, nobody).positions.size == 0
    with pytest.raises(ValueError, match="mismatch"):
        search(tier, full, np.ones(DIM - 1, dtype=np.float32), 10)
    found = search(tier, full, queries[0], 10)
    assert not found.exited
    exact = full[found.positions].astype(np.float64) @ queries[0].astype(np.float64)
    np.testing.assert_allclose(found.cosines, exact, atol=1e-6)
    everything = cosines_at(full, np.arange(ROWS), queries[0])
    assert np.array_equal(everything[found.positions], found.cosines)
    alone = [cosines_at(full, found.positions[i : i + 1], queries[0])[0] for i in range(10)]
    assert np.array_equal(np.array(alone), found.cosines)


def test_an_early_exit_answers_with_the_tiers_own_cosines(
    tier: PrefixTier, full: Floats, queries: Floats
) -> None:
    query = queries[1]
    rotation = fit(full, "e")
    prefixes = rotated_prefix(full, rotation, SHORT) @ rotated_prefix(query, rotation, SHORT)
    best = float(prefixes.max())
    left = search(tier, full, query, 5, exit_at=best - 1e-4)
    assert left.exited
    np.testing.assert_allclose(left.cosines, np.sort(prefixes)[::-1][:5], atol=1e-5)
    stayed = search(tier, full, query, 5, exit_at=best + 1e-4)
    assert not stayed.exited
    assert np.array_equal(stayed.cosines, search(tier, full, query, 5).cosines)


def test_a_narrow_scope_is_scored_exactly_without_the_tier(full: Floats, queries: Floats) -> None:
    empty = np.empty((0, SHORT), dtype=np.float32)
    none = np.empty(0, dtype=np.int32)
    broken = PrefixTier(empty, none, np.zeros(1, dtype=np.int64), empty, empty)
    mask = np.zeros(ROWS, dtype=np.bool_)
    mask[[3, 4_000, 5_999, 17]] = True
    found = search(broken, full, queries[2], 10, mask)
    assert found.positions.tolist() == exact_positions(full, queries[2], 10, mask)


def test_a_scope_far_from_the_query_is_still_searched_to_its_end(
    tier: PrefixTier, full: Floats, queries: Floats
) -> None:
    """Cells are taken until enough allowed rows are seen, not enough rows of any kind."""
    query = queries[3]
    order = np.argsort(full @ query)
    mask = np.zeros(ROWS, dtype=np.bool_)
    mask[order[:5_000]] = True
    found = search(tier, full, query, 10, mask, probe_rows=2_500, probe_share=0.0)
    truth = exact_positions(full, query, 10, mask)
    assert len(found.positions) == len(truth) == 10
    assert len(set(found.positions.tolist()) & set(truth)) >= 9


def test_cells_without_a_row_are_passed_over(full: Floats, queries: Floats) -> None:
    """K-means may leave a cell empty, also the first and the last one."""
    made = build_prefix_tier(full, fit(full, "e"), SHORT, rows_per_cell=600)
    starts = np.concatenate(([0], made.starts[:4], made.starts[3:], [ROWS]))
    gaps = np.flatnonzero(np.diff(starts) == 0)
    assert gaps.tolist() == [0, 4, len(starts) - 2]
    centroids = np.insert(made.centroids, [0, 3, len(made.centroids)], queries[0][:SHORT], axis=0)
    tier = PrefixTier(made.vectors, made.positions, starts, centroids, made.rotation)
    mask = np.arange(ROWS) % 2 == 0
    for query in queries[:5]:
        found = search(tier, full, query, 10, mask, probe_rows=ROWS, shortlist=ROWS)
        assert found.positions.tolist() == exact_positions(full, query, 10, mask)


def test_a_search_leaves_no_page_of_the_full_matrix_mapped(
    tier: PrefixTier, full: Floats, queries: Floats, tmp_path: Path
) -> None:
    write_array(tmp_path / "full.npy", full)
    mapped = read_array(tmp_path / "full.npy")
    before = mapped_kb(tmp_path / "full.npy")
    assert float(np.abs(mapped).max()) > 0
    assert mapped_kb(tmp_path / "full.npy") > before
    found = search(tier, mapped, queries[0], 10)
    assert mapped_kb(tmp_path / "full.npy") == 0
    assert np.array_equal(found.cosines, search(tier, full, queries[0], 10).cosines)
    assert np.array_equal(mapped, full), "it can be read again"


def test_equal_vectors_come_by_position() -> None:
    full = np.tile(topical_vectors(3, 8), (60, 1))
    tier = build_prefix_tier(full, fit(full, "e"), 4, rows_per_cell=20)
    found = search(tier, full, full[1], 7)
    assert found.positions.tolist() == [1, 4, 7, 10, 13, 16, 19]


@pytest.mark.parametrize("field", ["vectors", "positions", "starts", "centroids", "rotation"])
def test_a_tier_whose_arrays_do_not_fit_is_told(tier: PrefixTier, full: Floats, field: str) -> None:
    names = ("vectors", "positions", "starts", "centroids", "rotation")
    arrays = {name: getattr(tier, name) for name in names}
    assert tier.is_aligned(*full.shape)
    assert not PrefixTier(**{**arrays, field: arrays[field][:-1]}).is_aligned(*full.shape)
    assert not tier.is_aligned(ROWS + 1, DIM)
