"""Dates, days of the week and times of day in a text, reduced to what they say.

What belongs here: reading them and whether one covers another. What does not: relative ones
("tomorrow"), which have no value without a clock.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from noctuary.compact.facts.lexicon import MONTHS, WEEKDAYS
from noctuary.graph.dates import find_dates

_MONTH_NAMES = "|".join(f"{name}|{name[:3]}" for name in MONTHS)
_MONTH = rf"(?P<month>sept|{_MONTH_NAMES})"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_NAMED = re.compile(
    rf"(?<![\w.]){_DAY}\s(?:of\s)?{_MONTH}\b(?!\.?\w)"
    rf"|\b(?P<month_first>sept|{_MONTH_NAMES})\.?\s(?P<day_after>\d{{1,2}})(?:st|nd|rd|th)?(?![\d:/])",
    re.IGNORECASE,
)
_BARE_MONTH = re.compile(rf"\b(?P<month>{'|'.join(MONTHS)})\b", re.IGNORECASE)
_SLASHED = re.compile(r"(?<![\w/.])(\d{1,2})/(\d{1,2})(?:/(\d{4}|\d{2}))?(?![\w/])")
_CJK = re.compile(r"(?<!\d)(?P<month>\d{1,2})\s?[月월]\s?(?P<day>\d{1,2})\s?[日号號일]")
_WEEKDAY = re.compile(rf"\b(?P<day>{'|'.join(WEEKDAYS)})s?\b", re.IGNORECASE)
_CJK_WEEKDAY = re.compile("(?:周|週|星期|礼拜)(?P<day>[一二三四五六日天])")
_CJK_WEEKDAYS = {c: i for i, c in enumerate("一二三四五六日", start=1)} | {"天": 7}

_CLOCK = re.compile(
    r"(?<![\w:.,])(?P<hour>\d{1,2})(?:(?:[:.]|\s?h\s?)(?P<minute>\d{2})(?!\d)(?::\d{2})?)?"
    r"\s?(?P<half>a\.?m\b\.?|p\.?m\b\.?|o['’]?clock\b|uhr\b|h\b)?",
    re.IGNORECASE,
)
_CJK_CLOCK = re.compile(
    r"(?P<half>凌晨|早上|上午|中午|下午|晚上|傍晚|午前|午後|오전|오후)?\s?(?P<hour>\d{1,2})\s?[点點時时시]"
    r"(?:(?P<minute>\d{1,2})[分분]?|(?P<thirty>半))?"
)
_CJK_LATE = frozenset({"下午", "晚上", "傍晚", "午後", "오후"})
_NAMED_TIMES = re.compile(r"\b(noon|midday|midnight)\b", re.IGNORECASE)
_MINUTES_OF = {"noon": 720, "midday": 720, "midnight": 0}
_HALF_DAY_MIN = 720
_DAY_MIN = 1440
_HINT = re.compile(
    r"\d|\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|mon|tue|wed|thu|fri|sat|sun|noon|mid)"
    r"|[周週星礼]",
    re.IGNORECASE,
)
_AMBIGUOUS_MONTHS = frozenset({"march", "may"})


class Date(NamedTuple):
    """A date of which parts may be missing.

    Attributes:
        year: Or None.
        month: 1 to 12, or None.
        day: 1 to 31, or None.
        weekday: 1 for Monday to 7, or None; never with the other three.
    """

    year: int | None = None
    month: int | None = None
    day: int | None = None
    weekday: int | None = None

    def covers(self, other: Date) -> bool:
        """Say whether this date says everything that the other one says."""
        return all(theirs in (None, ours) for ours, theirs in zip(self, other, strict=True))

    def __str__(self) -> str:
        if self.weekday is not None:
            return list(WEEKDAYS)[self.weekday - 1]
        year = "" if self.year is None else f"{self.year:04}-"
        month = "??" if self.month is None else f"{self.month:02}"
        return f"{year}{month}" + ("" if self.day is None else f"-{self.day:02}")


class Moment(NamedTuple):
    """A date or a time of day in a text.

    Attributes:
        start: First character.
        end: One past the last one.
        dates: What it may mean as a date: 5/12 is two of them; () for a time.
        minutes: What it may mean as minutes of the day: "3 o'clock" is two; () for a date.
    """

    start: int
    end: int
    dates: tuple[Date, ...] = ()
    minutes: tuple[int, ...] = ()


def find_moments(text: str, *, claims: bool) -> list[Moment]:
    """Return the dates and times of a text, left to right, not overlapping.

    Args:
        text: With digits of every script as 0 to 9 and number words spelled out.
        claims: True leaves out "may" and "march", and months and weekdays in lower case, which may
            be other words.
    """
    if _HINT.search(text) is None:
        return []
    found: list[Moment] = []
    for moment in sorted(_all(text, claims), key=lambda m: (m.start, m.start - m.end)):
        if not found or moment.start >= found[-1].end:
            found.append(moment)
    return found


def is_date_covered(claim: Moment, dates: Collection[Date]) -> bool:
    """Say whether one reading of a claimed date is covered by a single date of the sources."""
    return any(source.covers(reading) for reading in claim.dates for source in dates)


def _all(text: str, claims: bool) -> Iterator[Moment]:
    for date in find_dates(text):
        parts = [int(part) for part in date.iso.split("-")]
        yield Moment(date.start, date.end, (Date(*parts),))
    yield from _named_dates(text, claims)
    for match in _SLASHED.finditer(text):
        yield from _slashed(match)
    if not text.isascii():
        yield from _cjk_dates(text)
    yield from _times(text)


def _cjk_dates(text: str) -> Iterator[Moment]:
    for match in _CJK.finditer(text):
        yield from _dated(match.start(), match.end(), int(match["month"]), int(match["day"]))
    for match in _CJK_WEEKDAY.finditer(text):
        day = Date(weekday=_CJK_WEEKDAYS[match["day"]])
        yield Moment(match.start(), match.end(), (day,))


def _named_dates(text: str, claims: bool) -> Iterator[Moment]:
    for match in _NAMED.finditer(text):
        name = match["month"] or match["month_first"]
        day = int(match["day"] or match["day_after"])
        yield from _dated(match.start(), match.end(), _month(name), day)
    for match in _BARE_MONTH.finditer(text):
        name = match["month"]
        if claims and (name.lower() in _AMBIGUOUS_MONTHS or not name[0].isupper()):
            continue
        yield Moment(match.start(), match.end(), (Date(month=_month(name)),))
    for match in _WEEKDAY.finditer(text):
        if not claims or match["day"][0].isupper():
            day = Date(weekday=WEEKDAYS[match["day"].lower()])
            yield Moment(match.start(), match.end(), (day,))


def _month(name: str) -> int:
    return next(number for full, number in MONTHS.items() if full.startswith(name.lower()[:3]))


def _dated(start: int, end: int, month: int, day: int) -> Iterator[Moment]:
    if 1 <= month <= 12 and 1 <= day <= 31:
        yield Moment(start, end, (Date(month=month, day=day),))


def _slashed(match: re.Match[str]) -> Iterator[Moment]:
    one, two = int(match[1]), int(match[2])
    year = None if match[3] is None else int(match[3]) + (2000 if len(match[3]) == 2 else 0)
    readings = {
        Date(year, month, day)
        for month, day in ((one, two), (two, one))
        if 1 <= month <= 12 and 1 <= day <= 31
    }
    if readings and (year is not None or max(one, two) > 9):
        yield Moment(match.start(), match.end(), tuple(sorted(readings, key=str)))


def _times(text: str) -> Iterator[Moment]:
    for match in _NAMED_TIMES.finditer(text):
        yield Moment(*match.span(), minutes=(_MINUTES_OF[match[1].lower()],))
    for match in _CLOCK.finditer(text):
        if match["half"] or (match["minute"] and ":" in match.group()):
            half = (match["half"] or "").lower()
            yield from _time(match, int(match["minute"] or 0), half[:1])
    for match in () if text.isascii() else _CJK_CLOCK.finditer(text):
        half = "p" if match["half"] in _CJK_LATE else "a" if match["half"] else ""
        yield from _time(match, 30 if match["thirty"] else int(match["minute"] or 0), half)


def _time(match: re.Match[str], minute: int, half: str) -> Iterator[Moment]:
    hour = int(match["hour"])
    if hour > 24 or minute > 59:
        return
    at = (hour % 24) * 60 + minute
    if half == "p":
        minutes: tuple[int, ...] = (at % _HALF_DAY_MIN + _HALF_DAY_MIN,)
    elif half == "a":
        minutes = (at % _HALF_DAY_MIN,)
    elif hour in range(1, 13):
        minutes = tuple(sorted({at % _DAY_MIN, (at + _HALF_DAY_MIN) % _DAY_MIN}))
    else:
        minutes = (at,)
    end = match.end()
    while end > match.start() and match.string[end - 1].isspace():
        end -= 1
    yield Moment(match.start(), end, minutes=minutes)
