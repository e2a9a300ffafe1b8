"""Claims of a text: numbers and the things they count, dates, times, names, denials, ids."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, NamedTuple

from noctuary.graph.fold import Word, words
from noctuary.graph.names import capitalised_runs
from noctuary.graph.word_lists import CALENDAR_WORDS, FUNCTION_WORDS, NAME_CONNECTORS
from noctuary.text.dates import MONTH_NAMES, find_dates, find_identifiers
from noctuary.text.marks import split_speaker
from noctuary.text.tokens import UNSPACED, is_stop_word, regex_class, stem, tokenize

_LISTS = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))
_NUMBERS: dict[str, Any] = _LISTS["numbers"]
_WORDS = {name: frozenset(text.split()) for name, text in _LISTS["words"].items()}
_IDLE_PAIRS = frozenset(tuple(pair.split()) for pair in _LISTS["idle_pairs"])


def _numbered(text: str, start: int = 0, step: int = 1) -> dict[str, int]:
    return {word: start + step * place for place, word in enumerate(text.split())}


_UNITS, _TENS = _numbered(_NUMBERS["units"]), _numbered(_NUMBERS["tens"], 20, 10)
_ORDINALS = _numbered(_NUMBERS["ordinals"], 1) | _numbered(_NUMBERS["tenths"], 20, 10)
_SCALES: dict[str, int] = _NUMBERS["scales"]
_SUFFIX_SCALES = {"k": 1_000, "m": 1_000_000, "mn": 1_000_000, "bn": 1_000_000_000}
_VAGUE_NUMBERS = {word: set(values.split()) for word, values in _NUMBERS["vague"].items()}
for _line in _NUMBERS["foreign"]:
    for _word, _value in _numbered(_line, 1).items():
        _VAGUE_NUMBERS.setdefault(_word, set()).add(str(_value))

MONTHS = _numbered(" ".join(MONTH_NAMES), 1)
_WEEKDAYS = _numbered(_NUMBERS["weekdays"], 1)

CJK_NEGATORS = "不没沒未无無别非"  # characters that deny in Chinese
JAPANESE_NEGATIONS = ("ない", "ません", "なかった", "なく")  # endings that deny in Japanese


# Numbers as a text writes them, in digits or words, reduced to their values.

_MASK = "|"  # replaces text already read: no letter, digit or mark of a number
MAX_DIGITS = 30  # longer runs of digits are read as text

_SMALL = {**_UNITS, **_TENS, **_ORDINALS}
_NAMES = "|".join(sorted((*_SMALL, *_SCALES), key=len, reverse=True))
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
# At least two characters with a scale among them: "十二", "五万"; "一一" and "万一" are words.
_CJK_NUMERAL = re.compile(
    "(?=[零〇一二两兩三四五六七八九十]*[十百千万萬])[一二两兩三四五六七八九十][零〇一二两兩三四五六七八九十百千万萬]+"
)
_CJK_RUN = re.compile("[零〇一二两兩三四五六七八九十百千万萬]+")
_LETTERS = re.compile(r"[^\W\d_]+")
_UNSPACED = regex_class(UNSPACED)
_SEAM = re.compile(f"(?<=[{_UNSPACED}])(?=[0-9A-Za-z])|(?<=[0-9A-Za-z])(?=[{_UNSPACED}])")


class Numeral(NamedTuple):
    """A number in a text, its scale included."""

    start: int
    end: int
    readings: frozenset[str]  # canonical values it may have: "1.000" is 1 or 1000


def plain_digits(text: str) -> str:
    """Return the text with digits of every script as 0 to 9, set apart from unspaced letters."""
    if text.isascii():
        return text
    digits = "".join(
        str(unicodedata.decimal(c)) if c.isdecimal() and not c.isascii() else c for c in text
    )
    return _SEAM.sub(" ", digits)


def mask(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return the text with a mark in place of each character of some spans; offsets stay."""
    parts: list[str] = []
    last = 0
    for start, end in sorted(spans):
        parts += (text[last:start], _MASK * (end - start))
        last = end
    return "".join(parts) + text[last:] if parts else text


