from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from noctuary.graph.duplicates import MemoryColumns, NearDuplicates, NearPair, find_near_duplicates
from tests.unit.graph.supersession.conftest import Note, Vectors, at_angles
from tests.unit.graph.supersession.test_near import crowd, deploy


def run(notes: list[Note], vectors: Vectors, known: NearDuplicates | None = None) -> NearDuplicates:
    memo = None if known is None else json.loads(json.dumps(known.memo))
    records = [n.record(p) for p, n in enumerate(notes)]
    return find_near_duplicates(MemoryColumns.read(records), vectors, memo)


def notes_over(rows: int) -> list[Note]:
    return [deploy(p % 90, memory_id=f"id{p}", wing=f"w{p % 3}") for p in range(rows)]


def test_an_unchanged_store_compares_nothing() -> None:
    notes, vectors = notes_over(300), crowd(300, 16, 4)
    first = run(notes, vectors)
    again = run(notes, vectors, first)
    assert first.asked > 0
    assert again.asked == 0
    assert (again.pairs, again.memo) == (first.pairs, {k: tuple(v) for k, v in first.memo.items()})


def test_one_changed_memory_is_compared_with_its_group_alone() -> None:
    notes, vectors = notes_over(300), crowd(300, 16, 4)
    first = run(notes, vectors)
    vectors[150] = vectors[0]
    changed = run(notes, vectors, first)
    fresh = run(notes, vectors)
    assert (changed.pairs, changed.memo) == (fresh.pairs, fresh.memo)
    # Its group of 100 in both directions, and whoever had it for a successor.
    assert 0 < changed.asked < 1_000 < fresh.asked


def test_changes_by_cells_give_what_a_rebuild_gives() -> None:
    vectors = crowd(900, 16, 6)
    records = [n.record(p) for p, n in enumerate(notes_over(900))]
    first = find_near_duplicates(MemoryColumns.read(records), vectors, exact_pairs=0)
    vectors[100:110] = vectors[500:510]
    changed = find_near_duplicates(
        MemoryColumns.read(records[:890]), vectors, first.memo, exact_pairs=0
    )
    rebuilt = find_near_duplicates(MemoryColumns.read(records[:890]), vectors, exact_pairs=0)
    assert (changed.pairs, changed.memo) == (rebuilt.pairs, rebuilt.memo)
    assert changed.pairs != first.pairs
    assert changed.asked < rebuilt.asked / 10


def test_a_deleted_successor_gives_way_to_the_next_newest() -> None:
    vectors = at_angles(0.95, 0.95)
    first = run([deploy(0), deploy(20), deploy(40)], vectors)
    assert [p[:2] for p in first.pairs] == [(0, 2), (1, 2)]
    second = run([deploy(0), deploy(20)], vectors[:2], first)
    assert [p[:2] for p in second.pairs] == [(0, 1)]


def test_positions_may_shift() -> None:
    vectors = at_angles(0.95, 0.2)
    notes = [deploy(0, memory_id="a"), deploy(20, memory_id="b"), deploy(40, memory_id="c")]
    first = run(notes, vectors)
    second = run([notes[2], *notes[:2]], vectors[[2, 0, 1]], first)
    assert [p[:2] for p in first.pairs] == [(0, 1)]
    assert second.pairs == (NearPair(1, 2, first.pairs[0].similarity),)
    assert second.asked == 0


def test_a_group_that_outgrows_exact_comparison_is_looked_at_as_a_whole() -> None:
    notes, vectors = notes_over(300), crowd(300, 16, 4)
    records = [n.record(p) for p, n in enumerate(notes)]
    exact = find_near_duplicates(MemoryColumns.read(records), vectors)
    by_cells = find_near_duplicates(
        MemoryColumns.read(records), vectors, exact.memo, exact_pairs=100
    )
    assert by_cells == find_near_duplicates(MemoryColumns.read(records), vectors, exact_pairs=100)
    assert by_cells.asked == exact.asked
    assert not np.isin(list(by_cells.memo), list(exact.memo)).any()


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux tells")
def test_vectors_that_were_read_do_not_stay_mapped(tmp_path: Path) -> None:
    path, rows = tmp_path / "vectors.npy", 20_000
    np.save(path, np.zeros((rows, 384), dtype=np.float32))
    records = [deploy(0, memory_id=f"id{p}").record(p) for p in range(rows)]
    vectors = np.load(path, mmap_mode="r")
    assert len(find_near_duplicates(MemoryColumns.read(records), vectors).memo) == rows
    told = Path("/proc/self/smaps").read_text(encoding="utf-8")
    _, _, mine = told.partition(str(path))
    assert path.stat().st_size > 30_000_000
    assert 0 <= int(mine.partition("Rss:")[2].split()[0]) < 5_000
