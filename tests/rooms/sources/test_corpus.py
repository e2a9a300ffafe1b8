"""The memories of an export on disk, against the same memories as a list."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.core.errors import StoreError
from noctuary.core.types import MemoryRecord
from noctuary.sources.corpus import (
    MEMORIES_FILE,
    RecordFile,
    column_batches,
    count_rows,
    iter_batches,
    iter_records,
    open_table,
    read_column,
    read_records,
    record_row,
    take_columns,
)
from noctuary.sources.export import export_corpus
from noctuary.sources.open import open_source
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
    batches = list(iter_records(path.parent, 8))
    assert [len(batch) for batch in batches] == [8, 8, 8, 7]
    assert [record for batch in batches for record in batch] == records
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


def test_row_groups_not_wanted_are_not_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


Make = Callable[..., Path]


CANARY = "CANARY-9c1e"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "t.parquet"
    rows = pa.table({"a": list(range(10)), "b": [f"{CANARY}-{n}" for n in range(10)]})
    pq.write_table(rows, path, row_group_size=4)
    return path


@pytest.mark.parametrize("rows", [1, 3, 4, 100])
def test_batches_hold_the_named_columns_in_the_named_order(table: Path, rows: int) -> None:
    batches = list(iter_batches(table, ["b", "a"], rows))
    assert all(batch.schema.names == ["b", "a"] for batch in batches)
    assert max(batch.num_rows for batch in batches) <= rows
    numbers = [n for batch in batches for n in batch.column("a").to_pylist()]
    assert numbers == read_column(table, "a").to_pylist() == list(range(10))
    assert count_rows(table) == 10
    with pytest.raises(StoreError, match="nightly job"):
        list(iter_batches(table, ["a", "c"]))


@pytest.mark.parametrize("damage", ["gone", "cut", "overwritten"])
def test_a_damaged_table_is_named_and_not_quoted(table: Path, damage: str) -> None:
    whole = table.read_bytes()
    table.write_bytes(whole[: len(whole) // 2] if damage == "cut" else CANARY.encode() * 40)
    if damage == "gone":
        table.unlink()
    for read in (lambda: list(iter_batches(table, ["b"])), lambda: read_column(table, "b"),
                 lambda: count_rows(table)):  # fmt: skip
        with pytest.raises(StoreError) as error:
            read()
        assert str(table) in str(error.value)
        assert CANARY not in str(error.value)
        assert error.value.__cause__ is None


SHARED = Path(os.environ.get("NOCTUARY_SHARED", Path(__file__).parents[4] / "shared")) / "data"


def sets() -> list[str]:
    if not (SHARED / "MANIFEST.json").is_file():
        return []
    return sorted(json.loads((SHARED / "MANIFEST.json").read_text()))


@pytest.mark.slow
@pytest.mark.skipif(not sets(), reason=f"no evaluation data at {SHARED} (set NOCTUARY_SHARED)")
@pytest.mark.parametrize("name", sets())
def test_every_row_of_every_set_is_exported(name: str, tmp_path: Path) -> None:
    expected = json.loads((SHARED / "MANIFEST.json").read_text())[name]["corpus.jsonl.gz"]
    with open_source(SHARED / name) as source:
        report = export_corpus(source, tmp_path)
    assert report.identity.marker["sha256"] == expected["sha256"]
    assert report.exported == report.source_rows == expected["lines"]
    records = read_records(tmp_path)
    ids = [int(record.memory_id) for record in records]
    assert ids == sorted(ids)
    assert report.turns == (len(records) if name == "locomo" else 0)
    if name == "locomo":
        assert None not in pq.read_table(tmp_path / "turns.parquet").column("speaker").to_pylist()
