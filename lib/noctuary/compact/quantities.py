"""Numbers, what they count, dates and times of day, as a text writes them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from decimal import Decimal
from functools import cache
from typing import NamedTuple

from noctuary.graph.fold import words
from noctuary.text.dates import find_dates, find_identifiers
from noctuary.text.tokens import UNSPACED, is_stop_word, regex_class, stem

# Closed word lists of the fact check, folded as noctuary.graph.fold does. Lists only.


_UNITS_TEXT = """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen
"""
UNITS = {word: value for value, word in enumerate(_UNITS_TEXT.split())}
"""Number words below twenty."""

_TENS_TEXT = "twenty thirty forty fifty sixty seventy eighty ninety"
TENS = {word: 10 * place for place, word in enumerate(_TENS_TEXT.split(), start=2)}
"""Number words of the tens."""

_ORDINALS_TEXT = """
    first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth
    fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth
"""
_TENTHS_TEXT = "twentieth thirtieth fortieth fiftieth sixtieth seventieth eightieth ninetieth"
ORDINALS = {word: value for value, word in enumerate(_ORDINALS_TEXT.split(), start=1)} | {
    word: 10 * place for place, word in enumerate(_TENTHS_TEXT.split(), start=2)
}
"""Number words that order."""

SCALES = {
    "hundred": 100, "thousand": 1_000, "million": 1_000_000, "billion": 1_000_000_000,
    "lakh": 100_000, "crore": 10_000_000,
}  # fmt: skip
"""Number words that multiply what stands before them."""

SUFFIX_SCALES = {"k": 1_000, "m": 1_000_000, "mn": 1_000_000, "bn": 1_000_000_000}
"""Letters behind digits that multiply them."""

VAGUE_NUMBERS: dict[str, tuple[str, ...]] = {
    "one": ("1",), "first": ("1",), "second": ("2",), "once": ("1",), "twice": ("2",),
    "both": ("2",), "couple": ("2",), "pair": ("2",), "dozen": ("12",), "half": ("0.5", "50"),
    "quarter": ("0.25", "25"), "double": ("2",), "triple": ("3",), "single": ("1",),
    "a": ("1",), "an": ("1",),
}  # fmt: skip
_FOREIGN_NUMBERS_TEXT = """
    ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf
    un deux trois quatre cinq six sept huit neuf dix onze douze
    uno dos tres cuatro cinco seis siete ocho nueve diez once doce
    uno due tre quattro cinque sei sette otto nove dieci undici dodici
    один два три четыре пять шесть семь восемь девять десять одиннадцать двенадцать
"""
for _line in _FOREIGN_NUMBERS_TEXT.strip().splitlines():
    for _value, _word in enumerate(_line.split(), start=1):
        VAGUE_NUMBERS[_word] = (*VAGUE_NUMBERS.get(_word, ()), str(_value))
"""Words that support a number in a source and claim none in a summary: "one of them" counts
nothing."""

_MONTHS_TEXT = """
    january february march april may june july august september october november december
"""
MONTHS = {name: number for number, name in enumerate(_MONTHS_TEXT.split(), start=1)}
"""Months by name."""

_WEEKDAYS_TEXT = "monday tuesday wednesday thursday friday saturday sunday"
WEEKDAYS = {name: number for number, name in enumerate(_WEEKDAYS_TEXT.split(), start=1)}
"""Days of the week, Monday first."""

_NEGATORS_TEXT = """
    aint arent cannot cant couldnt didnt doesnt dont hadnt hasnt havent isnt mustnt neither never
    no nobody none nor not nothing nowhere shouldnt wasnt werent without wont wouldnt
    nicht kein keine keinen keiner keines nie niemals nichts
    pas jamais rien aucun aucune
    nunca jamas nada ninguno ninguna
    nessuno niente
    nao nenhum nenhuma
    не нет ни никогда ничего нельзя
    """
NEGATORS = frozenset(_NEGATORS_TEXT.split())
"""Words that deny their clause. What another language uses for something else ("no" is one of
English and Spanish alike, French "ne" and Italian "non" are left out) denies only with it."""

_DENYING_TEXT = """
    absent against avoid avoided avoiding avoids barely cancel canceled cancelled cancelling
    cancels declined declines decline denied denies deny dislike disliked dislikes disagree
    disagreed disagrees fail failed failing fails few forbid forbidden forgot forgets hardly hate
    hated hates hesitant impossible inability incapable instead insufficient lack lacked lacking
    lacks less little longer lost miss missed misses missing neglected prevent prevented prevents
    prohibited quit rarely rather refuse refused refuses reject rejected rejects reluctant
    scarcely seldom skip skipped skips stop stopped stopping stops unable unaware unavailable
    uncertain unclear unlikely unhappy unknown unsuccessful unsure unwilling zero
    """
DENYING = frozenset(_DENYING_TEXT.split())
"""Words that deny without a negator. Beside one of them a clause with and a clause without a
negator may say the same."""

IDLE_NEGATIONS = (
    ("not", "only"), ("not", "just"), ("not", "merely"), ("not", "to"), ("no", "doubt"),
    ("no", "wonder"), ("no", "problem"), ("no", "worries"), ("no", "matter"), ("no", "way"),
    ("cant", "wait"), ("cannot", "wait"), ("couldnt", "agree"), ("why", "not"), ("or", "not"),
    ("if", "not"), ("whether", "not"), ("nothing", "but"), ("not", "bad"),
)  # fmt: skip
"""Pairs of neighbouring words in which a negator denies nothing."""

CJK_NEGATORS = "不没沒未无無别非"
"""Characters that deny in Chinese; Japanese is denied by endings, see JAPANESE_NEGATIONS."""

_CJK_IDLE_TEXT = """
    不错 不過 不过 不仅 不但 不同 不好意思 不少 差不多 没问题 沒問題 没关系 非常 别人 特别 区别 分别
    无论 是不是 有没有 能不能 要不要 好不好 除非 非洲