def spell_out(text: str, *, claims: bool) -> str:
    """Return the text with English number words as digits; in `claims` not "one" and its kin."""

    def spelled(match: re.Match[str]) -> str:
        run = [word for word in map(str.lower, _NUMBER_WORD.findall(match[0])) if word != "and"]
        if len(run) == 1 and claims and run[0] in _VAGUE_NUMBERS:
            return match[0]
        # "1.5 million" is one number already.
        before = text[max(match.start() - 2, 0) : match.start()].rstrip()
        if before[-1:].isdigit() and run[0] in _SCALES:
            return match[0]
        values, left = list[int](), deque(run)
        while left:
            values.append(_number(left))
        return " ".join(map(str, values)) + ("th" if run[-1] in _ORDINALS else "")

    return text if _MAYBE_WORD.search(text) is None else _WORD_RUN.sub(spelled, text)


def _number(left: deque[str]) -> int:
    """Take the words of one number, and return its value."""
    total = 0
    while True:
        value = _below_hundred(left)
        if left and left[0] == "hundred":
            left.popleft()
            value = (1 if value is None else value) * 100 + (_below_hundred(left) or 0)
        if not left or _SCALES.get(left[0], 0) < 1_000:
            return total + (value or 0)
        total += (1 if value is None else value) * _SCALES[left.popleft()]
        if not left or left[0] in _SCALES:
            return total


def _below_hundred(left: deque[str]) -> int | None:
    if not left or left[0] in _SCALES:
        return None
    first = left.popleft()
    has_unit = first in _TENS and left and 1 <= _SMALL.get(left[0], 0) <= 9
    return _SMALL[first] + (_SMALL[left.popleft()] if has_unit else 0)


def find_numerals(text: str) -> list[Numeral]:
    """Return the numbers in digits, left to right, in a text of `plain_digits` and `spell_out`."""
    found = [
        Numeral(*match.span(), frozenset(map(_canonical, _readings(match))))
        for match in _NUMERAL.finditer(text)
        if len(match["digits"]) <= MAX_DIGITS
    ]
    if not text.isascii():
        for match in _CJK_NUMERAL.finditer(text):
            found.append(Numeral(*match.span(), frozenset({str(_cjk_value(match[0]))})))
    return sorted(found)


def loose_numbers(text: str) -> set[str]:
    """Return other possible numbers in a source: parts, vague, foreign and CJK words."""
    found = {_canonical(Decimal(run)) for run in re.findall(rf"\d{{1,{MAX_DIGITS}}}", text)}
    for word in _LETTERS.findall(text.casefold()):
        found.update(_VAGUE_NUMBERS.get(word, ()))
    return found | {str(_cjk_value(run)) for run in _CJK_RUN.findall(text)}


def _readings(match: re.Match[str]) -> list[Decimal]:
    """Return the values that a numeral may have: "1.000" is 1 or 1000, "5m" 5 or 5,000,000."""
    digits, group = match["digits"], match["group"]
    values: list[Decimal] = []
    if group is not None:
        last = max(digits.rfind("."), digits.rfind(","))
        has_fraction = last >= 0 and digits[last] != group
        whole, rest = (digits[:last], "." + digits[last + 1 :]) if has_fraction else (digits, "")
        values.append(Decimal(re.sub(r"\D", "", whole) + rest))
    # One group after a point or a comma may be a fraction.
    one = group is not None and group in ".," and digits.count(group) == 1
    if group is None or (one and not {".", ","} <= set(digits)):
        values.append(Decimal(digits.replace(",", ".")))
    scale = _SCALES.get((match["scale"] or "").lower()) or _CJK_SCALES.get(match["cjk"])
    if scale is not None:
        return [value * scale for value in values]
    if match["suffix"]:
        values += [value * _SUFFIX_SCALES[match["suffix"].lower()] for value in values]
    return values


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


# Dates, days of the week and times of day in a text, in a comparable form.

