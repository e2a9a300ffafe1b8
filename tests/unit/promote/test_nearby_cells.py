"""Cells of turns and memories: probing all of them is comparing everything."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from noctuary.curate import promotions as walk
from noctuary.curate.promotions import Ints, Nearest
from noctuary.curate.signals import Signals
from tests.support.promotions import unit_rows

FACT = Signals(0.0, 0.3, 0.0, 0.0, 0.0, ("fact",))
ROWS = unit_rows(240, 8, seed=3, spread=0.9)
TURNS, MEMORIES = np.arange(0, 240, 2), np.arange(1, 240, 2)


@pytest.fixture
def small_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells of ten rows, always, and blocks that end inside of them."""
    for name, value in {
        "EXACT_PAIRS": 0, "ROWS_PER_CELL": 10, "CANDIDATE_ROWS": 4, "QUERY_ROWS": 3,
        "_ROWS_AT_ONCE": 7,
    }.items():  # fmt: skip
        monkeypatch.setattr(walk, name, value)


def nearest(candidates: Ints, k: int, *, probes: int, earlier_only: bool = False) -> list[set[int]]:
    found = Nearest(TURNS, ROWS, k)
    found.offer(candidates, earlier_only=earlier_only, probes=probes)
    return [{n.position for n in found.of(row)} for row in range(len(TURNS))]


def never(*_: object) -> Iterator[tuple[Ints, Ints]]:
    yield from ()


@pytest.mark.parametrize(("turns", "is_exact"), [(1 << 3, True), ((1 << 3) + 1, False)])
def test_pairs_decide_whether_everything_is_compared(
    monkeypatch: pytest.MonkeyPatch, turns: int, is_exact: bool
) -> None:
    monkeypatch.setattr(walk, "EXACT_PAIRS", 1 << 5)
    monkeypatch.setattr(walk, "_by_cell", never)
    found = Nearest(TURNS[:turns], ROWS, 2)
    found.offer(MEMORIES[:4])
    assert bool(found.of(0)) is is_exact


@pytest.mark.usefixtures("small_cells")
def test_probing_every_cell_finds_what_comparing_everything_finds() -> None:
    products = ROWS[TURNS] @ ROWS[MEMORIES].T
    expected = [set(row.tolist()) for row in MEMORIES[np.argsort(-products, axis=1)[:, :5]]]
    assert nearest(MEMORIES, 5, probes=99) == expected


@pytest.mark.usefixtures("small_cells")
def test_a_turn_is_compared_with_the_turns_before_it_only() -> None:
    found = nearest(TURNS, 3, probes=99, earlier_only=True)
    for row, turn in enumerate(TURNS.tolist()):
        before = TURNS[:row]
        assert found[row] == set(before[np.argsort(-(ROWS[before] @ ROWS[turn]))[:3]].tolist())


@pytest.mark.usefixtures("small_cells")
def test_few_probes_find_most_and_miss_some() -> None:
    """The price, and that cells are looked at at all: the nearest ones first."""
    whole = nearest(MEMORIES, 5, probes=99)
    found = [
        sum(len(a & b) for a, b in zip(whole, nearest(MEMORIES, 5, probes=p), strict=True))
        for p in (1, 4)
    ]
    assert len(TURNS) * 5 * 0.3 < found[0] < found[1] < len(TURNS) * 5


def test_what_is_offered_in_pieces_is_found_as_from_the_whole() -> None:
    whole, parts = (Nearest(TURNS, ROWS, 4) for _ in range(2))
    whole.offer(MEMORIES)
    parts.offer(MEMORIES[:30])
    parts.offer(MEMORIES[30:], np.arange(60))
    parts.offer(MEMORIES[30:], np.arange(60, 120))
    assert [parts.of(row) for row in range(120)] == [whole.of(row) for row in range(120)]


@pytest.mark.usefixtures("small_cells")
def test_a_walk_by_cells_judges_as_one_that_compares_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With all cells probed nothing is missed, whichever block or set a row is in."""
    signals = [FACT] * len(TURNS)
    monkeypatch.setattr(walk, "BLOCK_ROWS", 8)
    monkeypatch.setattr(walk, "ALIKE_PROBES", 99)
    found = list(walk.walk(TURNS, signals, MEMORIES[:20], ROWS, 0.30))
    monkeypatch.setattr(walk, "EXACT_PAIRS", 1 << 29)
    expected = list(walk.walk(TURNS, signals, MEMORIES[:20], ROWS, 0.30))
    assert len({judged.reason for judged in expected}) == 2, "some are let in and some are not"
    assert found == expected
