"""The subject dictionary, and where other memories name those subjects.

Belongs here: which names can be looked for, and the longest match of them on word boundaries, by
hash look-ups of word runs. Does not belong here: edges (`build`), finding subjects (`subjects`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate
from typing import NamedTuple

from noctuary.graph.fold import fold_word, unsegmented_script, word_pattern
from noctuary.graph.lexicon import CALENDAR_WORDS, FUNCTION_WORDS

SUBJECT_MIN_CHARS = 3
"""Shortest folded name looked for; shorter ones are initials and chance hits."""

SUBJECT_MAX_WORDS = 12
"""Longest name looked for, in words; longer ones never recur and cost look-ups."""

GAP_MAX_CHARS = 3
"""Most characters between two words of one name (" & ", ". ", " ("); more is another phrase."""

_ASCII_WORD = re.compile("([A-Za-z0-9]+(?:'[A-Za-z0-9]+)*)")
"""What `word_pattern` finds in such a text, in half the time."""

REFUSALS = ("too short", "too long", "only function words", "only digits")
"""Why a name is not looked for."""


class Match(NamedTuple):
    """A dictionary name found in a text (offsets into it, end exclusive)."""

    name: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Dictionary:
    """Names to look for.

    Attributes:
        cased: By folded name, whether a mention must show a capital or a digit: true for a single
            word that was never authored in lower case.
        seconds: By first word of names, by their second word, the lengths in words of the names
            that begin so, longest first; empty where a name is that one word.
        skipped: Names that were left out, counted by reason.
    """

    cased: Mapping[str, bool]
    seconds: Mapping[str, Mapping[str, tuple[int, ...]]]
    skipped: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Matches:
    """The mentions in one text.

    Attributes:
        found: Left to right, not overlapping.
        declined: Runs without inner word boundaries that were compared only as a whole, by script.
    """

    found: tuple[Match, ...]
    declined: Mapping[str, int]


class Tokens:
    """The folded words of a text; their places are only looked up where something matches.

    Equal to `noctuary.graph.fold.words`, at a third of its price for plain texts.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        # Texts between words and words in turn: lengths add up to places without a match object.
        plain = text.isascii()
        pattern = _ASCII_WORD if plain else _splitter(word_pattern(text))
        self._parts: list[str] = pattern.split(text)
        raw = self._parts[1::2]
        if plain and "'" not in text:
            self.folded = list(map(str.lower, raw))
        else:
            self.folded = [
                folded
                for word in raw
                # Most words need no look-up.
                if (
                    folded := word.lower() if word.isascii() and word.isalnum() else fold_word(word)
                )
            ]

    @cached_property
    def spans(self) -> list[tuple[int, int]]:
        """Start and end of each word in the text."""
        ends = list(accumulate(map(len, self._parts)))
        spans = list(zip(ends[::2], ends[1::2], strict=False))
        if len(spans) == len(self.folded):
            return spans
        return [s for s, w in zip(spans, self._parts[1::2], strict=True) if fold_word(w)]

    def shows_case(self, index: int) -> bool:
        """Say whether a word has a capital or a digit."""
        start, end = self.spans[index]
        return any(char.isupper() or char.isdigit() for char in self._text[start:end])

    def is_unbroken(self, first: int, last: int) -> bool:
        """Say whether words stand close enough to be one name: no line break, little between."""
        text, spans = self._text, self.spans
        for index in range(first, last):
            gap = text[spans[index][1] : spans[index + 1][0]]
            if len(gap) > GAP_MAX_CHARS or "\n" in gap:
                return False
        return True


@cache
def _splitter(pattern: re.Pattern[str]) -> re.Pattern[str]:
    return re.compile(f"({pattern.pattern})", pattern.flags)