"""
CJK_IDLE = tuple(_CJK_IDLE_TEXT.split())
"""Words in which those characters deny nothing."""

JAPANESE_NEGATIONS = ("ない", "ません", "なかった", "なく")
"""Endings that deny in Japanese."""

_FIRST_PERSON_TEXT = "i me my mine myself im ive we us our ours weve"
FIRST_PERSON = frozenset(_FIRST_PERSON_TEXT.split())
"""Words by which a speaker speaks of himself."""

_OTHER_PERSONS_TEXT = """
    you your yours yourself youre youve youll youd he him his hes she her hers shes they them their
    theirs theyre it its who
    """
OTHER_PERSONS = frozenset(_OTHER_PERSONS_TEXT.split())
"""Words that may stand for a name that is not written in a clause."""

_OPENERS_TEXT = """
    additionally agents all another assistant attendees chat client clients colleagues conversation
    customer customers details dialogue discussion everyone family finally friend friends goals
    group highlights issues key later meanwhile meeting members notes others overall participants
    people person plans points questions speaker speakers summary team tasks themes topics updates
    user users various
    """
OPENERS = frozenset(_OPENERS_TEXT.split())
"""Words that begin a sentence of a summary without naming anyone."""

_FINITE_VERBS_TEXT = """
    and became began bought brought built came can chose could did does drove ate fell felt flew
    forgot found gave got grew had has heard held hit is kept knew led left lent let lost made
    may met might paid put ran read rode said sang sat saw sent set should slept sold spent
    spoke stood swam taught thought threw told took understood was went will woke won wore would
    wrote
"""
FINITE_VERBS = frozenset(_FINITE_VERBS_TEXT.split())
"""Words behind a sentence's first word that make it somebody or something that acts; regular verbs
show it by their endings."""


# Numbers as a text writes them, in digits or words, reduced to their values.


_MASK = "|"
"""Stands where something was read already: no letter, digit or mark of a number."""

MAX_DIGITS = 30
"""Longer runs of digits are read as text: no quantity has them."""

_SMALL = {**UNITS, **TENS, **ORDINALS}
_NAMES = "|".join(sorted((*_SMALL, *SCALES), key=len, reverse=True))
_WORD_RUN = re.compile(rf"\b(?:{_NAMES})(?:(?:\s+and\s+|\s+|-)(?:{_NAMES}))*\b", re.IGNORECASE)
_NUMBER_WORD = re.compile(r"[a-z]+", re.IGNORECASE)
_MAYBE_WORD = re.compile(
    r"\b(?:zero|one|tw|th|f[io]|s[ie]|ei|ni|te|el|hu|mi|bi|la|cr)", re.IGNORECASE
)

_NUMERAL = re.compile(
    r"(?<![\w.,])(?P<digits>\d{1,3}(?:(?P<group>[,.'’ \u00a0\u202f])\d{3}(?!\d)"
    r"(?:(?P=group)\d{3}(?!\d))*)(?:[.,]\d+)?|\d+(?:[.,]\d+)?)"
    r"(?:\s?(?P<scale>hundred|thousand|million|billion|lakh|crore)\b"
    r"|(?P<suffix>k|m|mn|bn)(?![^\W\d_])|\s?(?P<cjk>[百千万萬亿億])|(?:st|nd|rd|th)\b)?",
    re.IGNORECASE,
)
_CJK_SCALES = {"百": 100, "千": 1_000, "万": 10_000, "萬": 10_000, "亿": 10**8, "億": 10**8}
_CJK_DIGITS = {c: i for i, c in enumerate("零一二三四五六七八九")} | {"两": 2, "兩": 2, "〇": 0}
_CJK_NUMERAL = re.compile(
    "(?=[零〇一二两兩三四五六七八九十]*[十百千万萬])[一二两兩三四五六七八九十][零〇一二两兩三四五六七八九十百千万萬]+"
)
"""At least two characters with a scale among them: "十二", "五万"; "一一" and "万一" are words."""

_LETTERS = re.compile(r"[^\W\d_]+")
_CJK_RUN = re.compile("[零〇一二两兩三四五六七八九十百千万萬]+")


class Numeral(NamedTuple):
    """A number in a text, its scale included."""

    start: int
    end: int
    readings: frozenset[str]  # canonical values it may have: "1.000" is 1 or 1000


def plain_digits(text: str) -> str:
    """Return the text with the decimal digits of every script as 0 to 9, set apart from letters.

    Only from letters of scripts without spaces, where "12份" would else be one word; offsets
    change.
    """
    if text.isascii():
        return text
    digits = "".join(
        str(unicodedata.decimal(c)) if c.isdecimal() and not c.isascii() else c for c in text
    )
    return _unspaced_seam().sub(" ", digits)


@cache
def _unspaced_seam() -> re.Pattern[str]:
    letters = regex_class(UNSPACED)
    return re.compile(f"(?<=[{letters}])(?=[0-9A-Za-z])|(?<=[0-9A-Za-z])(?=[{letters}])")


def mask(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return the text with a mark in place of each character of some spans; offsets stay."""
    parts: list[str] = []
    last = 0
    for start, end in sorted(spans):
        parts += (text[last:start], _MASK * (end - start))
        last = end
    return "".join(parts) + text[last:] if parts else text


