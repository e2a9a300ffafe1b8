"""What every encoder offers, and the identity by which two vectors may be compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import EncoderError, FingerprintMismatchError
from noctuary.core.files import hash_json
from noctuary.core.types import SILENT, Progress, dataclass

# The identity of an encoder: what must agree before two vectors may be compared.


DIGEST_CHARS = 16
"""Hex digits of a digest: 64 bits tell the handful of models of one store apart and stay
readable."""

HOSTED_POOLING = "hosted"
"""In the place of a pooling: a provider makes the vectors and does not say how."""

_TYPES: Mapping[str, type] = {"str": str, "int": int, "bool": bool}


@dataclass(frozen=True, slots=True)
class EncoderFingerprint:
    """Everything that decides which vector a text gets, up to rounding.

    Attributes:
        model: Name of the model as configured; for a local directory, the directory's name.
        weights_sha256: SHA-256 of the weights as published (64 hex digits); of a hosted model,
            whose weights nobody sees, of provider, name and dimension.
        dimension: Length of a vector.
        pooling: How token vectors become one vector, for example "mean"; HOSTED_POOLING where a
            provider makes the vectors.
        normalized: True if vectors are scaled to unit length.
        query_prefix: Text put before a query, possibly empty.
        document_prefix: Text put before a document, possibly empty.
        max_tokens: Tokens of a text that count, the two control tokens included.
    """

    model: str
    weights_sha256: str
    dimension: int
    pooling: str
    normalized: bool
    query_prefix: str
    document_prefix: str
    max_tokens: int

    @property
    def digest(self) -> str:
        """Short name of this fingerprint: the first 16 hex digits of the hash of its JSON."""
        return hash_json(self.to_json())[:DIGEST_CHARS]

    @property
    def is_hosted(self) -> bool:
        """Whether a provider makes the vectors, over the network."""
        return self.pooling == HOSTED_POOLING

    def to_json(self) -> dict[str, str | int | bool]:
        """Return the fields as a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> EncoderFingerprint:
        """Read what `to_json` wrote.

        Raises:
            EncoderError: A field is missing, unknown or of the wrong type.
        """
        names = {field.name for field in fields(cls)}
        if set(value) != names:
            found = ", ".join(sorted(value)) or "nothing"
            raise EncoderError(
                f"encoder fingerprint has the fields {found}; expected {', '.join(sorted(names))}. "
                "Rebuild the vectors with this version."
            )
        for field in fields(cls):
            _require_type(field.name, value[field.name], _TYPES[str(field.type)])
        return cls(**value)


def require_same(expected: EncoderFingerprint, found: EncoderFingerprint) -> None:
    """Refuse to mix two encoders.

    Raises:
        FingerprintMismatchError: The fingerprints differ; the text names every differing field.
    """
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


def _require_type(name: str, value: object, expected: type) -> None:
    # bool is a subclass of int, and True must not pass for a dimension.
    if type(value) is not expected:
        raise EncoderError(
            f"encoder fingerprint field {name} is {value!r}; expected {expected.__name__}. "
            "Rebuild the vectors with this version."
        )


# What every encoder offers, and the checks on what it returns.
#
# No model code; numpy and the standard library only, because the read side imports this.


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
