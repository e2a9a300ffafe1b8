from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from noctuary.graph.duplicates import (
    LEAST_RECALL,
    MemoryColumns,
    comparisons,
    find_near_duplicates,
    newest_near_duplicates,
    signatures,
    tables_for,
)
from noctuary.graph.successors import DAY_US, LEAST_SIMILARITY
from tests.unit.graph.supersession.conftest import Find, Note, Vectors, at_angles, pairs


def deploy(day: int | None, **fields: object) -> Note:
    return Note("Deploys run at nine", day, **fields)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("cosine", "days", "confidence"),
    [
        (0.95, 30, 2),
        (0.95, 29, 1),
        (0.87, 90, 1),
        (0.87, 13, 0),
        (0.87, 7, 0),
        (0.87, 6, None),
        (0.85, 90, None),
    ],
)
def test_grades_of_near_duplicates(
    find: Find, cosine: float, days: int, confidence: int | None
) -> None:
    result = find(deploy(0), deploy(days), vectors=at_angles(cosine))
    assert [s.confidence for s in result.found] == ([] if confidence is None else [confidence])
    for found in result.found:
        assert (found.older_position, found.newer_position) == (0, 1)
        assert (found.reason, found.concept_id, found.age_gap_days) == ("near_duplicate", "", days)
        assert found.similarity == pytest.approx(cosine, abs=1e-5)


def test_the_newest_of_several_is_the_successor(find: Find) -> None:
    result = find(deploy(0), deploy(10), deploy(90), vectors=at_angles(0.9, 0.9))
    assert pairs(result) == [(0, 2), (1, 2)]


def test_scope_dates_and_turns_keep_both(find: Find) -> None:
    same = at_angles(1.0)
    assert find(deploy(0, user="a"), deploy(30, user="b"), vectors=same).found == ()
    assert find(deploy(0, user="a"), deploy(30), vectors=same).found == ()
    assert find(deploy(0, wing="x"), deploy(30, wing="y"), vectors=same).found == ()
    assert find(deploy(None), deploy(30), vectors=same).found == ()
    assert find(deploy(0, is_turn=True), deploy(30, is_turn=True), vectors=same).found == ()
    assert find(deploy(0, is_turn=True), deploy(30), vectors=same).found == ()


def test_a_memory_without_a_wing_may_belong_to_any(find: Find) -> None:
    same = at_angles(1.0)
    assert pairs(find(deploy(0, wing="x"), deploy(30), vectors=same)) == [(0, 1)]
    assert pairs(find(deploy(0), deploy(30, wing="x"), vectors=same)) == [(0, 1)]


def test_a_row_without_a_vector_is_near_nothing(find: Find) -> None:
    assert find(deploy(0), deploy(30), vectors=np.zeros((2, 4), dtype=np.float32)).found == ()


def test_without_vectors_there_are_no_near_duplicates(find: Find) -> None:
    assert find(deploy(0), deploy(30)).found == ()
    with pytest.raises(ValueError, match="one row per position"):
        find(deploy(0), deploy(30), vectors=np.zeros((1, 4), dtype=np.float32))


def crowd(rows: int, dim: int, seed: int) -> Vectors:
    """Random directions, every third one beside an earlier one at a cosine from 0.8 to 1."""
    random = np.random.default_rng(seed)
    vectors = random.standard_normal((rows, dim))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    for row in range(2, rows, 3):
        axis = vectors[random.integers(0, row)]
        away = vectors[row] - (vectors[row] @ axis) * axis
        away /= np.linalg.norm(away)
        cosine = random.uniform(0.8, 1.0)
        vectors[row] = cosine * axis + np.sqrt(1 - cosine**2) * away
    return vectors.astype(np.float32)


def test_blocks_find_what_looking_at_every_pair_finds() -> None:
    vectors = crowd(1_500, 24, 1)
    days = np.random.default_rng(2).integers(0, 60, len(vectors))
    records = [deploy(int(day)).record(p) for p, day in enumerate(days)]
    created = days * DAY_US
    (whole,) = comparisons(MemoryColumns.read(records))
    found = {p.older: p.newer for p in newest_near_duplicates(whole, vectors, created)}
    expected: dict[int, int] = {}
    cosines = vectors.astype(np.float64) @ vectors.astype(np.float64).T
    for older in range(len(vectors)):
        near = np.flatnonzero((cosines[older] >= LEAST_SIMILARITY) & (days - days[older] >= 7))
        if len(near):
            expected[older] = max(near.tolist(), key=lambda p: (days[p], p))
    assert len(expected) > 200
    assert found == expected


def test_cells_find_nearly_what_exact_comparison_finds() -> None:
    vectors = crowd(6_000, 48, 3)
    records = [deploy(p % 90).record(p) for p in range(len(vectors))]
    created = np.array([r.created_at_us for r in records], dtype=np.int64)
    (exact,) = comparisons(MemoryColumns.read(records))
    (by_cells,) = comparisons(MemoryColumns.read(records), exact_pairs=0)
    assert (exact.bits, by_cells.bits) == (0, 5)
    truth = set(newest_near_duplicates(exact, vectors, created))
    found = set(newest_near_duplicates(by_cells, vectors, created))
    assert len(truth) > 500
    assert len(found & truth) >= LEAST_RECALL * len(truth)


def test_copies_of_one_text_lead_to_the_newest_without_cells_or_with_them(find: Find) -> None:
    records = [deploy(p).record(p) for p in range(600)]
    vectors = np.repeat(at_angles(1.0)[:1], 600, axis=0)
    created = np.array([r.created_at_us for r in records], dtype=np.int64)
    for exact_pairs in (0, 10**9):
        (whole,) = comparisons(MemoryColumns.read(records), exact_pairs=exact_pairs)
        found = newest_near_duplicates(whole, vectors, created)
        assert [p[:2] for p in found] == [(p, 599) for p in range(593)]


def test_a_cell_depends_on_its_row_alone() -> None:
    vectors = crowd(300, 16, 5)
    cells = signatures(vectors, 6)
    assert cells.shape == (300, tables_for(6))
    np.testing.assert_array_equal(signatures(vectors[::-7], 6), cells[::-7])
    assert len(np.unique(cells[:, 0])) > 30


def test_more_hyperplanes_need_more_sets_of_cells() -> None:
    counts = [tables_for(bits) for bits in range(1, 14)]
    assert counts == sorted(set(counts))


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux tells")
def test_vectors_that_were_read_do_not_stay_mapped(tmp_path: Path) -> None:
    path, rows = tmp_path / "vectors.npy", 20_000
    np.save(path, np.full((rows, 384), 384**-0.5, dtype=np.float32))
    records = [Note(f"Room {p // 2} is dark", p % 2 * 30).record(p) for p in range(rows)]
    vectors = np.load(path, mmap_mode="r")
    assert len(find_near_duplicates(MemoryColumns.read(records), vectors)) == rows // 2
    told = Path("/proc/self/smaps").read_text(encoding="utf-8")
    _, _, mine = told.partition(str(path))
    assert path.stat().st_size > 30_000_000
    assert 0 <= int(mine.partition("Rss:")[2].split()[0]) < 5_000
