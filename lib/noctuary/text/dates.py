"""Dates with a year, spelled numbers, and things with a written form of their own in a text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from typing import NamedTuple

_CARDINALS = "zero one two three four five six seven eight nine ten eleven twelve"
_ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
# Spelled numbers and ordinals, and the nouns that they count.
NUMBER_WORDS = {word: n for n, word in enumerate(_CARDINALS.split())} | {
    word: n for n, word in enumerate(_ORDINALS.split(), start=1)
}

MONTH_NAMES = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_MONTH_OF = {name[:3]: number for number, name in enumerate(MONTH_NAMES, start=1)}
_DAYS_OF_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)

_LOOK_BACK_CHARS = 28  # read before a year, at most: "30th of September, " and its like

_ORDINAL = r"(?:st|nd|rd|th)?"
_MONTH = rf"(?P<month>{'|'.join(f'{name}|{name[:3]}' for name in MONTH_NAMES)}|sept)\.?"
_YEAR = re.compile(r"(?<!\d)[12]\d{3}(?!\d)")
_BEFORE_YEAR = re.compile(
    rf"(?<![\w.])(?:(?P<day>\d{{1,2}}){_ORDINAL}\s(?:of\s)?)?{_MONTH}"
    rf"(?:\s(?P<day_after>\d{{1,2}}){_ORDINAL})?\s?,?\s?$",
    re.IGNORECASE,
)
_DOTTED_BEFORE_YEAR = re.compile(r"(?<![\w.])(?P<day>\d{1,2})\.\s?(?P<number>\d{1,2})\.\s?$")
_AFTER_YEAR = re.compile(
    r"(?P<mark>[-/])(?P<number>\d{2})(?:(?P=mark)(?P<day>\d{2}))?(?![\d/-])"
    r"|\s?[年년]\s?(?P<cjk_number>\d{1,2})\s?[月월](?:\s?(?P<cjk_day>\d{1,2})\s?[日일])?"
)


class Date(NamedTuple):
    """A date in a text."""

    start: int
    end: int
    iso: str  # `2024-05-12`, or `2024-05` where no day is given


def find_dates(content: str) -> list[Date]:
    """Return the dates of a text, left to right."""
    # Read are `2024-05-12`, `2024/05/12`, `2024-05`, `12 May 2024`, `May 12, 2024`, `May 2024`,
    # `12.05.2024` and years with the characters for year, month and day. A year alone and a date
    # without its year are not dates here; `5/12/2024` is left out because its order is unknown.
    found = (_around(content, match) for match in _YEAR.finditer(content))
    return [date for date in found if date is not None]


def _around(content: str, year: re.Match[str]) -> Date | None:
    after = _AFTER_YEAR.match(content, year.end())
    if after is not None:
        number = after["number"] or after["cjk_number"]
        iso = _iso(year.group(), number, after["day"] or after["cjk_day"])
        return Date(year.start(), after.end(), iso) if iso else None
    return _ending_with(content, year)


def _ending_with(content: str, year: re.Match[str]) -> Date | None:
    low = max(0, year.start() - _LOOK_BACK_CHARS)
    before = content[low : year.start()]
    match = _BEFORE_YEAR.search(before)
    if match is not None:
        number, day = str(_MONTH_OF[match["month"][:3].lower()]), match["day_after"] or match["day"]
    else:
        match = _DOTTED_BEFORE_YEAR.search(before)
        if match is None:
            return None
        number, day = match["number"], match["day"]
    iso = _iso(year.group(), number, day)
    return Date(low + match.start(), year.end(), iso) if iso else None


def _iso(year: str, number: str, day: str | None) -> str | None:
    """Return the ISO form, or None for a month or day that no calendar has."""
    if not 1 <= int(number) <= len(MONTH_NAMES):
        return None
    if day is None:
        return f"{int(year):04}-{int(number):02}"
    if not 1 <= int(day) <= _DAYS_OF_MONTH[int(number) - 1]:
        return None
    return f"{int(year):04}-{int(number):02}-{int(day):02}"


# The windows of a question's dates. People mention a day for about two weeks after it, so a window
# begins early and ends late.


_DAY_SPAN = (timedelta(days=-1), timedelta(days=14))
_MONTH_TAIL = timedelta(days=7)
_MOST_DATES = 8  # dates of one question that are read: a pasted log names hundreds

_NO_YEAR = re.compile(
    rf"(?<![\w.])(?:(?P<day>\d{{1,2}}){_ORDINAL}\s(?:of\s)?{_MONTH}(?!\w)"
    rf"|{_MONTH.replace('month', 'month_first')}\s(?P<day_after>\d{{1,2}}){_ORDINAL}(?![\w:]))"
    r"|(?P<cjk_number>\d{1,2})\s?[月월]\s?(?P<cjk_day>\d{1,2})\s?[日일号]",
    re.IGNORECASE,
)
_LOWER_CASE_WORDS = frozenset({"mar", "march", "may"})
_YEAR_ALONE = re.compile(r"(?<![\w.,:$€£#/+-])20\d\d(?![\w%/]|[-.,:]\d)")


class Window(NamedTuple):
    """The days, both ends inclusive, that a date in a question may be about."""

    text: str  # as the question has it
    first: date
    last: date


def find_windows(question: str, years: Iterable[int]) -> list[Window]:
    """Return the windows of a question's dates: from `find_dates`, else days of `years`.

    A day spans from the day before to 14 days after, a month to 7 days after. A day without a year
    ("5 July") spans one window in each of `years`. A year alone counts if nothing else is found.
    """
    rest, found = question, list[Window]()
    for stated in find_dates(question)[:_MOST_DATES]:
        text = question[stated.start : stated.end]
        rest = rest[: stated.start] + " " * len(text) + rest[stated.end :]
        found += _span(text, *map(int, stated.iso.split("-")))
    known = list(years)
    for text, month, day in _days_without_year(rest):
        found += (window for year in known for window in _span(text, year, month, day))
    return found or [
        window
        for match in list(_YEAR_ALONE.finditer(rest))[:_MOST_DATES]
        for window in _span(match.group(), int(match.group()))
    ]


def _days_without_year(text: str) -> Iterator[tuple[str, int, int]]:
    for match in list(_NO_YEAR.finditer(text))[:_MOST_DATES]:
        name = match["month"] or match["month_first"]
        if name in _LOWER_CASE_WORDS:
            continue
        number = match["cjk_number"] or _MONTH_OF[name[:3].lower()]
        yield (
            match.group(),
            int(number),
            int(match["cjk_day"] or match["day"] or match["day_after"]),
        )


def _span(text: str, year: int, month: int = 0, day: int = 0) -> Iterator[Window]:
    """Yield the window of a date; none for a date that no calendar has."""
    try:
        if not month:
            yield Window(text, date(year, 1, 1), date(year, 12, 31))
        elif not day:
            after = date(year + month // 12, month % 12 + 1, 1)
            yield Window(text, date(year, month, 1), after - timedelta(days=1) + _MONTH_TAIL)
        else:
            before, behind = _DAY_SPAN
            at = date(year, month, day)
            yield Window(text, at + before, at + behind)
    except (ValueError, OverflowError):
        return


# Every repeat that could restart at each word is bounded: reading stays linear in the text.
# The name of the group is the kind; the first alternative that fits wins.
_IDENTIFIER = r"""
    (?P<url>https?://[^\s<>"')\]]+)
    | (?P<email>\b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8})
    | (?P<path>
        (?<![\w/.])(?:~|\.{1,2})?(?:/[\w.@+-]+){2,}                        # from a root
        | \b[A-Za-z]:\\(?:[\w.@+-]{1,64}\\){0,11}[\w.@+-]{1,64}            # from a drive
        | \b[\w-]{1,64}(?:/[\w.-]{1,64}){0,11}/[\w-]{1,64}\.[A-Za-z]\w{0,7}\b
        | \b[\w-]{1,64}(?:\.[\w-]{1,64}){0,4}?                             # file name by its ending
          \.(?:py|js|ts|tsx|go|rs|java|c|h|cpp|rb|sh|sql|md|json|ya?ml|toml|txt|csv|lock|env)\b)
    | (?P<ticket>\bCVE-\d{4}-\d{4,7}\b | \b[A-Z][A-Z0-9]+-\d+\b | (?<!\w)\#\d+\b)
    | (?P<version>\bv\d+(?:\.\d+)*\b | \b\d+\.\d+\.\d+(?:[-+.][\w.]+)?\b)
    | (?P<identifier>
        \b[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)+\b                         # snake_case
        | \b[a-z]+(?:[A-Z][a-z0-9]+)+\b                                    # camelCase
        | \b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b                  # UUID
        | \b(?=[a-f]{0,39}\d)(?=\d{0,39}[a-f])[0-9a-f]{7,40}\b)            # commit
    """
# No identifier holds a space, and each shows one of these; most words of a text are passed over.
_HINT = r"[/@_#\\]|[a-z][A-Z]|\.\w|-\d|-[0-9a-f]{4}-|\bv\d|[a-f]\d|\d[a-f]"


class Identifier(NamedTuple):
    """An identifier in a text: offsets into it, end exclusive."""

    start: int
    end: int
    kind: str  # "url", "email", "path", "ticket", "version" or "identifier"


def find_identifiers(content: str) -> list[Identifier]:
    """Return the identifiers of a text, left to right, not overlapping."""
    if re.search(_HINT, content) is None:
        return []
    identifier = re.compile(_IDENTIFIER, re.VERBOSE)  # a recall reads dates alone
    return [
        Identifier(*match.span(), match.lastgroup or "identifier")
        for chunk in re.finditer(r"\S+", content)
        if re.search(_HINT, chunk.group())
        for match in identifier.finditer(content, *chunk.span())
    ]