def spell_out(text: str, *, claims: bool) -> str:
    """Return the text with English number words as digits: "twenty-five" becomes "25".

    In `claims` "one", "first" and "second" are left alone: mostly they count nothing.
    """
    if _MAYBE_WORD.search(text) is None:
        return text

    def spelled(match: re.Match[str]) -> str:
        # "1.5 million" is one number already.
        before = text[max(match.start() - 2, 0) : match.start()].rstrip()
        is_scale = before[-1:].isdigit() and match.group().split()[0].lower() in SCALES
        return match.group() if is_scale else _digits_of(match.group(), claims)

    return _WORD_RUN.sub(spelled, text)


def find_numerals(text: str) -> list[Numeral]:
    """Return the numbers in digits, left to right, of what `plain_digits` and `spell_out` made."""
    found: list[Numeral] = []
    for match in _NUMERAL.finditer(text):
        digits = match["digits"]
        if len(digits) <= MAX_DIGITS:
            values = _scaled(_readings(digits, match["group"]), match)
            found.append(Numeral(match.start(), match.end(), frozenset(map(_canonical, values))))
    if not text.isascii():
        for match in _CJK_NUMERAL.finditer(text):
            value = frozenset({str(_cjk_value(match.group()))})
            found.append(Numeral(match.start(), match.end(), value))
    return sorted(found)


def loose_numbers(text: str) -> set[str]:
    """Return what else in a source may stand for a number.

    Parts of numerals, vague words, number words of other languages than English, CJK numerals.
    """
    found = {_canonical(Decimal(run)) for run in re.findall(rf"\d{{1,{MAX_DIGITS}}}", text)}
    for word in _LETTERS.findall(text.casefold()):
        found.update(VAGUE_NUMBERS.get(word, ()))
    for run in _CJK_RUN.findall(text):
        found.add(str(_cjk_value(run)))
    return found


def _digits_of(run: str, claims: bool) -> str:
    words = [word for word in map(str.lower, _NUMBER_WORD.findall(run)) if word != "and"]
    if len(words) == 1 and claims and words[0] in VAGUE_NUMBERS:
        return run
    values: list[int] = []
    place = 0
    while place < len(words):
        value, place = _number(words, place)
        values.append(value)
    return " ".join(map(str, values)) + ("th" if words[-1] in ORDINALS else "")


def _number(words: Sequence[str], place: int) -> tuple[int, int]:
    """Read one number from `place` on: its value and the place behind it."""
    total = 0
    while True:
        value, place = _below_thousand(words, place)
        if place == len(words) or SCALES.get(words[place], 0) < 1_000:
            return total + (value or 0), place
        total += (1 if value is None else value) * SCALES[words[place]]
        place += 1
        if place == len(words) or words[place] in SCALES:
            return total, place


def _below_thousand(words: Sequence[str], place: int) -> tuple[int | None, int]:
    value, place = _below_hundred(words, place)
    if place < len(words) and words[place] == "hundred":
        more, place = _below_hundred(words, place + 1)
        return (1 if value is None else value) * 100 + (more or 0), place
    return value, place


