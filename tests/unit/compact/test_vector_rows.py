from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.compact.clusters import VectorRows
from noctuary.core.errors import StoreError
from noctuary.core.files import write_array

MATRIX = np.arange(40, dtype=np.float32).reshape(10, 4)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vectors") / "memories.npy"
    write_array(path, MATRIX)
    return path


@given(positions=st.lists(st.integers(0, 9), max_size=15))
def test_rows_are_those_of_the_mapped_array(path: Path, positions: list[int]) -> None:
    with VectorRows(path) as rows:
        taken = rows.take(positions)
    assert taken.dtype == np.float32
    assert taken.shape == (len(positions), 4)
    assert np.array_equal(taken, MATRIX[positions])


@pytest.mark.parametrize("position", [-1, 10])
def test_a_row_that_is_not_there_is_an_error(path: Path, position: int) -> None:
    with VectorRows(path) as rows, pytest.raises(IndexError, match="of a matrix of 10 rows"):
        rows.take([position])


def test_what_is_no_matrix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not a readable array"):
        VectorRows(tmp_path / "none.npy")
    write_array(tmp_path / "flat.npy", np.arange(4.0))
    with pytest.raises(StoreError, match="expected rows of vectors"):
        VectorRows(tmp_path / "flat.npy")
    (tmp_path / "torn.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(StoreError, match="run the night again"):
        VectorRows(tmp_path / "torn.npy")


def test_a_file_that_is_cut_after_it_was_opened_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "memories.npy"
    write_array(path, MATRIX)
    with VectorRows(path) as rows:
        with path.open("r+b") as handle:
            handle.truncate(path.stat().st_size - 8)
        with pytest.raises(StoreError, match="cut short"):
            rows.take([9])


def test_a_slice_is_that_of_the_matrix(tmp_path: Path) -> None:
    matrix = np.arange(60, dtype=np.float32).reshape(20, 3)
    np.save(tmp_path / "m.npy", matrix)
    with VectorRows(tmp_path / "m.npy") as rows:
        assert len(rows) == 20
        for part in (slice(0, 7), slice(18, 40), slice(9, 9), slice(12, 3), slice(1, 20, 4)):
            found = rows[part]
            assert found.dtype == matrix.dtype
            assert np.array_equal(found, matrix[part])
