from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.evaluate.queries import (
    MAX_PHRASE_CHARS,
    MAX_WORDS,
    MIN_UNITS,
    fold_text,
    rank_phrases,
    read_keys,
)
from noctuary.text.tokens import STOP_WORDS


def rare(*words: str) -> dict[str, float]:
    return dict.fromkeys(words, 1.0)


def phrases(text: str, rarity: dict[str, float]) -> list[str]:
    return list(rank_phrases(text, lambda key: rarity.get(key, 0.0)))


def test_the_window_with_the_rarest_words_comes_first() -> None:
    text = "we met at noon and then Zoltan Kovacs repaired the copper boiler in the old mill house"
    first = phrases(text, rare("zoltan", "kovacs", "repaired", "copper", "boiler"))[0]
    assert first == "Zoltan Kovacs repaired the copper boiler"


def test_stop_words_at_the_ends_are_cut_but_three_units_stay() -> None:
    text = "it was the Zoltan Kovacs boiler. repaired copper pipes then it was. so on and so on"
    found = phrases(text, rare("zoltan", "kovacs"))
    assert found == ["Zoltan Kovacs boiler", "repaired copper pipes"]
    short = "it was of the Zoltan Kovacs. and so on it was so on and then it was"
    assert phrases(short, rare("zoltan", "kovacs")) == ["the Zoltan Kovacs"]


def test_a_phrase_does_not_cross_a_sentence_or_a_line() -> None:
    text = "alpha beta gamma delta. epsilon zeta eta theta\niota kappa lambda mu; nu xi omicron pi"
    found = phrases(text, {})
    assert len(found) == 4
    assert not any(re.search(r"[.;\n]", phrase) for phrase in found)


def test_joined_words_are_one_unit_as_written() -> None:
    text = "Deploy billing-api to src/app/main.py before v1.2.3 lands on the staging cluster today"
    assert "billing-api" in read_keys(text)
    assert "src/app/main.py" in read_keys(text)
    assert phrases(text, rare("billing-api", "v1.2.3"))[0].startswith("Deploy billing-api to")


def test_a_phrase_is_at_most_half_of_the_text() -> None:
    text = "alpha beta gamma delta epsilon zeta eta theta"
    assert {len(phrase.split()) for phrase in phrases(text, {})} == {4}
    assert phrases("alpha beta gamma delta epsilon", {}) == []


def test_a_phrase_of_stop_words_or_of_encoded_data_is_none() -> None:
    assert phrases("it was what it was and so it is then as it was before and after", {}) == []
    blob = "x" * MAX_PHRASE_CHARS
    assert phrases(f"{blob} {blob} {blob} {blob} {blob} {blob}", {}) == []


def test_chinese_gives_character_windows() -> None:
    text = "我的侄子王小明住在浙江省宁波市，他是一名海洋生物学家。"
    found = phrases(text, rare("海洋", "洋生", "生物", "物学"))
    assert "海洋生物学" in found[0]
    assert 4 <= len(found[0]) <= 12
    assert found[0] in text


def test_words_and_characters_mix() -> None:
    text = "昨天我们用Python编写了一个新的数据库迁移工具"
    assert "python" in read_keys(text)
    assert any("Python编写" in phrase for phrase in phrases(text, rare("python", "编写")))


@pytest.mark.parametrize(
    "text",
    [
        "Вчера Мария починила старый медный самовар и отнесла его соседке по лестнице",
        "हिन्दी में लिखी गई यह पुरानी किताब मेरे दादाजी की अलमारी में मिली थी",
        "Ο γιατρός Παπαδόπουλος αγόρασε χθες ένα παλιό ξύλινο καΐκι στη Νάξο",
    ],
)
def test_other_alphabets_keep_whole_words(text: str) -> None:
    words = text.split()
    found = phrases(text, {})
    assert found
    assert all(set(phrase.split()) <= set(words) for phrase in found)
    assert all(MIN_UNITS <= len(phrase.split()) <= MAX_WORDS for phrase in found)


def test_a_lone_surrogate_is_never_in_a_phrase() -> None:
    text = "alpha beta gamma \ud800 delta epsilon zeta eta theta iota kappa lambda"
    assert all(phrase.encode() for phrase in phrases(text, {}))
    assert phrases(text, {})


def test_folding_joins_spellings_of_one_text() -> None:
    assert fold_text("Cafe\u0301  NOIR\n") == fold_text("café noir") == "café noir"


@given(st.text(max_size=300) | st.text(alphabet="abc the of.是不人我\n e\u0301", max_size=200))
def test_any_text_gives_phrases_that_stand_in_it_or_none(text: str) -> None:
    spaced = " ".join(text.split())
    for phrase in phrases(text, {}):
        assert phrase in spaced
        assert len(phrase) <= MAX_PHRASE_CHARS
        assert any(key not in STOP_WORDS for key in read_keys(phrase))
