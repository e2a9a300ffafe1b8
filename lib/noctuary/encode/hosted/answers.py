"""From a provider's answer to unit vectors in the order of the texts, or to why it is of no use.

What belongs here: reading and checking. What does not: HTTP (client.py), the fields (shapes.py).
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.encode.base import require_unit_rows
from noctuary.encode.hosted.faults import BadVectorsError, PassingFaultError
from noctuary.encode.hosted.shapes import Row, Shape
from noctuary.foreign_json import parse_json


class Batch(NamedTuple):
    """The vectors of one request.

    Attributes:
        vectors: Unit rows in the order of the texts, float32, shape (n, d).
        tokens: Tokens that are paid for; None where the provider does not say.
    """

    vectors: NDArray[np.float32]
    tokens: int | None


def read_batch(body: bytes, shape: Shape, count: int, dimension: int) -> Batch:
    """Read the answer to a request.

    Vectors are scaled to length 1: a shortened one (Matryoshka) is not, with every provider.

    Args:
        body: As it came.
        shape: The provider's.
        count: Texts of the request.
        dimension: Length of a vector.

    Raises:
        PassingFaultError: It is no JSON: something on the way broke it.
        BadVectorsError: It holds not exactly one usable vector per text.
    """
    try:
        answer: Any = parse_json(body)
    except ValueError:
        raise PassingFaultError("its answer was no JSON") from None
    try:
        rows = shape.rows(answer)
    except (KeyError, TypeError, IndexError):
        raise BadVectorsError("the provider's answer holds no vectors where they belong") from None
    vectors = np.empty((count, dimension), dtype=np.float64)
    for place, raw in _in_order(rows, count):
        vectors[place] = _numbers(raw, place, dimension)
    return Batch(_unit(vectors), _tokens(shape, answer))


def _in_order(rows: Sequence[Row], count: int) -> list[Row]:
    places = [place for place, _ in rows]
    whole = all(type(place) is int for place in places)
    if not whole or sorted(places) != list(range(count)):
        raise BadVectorsError(
            f"the provider answered {len(rows)} vectors for {count} texts, or not each text once"
        )
    return sorted(rows, key=lambda row: row[0])


def _numbers(raw: Any, place: int, dimension: int) -> NDArray[np.float64]:
    try:
        if isinstance(raw, str):
            packed = base64.b64decode(raw, validate=True)
            vector = np.frombuffer(packed, dtype="<f4").astype(np.float64)
        else:
            vector = np.asarray(raw, dtype=np.float64)
    except (ValueError, TypeError, OverflowError):
        raise BadVectorsError(f"the vector of text {place} is no list of numbers") from None
    if vector.shape != (dimension,):
        raise BadVectorsError(
            f"the vector of text {place} has the shape {vector.shape}; expected ({dimension},). "
            "Check encoder.model and encoder.dimension."
        )
    return vector


def _unit(vectors: NDArray[np.float64]) -> NDArray[np.float32]:
    # What is not finite, zero or too large is reported below, once, and not by numpy's warnings.
    with np.errstate(all="ignore"):
        lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
        unit = (vectors / lengths[:, None]).astype(np.float32)
        bad = np.flatnonzero(~(np.isfinite(lengths) & (lengths > 0.0)))
    if bad.size:
        raise BadVectorsError(
            f"the vector of text {int(bad[0])} holds numbers that are not finite, or only zeros"
        )
    require_unit_rows(unit, range(len(unit)))
    return unit


def _tokens(shape: Shape, answer: Any) -> int | None:
    try:
        found = shape.tokens(answer)
    except (KeyError, TypeError, IndexError):
        return None
    # A gateway of one's own may tell nothing, or nonsense.
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return int(found) if 0 <= found < 1e15 else None
