"""Names in a text by their capitals, and whether some texts hold a name.

What belongs here: which words of a summary name somebody or something, and when two spellings are
one name. What does not: names in scripts without case, which cannot be told from other words.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from noctuary.compact.facts.lexicon import FINITE_VERBS, OPENERS
from noctuary.graph.fold import Word, words
from noctuary.graph.lexicon import CALENDAR_WORDS, FUNCTION_WORDS, NAME_CONNECTORS
from noctuary.graph.names import capitalised_runs
from noctuary.text.stems import stem

SHORT_FORM_CHARS = 3
"""Least length of a short form: "Mel" stands for "Melanie". Shorter ones begin too many names."""

INFLECTION_CHARS = 3
"""Letters by which the ends of a name may differ where no stemmer knows its inflections."""

_SENTENCE_END = re.compile(r"[.!?…:。！？]|\n")
_VERB_ENDINGS = ("ed", "s")
_NO_NAME_ENDINGS = ("ing", "ly", "tion", "ment", "ness", "ity")


class Name(NamedTuple):
    """A name in a text.

    Attributes:
        folded: Its words, folded and joined by a space.
        surface: As it is written.
        start: First character.
        end: One past the last one.
    """

    folded: str
    surface: str
    start: int
    end: int


def find_names(
    text: str, known: Collection[str] = (), tokens: Sequence[Word] | None = None
) -> list[Name]:
    """Return the names of a text: capitalised runs, and openers of a sentence that act.

    A word that opens a sentence is capitalised anyway. Alone it counts where a verb follows
    ("Zelda visited ..."), unless it is a word by which summaries open their sentences.

    Args:
        text: The text.
        known: Folded words that are names wherever they stand.
        tokens: The words of the text, where they are known already.
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
