from __future__ import annotations

import hashlib

import pytest

from noctuary.graph.fold import concept_id, fold_name, unsegmented_script, words


@pytest.mark.parametrize(
    ("name", "folded"),
    [
        ("Dana Whitfield", "dana whitfield"),
        ("  DANA   whitfield\t", "dana whitfield"),
        ("Dana Whitfield's", "dana whitfield"),
        ("Dana Whitfield’s", "dana whitfield"),
        ("O'Brien", "obrien"),
        ("O’Brien", "obrien"),
        ("J.R.R. Tolkien", "j r r tolkien"),
        ("Boot Hill (film)", "boot hill film"),
        ("snake_case-name", "snake case name"),
        ("ＦＵＬＬ width", "full width"),
        ("Straße", "strasse"),
        ("Cafe\u0301", "café"),
        ("ﬁle", "file"),
        ("½ cup", "1 2 cup"),
        ("—!?", ""),
        ("", ""),
    ],
)
def test_spellings_fold_to_the_canonical_form(name: str, folded: str) -> None:
    assert fold_name(name) == folded


def test_words_carry_offsets_that_include_the_possessive() -> None:
    text = "Ask Dana's team."
    assert [(text[w.start : w.end], w.folded) for w in words(text)] == [
        ("Ask", "ask"),
        ("Dana's", "dana"),
        ("team", "team"),
    ]


def test_a_script_without_spaces_ends_at_a_latin_word() -> None:
    assert [w.folded for w in words("我用Kubernetes部署")] == ["我用", "kubernetes", "部署"]


def test_an_indic_word_keeps_its_vowel_signs() -> None:
    assert [w.folded for w in words("हिन्दी भाषा")] == ["हिन्दी", "भाषा"]


@pytest.mark.parametrize(
    ("word", "script"),
    [
        ("我用", "han"),
        ("カナ", "kana"),
        ("ไทย", "thai"),
        ("हिन्दी", None),
        ("дом", None),
        ("a", None),
    ],
)
def test_only_scripts_without_spaces_are_unsegmented(word: str, script: str | None) -> None:
    assert unsegmented_script(word) == script


def test_a_concept_id_is_the_head_of_the_names_hash() -> None:
    assert concept_id("dana whitfield") == hashlib.sha256(b"dana whitfield").hexdigest()[:16]
