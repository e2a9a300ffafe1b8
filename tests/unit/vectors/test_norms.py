from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.core.files import read_array, write_array
from noctuary.embed import rotation as norms
from noctuary.embed.rotation import count_bad_rows

LENGTHS = st.sampled_from([1.0, 0.9995, 1.0005, 0.99, 1.02, 0.0, np.nan, np.inf])


@given(lengths=st.lists(LENGTHS, max_size=20), block=st.integers(1, 8))
def test_rows_are_counted_as_one_look_at_all_of_them_would(
    lengths: list[float], block: int
) -> None:
    rows = np.zeros((len(lengths), 4), dtype=np.float32)
    rows[:, 2] = lengths
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(norms, "BLOCK_ROWS", block)
        assert count_bad_rows(rows, 1e-3) == sum(not abs(n - 1.0) <= 1e-3 for n in lengths)


def test_a_mapped_file_is_counted_too(tmp_path: Path) -> None:
    rows = np.eye(5, dtype=np.float32)
    rows[3] = np.nan
    write_array(tmp_path / "v.npy", rows)
    assert count_bad_rows(read_array(tmp_path / "v.npy"), 1e-3) == 1
