"""What every encoder offers, and the checks on what it returns.

What belongs here: the protocol, its errors and vector validation. No model code; numpy and the
standard library only, because the read side imports this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from noctuary.encode.fingerprint import EncoderFingerprint
from noctuary.errors import EncoderError
from noctuary.progress import SILENT, Progress

UNIT_TOLERANCE = 1e-4
"""How far the length of a returned row may be from 1: float32 rounding is 1000 times smaller, a
model that forgot to normalise is far outside."""


class EncoderUnsupportedError(EncoderError):
    """The model works, but not with this implementation; the caller falls back and warns."""


class Encoder(Protocol):
    """Turns texts into unit vectors of one space."""

    @property
    def fingerprint(self) -> EncoderFingerprint:
        """The identity of the space."""
        ...

    def encode_documents(
        self, texts: Sequence[str], progress: Progress = SILENT
    ) -> NDArray[np.float32]:
        """Return one finite unit row per text, in the given order; shape (len(texts), dimension).

        Raises:
            EncoderError: A text got a vector that is not finite or not of unit length.
        """
        ...

    def encode_query(self, text: str) -> NDArray[np.float32]:
        """Return one finite unit vector; shape (dimension,).

        Raises:
            EncoderError: The vector is not finite or not of unit length.
        """
        ...


def require_unit_rows(
    vectors: NDArray[np.float32], positions: Sequence[int], what: str = "text"
) -> None:
    """Check vectors of shape (n, dimension) where row i belongs to text number positions[i].

    Raises:
        EncoderError: A row is not finite or not of unit length; the text names its position.
    """
    squared = np.einsum("ij,ij->i", vectors, vectors)
    # NaN and infinity fail this comparison too, so one pass checks both.
    bad = np.flatnonzero(~(np.abs(squared - 1.0) <= 2 * UNIT_TOLERANCE))
    if bad.size == 0:
        return
    row = int(bad[0])
    raise EncoderError(
        f"the encoder returned a vector of squared length {float(squared[row]):g} for {what} "
        f"{positions[row]}; expected finite numbers of length 1. The model's weights are damaged "
        "or it cannot represent this text: reinstall the model or choose another."
    )
