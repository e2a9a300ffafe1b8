from __future__ import annotations

import numpy as np
import pytest

from noctuary.core.errors import EncoderError
from noctuary.embed.fingerprint import EncoderUnsupportedError, require_unit_rows


def test_unit_rows_pass() -> None:
    require_unit_rows(np.eye(3, dtype=np.float32), [4, 5, 6])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.0, 0.9, 1.1])
def test_a_bad_row_is_named_by_its_position(value: float) -> None:
    vectors = np.eye(3, dtype=np.float32)
    vectors[1, 1] = value
    with pytest.raises(EncoderError, match="for text 5; expected"):
        require_unit_rows(vectors, [4, 5, 6])


def test_no_rows_pass() -> None:
    require_unit_rows(np.empty((0, 3), dtype=np.float32), [])


def test_unsupported_is_an_encoder_error() -> None:
    assert issubclass(EncoderUnsupportedError, EncoderError)