_MONTH = f"sept|{'|'.join(f'{name}|{name[:3]}' for name in MONTHS)}"
_NAMED = re.compile(
    rf"(?<![\w.])(?P<day>\d{{1,2}})(?:st|nd|rd|th)?\s(?:of\s)?(?P<month>{_MONTH})\b(?!\.?\w)"
    rf"|\b(?P<month_first>{_MONTH})\.?\s(?P<day_after>\d{{1,2}})(?:st|nd|rd|th)?(?![\d:/])",
    re.IGNORECASE,
)
_BARE_MONTH = re.compile(rf"\b(?P<month>{'|'.join(MONTHS)})\b", re.IGNORECASE)
_SLASHED = re.compile(r"(?<![\w/.])(\d{1,2})/(\d{1,2})(?:/(\d{4}|\d{2}))?(?![\w/])")
_CJK = re.compile(r"(?<!\d)(?P<month>\d{1,2})\s?[月월]\s?(?P<day>\d{1,2})\s?[日号號일]")
_WEEKDAY = re.compile(rf"\b(?P<day>{'|'.join(_WEEKDAYS)})s?\b", re.IGNORECASE)
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
_HALF_DAY_MIN = 720
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
        """Return whether this date has every part that the other one has, with equal values."""
        return all(theirs in (None, ours) for ours, theirs in zip(self, other, strict=True))

    def __str__(self) -> str:
        if self.weekday is not None:
            return list(_WEEKDAYS)[self.weekday - 1]
        year = "" if self.year is None else f"{self.year:04}-"
        month = "??" if self.month is None else f"{self.month:02}"
        return f"{year}{month}" + ("" if self.day is None else f"-{self.day:02}")


class Moment(NamedTuple):
    """A date or a time of day in a text, from `start` to before `end`."""

    start: int
    end: int
    dates: tuple[Date, ...] = ()  # possible dates: 5/12 has two; () for a time
    minutes: tuple[int, ...] = ()  # of the day: "3 o'clock" is two; () for a date


def find_moments(text: str, *, claims: bool) -> list[Moment]:
    """Return the dates and times of a text, left to right, not overlapping.

    The text has its digits as 0 to 9 and its number words spelled out. In `claims`, "may" and
    "march", and months and weekdays in lower case, are left out: they may be other words.
    """
    if _HINT.search(text) is None:
        return []
    everything = [*_dates(text, claims), *_cjk_dates(text), *_times(text)]
    found: list[Moment] = []
    for moment in sorted(everything, key=lambda m: (m.start, m.start - m.end)):
        if not found or moment.start >= found[-1].end:
            found.append(moment)
    return found


def is_date_covered(claim: Moment, dates: Collection[Date]) -> bool:
    """Return whether one reading of a claimed date is covered by a single date of the sources."""
    return any(source.covers(reading) for reading in claim.dates for source in dates)


def _read_moments(text: str, *, claims: bool) -> tuple[str, list[Moment], str]:
    """Return a text with its number words spelled out, its dates and times, and it without them."""
    spelled = spell_out(text, claims=claims)
    moments = find_moments(spelled, claims=claims)
    return spelled, moments, mask(spelled, [(moment.start, moment.end) for moment in moments])


def _dates(text: str, claims: bool) -> Iterator[Moment]:
    for date in find_dates(text):
        yield Moment(date.start, date.end, (Date(*map(int, date.iso.split("-"))),))
    for match in _NAMED.finditer(text):
        month = _month(match["month"] or match["month_first"])
        yield from _dated(match, {(month, int(match["day"] or match["day_after"]))})
    for match in _BARE_MONTH.finditer(text):
        name = match["month"]
        if not claims or (name[0].isupper() and name.lower() not in _AMBIGUOUS_MONTHS):
            yield Moment(*match.span(), (Date(month=_month(name)),))
    for match in _WEEKDAY.finditer(text):
        if not claims or match["day"][0].isupper():
            yield Moment(*match.span(), (Date(weekday=_WEEKDAYS[match["day"].lower()]),))
    for match in _SLASHED.finditer(text):
        one, two = int(match[1]), int(match[2])
        year = None if match[3] is None else int(match[3]) + (2000 if len(match[3]) == 2 else 0)
        if year is not None or max(one, two) > 9:
            yield from _dated(match, {(one, two), (two, one)}, year)


