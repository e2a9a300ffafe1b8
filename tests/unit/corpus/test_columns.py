"""Columns of a table without records, and what a damaged one says."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from noctuary.core.errors import StoreError
from noctuary.sources.corpus import count_rows, iter_batches, read_column

SECRET = "canary-in-the-table"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "t.parquet"
    rows = pa.table({"a": list(range(10)), "b": [f"{SECRET}-{n}" for n in range(10)]})
    pq.write_table(rows, path, row_group_size=4)
    return path


@pytest.mark.parametrize("rows", [1, 3, 4, 100])
def test_batches_hold_the_named_columns_in_the_named_order(table: Path, rows: int) -> None:
    batches = list(iter_batches(table, ["b", "a"], rows))
    assert all(batch.schema.names == ["b", "a"] for batch in batches)
    assert max(batch.num_rows for batch in batches) <= rows
    assert [n for batch in batches for n in batch.column("a").to_pylist()] == list(range(10))


def test_a_whole_column_and_the_number_of_rows(table: Path, tmp_path: Path) -> None:
    assert read_column(table, "a").to_pylist() == list(range(10))
    assert count_rows(table) == 10
    empty = tmp_path / "empty.parquet"
    pq.write_table(pa.table({"a": pa.array([], pa.int64())}), empty)
    assert len(read_column(empty, "a")) == count_rows(empty) == 0


def test_a_column_that_is_not_there_is_an_error(table: Path) -> None:
    with pytest.raises(StoreError, match="nightly job"):
        list(iter_batches(table, ["a", "c"]))


@pytest.mark.parametrize("damage", ["gone", "cut", "overwritten"])
def test_a_damaged_table_is_named_and_not_quoted(table: Path, damage: str) -> None:
    whole = table.read_bytes()
    if damage == "gone":
        table.unlink()
    elif damage == "cut":
        table.write_bytes(whole[: len(whole) // 2])
    else:
        table.write_bytes(SECRET.encode() * 40)
    for read in (
        lambda: list(iter_batches(table, ["b"])),
        lambda: read_column(table, "b"),
        lambda: count_rows(table),
    ):
        with pytest.raises(StoreError) as error:
            read()
        assert str(table) in str(error.value)
        assert SECRET not in str(error.value)
        assert error.value.__cause__ is None
