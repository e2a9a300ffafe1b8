from __future__ import annotations

import random
from itertools import combinations

import numpy as np
import pytest

from noctuary.graph import canonical as twins
from noctuary.graph.canonical import jaccard, may_have_twin


def _twins(names: list[str], least: float) -> set[str]:
    pairs = [pair for pair in combinations(names, 2) if jaccard(*pair) >= least]
    return {name for pair in pairs for name in pair}


@pytest.mark.parametrize("least", [0.5, 0.9, 1.0])
def test_no_name_with_a_twin_is_left_out(least: float) -> None:
    drawn = random.Random(7)
    names: set[str] = set()
    for _ in range(120):
        name = "".join(drawn.choice("abcde ") for _ in range(drawn.randint(6, 60)))
        place = drawn.randrange(len(name))
        names |= {name, name + "s", name[:place] + "x" + name[place:], name[1:]}
    ordered = sorted(names)
    likely = {n for n, is_likely in zip(ordered, may_have_twin(ordered, least), strict=True)
              if is_likely}  # fmt: skip
    wanted = _twins(ordered, least)
    assert wanted
    assert wanted <= likely


def test_a_name_like_no_other_is_left_out() -> None:
    names = ["kubernetes cluster", "kubernetes clusters", "garden party in the rain"]
    assert may_have_twin(names, 0.9).tolist() == [True, True, False]


def test_repeated_trigrams_count_once() -> None:
    """Both are made of the same three trigrams."""
    assert may_have_twin(["abcabcabc", "abcabcabcabcabc"], 0.9).tolist() == [True, True]


def test_twins_are_found_across_the_names_held_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(twins, "_CHUNK_NAMES", 2)
    names = ["kubernetes cluster", "red fox", "blue heron", "kubernetes clusters"]
    assert may_have_twin(names, 0.9).tolist() == [True, False, False, True]


def test_no_names_have_no_twins() -> None:
    assert may_have_twin([], 0.9).dtype == np.bool_
