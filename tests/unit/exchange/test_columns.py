"""Arrays and tables come back bit for bit, whatever is in them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from noctuary.cli import exchange as columns
from noctuary.cli.exchange import array_to_parquet, parquet_rows, parquet_to_array, table_to_parquet
from noctuary.core.files import write_array

DTYPES = st.sampled_from([np.float32, np.float64, np.int64, np.int32, np.int8, np.bool_])
FEW = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


def there_and_back(directory: Path, array: Any) -> bytes:
    write_array(directory / "a.npy", array)
    array_to_parquet(directory / "a.npy", directory / "a.parquet")
    parquet_to_array(directory / "a.parquet", directory / "b.npy")
    assert (directory / "a.npy").read_bytes() == (directory / "b.npy").read_bytes()
    return (directory / "a.parquet").read_bytes()


@FEW
@given(DTYPES.flatmap(lambda d: arrays.arrays(d, arrays.array_shapes(max_dims=2, min_side=0))))
def test_an_array_comes_back_as_the_same_file(tmp_path: Path, array: Any) -> None:
    if array.ndim == 2 and not array.shape[1]:
        return  # no width, no array of a snapshot
    assert there_and_back(tmp_path, array) == there_and_back(tmp_path, array)


def test_zeros_with_a_sign_and_odd_numbers_keep_their_bits(tmp_path: Path) -> None:
    bits = np.array([0x80000000, 0, 0x7FC00001, 0xFFC00002, 0x7F800000, 1], dtype=np.uint32)
    there_and_back(tmp_path, bits.view(np.float32))
    there_and_back(tmp_path, np.tile(bits.view(np.float32), (3, 1)))


def test_large_arrays_go_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_BATCH_BYTES", 64)
    there_and_back(tmp_path, np.arange(1000, dtype=np.int64))
    there_and_back(tmp_path, np.arange(1000, dtype=np.float32).reshape(50, 20))


def test_an_array_that_no_snapshot_has_is_refused(tmp_path: Path) -> None:
    write_array(tmp_path / "a.npy", np.zeros((2, 2, 2), dtype=np.float32))
    with pytest.raises(TypeError, match="3 dimensions"):
        array_to_parquet(tmp_path / "a.npy", tmp_path / "a.parquet")


texts = st.text(st.characters(codec="utf-8"), max_size=20)
rows = st.lists(
    st.tuples(
        st.integers(-(2**63), 2**63 - 1),
        texts | st.none(),
        st.floats(allow_nan=False) | st.none(),  # SQLite keeps a NaN as null
    ),
    max_size=20,
)


@FEW
@given(rows)
def test_a_table_comes_back_row_by_row(tmp_path: Path, rows: list[tuple[Any, ...]]) -> None:
    target = tmp_path / "t.parquet"
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute('CREATE TABLE t (a INTEGER, "user" TEXT, c REAL)')
        db.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
        table_to_parquet(db, "t", target)
        stored = db.execute("SELECT * FROM t").fetchall()
        read = [row for batch in parquet_rows(db, "t", target) for row in batch]
    assert read == stored
