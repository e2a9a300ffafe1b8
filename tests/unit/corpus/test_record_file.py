"""The memories of an export on disk, against the same memories as a list."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.core.errors import StoreError
from noctuary.core.types import MemoryRecord
from noctuary.sources.corpus import (
    MEMORIES_FILE,
    RecordFile,
    column_batches,
    iter_batches,
    open_table,
    read_records,
    record_row,
    take_columns,
)
from tests.support.store import memory, renumber

GROUP_ROWS = 7
ROWS = 31
COLUMNS = ("user", "position", "content", "is_turn")
SECRET = "Zanzibar Quartz"


def _records(rows: int) -> list[MemoryRecord]:
    made = (
        memory(f"{SECRET} {n}", user=(None, "ana")[n % 2], wing=(None, "w")[n % 3 == 0])
        for n in range(rows)
    )
    return renumber(list(made))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export in several row groups."""
    path = tmp_path_factory.mktemp("export") / MEMORIES_FILE
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("noctuary.sources.corpus.ROW_GROUP_ROWS", GROUP_ROWS)
        with open_table(path, MEMORIES_FILE) as write:
            for record in _records(ROWS):
                write(record_row(record))
    return path


def _table(batches: Iterator[object]) -> Any:
    return pa.Table.from_batches(list(batches))


def test_it_is_the_list_of_its_records(path: Path) -> None:
    file, records = RecordFile(path), read_records(path)
    assert len(file) == len(records) == ROWS
    assert list(file) == records == _records(ROWS)
    assert [file[at] for at in (30, 0, 7, 6, -1, -31)] == [records[a] for a in (30, 0, 7, 6, 30, 0)]
    assert file[5:16:3] == records[5:16:3]
    for outside in (ROWS, -ROWS - 1):
        with pytest.raises(IndexError):
            file[outside]


def test_columns_are_those_of_the_records(path: Path) -> None:
    file, records = RecordFile(path), read_records(path)
    ours = _table(column_batches(file, COLUMNS, 4))
    theirs = _table(column_batches(records, COLUMNS, 5))
    assert ours.to_pylist() == theirs.to_pylist()
    assert ours.column_names == list(COLUMNS)
    assert ours.schema == theirs.schema
    assert max(b.num_rows for b in iter_batches(file.path, COLUMNS, 4)) == 4


@given(st.sets(st.integers(0, ROWS - 1)))
def test_taken_rows_are_those_of_the_records(path: Path, chosen: set[int]) -> None:
    positions = np.array(sorted(chosen), dtype=np.int64)
    records = read_records(path)
    for source in (RecordFile(path), records):
        batches = list(take_columns(source, positions, COLUMNS))
        rows = [row for batch in batches for row in batch.to_pylist()]
        assert rows == [{c: getattr(records[p], c) for c in COLUMNS} for p in positions.tolist()]
        assert all(batch.num_rows for batch in batches)


def test_row_groups_without_a_wanted_row_are_not_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow.parquet as pq

    asked = list[int]()
    read = pq.ParquetFile.read_row_group

    def count(table: pq.ParquetFile, group: int, columns: list[str]) -> Any:
        asked.append(group)
        return read(table, group, columns=columns)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", count)
    positions = np.array([8, 9, 30], dtype=np.int64)
    assert sum(b.num_rows for b in RecordFile(path).take(positions, COLUMNS)) == 3
    assert asked == [1, 4]


def test_an_export_without_memories_has_none(tmp_path: Path) -> None:
    with open_table(tmp_path / MEMORIES_FILE, MEMORIES_FILE):
        pass
    file = RecordFile(tmp_path / MEMORIES_FILE)
    assert (len(file), list(file), file[:3]) == (0, [], [])
    assert list(file.take(np.empty(0, np.int64), COLUMNS)) == []
    with pytest.raises(IndexError):
        file[0]


def test_a_damaged_file_is_one_sentence_without_its_texts(path: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="run the nightly job again"):
        RecordFile(tmp_path / "none.parquet")
    damaged = tmp_path / MEMORIES_FILE
    damaged.write_bytes(path.read_bytes())
    file = RecordFile(damaged)
    damaged.write_bytes(SECRET.encode() * 50)
    for look in (lambda: RecordFile(damaged), lambda: file[3]):
        with pytest.raises(StoreError) as error:
            look()
        assert str(damaged) in str(error.value)
        assert "Zanzibar" not in str(error.value)
