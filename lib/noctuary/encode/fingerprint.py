"""The identity of an encoder: what must agree before two vectors may be compared.

What belongs here: the fingerprint as a value, its digest and its comparison. No model is loaded
here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from noctuary.errors import EncoderError, FingerprintMismatchError
from noctuary.hashing import hash_json
from noctuary.values import dataclass

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
