"""Names whose vectors are each other's nearest, by blocks of rows; incremental between runs.

The one step that sees all pairs, so only names that were given a vector take part. With the
neighbours of an earlier run, work is (new names) x (all names) instead of the square.
Cosines are exact to 1e-9 and ties go to the smaller name, so that blocks make no difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

COSINE_MIN = 0.8
"""Least cosine of two names that may be one; lower finds more synonyms and more mere relatives."""

_BLOCK_VALUES = 1 << 23  # cosines held at once: 32 MB
_NEAR = 1e-5  # float32 products of unit vectors err by less: what is this close is rescored
_DIGITS = 9  # of the exact cosine; float64 sums of any order agree to this


class Neighbour(NamedTuple):
    """The name nearest to another.

    Attributes:
        name: It.
        cosine: In [COSINE_MIN, 1].
    """

    name: str
    cosine: float


Neighbours = Mapping[str, Neighbour | None]
"""Nearest name of every name that has a vector; None where nothing reaches COSINE_MIN."""


def nearest_neighbours(
    vectors: Mapping[str, NDArray[np.float32]], known: Neighbours | None = None
) -> dict[str, Neighbour | None]:
    """Return every name's nearest other name.

    Args:
        vectors: By name, shape (dimension,), any length; a zero vector has no neighbour.
        known: What an earlier run over other names returned, with the same vector for each name
            that is still here. It must hold that run's names and no others.

    Returns:
        A neighbour or None for each name, in code-point order of the names.

    Raises:
        ValueError: Vectors of differing shapes, or with values that are not finite.
    """
    names = sorted(vectors)
    if not names:
        return {}
    units = _unit_rows(names, vectors)
    found = {name: _still_valid((known or {}).get(name), vectors) for name in names}
    changed = [index for index, name in enumerate(names) if _must_ask(name, known, vectors)]
    fresh = [index for index in changed if _is_new(names[index], known)]
    for index in changed:
        found[names[index]] = None
    _ask(names, units, np.array(changed, np.int64), found)
    _offer(names, units, np.array(fresh, np.int64), found)
    return found


def mutual_pairs(neighbours: Neighbours) -> list[tuple[str, str, float]]:
    """Return pairs (smaller name, larger name, cosine) that are each other's nearest, sorted."""
    pairs: list[tuple[str, str, float]] = []
    for name, neighbour in neighbours.items():
        if neighbour is None or neighbour.name < name:
            continue
        back = neighbours.get(neighbour.name)
        if back is not None and back.name == name:
            pairs.append((name, neighbour.name, neighbour.cosine))
    return sorted(pairs)


def _still_valid(
    neighbour: Neighbour | None, vectors: Mapping[str, NDArray[np.float32]]
) -> Neighbour | None:
    return neighbour if neighbour is not None and neighbour.name in vectors else None


def _is_new(name: str, known: Neighbours | None) -> bool:
    return known is None or name not in known


def _must_ask(
    name: str, known: Neighbours | None, vectors: Mapping[str, NDArray[np.float32]]
) -> bool:
    """Say whether a name is new or has lost the neighbour it had."""
    if known is None or name not in known:
        return True
    neighbour = known[name]
    return neighbour is not None and neighbour.name not in vectors


def _unit_rows(
    names: Sequence[str], vectors: Mapping[str, NDArray[np.float32]]
) -> NDArray[np.float32]:
    shapes = {np.shape(vectors[name]) for name in names}
    if len(shapes) != 1:
        raise ValueError(f"found vectors of shapes {sorted(shapes)}, expected one: embed anew")
    rows = np.stack([vectors[name] for name in names]).astype(np.float32)
    if not np.isfinite(rows).all():
        raise ValueError("found vectors with values that are not finite: embed these names anew")
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)


def _ask(
    names: Sequence[str],
    units: NDArray[np.float32],
    rows: NDArray[np.int64],
    found: dict[str, Neighbour | None],
) -> None:
    """Find the nearest name of each row among all names."""
    columns = np.arange(len(names))
    for block in _blocks(rows, len(names)):
        for row, column, cosine in _best(units, block, columns):
            found[names[row]] = Neighbour(names[column], cosine)


def _offer(
    names: Sequence[str],
    units: NDArray[np.float32],
    fresh: NDArray[np.int64],
    found: dict[str, Neighbour | None],
) -> None:
    """Give every name that kept its neighbour a nearer one among the new names."""
    if len(fresh) in (0, len(names)):
        return
    for block in _blocks(np.arange(len(names)), len(fresh)):
        for row, column, cosine in _best(units, block, fresh):
            offered = Neighbour(names[column], cosine)
            held = found[names[row]]
            if held is None or (-cosine, offered.name) < (-held.cosine, held.name):
                found[names[row]] = offered


def _blocks(rows: NDArray[np.int64], columns: int) -> list[NDArray[np.int64]]:
    size = max(1, _BLOCK_VALUES // max(columns, 1))
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _best(
    units: NDArray[np.float32], rows: NDArray[np.int64], columns: NDArray[np.int64]
) -> list[tuple[int, int, float]]:
    """Return (row, nearest other column, cosine) for rows that have one within COSINE_MIN."""
    cosines = units[rows] @ units[columns].T
    cosines[rows[:, None] == columns[None, :]] = -1.0
    highest = cosines.max(axis=1)
    near = np.flatnonzero(highest >= COSINE_MIN - _NEAR)
    places, picks = np.nonzero(cosines[near] >= highest[near, None] - _NEAR)
    owners, others = rows[near[places]], columns[picks]
    exact = _exact(units, owners, others)
    best: dict[int, tuple[float, int]] = {}
    for owner, other, cosine in zip(owners.tolist(), others.tolist(), exact.tolist(), strict=True):
        # Indices follow the names' order, so the smaller index is the smaller name.
        if cosine >= COSINE_MIN and (-cosine, other) < best.get(owner, (2.0, -1)):
            best[owner] = (-cosine, other)
    return [(owner, other, -negative) for owner, (negative, other) in best.items()]


def _exact(
    units: NDArray[np.float32], left: NDArray[np.int64], right: NDArray[np.int64]
) -> NDArray[np.float64]:
    ours, theirs = units[left].astype(np.float64), units[right].astype(np.float64)
    products = np.einsum("ij,ij->i", ours, theirs)
    # float32 unit rows are off by 1e-7: their true lengths are divided out.
    lengths = np.einsum("ij,ij->i", ours, ours) * np.einsum("ij,ij->i", theirs, theirs)
    return np.minimum(np.round(products / np.sqrt(lengths), _DIGITS), 1.0)
