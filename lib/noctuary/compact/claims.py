"""What a text claims: names, numbers, dates and negations, clause by clause."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from noctuary.compact.quantities import (
    CJK_IDLE,
    CJK_NEGATORS,
    DENYING,
    FINITE_VERBS,
    FIRST_PERSON,
    IDLE_NEGATIONS,
    JAPANESE_NEGATIONS,
    MONTHS,
    NEGATORS,
    OPENERS,
    OTHER_PERSONS,
    Date,
    Moment,
    find_moments,
    find_numerals,
    is_date_covered,
    loose_numbers,
    mask,
    plain_digits,
    spell_out,
)
from noctuary.graph.fold import CALENDAR_WORDS, FUNCTION_WORDS, NAME_CONNECTORS, Word, words
from noctuary.graph.names import capitalised_runs
from noctuary.text.dates import find_dates, find_identifiers
from noctuary.text.marks import split_speaker
from noctuary.text.tokens import is_stop_word, stem, tokenize

# Names in a text by their capitals, and whether some texts hold a name.


SHORT_FORM_CHARS = 3
"""Least length of a short form: "Mel" stands for "Melanie". Shorter ones begin too many names."""

INFLECTION_CHARS = 3
"""Letters by which the ends of a name may differ where no stemmer knows its inflections."""

_SENTENCE_END = re.compile(r"[.!?…:。！？]|\n")
_VERB_ENDINGS = ("ed", "s")
_NO_NAME_ENDINGS = ("ing", "ly", "tion", "ment", "ness", "ity")


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
    that are `known` are names wherever they stand; `tokens` are the text's words, if at hand.
    """
    tokens = words(text) if tokens is None else tokens
    found = [
        Name(" ".join(kept), text[span.start : span.end], span.start, span.end)
        for span in capitalised_runs(text, tokens)
        if (kept := _naming(words(text[span.start : span.end])))
    ]
    taken = {name.start for name in found}
    for index, token in enumerate(tokens):
        if token.start in taken or not text[token.start].isupper():
            continue
        if token.folded in known or _opens_as_name(text, tokens, index):
            surface = text[token.start : token.end]
            found.append(Name(token.folded, surface, token.start, token.end))
    return sorted(found, key=lambda name: name.start)


class NameSupport:
    """The words of some texts, in any case: what a name's words are looked up in."""

    def __init__(self, texts: Iterable[str]) -> None:
        folded = {part for text in texts for word in words(text) for part in word.folded.split()}
        self._words = folded
        self._stems = {stem(word) for word in folded}
        self._starts = {word[:SHORT_FORM_CHARS] for word in folded}
        self._joined: str | None = None

    def holds(self, name: str) -> bool:
        """Say whether a folded name is held, as one word or word by word.

        A word is held as it is, inflected, or in full where it is a short form.
        """
        if name.replace(" ", "") in self._words:
            return True
        return all(self._holds_word(word) for word in name.split())

    def _holds_word(self, word: str) -> bool:
        if word in self._words or stem(word) in self._stems:
            return True
        if word[:SHORT_FORM_CHARS] not in self._starts or len(word) < SHORT_FORM_CHARS:
            return False
        if word.isascii():
            return any(longer.startswith(word) for longer in self._words)
        return any(_is_inflected(word, other) for other in self._words)


def _naming(found: Sequence[Word]) -> list[str]:
    return [
        word.folded
        for word in found
        if word.folded not in FUNCTION_WORDS
        and word.folded not in CALENDAR_WORDS
        and word.folded not in NAME_CONNECTORS
        and not word.folded.isdigit()
    ]


def _opens_as_name(text: str, tokens: Sequence[Word], index: int) -> bool:
    word = tokens[index]
    if index + 1 == len(tokens):
        return False
    if index and _SENTENCE_END.search(text[tokens[index - 1].end : word.start]) is None:
        return False
    folded = word.folded
    if folded in OPENERS or not _naming([word]) or folded.endswith(_NO_NAME_ENDINGS):
        return False
    if text[word.start : word.end].endswith(("'s", "’s")):
        return True
    after = text[tokens[index + 1].start : tokens[index + 1].end]
    if text[word.end : tokens[index + 1].start] != " ":
        return False
    return after in FINITE_VERBS or (after.islower() and after.endswith(_VERB_ENDINGS))


def _is_inflected(word: str, other: str) -> bool:
    """Say whether two words of a script with unknown inflections differ in their ends only."""
    shared = 0
    for ours, theirs in zip(word, other, strict=False):
        if ours != theirs:
            break
        shared += 1
    longest = max(len(word), len(other))
    return shared >= SHORT_FORM_CHARS and longest - shared <= INFLECTION_CHARS


# Which clauses deny what they say.


