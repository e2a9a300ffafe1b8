from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.compact.claims import (
    Date,
    find_moments,
    find_numerals,
    is_date_covered,
    loose_numbers,
    plain_digits,
    spell_out,
)


def dates(text: str, *, claims: bool = True) -> list[set[str]]:
    found = find_moments(spell_out(plain_digits(text), claims=claims), claims=claims)
    return [{str(date) for date in moment.dates} for moment in found if moment.dates]


def minutes(text: str) -> list[set[int]]:
    found = find_moments(spell_out(plain_digits(text), claims=True), claims=True)
    return [set(moment.minutes) for moment in found if moment.minutes]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-05-12", [{"2024-05-12"}]),
        ("on May 12, 2024", [{"2024-05-12"}]),
        ("on 12 May", [{"05-12"}]),
        ("May twelfth", [{"05-12"}]),
        ("September 2nd", [{"09-02"}]),
        ("in June", [{"06"}]),
        ("on Mondays", [{"monday"}]),
        ("12/25/2023", [{"2023-12-25"}]),
        ("5/12/2024", [{"2024-05-12", "2024-12-05"}]),
        ("03.07.2024", [{"2024-07-03"}]),
        ("6月15日", [{"06-15"}]),
        ("周三见", [{"wednesday"}]),
        ("you may march 3/4", []),
    ],
)
def test_dates_are_read_however_they_are_written(text: str, expected: list[set[str]]) -> None:
    assert dates(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("at 3 pm", [{900}]),
        ("at three p.m.", [{900}]),
        ("15:00", [{900}]),
        ("3:30 or 3 o'clock", [{210, 930}, {180, 900}]),
        ("12 am and 12pm", [{0}, {720}]),
        ("noon", [{720}]),
        ("下午3点半", [{930}]),
        ("um 9 Uhr", [{540, 1260}]),
        ("2.5 seconds in 30", []),
        ("25:99", []),
    ],
)
def test_times_are_minutes_of_the_day(text: str, expected: list[set[int]]) -> None:
    assert minutes(text) == expected


def test_a_date_covers_what_says_less() -> None:
    (moment,) = find_moments("May 12", claims=True)
    assert is_date_covered(moment, [Date(2024, 5, 12)])
    assert not is_date_covered(moment, [Date(2024, 5, 13), Date(2024, 5)])


@given(st.text(max_size=60))
def test_moments_do_not_overlap_and_stay_in_range(text: str) -> None:
    last = 0
    for moment in find_moments(plain_digits(text), claims=False):
        assert moment.start >= last
        last = moment.end
        assert all(0 <= minute < 1440 for minute in moment.minutes)
        assert bool(moment.dates) != bool(moment.minutes)


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
