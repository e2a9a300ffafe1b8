from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from noctuary.core.errors import StoreError
from noctuary.sources import corpus as tables
from noctuary.sources.corpus import count_rows, iter_pages, read_records
from noctuary.sources.export import export_corpus
from noctuary.sources.source import open_source

COUNT = 23


@pytest.fixture
def memories(
    make_store: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """23 memories in row groups of 10: pages and groups do not end together."""
    monkeypatch.setattr(tables, "ROW_GROUP_ROWS", 10)
    dates = [None if n == 5 else f"2025-03-{n + 1:02}T12:00:00Z" for n in range(COUNT)]
    with open_source(make_store([{"content": f"n{d}", "created_at": d} for d in dates])) as source:
        export_corpus(source, tmp_path / "out")
    return tmp_path / "out" / tables.MEMORIES_FILE


@pytest.mark.parametrize("size", [1, 4, 10, 11, COUNT, 100])
def test_pages_hold_every_memory_once_in_order(memories: Path, size: int) -> None:
    pages = list(iter_pages(memories, size))
    sizes = [len(page.memory_ids) for page in pages]
    assert sizes[:-1] == [size] * (len(pages) - 1)
    assert [page.first for page in pages] == [i * size for i in range(len(pages))]
    found = [
        (m, at)
        for page in pages
        for m, at in zip(page.memory_ids, page.created_at_us.tolist(), strict=True)
    ]
    assert found == [(r.memory_id, r.created_at_us) for r in read_records(memories)]
    assert count_rows(memories) == COUNT == sum(sizes)


@pytest.mark.parametrize(
    ("first", "stop"),
    [(0, 7), (3, 21), (10, 20), (12, 13), (9, 11), (20, None), (23, None), (5, 5)],
)
def test_a_range_is_read_to_the_row(memories: Path, first: int, stop: int | None) -> None:
    ids = [r.memory_id for r in read_records(memories)][first:stop]
    pages = list(iter_pages(memories, 4, first=first, stop=stop))
    assert [m for page in pages for m in page.memory_ids] == ids
    assert [page.first for page in pages] == list(range(first, first + len(ids), 4))


def test_an_empty_corpus_has_no_page(make_store: Callable[..., Path], tmp_path: Path) -> None:
    with open_source(make_store()) as source:
        export_corpus(source, tmp_path)
    memories = tmp_path / tables.MEMORIES_FILE
    assert (list(iter_pages(memories, 5)), count_rows(memories)) == ([], 0)


def test_no_table_and_another_table_are_explained(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="run the nightly job"):
        list(iter_pages(tmp_path / "absent.parquet", 5))
    other = tmp_path / "other.parquet"
    other.write_bytes(b"PAR1 secret PAR1")
    for read in (lambda: list(iter_pages(other, 5)), lambda: count_rows(other)):
        with pytest.raises(StoreError, match="run the nightly job again") as caught:
            read()
        assert "secret" not in str(caught.value)