def build_dictionary(names: Iterable[tuple[str, str]]) -> Dictionary:
    """Make the dictionary of (folded name, surface) pairs, in any order."""
    skipped: Counter[str] = Counter()
    cased: dict[str, bool] = {}
    refused: set[str] = set()
    for name, surface in names:
        reason = refusal(name)
        if reason is None:
            cased[name] = cased.get(name, True) and needs_case(name, surface)
        elif name not in refused:
            refused.add(name)
            skipped[reason] += 1
    return index_dictionary(cased, dict(skipped))


def index_dictionary(cased: Mapping[str, bool], skipped: Mapping[str, int]) -> Dictionary:
    """Make the dictionary of names whose case rule is known."""
    seconds: dict[str, dict[str, tuple[int, ...]]] = {}
    for name in cased:
        first, *others = name.split(" ")
        following = seconds.setdefault(first, {})
        if others:
            lengths = {len(others) + 1, *following.get(others[0], ())}
            following[others[0]] = tuple(sorted(lengths, reverse=True))
    return Dictionary(cased, seconds, skipped)


def needs_case(name: str, surface: str) -> bool:
    """Say whether this use of a name lets only mentions with a capital or a digit count."""
    return " " not in name and surface[:1].isupper()


def find_matches(
    text: str, dictionary: Dictionary, own: Collection[str] = (), tokens: Tokens | None = None
) -> Matches:
    """Return the mentions of dictionary names in a text.

    At each word the longest name that fits is taken and its words are used up, so that a name
    inside a longer one is not a mention. The text's own subjects use up their words too, without
    being mentions.

    Args:
        text: The text.
        dictionary: The names.
        own: Folded names of the text's own subjects.
        tokens: The words of the text, where they are known already.
    """
    tokens = Tokens(text) if tokens is None else tokens
    folded, seconds, cased = tokens.folded, dictionary.seconds, dictionary.cased
    found: list[Match] = []
    used: set[int] = set()
    padded = [*folded, ""]
    first_words = [i for i, word in enumerate(folded) if word in seconds]
    # Most of them, "the" above all, begin nothing here.
    for index in [
        i for i in first_words if padded[i + 1] in seconds[padded[i]] or padded[i] in cased
    ]:
        if index in used:
            continue
        sizes = seconds[folded[index]].get(padded[index + 1], ())
        size = _longest_at(tokens, index, (*sizes, 1), cased)
        if size == 0:
            continue
        used.update(range(index, index + size))
        name = " ".join(folded[index : index + size])
        if name not in own:
            found.append(Match(name, tokens.spans[index][0], tokens.spans[index + size - 1][1]))
    return Matches(tuple(found), {} if text.isascii() else _declined(folded, used))


def _longest_at(tokens: Tokens, index: int, sizes: Sequence[int], cased: Mapping[str, bool]) -> int:
    """Return the first of the sizes in words that a name at this word has, 0 where none has."""
    folded = tokens.folded
    for size in sizes:
        if index + size > len(folded):
            continue
        needs_capital = cased.get(" ".join(folded[index : index + size]))
        if needs_capital is None or (needs_capital and not tokens.shows_case(index)):
            continue
        if tokens.is_unbroken(index, index + size - 1):
            return size
    return 0


def _declined(folded: Sequence[str], used: Collection[int]) -> dict[str, int]:
    """Count the words that are runs of a script without spaces and no name, by script."""
    scripts = [
        unsegmented_script(word)
        for index, word in enumerate(folded)
        if not word.isascii() and index not in used
    ]
    return dict(Counter(script for script in scripts if script is not None))


def refusal(name: str) -> str | None:
    """Return why a name is not looked for, one of REFUSALS, or None if it is."""
    parts = name.split(" ")
    if len(name) < SUBJECT_MIN_CHARS:
        return "too short"
    if len(parts) > SUBJECT_MAX_WORDS:
        return "too long"
    if all(part in FUNCTION_WORDS or part in CALENDAR_WORDS for part in parts):
        return "only function words"
    if all(part.isdigit() for part in parts):
        return "only digits"
    return None
