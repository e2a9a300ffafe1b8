from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.compact.claims import find_numerals, loose_numbers, plain_digits, spell_out


def read(text: str) -> list[set[str]]:
    return [set(n.readings) for n in find_numerals(spell_out(plain_digits(text), claims=True))]


@pytest.mark.parametrize(
    ("text", "readings"),
    [
        ("12 cats", [{"12"}]),
        ("twelve cats", [{"12"}]),
        ("twenty-five or thirty one", [{"25"}, {"31"}]),
        ("two hundred and seven", [{"207"}]),
        ("three thousand four hundred", [{"3400"}]),
        ("one million two hundred thousand", [{"1200000"}]),
        ("1,000", [{"1000", "1"}]),
        ("1.000,50", [{"1000.5"}]),
        ("1 000 000", [{"1000000"}]),
        ("NGN 750,000.", [{"750000", "750"}]),
        ("1.5 million", [{"1500000"}]),
        ("2k and 5m", [{"2", "2000"}, {"5", "5000000"}]),
        ("2.50", [{"2.5"}]),
        ("the 3rd of 1st", [{"3"}, {"1"}]),
        ("$40, 12% and 5kg", [{"40"}, {"12"}, {"5"}]),
        ("١٢ و 3", [{"12"}, {"3"}]),
        ("预算五万元，共12份", [{"12"}, {"50000"}]),
        ("one of them, first", []),
        ("version v2 of B12", []),
        ("9" * 40, []),
    ],
)
def test_values_are_read_however_they_are_written(text: str, readings: list[set[str]]) -> None:
    assert sorted(map(sorted, read(text))) == sorted(map(sorted, readings))


@given(st.integers(0, 999_999))
def test_grouping_changes_no_value(value: int) -> None:
    for written in (f"{value}", f"{value:,}", f"{value:,}".replace(",", " ")):
        assert any(str(value) in readings for readings in read(f"about {written} of them"))


@given(st.text(max_size=60))
def test_any_text_is_read_without_an_error(text: str) -> None:
    plain = spell_out(plain_digits(text), claims=False)
    for numeral in find_numerals(plain):
        assert 0 <= numeral.start < numeral.end <= len(plain)
        assert numeral.readings
    assert all(loose_numbers(text))


@pytest.mark.parametrize(
    ("text", "value"), [("a dozen", "12"), ("zwei Hunde", "2"), ("три билета", "3"), ("两只", "2")]
)
def test_sources_support_numbers_of_other_words(text: str, value: str) -> None:
    assert value in loose_numbers(text)
