from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

from noctuary.lexical.build import Postings, build_postings
from noctuary.lexical.search import K1, B

DOCUMENTS = [["cat", "dog", "cat"], ["dog"], [], ["bird", "dog"]]
MEAN_TOKENS = 6 / 4


def bm25(tf: int, df: int, length: int) -> float:
    idf = math.log(1 + (4 - df + 0.5) / (df + 0.5))
    return idf * tf / (tf + K1 * (1 - B + B * length / MEAN_TOKENS))


def test_postings_in_closed_form() -> None:
    postings = build_postings(DOCUMENTS)
    assert postings.terms == ["bird", "cat", "dog"]
    assert postings.starts.tolist() == [0, 1, 2, 5]
    assert postings.positions.tolist() == [3, 0, 0, 1, 3]
    assert postings.n_memories == 4
    expected = [bm25(1, 1, 2), bm25(2, 1, 3), bm25(1, 3, 3), bm25(1, 3, 1), bm25(1, 3, 2)]
    assert postings.scores.tolist() == pytest.approx(expected, rel=1e-6)


def test_types_and_ranges() -> None:
    postings = build_postings(DOCUMENTS)
    assert postings.starts.dtype == np.int64
    assert postings.positions.dtype == np.int32
    assert postings.scores.dtype == np.float32
    assert postings.ranges(["dog", "ant", "zebra", "bird"]) == [(2, 5), (0, 0), (0, 0), (0, 1)]


def test_k1_and_b_are_used() -> None:
    binary = build_postings(DOCUMENTS, k1=0.0)
    rare, common = math.log(1 + 3.5 / 1.5), math.log(1 + 1.5 / 3.5)
    assert binary.scores.tolist() == pytest.approx([rare, rare, common, common, common])
    flat = build_postings(DOCUMENTS, b=0.0)
    assert len(set(flat.scores[2:5].tolist())) == 1


def test_same_input_gives_the_same_bytes_from_a_generator() -> None:
    def stream() -> Iterator[tuple[str, ...]]:
        yield from (tuple(document) for document in DOCUMENTS)

    one, other = build_postings(DOCUMENTS), build_postings(stream())
    assert one.terms == other.terms
    for name in ("starts", "positions", "scores"):
        assert getattr(one, name).tobytes() == getattr(other, name).tobytes()


@pytest.mark.parametrize("documents", [[], [[]], [[], []]])
def test_nothing_to_index(documents: list[list[str]]) -> None:
    postings = build_postings(documents)
    assert isinstance(postings, Postings)
    assert postings.terms == []
    assert postings.starts.tolist() == [0]
    assert len(postings.positions) == len(postings.scores) == 0
    assert postings.n_memories == len(documents)


@pytest.mark.parametrize(("k1", "b"), [(-0.1, 0.4), (float("nan"), 0.4), (0.9, 1.1), (0.9, -0.1)])
def test_parameters_out_of_range(k1: float, b: float) -> None:
    with pytest.raises(ValueError, match="k1 >= 0"):
        build_postings(DOCUMENTS, k1=k1, b=b)
