from __future__ import annotations

import unicodedata

import pytest

from noctuary.text.tokens import fold, normalize


@pytest.mark.parametrize(
    ("word", "folded"),
    [
        ("Hello", "hello"),
        ("Cámara", "camara"),
        ("Ca\u0301mara", "camara"),
        ("Straße", "strasse"),
        ("ŁÓDŹ", "lodz"),
        ("İstanbul", "istanbul"),
        ("Ærø", "aero"),
        ("Ένα", "ενα"),
        ("Ёлка", "елка"),
        ("Йогурт", "йогурт"),
        ("за\u0301мок", "замок"),
        ("שָׁלוֹם", "שלום"),
        ("مُحَمَّد", "محمد"),
        ("ガ", "ガ"),
    ],
)
def test_fold_hides_what_spelling_varies_in(word: str, folded: str) -> None:
    assert fold(normalize(word)) == folded


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("Ｆｕｌｌ", "Full"),
        ("ﬁne", "fine"),
        ("co\u00adop\u200berate", "cooperate"),
        ("\ufeffstart", "start"),
        ("a\u202eb\u202c", "ab"),
        ("\ud800x", "\ud800x"),
    ],
)
def test_normalize_is_nfkc_without_invisible_characters(text: str, normal: str) -> None:
    assert normalize(text) == normal


def test_long_text_is_normalized_like_its_words() -> None:
    words = ["ｗｉｄｅ", "ﬁne", "e\u0301te\u0301"] * 400
    assert normalize(" ".join(words)) == unicodedata.normalize("NFKC", " ".join(words))


@pytest.mark.timeout(20)
def test_a_megabyte_of_stacked_marks_is_not_quadratic() -> None:
    text = "a" + "\u0301\u0316" * 500_000 + "b"
    assert fold(normalize(text)) == "ab"
