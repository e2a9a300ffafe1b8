"""What a text claims and what it supports: the two sides of the fact check.

What belongs here: claims (read strictly, of a summary) and support (read generously, of sources).
What does not: who said it about whom (contradictions). A text always supports what it claims.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from noctuary.compact.facts.lexicon import MONTHS
from noctuary.compact.facts.moments import Date, Moment, find_moments, is_date_covered
from noctuary.compact.facts.names import NameSupport, find_names
from noctuary.compact.facts.negations import negated_words
from noctuary.compact.facts.numerals import (
    find_numerals,
    loose_numbers,
    mask,
    plain_digits,
    spell_out,
)
from noctuary.graph.dates import find_dates
from noctuary.graph.fold import words
from noctuary.graph.identifiers import find_identifiers

_MIXED = re.compile(r"(?<!\w)(?=[^\W_]{0,63}[^\W\d_]\d)[^\W_]{2,64}(?!\w)")
"""Words with a digit behind a letter: "B12", "3x5". "5kg" is a number of something."""

_TRAILING = "./,;:"


class Claim(NamedTuple):
    """One checkable statement of a text.

    Attributes:
        kind: "number", "date", "time", "identifier", "name" or "negation".
        key: Equal for equal facts, however they are written.
        surface: As the text writes it; number words as digits.
        numbers: Readings of a number, else empty.
        moment: The date or time, else None.
    """

    kind: str
    key: str
    surface: str
    numbers: frozenset[str] = frozenset()
    moment: Moment | None = None


def read_claims(text: str) -> list[Claim]:
    """Return what a text claims, in no particular order; repeats included."""
    plain = plain_digits(text)
    spans = _identifier_spans(plain)
    claims: list[Claim] = []
    for start, end in spans:
        surface = plain[start:end].rstrip(_TRAILING)
        claims.append(Claim("identifier", surface.casefold(), surface))
    claims.extend(_counted(spell_out(mask(plain, spans), claims=True)))
    tokens = words(text)
    names = find_names(text, tokens=tokens)
    claims.extend(Claim("name", name.folded, name.surface) for name in names)
    claims.extend(Claim("negation", word, f"not {word}") for word in negated_words(tokens))
    return claims


class Support:
    """What some texts hold, read generously: any part of a number, any word in any case."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._numbers: set[str] = set()
        self._dates: set[Date] = set()
        self._minutes: set[int] = set()
        self._negated: set[str] = set()
        self._mixed: set[str] = set()
        folded: list[str] = []
        raw: list[str] = []
        for text in texts:
            plain = plain_digits(text)
            self._add(mask(plain, _identifier_spans(plain)))
            self._negated.update(negated_words(words(text)))
            folded.append(plain.casefold())
            raw.append(text)
        self._folded = "\n".join(folded)
        self._names = NameSupport(raw)

    def holds(self, claim: Claim) -> bool:
        """Say whether the texts hold a claim."""
        if claim.kind == "number":
            return not claim.numbers.isdisjoint(self._numbers)
        if claim.moment is not None:
            return self._holds_moment(claim.moment)
        if claim.kind == "identifier":
            return self._holds_identifier(claim.key)
        if claim.kind == "negation":
            return claim.key in self._negated
        return self._names.holds(claim.key)

    def _add(self, text: str) -> None:
        spelled = spell_out(text, claims=False)
        moments = find_moments(spelled, claims=False)
        for moment in moments:
            self._dates.update(moment.dates)
            self._minutes.update(moment.minutes)
            # "On the 12th", "since 2019", "at 3": parts that are said alone.
            for date in moment.dates:
                self._numbers.update(str(part) for part in (date.day, date.year) if part)
            self._numbers.update(str(minute // 60) for minute in moment.minutes)
        rest = mask(spelled, [(moment.start, moment.end) for moment in moments])
        # A word may touch a date ("5月12日B7"): it stands alone only once the date is read.
        self._mixed.update(match.group().casefold() for match in _MIXED.finditer(rest))
        for numeral in find_numerals(rest):
            self._numbers.update(numeral.readings)
        self._numbers.update(loose_numbers(rest))

    def _holds_moment(self, moment: Moment) -> bool:
        if moment.dates:
            return is_date_covered(moment, self._dates) or self._holds_month(moment)
        return not self._minutes.isdisjoint(moment.minutes)

    def _holds_month(self, moment: Moment) -> bool:
        """A month alone is also held as a part of any word for it: "Juni", "Jun."."""
        months = [d.month for d in moment.dates if d.month and not (d.day or d.year)]
        return any(list(MONTHS)[month - 1][:3] in self._folded for month in months)

    def _holds_identifier(self, folded: str) -> bool:
        if folded.startswith("#") and folded[1:] in self._numbers:
            return True
        return folded in self._mixed or any(
            _stands_in(self._folded, form)
            for form in {folded, folded.removeprefix("v"), f"v{folded}"}
            if form
        )


def _counted(text: str) -> Iterator[Claim]:
    """Yield dates, times, mixed words and numbers of a text with its number words spelled out."""
    moments = find_moments(text, claims=True)
    for moment in moments:
        kind, values = ("date", moment.dates) if moment.dates else ("time", moment.minutes)
        key = "/".join(map(str, values))
        surface = text[moment.start : moment.end].rstrip(_TRAILING)
        yield Claim(kind, key, surface, moment=moment)
    text = mask(text, [(moment.start, moment.end) for moment in moments])
    mixed = list(_MIXED.finditer(text))
    for match in mixed:
        yield Claim("identifier", match.group().casefold(), match.group())
    text = mask(text, [match.span() for match in mixed])
    for numeral in find_numerals(text):
        surface = text[numeral.start : numeral.end]
        yield Claim("number", "/".join(sorted(numeral.readings)), surface, numeral.readings)


def _identifier_spans(text: str) -> list[tuple[int, int]]:
    """Return where identifiers stand that are no dates ("12.05.2024" looks like a version)."""
    found = [(identifier.start, identifier.end) for identifier in find_identifiers(text)]
    if not found:
        return []
    dated = [(date.start, date.end) for date in find_dates(text)]
    return [
        span for span in found if not any(span[0] < end and start < span[1] for start, end in dated)
    ]


def _stands_in(text: str, word: str) -> bool:
    """Say whether a text holds a word or identifier between characters of no word."""
    start = text.find(word)
    while start >= 0:
        end = start + len(word)
        before, after = text[start - 1 : start], text[end : end + 1]
        if not (before.isalnum() or after.isalnum()):
            return True
        start = text.find(word, start + 1)
    return False
