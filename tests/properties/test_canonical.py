from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from noctuary.core.errors import ConfigError
from noctuary.graph.canonical import (
    JACCARD_MIN,
    Canonical,
    MergeRules,
    canonicalise,
    jaccard,
    may_compare,
    similar_pairs,
)
from noctuary.graph.fold import fold_name
from noctuary.graph.guards import NameStats

_WORDS = [
    "email", "e", "mail", "the", "Emails", "Red", "red", "Foxes", "fox", "Fóx", "II", "2", "not",
    "unsafe", "safe", "counselling", "counseling", "handbook", "(film)", "(1990)", "handbooks",
]  # fmt: skip
_SURFACES = st.lists(st.sampled_from(_WORDS), min_size=1, max_size=5).map(" ".join)
_KINDS = st.sampled_from(["name", "title", "tag", "identifier", "session", "quoted", "new kind"])


@st.composite
def _names(draw: st.DrawFn) -> list[NameStats]:
    surfaces: dict[str, set[str]] = {}
    for surface in draw(st.lists(_SURFACES, min_size=1, max_size=12)):
        surfaces.setdefault(fold_name(surface), set()).add(surface)
    return [
        NameStats(name, draw(_KINDS), tuple(sorted(found)), draw(st.integers(1, 4)))
        for name, found in surfaces.items()
        if name
    ]


@st.composite
def _inputs(draw: st.DrawFn) -> tuple[list[NameStats], list[tuple[str, str, str]], MergeRules]:
    names = draw(_names())
    known = st.sampled_from([item.name for item in names] + ["unknown"])
    pairs = st.lists(st.tuples(known, known).filter(lambda pair: pair[0] != pair[1]), max_size=3)
    aliases = [(left, right, "#1") for left, right in draw(pairs)]
    never, same = tuple(draw(pairs)), tuple(draw(pairs))
    try:
        rules = MergeRules(never, same)
    except ConfigError:
        rules = MergeRules(never)
    return names, aliases, rules


@st.composite
def _vectors(draw: st.DrawFn, names: list[NameStats]) -> dict[str, NDArray[np.float32]]:
    angles = draw(st.lists(st.integers(0, 12), min_size=len(names), max_size=len(names)))
    return {
        item.name: np.array([np.cos(angle / 8), np.sin(angle / 8)], np.float32)
        for item, angle in zip(names, angles, strict=True)
    }


def _visible(found: Canonical) -> tuple[object, ...]:
    return (found.canonical_of, found.merges, found.refused, found.unknown_names)


@given(_inputs(), st.data())
def test_the_order_of_the_input_makes_no_difference(
    inputs: tuple[list[NameStats], list[tuple[str, str, str]], MergeRules], data: st.DataObject
) -> None:
    names, aliases, rules = inputs
    vectors = data.draw(_vectors(names))
    first = canonicalise(names, aliases, rules, vectors)
    shuffled = data.draw(st.permutations(names)), data.draw(st.permutations(aliases))
    never, same = (data.draw(st.permutations(pairs)) for pairs in (rules.never, rules.same))
    turned = MergeRules(
        tuple((right, left) for left, right in never), tuple((r, left) for left, r in same)
    )
    again = canonicalise(*shuffled, turned, dict(reversed(vectors.items())))
    assert _visible(first) == _visible(again)


@given(_inputs(), st.data())
def test_merges_are_flat_explained_and_lead_to_the_best_name(
    inputs: tuple[list[NameStats], list[tuple[str, str, str]], MergeRules], data: st.DataObject
) -> None:
    names, aliases, rules = inputs
    found = canonicalise(names, aliases, rules, data.draw(_vectors(names)))
    by_name = {item.name: item for item in names}
    assert {merge.name: merge.canonical for merge in found.merges} == found.canonical_of
    assert len(found.merges) == len(found.canonical_of)
    for merge in found.merges:
        assert merge.canonical not in found.canonical_of
        better, other = by_name[merge.canonical], by_name[merge.name]
        assert (-better.df, -len(better.name), better.name) < (
            -other.df, -len(other.name), other.name,
        )  # fmt: skip
        assert merge.reason in ("alias", "minhash", "embedding", "rule")
        assert 0.8 <= merge.score <= 1.0
        assert merge.detail
        if merge.reason in ("minhash", "embedding"):
            assert "through" not in merge.detail


@given(_inputs(), st.data())
def test_never_is_never_crossed_and_same_is_always_kept(
    inputs: tuple[list[NameStats], list[tuple[str, str, str]], MergeRules], data: st.DataObject
) -> None:
    names, aliases, rules = inputs
    known = {item.name for item in names}
    moved = canonicalise(names, aliases, rules, data.draw(_vectors(names))).canonical_of
    for left, right in rules.never:
        if left in known and right in known:
            assert moved.get(left, left) != moved.get(right, right)
    for left, right in rules.same:
        if left in known and right in known:
            assert moved.get(left, left) == moved.get(right, right)


@given(_inputs())
def test_canonicalising_again_with_what_was_found_changes_nothing(
    inputs: tuple[list[NameStats], list[tuple[str, str, str]], MergeRules],
) -> None:
    names, aliases, rules = inputs
    first = canonicalise(names, aliases, rules)
    found = [(merge.name, merge.canonical, merge.detail) for merge in first.merges]
    again = canonicalise(names, found, MergeRules(never=rules.never))
    assert again.canonical_of == first.canonical_of


def _near_twins(seed: int, count: int) -> list[str]:
    """Return names and copies of them with a letter added or lost at an end or in the middle."""
    rng = np.random.default_rng(seed)
    letters = np.array(list("abcdefghijklmnop  "))
    names: set[str] = set()
    for _ in range(count):
        base = " ".join("".join(rng.choice(letters, int(rng.integers(12, 48)))).split())
        cut = int(rng.integers(0, len(base)))
        names |= {base, base + "s", base[1:], base[:cut] + "q" + base[cut:]}
    return sorted(fold_name(name) for name in names if may_compare(fold_name(name)))


@pytest.mark.parametrize("seed", range(2))
def test_banding_finds_what_comparing_all_pairs_finds(seed: int) -> None:
    names = list(dict.fromkeys(_near_twins(seed, 80)))
    naive = {
        (high, low)
        for low in range(len(names))
        for high in range(low)
        if jaccard(names[high], names[low]) >= JACCARD_MIN
    }
    found = similar_pairs(names, Counter())
    assert len(naive) > 100
    assert {(high, low) for high, low, _ in found} == naive
    for high, low, score in found[:50]:
        assert score == jaccard(names[high], names[low])
