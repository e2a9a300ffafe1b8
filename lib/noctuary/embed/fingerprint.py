"""The identity by which two vectors may be compared, and what is checked of every vector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_type_hints

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import EncoderError, FingerprintMismatchError
from noctuary.core.files import hash_json

DIGEST_CHARS = 16  # hex digits: 64 bits tell the models of one store apart and stay readable
HOSTED_POOLING = "hosted"  # a provider makes the vectors and does not say how it pools
Purpose = Literal["document", "query"]  # what a text is encoded as
UNIT_TOLERANCE = 1e-4  # of a returned row's length; float32 rounding is 1000 times smaller


class EncoderFingerprint(NamedTuple):
    """Everything that decides which vector a text gets, up to rounding."""

    model: str  # as configured; of a local directory its name
    weights_sha256: str  # as published; of a hosted model, of provider, name and dimension
    dimension: int
    pooling: str  # for example "mean", or HOSTED_POOLING
    normalized: bool
    query_prefix: str
    document_prefix: str
    max_tokens: int  # of a text that count, the two control tokens included

    @property
    def digest(self) -> str:
        """Short name of this fingerprint: the first hex digits of the hash of its JSON."""
        return hash_json(self.to_json())[:DIGEST_CHARS]

    @property
    def is_hosted(self) -> bool:
        """Whether a provider makes the vectors, over the network."""
        return self.pooling == HOSTED_POOLING

    def prefix_of(self, purpose: Purpose) -> str:
        """Return what the model wants in front of a text."""
        return self.query_prefix if purpose == "query" else self.document_prefix

    def to_json(self) -> dict[str, str | int | bool]:
        """Return the fields as a JSON object."""
        return self._asdict()

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> EncoderFingerprint:
        """Read what `to_json` wrote; EncoderError for another set of fields or another type."""
        if set(value) != set(_TYPES):
            found = ", ".join(sorted(value)) or "nothing"
            raise EncoderError(
                f"encoder fingerprint has the fields {found}; expected "
                f"{', '.join(sorted(_TYPES))}. Rebuild the vectors with this version."
            )
        for name, expected in _TYPES.items():
            if type(value[name]) is not expected:  # exactly: True is no dimension
                raise EncoderError(
                    f"encoder fingerprint field {name} is {value[name]!r}; expected "
                    f"{expected.__name__}. Rebuild the vectors with this version."
                )
        return cls(**value)


_TYPES = get_type_hints(EncoderFingerprint)


def require_same(expected: EncoderFingerprint, found: EncoderFingerprint) -> None:
    """Refuse to mix two encoders: FingerprintMismatchError names every field that differs."""
    if expected == found:
        return
    left, right = expected.to_json(), found.to_json()
    differing = [
        f"{name}: expected {left[name]!r}, found {right[name]!r}"
        for name in left
        if left[name] != right[name]
    ]
    raise FingerprintMismatchError(
        f"encoder {found.digest} is not the expected {expected.digest} ({'; '.join(differing)}). "
        "Configure the expected model, or run a full night to re-embed with the new one."
    )


class EncoderUnsupportedError(EncoderError):
    """The model works, but not with this implementation; the caller falls back and warns."""


def require_unit_rows(vectors: NDArray[np.float32], positions: Sequence[int]) -> None:
    """Check that rows, of the texts at these positions, are finite and of unit length."""
    squared = np.einsum("ij,ij->i", vectors, vectors)
    # NaN and infinity fail this comparison too, so one pass checks both.
    bad = np.flatnonzero(~(np.abs(squared - 1.0) <= 2 * UNIT_TOLERANCE))
    if bad.size:
        row = int(bad[0])
        raise EncoderError(
            f"the encoder returned a vector of squared length {float(squared[row]):g} for text "
            f"{positions[row]}; expected finite numbers of length 1. The model's weights are "
            "damaged or it cannot represent this text: reinstall the model or choose another."
        )
