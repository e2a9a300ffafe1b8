from __future__ import annotations

import pytest

from noctuary.graph.guards import joined, singular, spelling_key, stem


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("gotchas", "gotcha"),
        ("tags", "tag"),
        ("dependencies", "dependency"),
        ("classes", "class"),
        ("branches", "branch"),
        ("boxes", "box"),
        ("ties", "tie"),
        ("redis", "redis"),
        ("class", "class"),
        ("status", "status"),
        ("news", "news"),
        ("gas", "gas"),
    ],
)
def test_singular(word: str, expected: str) -> None:
    assert singular(word) == expected


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("making", "mak"),
        ("make", "mak"),
        ("planned", "plan"),
        ("finds", "find"),
        ("bring", "bring"),
        ("tie", "tie"),
    ],
)
def test_forms_of_a_verb_share_a_stem(word: str, expected: str) -> None:
    assert stem(word) == expected


@pytest.mark.parametrize(
    ("left", "right"),
    [("e mail", "email"), ("the api keys", "api key"), ("beyoncé", "beyonce")],
)
def test_spellings_share_a_key(left: str, right: str) -> None:
    assert spelling_key(left) == spelling_key(right)


def test_an_article_alone_is_a_name() -> None:
    assert spelling_key("the") == "the"


def test_accents_go_from_latin_letters_only() -> None:
    assert joined(["từ", "dũ"]) == "tudu"
    assert joined(["чай"]) == "чай"
    assert joined(["ガイド"]) == "ガイド"
