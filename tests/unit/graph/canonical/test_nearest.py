from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.graph import canonical
from noctuary.graph.canonical import COSINE_MIN, mutual_pairs


def _unit(*values: float) -> NDArray[np.float32]:
    return np.array(values, np.float32)


def test_nearest_by_hand() -> None:
    vectors = {"a": _unit(1, 0), "b": _unit(12, 5), "c": _unit(0, 2), "zero": _unit(0, 0)}
    ((left, right, cosine),) = mutual_pairs(vectors)
    assert (left, right) == ("a", "b")
    assert cosine == pytest.approx(12 / 13)


def test_ties_go_to_the_smaller_name() -> None:
    assert mutual_pairs({name: _unit(1, 1) for name in "cab"}) == [("a", "b", 1.0)]


def test_no_names() -> None:
    assert mutual_pairs({}) == []


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ({"a": _unit(1, 0), "b": _unit(1)}, "of shapes"),
        ({"a": _unit(1, np.nan)}, "not finite"),
    ],
)
def test_bad_vectors_are_refused(vectors: dict[str, NDArray[np.float32]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mutual_pairs(vectors)


def _random_vectors(seed: int, count: int) -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(count // 3, 6))
    rows = np.repeat(centres, 3, axis=0) + 0.4 * rng.normal(size=(count // 3 * 3, 6))
    return {f"name {index}": row.astype(np.float32) for index, row in enumerate(rows)}


def _plain(vectors: dict[str, NDArray[np.float32]]) -> list[tuple[str, str]]:
    """Pair by pair: who is nearest to whom, and whether that is mutual."""
    units = {name: v.astype(np.float64) / np.linalg.norm(v) for name, v in vectors.items()}
    nearest: dict[str, str] = {}
    for name in units:
        cosines = {o: round(float(units[name] @ units[o]), 9) for o in units if o != name}
        best = min(cosines, key=lambda o: (-cosines[o], o))
        if cosines[best] >= COSINE_MIN:
            nearest[name] = best
    return sorted((a, b) for a, b in nearest.items() if a < b and nearest.get(b) == a)


@pytest.mark.parametrize("seed", range(5))
def test_blocks_give_what_each_pair_gives(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = _random_vectors(seed, 90)
    whole = mutual_pairs(vectors)
    assert [pair[:2] for pair in whole] == _plain(vectors)
    assert whole
    monkeypatch.setattr(canonical, "_BLOCK_VALUES", 200)
    assert mutual_pairs(vectors) == whole
