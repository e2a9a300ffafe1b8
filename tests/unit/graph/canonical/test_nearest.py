from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.graph import likeness as nearest
from noctuary.graph.likeness import Neighbour, mutual_pairs, nearest_neighbours


def _unit(*values: float) -> NDArray[np.float32]:
    return np.array(values, np.float32)


def test_nearest_by_hand() -> None:
    vectors = {"a": _unit(1, 0), "b": _unit(12, 5), "c": _unit(0, 2), "zero": _unit(0, 0)}
    found = nearest_neighbours(vectors)
    assert found["c"] is None
    assert found["zero"] is None
    assert found["a"] is not None
    assert found["a"].cosine == pytest.approx(12 / 13)
    assert mutual_pairs(found) == [("a", "b", found["a"].cosine)]


def test_ties_go_to_the_smaller_name() -> None:
    vectors = {name: _unit(1, 1) for name in "cab"}
    found = nearest_neighbours(vectors)
    assert {name: found[name] for name in "abc"} == {
        "a": Neighbour("b", 1.0),
        "b": Neighbour("a", 1.0),
        "c": Neighbour("a", 1.0),
    }
    assert mutual_pairs(found) == [("a", "b", 1.0)]


def test_no_names() -> None:
    assert nearest_neighbours({}) == {}


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ({"a": _unit(1, 0), "b": _unit(1)}, "of shapes"),
        ({"a": _unit(1, np.nan)}, "not finite"),
    ],
)
def test_bad_vectors_are_refused(vectors: dict[str, NDArray[np.float32]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nearest_neighbours(vectors)


def _random_vectors(seed: int, count: int) -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(count // 3, 6))
    rows = np.repeat(centres, 3, axis=0) + 0.4 * rng.normal(size=(count // 3 * 3, 6))
    return {f"name {index}": row.astype(np.float32) for index, row in enumerate(rows)}


def test_blocks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = _random_vectors(1, 90)
    whole = nearest_neighbours(vectors)
    monkeypatch.setattr(nearest, "_BLOCK_VALUES", 200)
    assert nearest_neighbours(vectors) == whole
    assert any(whole.values())


@pytest.mark.parametrize("seed", range(5))
def test_known_neighbours_give_what_a_full_run_gives(seed: int) -> None:
    vectors = _random_vectors(seed, 90)
    rng = np.random.default_rng(seed)
    names = sorted(vectors)
    before = {name: vectors[name] for name in names if rng.random() < 0.8}
    after = {name: vectors[name] for name in names if rng.random() < 0.8}
    known = nearest_neighbours(before)
    assert nearest_neighbours(after, known) == nearest_neighbours(after)


def test_known_neighbours_are_trusted() -> None:
    vectors = {"a": _unit(1, 0), "b": _unit(1, 0.1)}
    assert nearest_neighbours(vectors, {"a": None, "b": None}) == {"a": None, "b": None}