_IDLE = frozenset(IDLE_NEGATIONS)
_CJK_IDLE = re.compile("|".join(map(re.escape, CJK_IDLE)))
_CJK_NEGATION = re.compile(f"[{CJK_NEGATORS}]|{'|'.join(JAPANESE_NEGATIONS)}")


def negators(folded: Sequence[str]) -> list[int]:
    """Return the places of the words that deny; those of idle pairs ("not only") deny nothing."""
    return [
        place
        for place, word in enumerate(folded)
        if word in NEGATORS
        and (word, folded[place + 1] if place + 1 < len(folded) else "") not in _IDLE
        and (folded[place - 1] if place else "", word) not in _IDLE
    ]


def is_negated(text: str, folded: Sequence[str]) -> bool:
    """Say whether a clause, with its words folded, holds a negator of a language known here."""
    if not text.isascii() and _CJK_NEGATION.search(_CJK_IDLE.sub("", text)):
        return True
    return bool(negators(folded))


def is_denying(folded: Sequence[str]) -> bool:
    """Say whether a clause holds a word that may deny without being a negator ("failed")."""
    return not DENYING.isdisjoint(folded)


def negated_words(tokens: Sequence[Word]) -> list[str]:
    """Return, per negator among the words of a text, the stem of the next content word."""
    folded = [word.folded for word in tokens]
    if NEGATORS.isdisjoint(folded):
        return []
    found: list[str] = []
    for place in negators(folded):
        content = (w for w in folded[place + 1 : place + 6] if not is_stop_word(w))
        word = next(content, None)
        if word is not None and word not in NEGATORS:
            found.append(stem(word))
    return found


# Sentences and clauses of a text as the comparison of two sides needs them.


_SENTENCE = re.compile(r"[^.!?…。！？\n]*(?:\.(?=\S)[^.!?…。！？\n]*)*[.!?…。！？\n]*")
_URL = re.compile(r"https?://\S+")
"""Left out of the content: its many parts would make a sentence look unlike its paraphrase."""

_CLAUSE_END = re.compile(
    r"[,;:，；：、()—]|\s[-–]\s|\s(?:but|because|although|though|while|whereas|so that|and)\s",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Piece:
    """A sentence or clause."""

    text: str  # as written, the speaker's prefix left out
    tokens: frozenset[str]  # its content: stems without stop words, numbers included
    speaker: frozenset[str]  # tokens of who says it; empty where nobody is named
    is_question: bool  # ends with a question mark, or is a clause of one that does
    is_negated: bool
    is_denying: bool  # holds a word that may deny without being a negator
    says_i: bool  # speaks of its speaker
    says_other: bool  # holds a pronoun that may stand for somebody else


def sentences(text: str) -> list[Piece]:
    """Return the sentences of a turn or a summary, in order."""
    speaker, rest = _split_speaker(text)
    return [_piece(cut, speaker, _asks(cut)) for cut in _cut(rest)]


def clauses(text: str) -> list[Piece]:
    """Return the clauses of a turn or a summary, in order."""
    speaker, rest = _split_speaker(text)
    return [
        _piece(part, speaker, _asks(cut))
        for cut in _cut(rest)
        for part in _CLAUSE_END.split(cut)
        if part.strip()
    ]


def _split_speaker(text: str) -> tuple[frozenset[str], str]:
    name, rest = split_speaker(text)
    return frozenset(tokenize(name)) if name else frozenset(), rest


def _cut(text: str) -> list[str]:
    return [cut for match in _SENTENCE.finditer(text) if (cut := match.group().strip())]


def _asks(text: str) -> bool:
    return text.endswith(("?", "？"))


def _piece(text: str, speaker: frozenset[str], is_question: bool) -> Piece:
    folded = [word.folded for word in words(text)]
    return Piece(
        text=text,
        tokens=frozenset(tokenize(_URL.sub("", text))),
        speaker=speaker,
        is_question=is_question,
        is_negated=is_negated(text, folded),
        is_denying=is_denying(folded),
        says_i=not FIRST_PERSON.isdisjoint(folded),
        says_other=not OTHER_PERSONS.isdisjoint(folded),
    )


# What a text claims and what it supports: the two sides of the fact check.
#
# A text always supports what it claims.


_MIXED = re.compile(r"(?<!\w)(?=[^\W_]{0,63}[^\W\d_]\d)[^\W_]{2,64}(?!\w)")
"""Words with a digit behind a letter: "B12", "3x5". "5kg" is a number of something."""

_TRAILING = "./,;:"


class Claim(NamedTuple):
    """One checkable statement of a text."""

    kind: str  # "number", "date", "time", "identifier", "name" or "negation"
    key: str  # equal for equal facts, however they are written
    surface: str  # as the text writes it; number words as digits
    numbers: frozenset[str] = frozenset()  # readings of a number
    moment: Moment | None = None  # the date or time


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