def _cjk_dates(text: str) -> Iterator[Moment]:
    for match in _CJK.finditer(text):
        yield from _dated(match, {(int(match["month"]), int(match["day"]))})
    for match in _CJK_WEEKDAY.finditer(text):
        yield Moment(*match.span(), (Date(weekday=_CJK_WEEKDAYS[match["day"]]),))


def _month(name: str) -> int:
    return next(number for full, number in MONTHS.items() if full.startswith(name.lower()[:3]))


def _dated(
    match: re.Match[str], readings: Iterable[tuple[int, int]], year: int | None = None
) -> Iterator[Moment]:
    """Yield a match if a calendar has any of its readings as month and day."""
    dates = [Date(year, m, day) for m, day in readings if 1 <= m <= 12 and 1 <= day <= 31]
    if dates:
        yield Moment(*match.span(), tuple(sorted(dates, key=str)))


def _times(text: str) -> Iterator[Moment]:
    for match in _NAMED_TIMES.finditer(text):
        yield Moment(*match.span(), minutes=(0 if match[1].lower() == "midnight" else 720,))
    for match in _CLOCK.finditer(text):
        if match["half"] or (match["minute"] and ":" in match.group()):
            half = (match["half"] or "").lower()
            yield from _time(match, int(match["minute"] or 0), half[:1])
    for match in _CJK_CLOCK.finditer(text):
        half = "p" if match["half"] in _CJK_LATE else "a" if match["half"] else ""
        yield from _time(match, 30 if match["thirty"] else int(match["minute"] or 0), half)


def _time(match: re.Match[str], minute: int, half: str) -> Iterator[Moment]:
    hour = int(match["hour"])
    if hour > 24 or minute > 59:
        return
    at = (hour % 24) * 60 + minute
    minutes = {at}
    if half in ("a", "p"):
        minutes = {at % _HALF_DAY_MIN + (_HALF_DAY_MIN if half == "p" else 0)}
    elif hour in range(1, 13):
        minutes.add((at + _HALF_DAY_MIN) % (2 * _HALF_DAY_MIN))
    end = match.start() + len(match.group().rstrip())
    yield Moment(match.start(), end, minutes=tuple(sorted(minutes)))


# Nouns that numbers count: "3 black cats" counts cats and black things.

WORDS_BEHIND = 2  # content words behind a number that it may count; more reach the next thing
WINDOW_CHARS = 80  # text behind a number in which they are looked for

_BREAK = re.compile(r"[.!?,;:()\n。，、！？|]")


def count_phrases(text: str, *, claims: bool) -> list[tuple[frozenset[str], list[str]]]:
    """Return the readings of each number, no date or time, with the stems behind it."""
    plain = plain_digits(text)
    plain = mask(plain, [(found.start, found.end) for found in find_identifiers(plain)])
    _, _, plain = _read_moments(plain, claims=claims)
    numerals = find_numerals(plain)
    ends = [*(numeral.start for numeral in numerals[1:]), len(plain)]
    found: list[tuple[frozenset[str], list[str]]] = []
    for numeral, end in zip(numerals, ends, strict=False):
        behind = plain[numeral.end : min(end, numeral.end + WINDOW_CHARS)]
        near = words(_BREAK.split(behind, maxsplit=1)[0])
        content = [word.folded for word in near if not is_stop_word(word.folded)]
        if content:
            found.append((numeral.readings, list(map(stem, content[:WORDS_BEHIND]))))
    return found


# Names in a text by their capitals.

# Least length of a short form: "Mel" for "Melanie". Shorter ones begin too many names.
SHORT_FORM_CHARS = 3
# Letters by which the ends of a name may differ where no stemmer knows its inflections.
INFLECTION_CHARS = 3

_SENTENCE_END = re.compile(r"[.!?…:。！？]|\n")
_VERB_ENDINGS = ("ed", "s")
_NO_NAME_ENDINGS = ("ing", "ly", "tion", "ment", "ness", "ity")
_NO_NAMES = FUNCTION_WORDS | CALENDAR_WORDS | NAME_CONNECTORS


