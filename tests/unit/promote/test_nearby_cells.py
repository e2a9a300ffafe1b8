"""Cells of turns and memories: probing all of them is comparing everything."""

from __future__ import annotations

import numpy as np
import pytest

from noctuary.curate import neighbours as nearby_cells
from noctuary.curate import promotions as walk
from noctuary.curate.neighbours import (
    Best,
    Cells,
    NearestRows,
    fit_cells,
    nearest_by_cells,
    needs_cells,
)
from noctuary.curate.signals import Signals
from tests.support.promotions import unit_rows

FACT = Signals(0.0, 0.3, 0.0, 0.0, 0.0, ("fact",))
ROWS = unit_rows(240, 8, seed=3, spread=0.9)
TURNS, MEMORIES = np.arange(0, 240, 2), np.arange(1, 240, 2)


@pytest.fixture
def small_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells of ten rows, and blocks that end inside of them."""
    monkeypatch.setattr(nearby_cells, "ROWS_PER_CELL", 10)
    monkeypatch.setattr(nearby_cells, "CANDIDATE_ROWS", 4)
    monkeypatch.setattr(nearby_cells, "_QUERY_ROWS", 3)
    monkeypatch.setattr(nearby_cells, "_ROWS_AT_ONCE", 7)


def test_pairs_decide_whether_everything_is_compared() -> None:
    assert not needs_cells(1 << 15, 1 << 14)
    assert needs_cells(1 << 15, (1 << 14) + 1)
    assert not needs_cells(0, 1 << 40)


@pytest.mark.usefixtures("small_cells")
def test_probing_every_cell_finds_what_comparing_everything_finds() -> None:
    cells = fit_cells(TURNS, MEMORIES, ROWS)
    assert len(cells.centroids) == 12 == cells.probes.shape[1]
    best = nearest_by_cells(TURNS, cells, MEMORIES, ROWS, Best(len(TURNS), 5))
    products = ROWS[TURNS] @ ROWS[MEMORIES].T
    expected = MEMORIES[np.argsort(-products, axis=1)[:, :5]]
    assert np.array_equal(np.sort(best.positions), np.sort(expected))
    assert np.allclose(best.cosines, -np.sort(-products, axis=1)[:, :5])


@pytest.mark.usefixtures("small_cells")
def test_a_turn_is_compared_with_the_turns_before_it_only() -> None:
    cells = fit_cells(TURNS, TURNS, ROWS)
    best = nearest_by_cells(TURNS, cells, TURNS, ROWS, Best(len(TURNS), 3), earlier_only=True)
    for row, turn in enumerate(TURNS.tolist()):
        before = TURNS[:row]
        nearest = before[np.argsort(-(ROWS[before] @ ROWS[turn]))[:3]]
        assert set(best.positions[row].tolist()) - {-1} == set(nearest.tolist())


@pytest.mark.usefixtures("small_cells")
def test_probes_are_the_nearest_cells_nearest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearby_cells, "PROBES", 4)
    cells = fit_cells(TURNS, MEMORIES, ROWS)
    products = ROWS[TURNS] @ cells.centroids.T
    assert np.array_equal(cells.probes, np.argsort(-products, axis=1)[:, :4])
    assert np.array_equal(cells.narrowed(2).probes, cells.probes[:, :2])
    assert np.array_equal(cells.of_turns(slice(5, 9)).probes, cells.probes[5:9])


def test_a_row_that_no_probed_cell_holds_is_missed() -> None:
    """The price, and that cells are looked at at all."""
    vectors = np.eye(4, dtype=np.float32)
    cells = Cells(vectors[:2].copy(), np.zeros((1, 1), dtype=np.int32))
    best = nearest_by_cells(np.array([0]), cells, np.array([1, 0, 2]), vectors, Best(1, 3))
    assert sorted(best.positions[0].tolist()) == [-1, 0, 2]


def test_joined_searches_keep_the_best_of_both() -> None:
    rows, first, second = np.arange(5), np.arange(5, 30), np.arange(30, 60)
    whole, parts = (NearestRows(rows, ROWS, 4) for _ in range(2))
    whole.offer(np.arange(5, 60))
    parts.offer(first)
    others = Best(5, 4)
    others.take(rows, ROWS[rows] @ ROWS[second].T, second)
    parts.join(others.cosines, others.positions)
    assert list(parts) == list(whole)


@pytest.mark.usefixtures("small_cells")
@pytest.mark.parametrize("exact_rows", [0, 6, 50])
def test_a_walk_by_cells_judges_as_one_that_compares_everything(
    monkeypatch: pytest.MonkeyPatch, exact_rows: int
) -> None:
    """With all cells probed nothing is missed, whichever stretch, block or set a row is in."""
    signals = [FACT] * len(TURNS)
    monkeypatch.setattr(walk, "BLOCK_ROWS", 8)
    expected = list(walk.walk(TURNS, signals, MEMORIES[:20], ROWS, 0.30))
    reasons = {judged.reason for judged in expected}
    assert len(reasons) == 2, "some are let in and some are not"
    monkeypatch.setattr(nearby_cells, "EXACT_PAIRS", 0)
    monkeypatch.setattr(walk, "ALIKE_PROBES", 99)
    monkeypatch.setattr(walk, "STRETCH_ROWS", 24)
    monkeypatch.setattr(walk, "EXACT_ROWS", exact_rows)
    assert list(walk.walk(TURNS, signals, MEMORIES[:20], ROWS, 0.30)) == expected