def _below_hundred(words: Sequence[str], place: int) -> tuple[int | None, int]:
    if place == len(words) or words[place] in SCALES:
        return None, place
    value = _SMALL[words[place]]
    place += 1
    if words[place - 1] in TENS and place < len(words):
        unit = _SMALL.get(words[place], 0)
        if 1 <= unit <= 9:
            return value + unit, place + 1
    return value, place


def _readings(digits: str, group: str | None) -> list[Decimal]:
    if group is None:
        return [Decimal(digits.replace(",", "."))]
    whole, *rest = re.split(r"[.,](?=\d+$)", digits) if _has_fraction(digits, group) else [digits]
    bare = Decimal(re.sub(r"\D", "", whole) + ("." + rest[0] if rest else ""))
    # One group after a point or a comma may be a fraction: 1.000 is 1 or 1000.
    if not rest and group in ".," and digits.count(group) == 1:
        return [bare, Decimal(digits.replace(",", "."))]
    return [bare]


def _has_fraction(digits: str, group: str) -> bool:
    last = max(digits.rfind("."), digits.rfind(","))
    return last >= 0 and digits[last] != group


def _scaled(values: Sequence[Decimal], match: re.Match[str]) -> list[Decimal]:
    if match["scale"]:
        return [value * SCALES[match["scale"].lower()] for value in values]
    if match["cjk"]:
        return [value * _CJK_SCALES[match["cjk"]] for value in values]
    if match["suffix"]:
        # "5m" is five metres or five million.
        return [*values, *(value * SUFFIX_SCALES[match["suffix"].lower()] for value in values)]
    return list(values)


def _canonical(value: Decimal) -> str:
    text = format(value, "f")
    return (text.rstrip("0").rstrip(".") or "0") if "." in text else text.lstrip("0") or "0"


def _cjk_value(run: str) -> int:
    total = current = 0
    for char in run:
        if char in _CJK_DIGITS:
            current = _CJK_DIGITS[char]
        elif char == "十":
            total, current = total + (current or 1) * 10, 0
        else:
            total, current = (total + current or 1) * _CJK_SCALES[char], 0
    return total + current


# Dates, days of the week and times of day in a text, reduced to what they say.


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
    """A date of which parts may be missing."""

    year: int | None = None
    month: int | None = None  # 1 to 12
    day: int | None = None  # 1 to 31
    weekday: int | None = None  # 1 for Monday to 7; never with the other three

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
    """A date or a time of day in a text, from `start` to before `end`."""

    start: int
    end: int
    dates: tuple[Date, ...] = ()  # what it may mean as a date: 5/12 is two; () for a time
    minutes: tuple[int, ...] = ()  # of the day: "3 o'clock" is two; () for a date


def find_moments(text: str, *, claims: bool) -> list[Moment]:
    """Return the dates and times of a text, left to right, not overlapping.

    The text has its digits as 0 to 9 and its number words spelled out. In `claims`, "may" and
    "march", and months and weekdays in lower case, are left out: they may be other words.
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


# What numbers count: "3 black cats" counts cats and what is black.


WORDS_BEHIND = 2
"""Content words behind a number that it may count. More would reach the next thing."""

WINDOW_CHARS = 80
"""Text behind a number in which they are looked for; bounds the work per number."""

_BREAK = re.compile(r"[.!?,;:()\n。，、！？|]")


def counted_things(texts: Iterable[str], *, claims: bool) -> dict[str, set[str]]:
    """Return, by stem of what is counted, the values that count it in any of the texts."""
    found: dict[str, set[str]] = {}
    for text in texts:
        for readings, things in count_phrases(text, claims=claims):
            for thing in things:
                found.setdefault(thing, set()).update(readings)
    return found


def count_phrases(text: str, *, claims: bool) -> list[tuple[frozenset[str], list[str]]]:
    """Return the readings of each number with the stems behind it; dates and times count nothing.

    In `claims`, of a summary, "one" counts nothing.
    """
    plain = plain_digits(text)
    plain = mask(plain, [(found.start, found.end) for found in find_identifiers(plain)])
    plain = spell_out(plain, claims=claims)
    plain = mask(plain, [(m.start, m.end) for m in find_moments(plain, claims=claims)])
    numerals = find_numerals(plain)
    ends = [*(numeral.start for numeral in numerals[1:]), len(plain)]
    return [
        (numeral.readings, things)
        for numeral, end in zip(numerals, ends, strict=False)
        if (things := _things(plain[numeral.end : min(end, numeral.end + WINDOW_CHARS)]))
    ]


def _things(behind: str) -> list[str]:
    near = _BREAK.split(behind, maxsplit=1)[0]
    content = [word.folded for word in words(near) if not is_stop_word(word.folded)]
    return [stem(word) for word in content[:WORDS_BEHIND]]
