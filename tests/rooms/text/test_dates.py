from __future__ import annotations

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.text.dates import (
    SAYS_WHEN,
    find_dates,
    find_identifiers,
    find_windows,
    said_words,
    wanted_words,
)
from noctuary.text.marks import may_concern_dates
from noctuary.text.tokens import tokenize


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


@pytest.mark.parametrize(
    ("question", "windows"),
    [
        ("What broke on 5 July 2023?", ["2023-07-04..2023-07-19"]),
        ("What broke on July 5th?", ["2022-07-04..2022-07-19", "2023-07-04..2023-07-19"]),
        ("the 5th of july", ["2022-07-04..2022-07-19", "2023-07-04..2023-07-19"]),
        ("7月5日发生了什么", ["2022-07-04..2022-07-19", "2023-07-04..2023-07-19"]),
        ("7월 5일에", ["2022-07-04..2022-07-19", "2023-07-04..2023-07-19"]),
        ("2023年7月5日", ["2023-07-04..2023-07-19"]),
        ("Was geschah am 05.07.2023?", ["2023-07-04..2023-07-19"]),
        ("since 2023-07-05T10:00", ["2023-07-04..2023-07-19"]),
        ("in February 2024", ["2024-02-01..2024-03-07"]),
        ("in December, 2023", ["2023-12-01..2024-01-07"]),
        ("In 2023, who left?", ["2023-01-01..2023-12-31"]),
        ("camping in July?", ["2022-07-01..2022-08-07", "2023-07-01..2023-08-07"]),
        ("the first week of May", ["2022-05-01..2022-06-07", "2023-05-01..2023-06-07"]),
        ("In 2023, on 5 July 2023", ["2023-07-04..2023-07-19"]),
        ("2 May and 9 May, 2023", [
            "2023-05-08..2023-05-23", "2022-05-01..2022-05-16", "2023-05-01..2023-05-16",
        ]),
    ],
)  # fmt: skip
def test_a_question_spans_its_dates(question: str, windows: list[str]) -> None:
    found = [f"{w.first}..{w.last}" for w in find_windows(question, [2022, 2023])]
    assert found == windows


@pytest.mark.parametrize(
    "question",
    [
        "Who is on call?", "you may 5 times", "$2023", "2023.1", "port 2023/tcp", "v2023",
        "30 February", "at 20:23", "in May's car", "ask May", "in march", "in May-field",
        "2023-24", "PR-2023",
    ],
)  # fmt: skip
def test_a_question_without_a_date_spans_nothing(question: str) -> None:
    assert find_windows(question, [2023]) == []


def test_a_pasted_log_has_few_windows_and_no_year_beyond_the_calendar() -> None:
    log = " ".join(f"2023-{month:02}-{day:02}" for month in range(1, 13) for day in range(1, 29))
    assert len(find_windows(log, [2023])) == 8
    assert find_windows("5 July", [0, 10_000]) == []
    assert find_windows("31 December 9999", []) == []


WEDNESDAY = date(2023, 5, 10)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Yesterday we went.", ["2023-05-09"]),
        ("see you tomorrow", ["2023-05-11"]),
        ("last night", ["2023-05-09"]),
        ("last Friday", ["2023-05-05"]),
        ("last Wed", ["2023-05-03"]),
        ("next Wednesday", ["2023-05-17"]),
        ("this monday", ["2023-05-08"]),
        ("last weekend", ["2023-05-06", "2023-05-07"]),
        ("3 days ago", ["2023-05-07"]),
        ("a couple of days back", ["2023-05-08"]),
        ("two weeks ago", ["2023-04"]),
        ("last month", ["2023-04"]),
        ("six months ago", ["2022-11"]),
        ("on 12 December", ["2022-12-12"]),
        ("7月5日", ["2023-07-05"]),
        ("in January", ["2023-01"]),
        ("on 2021-03-04", ["2021-03-04"]),
        ("昨天去了", ["2023-05-09"]),
        ("a few days ago", []),
        ("last year", []),
        ("in 2019", []),
    ],
)
def test_a_turn_says_days_from_its_own_date_on(text: str, said: list[str]) -> None:
    found = said_words(text, WEDNESDAY, is_turn=True)
    assert SAYS_WHEN in found
    assert [w[1:] for w in found if w[1].isdigit() and not is_month_of(w, said)] == said
    assert said_words(text, WEDNESDAY, is_turn=False) == [w for w in found if w != SAYS_WHEN]


def is_month_of(word: str, said: list[str]) -> bool:
    return any(day.startswith(word[1:]) and day != word[1:] for day in said)


@pytest.mark.parametrize(
    "text", ["last one", "the next day off", "You may go", "last sunny day", "5"]
)
def test_what_says_no_date_has_no_words(text: str) -> None:
    assert said_words(text, WEDNESDAY, is_turn=True) == []


@given(st.dates(date(2, 1, 1)), st.integers(0, 99))
def test_days_ago_are_the_day_itself(written: date, days: int) -> None:
    day = written - timedelta(days=days)
    found = said_words(f"{days} days ago", written, is_turn=True)
    assert {f"@{day}", f"@--{day:%m-%d}", f"@--{day:%m}"} <= {*found}
    named, _ = wanted_words(f"on {day}")
    assert not 1000 <= day.year < 3000 or named == [f"@{day}"]


@given(st.text(), st.sampled_from([None, date.min, date.max, WEDNESDAY]))
def test_any_text_has_words_that_the_tokenizer_never_makes(text: str, day: date | None) -> None:
    said = said_words(f"last month, 29 February, {text}, next Friday", day, is_turn=True)
    assert not {*said} & {*tokenize(" ".join([text, *said]))}


@pytest.mark.parametrize(
    ("question", "asks"),
    [
        ("When did we move?", True),
        ("Which year was it?", True),
        ("how long ago", True),
        ("妈妈什么时候来", True),
        ("it fails when I run it", False),
        ("What happened?", False),
    ],
)
def test_a_question_for_a_date_is_told(question: str, *, asks: bool) -> None:
    assert wanted_words(question) == ([], [SAYS_WHEN] if asks else [])
    assert may_concern_dates(question) or not asks


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("https://example.org/a?b=1", "url"),
        ("ops@example.org", "email"),
        ("src/app/main.py", "path"),
        ("/etc/nginx/nginx.conf", "path"),
        (r"C:\work\notes", "path"),
        ("setup.cfg.toml", "path"),
        ("OPS-412", "ticket"),
        ("CVE-2024-12345", "ticket"),
        ("#77", "ticket"),
        ("v2.3", "version"),
        ("2.4.1-rc1", "version"),
        ("retry_limit", "identifier"),
        ("maxRetries", "identifier"),
        ("550e8400-e29b-41d4-a716-446655440000", "identifier"),
        ("9f3c1ab", "identifier"),
    ],
)
def test_each_written_form_has_its_kind(text: str, kind: str) -> None:
    content = f"see {text} (again)"
    found = find_identifiers(content)
    assert [(content[f.start : f.end], f.kind) for f in found] == [(text, kind)]


@pytest.mark.parametrize(
    "text", ["1969", "3.5", "20240512", "defaced", "a-b", "and/or", "e.g. this"]
)
def test_common_words_and_numbers_are_no_identifiers(text: str) -> None:
    assert find_identifiers(f"it was {text} again") == []