class Name(NamedTuple):
    """A name in a text, from `start` to before `end`."""

    folded: str  # its words, folded and joined by a space
    surface: str  # as it is written
    start: int
    end: int


def find_names(
    text: str, known: Collection[str] = (), tokens: Sequence[Word] | None = None
) -> list[Name]:
    """Return the names of a text: capitalised runs, and openers of a sentence that act.

    A word that opens a sentence is capitalised anyway. Alone it counts where a verb follows
    ("Zelda visited ..."), unless it is a word by which summaries open their sentences. Folded words
    are `known` are names anywhere; `tokens` are the text's words, if at hand.
    """
    tokens = words(text) if tokens is None else tokens
    found: list[Name] = []
    for span in capitalised_runs(text, tokens):
        surface = text[span.start : span.end]
        if kept := [word.folded for word in words(surface) if _may_name(word.folded)]:
            found.append(Name(" ".join(kept), surface, span.start, span.end))
    taken = {name.start for name in found}
    for index, token in enumerate(tokens):
        if token.start in taken or not text[token.start].isupper():
            continue
        if token.folded in known or _opens_as_name(text, tokens, index):
            surface = text[token.start : token.end]
            found.append(Name(token.folded, surface, token.start, token.end))
    return sorted(found, key=lambda name: name.start)


def _may_name(folded: str) -> bool:
    return folded not in _NO_NAMES and not folded.isdigit()


def _opens_as_name(text: str, tokens: Sequence[Word], index: int) -> bool:
    if index + 1 == len(tokens):
        return False
    word, following = tokens[index], tokens[index + 1]
    if index and _SENTENCE_END.search(text[tokens[index - 1].end : word.start]) is None:
        return False
    folded = word.folded
    if folded in _WORDS["openers"] or not _may_name(folded) or folded.endswith(_NO_NAME_ENDINGS):
        return False
    if text[word.start : word.end].endswith(("'s", "’s")):
        return True
    after = text[following.start : following.end]
    acts = after in _WORDS["finite_verbs"] or (after.islower() and after.endswith(_VERB_ENDINGS))
    return acts and text[word.end : following.start] == " "


# Negated clauses.

_CJK_IDLE = re.compile("|".join(map(re.escape, sorted(_WORDS["cjk_idle"]))))
_CJK_NEGATION = re.compile(f"[{CJK_NEGATORS}]|{'|'.join(JAPANESE_NEGATIONS)}")


def _negators(folded: Sequence[str]) -> list[int]:
    """Return the places of the words that deny; those of idle pairs ("not only") deny nothing."""
    return [
        place
        for place, word in enumerate(folded)
        if word in _WORDS["negators"]
        and _IDLE_PAIRS.isdisjoint(pairwise(("", *folded, "")[place : place + 3]))
    ]


def _is_negated(text: str, folded: Sequence[str]) -> bool:
    """Return whether a clause, with its words folded, holds a negator of a language known here."""
    if not text.isascii() and _CJK_NEGATION.search(_CJK_IDLE.sub("", text)):
        return True
    return bool(_negators(folded))


def _negated_words(tokens: Sequence[Word]) -> list[str]:
    """Return, per negator among the words of a text, the stem of the next content word."""
    folded = [word.folded for word in tokens]
    found: list[str] = []
    for place in _negators(folded):
        content = (w for w in folded[place + 1 : place + 6] if not is_stop_word(w))
        word = next(content, None)
        if word is not None and word not in _WORDS["negators"]:
            found.append(stem(word))
    return found


# Sentences and clauses of a text as the comparison of two sides needs them.

