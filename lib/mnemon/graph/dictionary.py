"""The subject dictionary, and where other memories name those subjects.

Belongs here: which names can be looked for, and the longest match of them on word boundaries, by
hash look-ups of word runs. Does not belong here: edges (`build`), finding subjects (`subjects`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from mnemon.graph.fold import Word, unsegmented_script, words
from mnemon.graph.lexicon import CALENDAR_WORDS, FUNCTION_WORDS

SUBJECT_MIN_CHARS = 3
"""Shortest folded name looked for; shorter ones are initials and chance hits."""

SUBJECT_MAX_WORDS = 12
"""Longest name looked for, in words; longer ones never recur and cost look-ups."""

GAP_MAX_CHARS = 3
"""Most characters between two words of one name (" & ", ". ", " ("); more is another phrase."""


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
        lengths: By first word, the lengths in words of the names that begin with it, longest first.
        skipped: Names that were left out, counted by reason.
    """

    cased: Mapping[str, bool]
    lengths: Mapping[str, tuple[int, ...]]
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


def build_dictionary(names: Iterable[tuple[str, str]]) -> Dictionary:
    """Make the dictionary of (folded name, surface) pairs, in any order."""
    skipped: Counter[str] = Counter()
    cased: dict[str, bool] = {}
    refused: set[str] = set()
    for name, surface in names:
        reason = _refusal(name)
        if reason is None:
            needs_case = " " not in name and surface[:1].isupper()
            cased[name] = cased.get(name, True) and needs_case
        elif name not in refused:
            refused.add(name)
            skipped[reason] += 1
    lengths: dict[str, set[int]] = {}
    for name in cased:
        parts = name.split(" ")
        lengths.setdefault(parts[0], set()).add(len(parts))
    longest_first = {word: tuple(sorted(counts, reverse=True)) for word, counts in lengths.items()}
    return Dictionary(cased, longest_first, dict(skipped))


def find_matches(text: str, dictionary: Dictionary, own: Collection[str] = ()) -> Matches:
    """Return the mentions of dictionary names in a text.

    At each word the longest name that fits is taken and its words are used up, so that a name
    inside a longer one is not a mention. The text's own subjects use up their words too, without
    being mentions.
    """
    tokens = words(text)
    folded = [word.folded for word in tokens]
    found: list[Match] = []
    declined: dict[str, int] = {}
    index = 0
    while index < len(tokens):
        sizes = dictionary.lengths.get(folded[index])
        size = _longest_at(text, tokens, folded, index, sizes, dictionary) if sizes else 0
        if size == 0:
            _count_declined(folded[index], declined)
            index += 1
            continue
        name = " ".join(folded[index : index + size])
        if name not in own:
            found.append(Match(name, tokens[index].start, tokens[index + size - 1].end))
        index += size
    return Matches(tuple(found), declined)


def _longest_at(
    text: str,
    tokens: Sequence[Word],
    folded: Sequence[str],
    index: int,
    sizes: Sequence[int],
    dictionary: Dictionary,
) -> int:
    """Return the size in words of the longest name at this word, 0 where there is none."""
    for size in sizes:
        if index + size > len(tokens):
            continue
        needs_case = dictionary.cased.get(" ".join(folded[index : index + size]))
        if needs_case is None or (needs_case and not _shows_case(text, tokens[index])):
            continue
        if is_unbroken(text, tokens[index : index + size]):
            return size
    return 0


def is_unbroken(text: str, run: Sequence[Word]) -> bool:
    """Say whether words stand close enough to be one name: no line break, little punctuation."""
    for left, right in pairwise(run):
        gap = text[left.end : right.start]
        if len(gap) > GAP_MAX_CHARS or "\n" in gap:
            return False
    return True


def _shows_case(text: str, word: Word) -> bool:
    return any(char.isupper() or char.isdigit() for char in text[word.start : word.end])


def _count_declined(folded: str, declined: dict[str, int]) -> None:
    if folded.isascii():
        return
    script = unsegmented_script(folded)
    if script is not None:
        declined[script] = declined.get(script, 0) + 1


def _refusal(name: str) -> str | None:
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
