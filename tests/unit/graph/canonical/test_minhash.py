from __future__ import annotations

import math
import random
from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from noctuary.graph.canonical import (
    BAND_ROWS,
    BANDS,
    BUCKET_MAX_NAMES,
    CROWDED,
    ENTROPY_MIN_BITS,
    FUZZY_MIN_CHARS,
    JACCARD_MIN,
    candidates,
    entropy_bits,
    jaccard,
    may_compare,
    signatures,
    similar_pairs,
)


def test_jaccard_by_hand() -> None:
    assert jaccard("abcd", "bcde") == pytest.approx(1 / 3)  # abc bcd | bcd cde
    assert jaccard("abcd", "abcd") == 1.0
    assert jaccard("ab", "ab") == 0.0


def test_entropy_by_hand() -> None:
    assert entropy_bits("abcd") == 2.0
    assert entropy_bits("aabb") == 1.0
    assert entropy_bits("") == 0.0


@pytest.mark.parametrize(
    ("name", "long_enough"),
    [("kubernetes", True), ("hahahahaha", False), ("aabbaabbaabb", False), ("kube", False)],
)
def test_short_and_repetitive_names_are_not_compared(name: str, long_enough: bool) -> None:
    assert may_compare(name) is long_enough


def test_variety_is_judged_alike_by_the_quick_and_the_full_way() -> None:
    for name in ("aabbccdd", "aaaabcde", "abcdefgh", "aaaaaaaaaaabcdefgh", "ab ab ab ab cd"):
        plain = name.replace(" ", "")
        expected = len(plain) >= FUZZY_MIN_CHARS and entropy_bits(plain) >= ENTROPY_MIN_BITS
        assert may_compare(name) is expected, name


def test_names_of_the_same_repeated_letters_are_not_one() -> None:
    pairs = similar_pairs(["hahahahahaha", "hahahahaha"], Counter())
    assert jaccard("hahahahahaha", "hahahahaha") == 1.0
    assert pairs == []


def test_a_signature_depends_on_its_name_alone() -> None:
    names = ["emotional counseling", "東京都庁舎 の 展望室", "zażółć gęślą jaźń", "abc"]
    together = signatures(names)
    assert together.shape == (4, BANDS)
    for row, name in zip(together, names, strict=True):
        np.testing.assert_array_equal(signatures([name])[0], row)
    assert signatures([]).shape == (0, BANDS)


def test_signatures_are_the_same_everywhere() -> None:
    """Kept signatures outlive a process: a changed hash must be a decision."""
    row = signatures(["kubernetes cluster"])[0]
    assert row[:2].tolist() == [2092535897056492595, 17495618294894092064]


def test_too_short_a_name_has_no_signature() -> None:
    with pytest.raises(ValueError, match="found the name 'ab'"):
        signatures(["abc", "ab"])


def test_bands_agree_as_often_as_the_likeness_says() -> None:
    names = [f"the {word} counseling handbook of {word}" for word in ("first", "second", "third")]
    pairs = [(name, "x" * n + name) for name in names for n in range(1, 9)]
    agreed = [np.mean(np.equal(*signatures(pair))) for pair in pairs]
    odds = np.array([jaccard(*pair) ** BAND_ROWS for pair in pairs])
    deviation = math.sqrt((odds * (1 - odds)).sum() / BANDS) / len(pairs)
    assert 0.1 < odds.mean() < 0.9
    assert abs(np.mean(agreed) - odds.mean()) < 4 * deviation


def test_names_that_are_nearly_alike_are_found_among_many() -> None:
    drawn = random.Random(7)
    names = ["".join(drawn.choice("abcdefgh ") for _ in range(30)) for _ in range(200)]
    names += [name + "s" for name in names]
    expected = [
        (one, other, jaccard(names[one], names[other]))
        for one, other in combinations(range(len(names)), 2)
        if jaccard(names[one], names[other]) >= JACCARD_MIN
    ]
    assert len(expected) > 150
    assert similar_pairs(names, Counter()) == expected


def test_a_crowded_bucket_stays_linear_and_is_counted() -> None:
    count = 3 * BUCKET_MAX_NAMES
    rows = np.tile(signatures(["request timed out in worker"]), (count, 1))
    refused: Counter[str] = Counter()
    found = list(candidates([f"name {chr(97 + i % 26)}{chr(97 + i // 26)}" for i in range(count)],
                            rows, refused))  # fmt: skip
    assert len(found) < count * BUCKET_MAX_NAMES
    assert refused[CROWDED] == count - BUCKET_MAX_NAMES


def test_a_crowded_bucket_is_parted_by_digits_first() -> None:
    count = 3 * BUCKET_MAX_NAMES
    rows = np.tile(signatures(["request timed out in worker"]), (count, 1))
    names = [f"request {index // 2}{'a' * (index % 2)} timed out" for index in range(count)]
    refused: Counter[str] = Counter()
    found = list(candidates(names, rows, refused))
    assert sorted(found) == [(index, index + 1) for index in range(0, count, 2)]
    assert not refused