_SENTENCE = re.compile(r"[^.!?…。！？\n]*(?:\.(?=\S)[^.!?…。！？\n]*)*[.!?…。！？\n]*")
# Left out of the content: its many parts would make a sentence look unlike its paraphrase.
_URL = re.compile(r"https?://\S+")
_CLAUSE_END = re.compile(
    r"[,;:，；：、()—]|\s[-–]\s|\s(?:but|because|although|though|while|whereas|so that|and)\s",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Piece:
    """A sentence or clause."""

    text: str  # as written, the speaker's prefix left out
    tokens: frozenset[str]  # its content: stems without stop words, numbers included
    speaker: frozenset[str]  # tokens of the speaker's name; empty without one
    is_question: bool  # ends with a question mark, or is a clause of one that does
    is_negated: bool
    is_denying: bool  # holds a word that can negate without being a negator ("failed")
    says_i: bool  # refers to its speaker
    says_other: bool  # holds a pronoun that may mean another person


def sentences(text: str) -> list[Piece]:
    """Return the sentences of a turn or a summary, in order."""
    return _pieces(text, lambda sentence: [sentence])


def clauses(text: str) -> list[Piece]:
    """Return the clauses of a turn or a summary, in order."""
    return _pieces(text, _CLAUSE_END.split)


def _pieces(text: str, cut: Callable[[str], list[str]]) -> list[Piece]:
    name, rest = split_speaker(text)
    speaker = frozenset(tokenize(name)) if name else frozenset[str]()
    found: list[Piece] = []
    for sentence in filter(None, (match.group().strip() for match in _SENTENCE.finditer(rest))):
        for part in filter(str.strip, cut(sentence)):
            folded = [word.folded for word in words(part)]
            found.append(
                Piece(
                    text=part,
                    tokens=frozenset(tokenize(_URL.sub("", part))),
                    speaker=speaker,
                    is_question=sentence.endswith(("?", "？")),
                    is_negated=_is_negated(part, folded),
                    is_denying=not _WORDS["denying"].isdisjoint(folded),
                    says_i=not _WORDS["first_person"].isdisjoint(folded),
                    says_other=not _WORDS["other_persons"].isdisjoint(folded),
                )
            )
    return found


# The claims of a text, and the claims that it supports: the two sides of the fact check. A text
# always supports its own claims.

# Words with a digit behind a letter: "B12", "3x5". "5kg" is a number of something.
_MIXED = re.compile(r"(?<!\w)(?=[^\W_]{0,63}[^\W\d_]\d)[^\W_]{2,64}(?!\w)")
_TRAILING = "./,;:"


class Claim(NamedTuple):
    """One checkable statement of a text."""

    kind: str  # "number", "date", "time", "identifier", "name" or "negation"
    key: str  # equal for equal facts, however they are written
    surface: str  # as the text writes it; number words as digits
    numbers: frozenset[str] = frozenset()  # readings of a number
    moment: Moment | None = None  # the date or time


def read_claims(text: str) -> list[Claim]:
    """Return the claims of a text, in no particular order; repeats included."""
    plain = plain_digits(text)
    spans = _identifier_spans(plain)
    surfaces = [plain[start:end].rstrip(_TRAILING) for start, end in spans]
    claims = [Claim("identifier", surface.casefold(), surface) for surface in surfaces]
    claims.extend(_counted(mask(plain, spans)))
    tokens = words(text)
    names = find_names(text, tokens=tokens)
    claims.extend(Claim("name", name.folded, name.surface) for name in names)
    claims.extend(Claim("negation", word, f"not {word}") for word in _negated_words(tokens))
    return claims


class Support:
    """The contents of some texts, read generously: any part of a number, any word in any case."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._numbers: set[str] = set()
        self._dates: set[Date] = set()
        self._minutes: set[int] = set()
        self._negated: set[str] = set()
        self._mixed: set[str] = set()
        self._words: set[str] = set()
        plain = list(map(plain_digits, texts))
        for text, digits in zip(texts, plain, strict=True):
            self._add(mask(digits, _identifier_spans(digits)))
            tokens = words(text)
            self._negated.update(_negated_words(tokens))
            self._words.update(part for word in tokens for part in word.folded.split())
        self._folded = "\n".join(plain).casefold()
        self._stems = set(map(stem, self._words))
        self._starts = {word[:SHORT_FORM_CHARS] for word in self._words}

    def holds(self, claim: Claim) -> bool:
        """Return whether the texts hold a claim."""
        if claim.kind == "number":
            return not claim.numbers.isdisjoint(self._numbers)
        if claim.moment is not None:
            return self._holds_moment(claim.moment)
        if claim.kind == "identifier":
            return self._holds_identifier(claim.key)
        if claim.kind == "negation":
            return claim.key in self._negated
        return self.holds_name(claim.key)

    def holds_name(self, name: str) -> bool:
        """Return whether a folded name is held, as one word or word by word, inflected or not."""
        is_one_word = name.replace(" ", "") in self._words
        return is_one_word or all(map(self._holds_word, name.split()))

    def _holds_word(self, word: str) -> bool:
        if word in self._words or stem(word) in self._stems:
            return True
        if word[:SHORT_FORM_CHARS] not in self._starts or len(word) < SHORT_FORM_CHARS:
            return False
        if word.isascii():
            return any(longer.startswith(word) for longer in self._words)
        return any(_is_inflected(word, other) for other in self._words)

    def _add(self, text: str) -> None:
        _, moments, rest = _read_moments(text, claims=False)
        for moment in moments:
            self._dates.update(moment.dates)
            self._minutes.update(moment.minutes)
            # "On the 12th", "since 2019", "at 3": parts that occur alone.
            for date in moment.dates:
                self._numbers.update(str(part) for part in (date.day, date.year) if part)
            self._numbers.update(str(minute // 60) for minute in moment.minutes)
        # A word may touch a date ("5月12日B7"): it is separate only once the date is read.
        self._mixed.update(match.group().casefold() for match in _MIXED.finditer(rest))
        for numeral in find_numerals(rest):
            self._numbers.update(numeral.readings)
        self._numbers.update(loose_numbers(rest))

    def _holds_moment(self, moment: Moment) -> bool:
        if not moment.dates:
            return not self._minutes.isdisjoint(moment.minutes)
        # A month alone is also held as a part of any word for it: "Juni", "Jun.".
        months = [d.month for d in moment.dates if d.month and not (d.day or d.year)]
        return is_date_covered(moment, self._dates) or any(
            MONTH_NAMES[month - 1][:3] in self._folded for month in months
        )

    def _holds_identifier(self, folded: str) -> bool:
        if folded in self._mixed or (folded.startswith("#") and folded[1:] in self._numbers):
            return True
        forms = {folded, folded.removeprefix("v"), f"v{folded}"} - {""}
        return any(_stands_in(self._folded, form) for form in forms)


def _is_inflected(word: str, other: str) -> bool:
    """Return whether two words of a script with unknown inflections differ in their ends only."""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(word, other, strict=False))
    shared = len(list(same))
    return shared >= SHORT_FORM_CHARS and max(len(word), len(other)) - shared <= INFLECTION_CHARS


def _counted(text: str) -> Iterator[Claim]:
    """Yield the dates, times, mixed words and numbers of a text."""
    spelled, moments, rest = _read_moments(text, claims=True)
    for moment in moments:
        kind, values = ("date", moment.dates) if moment.dates else ("time", moment.minutes)
        surface = spelled[moment.start : moment.end].rstrip(_TRAILING)
        yield Claim(kind, "/".join(map(str, values)), surface, moment=moment)
    mixed = list(_MIXED.finditer(rest))
    for match in mixed:
        yield Claim("identifier", match.group().casefold(), match.group())
    rest = mask(rest, [match.span() for match in mixed])
    for numeral in find_numerals(rest):
        surface = rest[numeral.start : numeral.end]
        yield Claim("number", "/".join(sorted(numeral.readings)), surface, numeral.readings)


def _identifier_spans(text: str) -> list[tuple[int, int]]:
    """Return where identifiers are that are no dates ("12.05.2024" looks like a version)."""
    found = find_identifiers(text)
    dates = find_dates(text) if found else ()
    return [
        (f.start, f.end)
        for f in found
        if not any(f.start < date.end and date.start < f.end for date in dates)
    ]


def _stands_in(text: str, word: str) -> bool:
    """Return whether a text holds a word or identifier between characters of no word."""
    start = text.find(word)
    while start >= 0:
        end = start + len(word)
        if not (text[start - 1 : start].isalnum() or text[end : end + 1].isalnum()):
            return True
        start = text.find(word, start + 1)
    return False
