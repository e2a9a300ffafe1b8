"""One test per script: what the table says is done is done."""

from __future__ import annotations

from itertools import pairwise

import pytest

from noctuary.graph.extract import extract, find_matches
from noctuary.graph.fold import SCRIPTS, fold_name, script_of, words
from tests.support.naive_graph import build_dictionary

_SAMPLES = {
    "latin": ("we met Émilie Dupont there", "Émilie Dupont"),
    "greek": ("είδαμε την Μαρία Παππά εκεί", "Μαρία Παππά"),
    "cyrillic": ("мы видели Анну Петрову там", "Анну Петрову"),
    "hebrew": ("ראינו את דנה כהן שם", "דנה כהן"),
    "arabic": ("قابلنا ليلى حداد هناك", "ليلى حداد"),
    "indic": ("हमने अनीता शर्मा को देखा", "अनीता शर्मा"),
    "hangul": ("어제 김민수 선생님 만났다", "김민수 선생님"),
    "thai": ("ฉันพบสมชาย แล้ว", "สมชาย"),
    "lao": ("ຂ້ອຍພົບສົມໄຊ ແລ້ວ", "ສົມໄຊ"),
    "tibetan": ("བཀྲཤིས མཐོང", "བཀྲ"),
    "myanmar": ("ကျွန်တော်မောင်မောင် တွေ့", "မောင်မောင်"),
    "khmer": ("ខ្ញុំជួបសុខា ហើយ", "សុខា"),
    "kana": ("きのうサクラさん", "サクラ"),
    "han": ("我昨天见到李明杰。", "李明杰"),
}


def test_every_script_of_the_table_has_a_sample() -> None:
    assert set(_SAMPLES) == {script.name for script in SCRIPTS}


def test_no_character_belongs_to_two_scripts() -> None:
    ranges = sorted(block for script in SCRIPTS for block in script.ranges)
    assert all(low <= high for low, high in ranges)
    assert all(left[1] < right[0] for left, right in pairwise(ranges))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_the_dictionary_matches_words_and_no_part_of_a_run(script: object) -> None:
    assert script in SCRIPTS
    entry = next(s for s in SCRIPTS if s is script)
    text, name = _SAMPLES[entry.name]
    matches = find_matches(text, build_dictionary([(fold_name(name), name)]))
    assert [text[m.start : m.end] for m in matches] == ([name] if entry.spaced else [])


@pytest.mark.parametrize("script", [s for s in SCRIPTS if not s.spaced], ids=str)
def test_a_run_that_is_the_whole_name_is_matched(script: object) -> None:
    entry = next(s for s in SCRIPTS if s is script)
    name = _SAMPLES[entry.name][1] * 3
    matches = find_matches(f"({name})", build_dictionary([(fold_name(name), name)]))
    assert [m.name for m in matches] == [fold_name(name)]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_capitalised_runs_are_names_where_the_script_has_case(script: object) -> None:
    entry = next(s for s in SCRIPTS if s is script)
    text, name = _SAMPLES[entry.name]
    named = [f.surface for f in extract(text).found if f.kind == "name"]
    assert named == ([name] if name[0].isupper() else [])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_titles_labels_quotes_and_keys_are_found_in_every_script(script: object) -> None:
    name = _SAMPLES[next(s for s in SCRIPTS if s is script).name][1]
    kinds = {
        (f.role, f.kind)
        for content in (f"{name}\nx", f"【{name}】 x", f"{name}: x", f'x "{name}"', f"# {name}")
        for f in extract(content).found
        if f.surface == name
    }
    assert kinds >= {
        ("about", "title"), ("about", "label"), ("about", "key"), ("about", "heading"),
        ("mentions", "quoted"),
    }  # fmt: skip


def test_points_and_vowel_signs_make_no_difference() -> None:
    assert fold_name("שָׁלוֹם") == fold_name("שלום")
    assert fold_name("مُحَمَّد") == fold_name("محمد")
    assert fold_name("محـــمد") == fold_name("محمد")
    assert len(words("مُحَمَّد")) == 1


def test_a_script_outside_the_table_has_no_entry() -> None:
    assert script_of("א") is not None
    assert script_of("ა") is None
    assert script_of("7") is None
