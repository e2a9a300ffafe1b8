"""Sentences and clauses of a text as the comparison of two sides needs them.

What belongs here: cutting, and what a piece is: a question, denied, spoken of oneself. What does
not: which pieces of two sides belong together (alignment).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from noctuary.compact.facts.lexicon import FIRST_PERSON, OTHER_PERSONS
from noctuary.compact.facts.negations import is_denying, is_negated
from noctuary.graph.fold import words
from noctuary.text.speaker import split_speaker
from noctuary.text.tokens import tokenize

_SENTENCE = re.compile(r"[^.!?…。！？\n]*(?:\.(?=\S)[^.!?…。！？\n]*)*[.!?…。！？\n]*")
_URL = re.compile(r"https?://\S+")
"""Left out of the content: its many parts would make a sentence look unlike its paraphrase."""

_CLAUSE_END = re.compile(
    r"[,;:，；：、()—]|\s[-–]\s|\s(?:but|because|although|though|while|whereas|so that|and)\s",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Piece:
    """A sentence or clause.

    Attributes:
        text: As written, the speaker's prefix left out.
        tokens: Its content: stems without stop words, numbers included.
        speaker: Tokens of who says it; empty where nobody is named.
        is_question: True for a sentence that ends with a question mark, and its clauses.
        is_negated: Holds a negator.
        is_denying: Holds a word that may deny otherwise.
        says_i: Speaks of its speaker.
        says_other: Holds a pronoun that may stand for somebody else.
    """

    text: str
    tokens: frozenset[str]
    speaker: frozenset[str]
    is_question: bool
    is_negated: bool
    is_denying: bool
    says_i: bool
    says_other: bool


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
