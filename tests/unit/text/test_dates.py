from __future__ import annotations

import pytest

from noctuary.text.dates import find_dates


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        ("2024-05-12", "2024-05-12"),
        ("2024/05/12", "2024-05-12"),
        ("2024-05", "2024-05"),
        ("12 May 2024", "2024-05-12"),
        ("12th of May 2024", "2024-05-12"),
        ("May 12, 2024", "2024-05-12"),
        ("Sept. 3rd, 2024", "2024-09-03"),
        ("february 29 2024", "2024-02-29"),
        ("May 2024", "2024-05"),
        ("12.05.2024", "2024-05-12"),
        ("2024年5月12日", "2024-05-12"),
        ("2024年5月", "2024-05"),
        ("2024년 5월 12일", "2024-05-12"),
    ],
)
def test_a_date_is_read_in_each_form(text: str, iso: str) -> None:
    content = f"on {text}, twice"
    assert [(content[d.start : d.end], d.iso) for d in find_dates(content)] == [(text, iso)]


def test_the_time_of_day_is_no_part_of_a_date() -> None:
    content = "at 2024-05-12T10:00:00Z"
    assert [content[d.start : d.end] for d in find_dates(content)] == ["2024-05-12"]


@pytest.mark.parametrize(
    "text",
    ["2024", "in 2024", "2024-13-01", "2024-02-30", "5/12/2024", "May", "12 May", "32 May 2024"],
)
def test_what_is_no_full_date_gives_none(text: str) -> None:
    assert find_dates(f"on {text} we left") == []


def test_a_range_of_years_is_no_date() -> None:
    assert find_dates("1939-45 and 1914-1918 and 2024-05-12345") == []


def test_dates_stand_in_order() -> None:
    dates = find_dates("from 1 May 2024 to 2024-06-02")
    assert [d.iso for d in dates] == ["2024-05-01", "2024-06-02"]
