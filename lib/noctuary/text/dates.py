"""Dates, spelled numbers, and things with a written form of their own in a text."""

# Not `from __future__ import annotations`: NamedTuple compiles each annotation that is a text.
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import date, timedelta
from typing import Any, NamedTuple

from noctuary.text.marks import DATE_MARK

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
_YEAR = r"(?<!\d)[12]\d{3}(?!\d)"
_BEFORE_YEAR = (
    rf"(?i)(?<![\w.])(?:(?P<day>\d{{1,2}}){_ORDINAL}\s(?:of\s)?)?{_MONTH}"
    rf"(?:\s(?P<day_after>\d{{1,2}}){_ORDINAL})?\s?,?\s?$"
)
_DOTTED_BEFORE_YEAR = r"(?<![\w.])(?P<day>\d{1,2})\.\s?(?P<number>\d{1,2})\.\s?$"
_AFTER_YEAR = (
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
    found = (_around(content, match) for match in re.finditer(_YEAR, content))
    return [date for date in found if date is not None]


def _around(content: str, year: re.Match[str]) -> Date | None:
    after = re.compile(_AFTER_YEAR).match(content, year.end())
    if after is not None:
        number = after["number"] or after["cjk_number"]
        iso = _iso(year.group(), number, after["day"] or after["cjk_day"])
        return Date(year.start(), after.end(), iso) if iso else None
    return _ending_with(content, year)


def _ending_with(content: str, year: re.Match[str]) -> Date | None:
    low = max(0, year.start() - _LOOK_BACK_CHARS)
    before = content[low : year.start()]
    match = re.search(_BEFORE_YEAR, before)
    if match is not None:
        number, day = str(_MONTH_OF[match["month"][:3].lower()]), match["day_after"] or match["day"]
    else:
        match = re.search(_DOTTED_BEFORE_YEAR, before)
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


# The dates that a question names. People mention a day for about two weeks after it, so a window
# begins early and ends late.


_DAY_SPAN = (timedelta(days=-1), timedelta(days=14))
_MONTH_TAIL = timedelta(days=7)
_MOST_DATES = 8  # dates of one text that are read: a pasted log names hundreds

_NO_YEAR = (
    rf"(?i)(?<![\w.])(?:(?P<day>\d{{1,2}}){_ORDINAL}\s(?:of\s)?{_MONTH}(?!\w)"
    rf"|{_MONTH.replace('month', 'month_first')}\s(?P<day_after>\d{{1,2}}){_ORDINAL}(?![\w:]))"
    r"|(?P<cjk_number>\d{1,2})\s?[月월]\s?(?P<cjk_day>\d{1,2})\s?[日일号]"
)
_LOWER_CASE_WORDS = frozenset({"mar", "march", "may"})
_TITLED = tuple(map(str.title, MONTH_NAMES))
# "May" and "March" are words too: only one before them says that they are months.
_MONTH_ALONE = (
    r"\b(?i:in|of|during|since|until|by|early|mid|late|last|this|next)[\s-]"
    rf"(?P<month>{'|'.join(_TITLED)})(?![\w'’-]|\s\d)"
)
_YEAR_ALONE = r"(?<![\w.,:$€£#/+-])20\d\d(?![\w%/]|[-.,:]\d)"
_ASKS_WHEN = (
    r"(?i)\b(?:when(?:\sexactly)?\s(?:did|do|does|was|were|is|are|will|has|have|had)"
    r"|(?:what|which)\s(?:date|day|month|year)|how\slong\sago)\b"
    r"|什么时候|啥时候|何时|哪一?天|哪一?年|几[月号]"
)


class Window(NamedTuple):
    """The days, both ends inclusive, that a date in a question may be about."""

    text: str  # as the question has it
    first: date
    last: date


def find_asked(question: str) -> list[Date]:
    """Return the dates that a question names, those with a year first.

    Those without one are `--05-12` or `--05`. A year alone (`2024`) counts if nothing else is
    found.
    """
    rest, found = question, find_dates(question)[:_MOST_DATES]
    for stated in found:
        rest = _without(rest, stated)
    for stated in _without_year(rest):
        found.append(stated)
        rest = _without(rest, stated)
    years = () if found or "20" not in rest else list(re.finditer(_YEAR_ALONE, rest))[:_MOST_DATES]
    return found or [Date(*match.span(), match.group()) for match in years]


def find_windows(question: str, years: Iterable[int]) -> list[Window]:
    """Return the windows of the dates of `find_asked`; one without a year has one in each year.

    A day spans from the day before to 14 days after, a month to 7 days after.
    """
    known = list(years)
    return [
        window
        for start, end, iso in find_asked(question)
        for year in (known if iso.startswith("--") else [int(iso[:4])])
        for window in _span(question[start:end], year, *map(int, _after_year(iso)))
    ]


def _without(text: str, stated: Date) -> str:
    return text[: stated.start] + " " * (stated.end - stated.start) + text[stated.end :]


def _without_year(text: str) -> Iterator[Date]:
    has_digit = any(map(str.isdigit, text))  # both searches are for few texts
    for match in list(re.finditer(_NO_YEAR, text))[:_MOST_DATES] if has_digit else ():
        name = match["month"] or match["month_first"]
        if name in _LOWER_CASE_WORDS:
            continue
        number = match["cjk_number"] or _MONTH_OF[name[:3].lower()]
        day = match["cjk_day"] or match["day"] or match["day_after"]
        text = _without(text, found := Date(*match.span(), f"--{int(number):02}-{int(day):02}"))
        yield found
    is_named = any(map(text.__contains__, _TITLED))
    for match in list(re.finditer(_MONTH_ALONE, text))[:_MOST_DATES] if is_named else ():
        yield Date(*match.span("month"), f"--{_MONTH_OF[match['month'][:3].lower()]:02}")


def _after_year(iso: str) -> list[str]:
    """Return month and day, as far as there are any."""
    return iso[2:].split("-") if iso.startswith("--") else iso.split("-")[1:]


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


# The dates that a text says, as words of its index entry: `@2024-05-12 @2024-05 @--05-12 @--05`. No
# word of a text begins with the mark, so only a question that names a date asks for one.

SAYS_WHEN = f"{DATE_MARK}when"  # of every turn that says any date

_COUNTS = {**NUMBER_WORDS, "a": 1, "an": 1, "couple": 2, "few": 3}
_DAY_WORDS = {
    "yesterday": -1, "last night": -1, "today": 0, "tonight": 0, "this morning": 0,
    "this afternoon": 0, "this evening": 0, "tomorrow": 1,
    "前天": -2, "昨天": -1, "昨晚": -1, "今天": 0, "今晚": 0, "明天": 1, "后天": 2,
}  # fmt: skip
_TURNS = {"last": -1, "past": -1, "this": 0, "next": 1}
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WEEKDAY = r"(?:mon|tue(?:s)?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?"
# Of a text in lower case.
_RELATIVE = rf"""
    (?P<word>{"|".join(_DAY_WORDS).replace(" ", "[ ]")})
    | \b(?P<count>\d{{1,2}}|{"|".join(_COUNTS)})\s(?:of\s)?
      (?P<counted>day|week|weekend|month|year)s?\s(?:ago|back)\b
    | \b(?P<turn>{"|".join(_TURNS)})\s(?P<unit>weekend|week|month|year|{_WEEKDAY})\b
    """
_RELATIVE_HINT = r"day|ago|last|past|this|next|back|night|morrow|[天晚]"


def date_words(iso: str) -> list[str]:
    """Return the words of a date and of its month; none of a year alone."""
    month = iso[:4] if iso.startswith("--") else iso[:7]
    return [f"{DATE_MARK}{each}" for each in dict.fromkeys((iso, month)) if "-" in each]


def wanted_words(question: str) -> tuple[list[str], list[str]]:
    """Return the words of the dates that a question names, and SAYS_WHEN if it asks for one."""
    named = (f"{DATE_MARK}{iso}" for _, _, iso in find_asked(question) if "-" in iso)
    return sorted(set(named)), [SAYS_WHEN] if re.search(_ASKS_WHEN, question) else []


def wanted_days(question: str) -> list[str]:
    """Return the words of the days that a question names, ascending; not those of months."""
    days = (iso for _, _, iso in find_asked(question) if len(_after_year(iso)) == 2)
    return sorted({f"{DATE_MARK}{iso}" for iso in days})


def spoken_date(word: str) -> str:
    """Return a word of a date as people read it."""
    if word == SAYS_WHEN:
        return "a date"
    iso = word.removeprefix(DATE_MARK)
    month, *day = _after_year(iso)
    return " ".join([MONTH_NAMES[int(month) - 1].title(), *day]) if iso.startswith("--") else iso


WHEN_SHARE = 0.6  # of the boost: that a text says some date is a weaker sign than the date itself


def date_factor(written: Any, said: Any, says_when: Any, boost: float) -> Any:
    """Return (1 + b)^(written + said) * (1 + 0.6 b)^says_when, of 0 or 1 each, or of arrays.

    `written`: at the date that a question names, or soon after. `said`: the text says that date.
    `says_when`: the text says some date, and the question asks for one.
    """
    return (1.0 + boost) ** (written + said) * (1.0 + WHEN_SHARE * boost) ** says_when


def said_words(content: str, written: date | None, *, is_turn: bool) -> list[str]:
    """Return the words of the dates that a text says; relative ones count from its own date.

    Of a week its months are said, of a year and of "a few days ago" SAYS_WHEN alone. Only turns
    have that: what was distilled from them is as good an answer to "when" without a date in it.
    """
    said = [_nearest(found.iso, written) for found in find_asked(content)]
    is_dated = bool(said)
    if written is not None and re.search(_RELATIVE_HINT, lower := content.lower()):
        for match in re.finditer(_RELATIVE, lower, re.VERBOSE):
            is_dated = True
            with suppress(ValueError, OverflowError):  # beyond the calendar
                said += _resolve(match, written)
    spoken = [f"--{iso[5:]}" for iso in said if iso[4:5] == "-" != iso[0]]
    words = {word for iso in (*said, *spoken) for word in date_words(iso)}
    return sorted(words.union([SAYS_WHEN] if is_dated and is_turn else []))


def _nearest(iso: str, written: date | None) -> str:
    """Return a date without a year with the one that brings it nearest, where that is known."""
    if written is None or not iso.startswith("--"):
        return iso
    days: list[date] = []
    for year in (written.year - 1, written.year, written.year + 1):
        with suppress(ValueError):  # 29 February, 30 February
            days.append(date.fromisoformat(f"{year:04}{iso[1:]}" + "-15" * (len(iso) == 4)))
    if not days:
        return iso
    return f"{min(days, key=lambda day: abs(day - written)).year:04}{iso[1:]}"


def _resolve(match: re.Match[str], written: date) -> list[str]:
    """Return the days or months that a relative expression means."""
    unit, count, turn = match["unit"] or match["counted"] or "day", match["count"], match["turn"]
    if count == "few" or unit == "year":
        return []
    steps = -int(_COUNTS.get(count, count)) if count else _TURNS.get(turn, 0)
    if unit == "month":
        months = written.year * 12 + written.month - 1 + steps
        return [f"{months // 12:04}-{months % 12 + 1:02}"]
    monday = written - timedelta(days=written.weekday() - 7 * steps)
    if unit == "week":
        return sorted({f"{monday:%Y-%m}", f"{monday + timedelta(days=6):%Y-%m}"})
    if unit == "weekend":
        return [str(monday + timedelta(days=days)) for days in (5, 6)]
    if unit == "day":
        return [str(written + timedelta(days=_DAY_WORDS.get(match["word"], steps)))]
    ahead = _WEEKDAYS.index(unit[:3]) - written.weekday()
    # "Last" and "next" are the nearest ones before and after the day itself.
    if steps:
        ahead = steps * ((steps * ahead - 1) % 7 + 1)
    return [str(written + timedelta(days=ahead))]


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
