"""Concepts of a memory as the reference's prototype takes them: no model, no dictionary.

No graph.

Source: hybrid-recall-design B.4: the union of `tags`, `expanded_keywords` and "a lightweight
regex/stop-word noun-phrase proxy over `content`, normalized + de-pluralized". The reference does
not print its expression. Ours: runs of words between punctuation and stop words; every word of a
run that is long enough, and the run itself where it is two or three words. With the single words
the graph is about as dense as the reference's (769 edges to a memory); with the runs
alone it would hardly link anything, because the labelled sets come without expanded_keywords.
"""

from __future__ import annotations

import re
from typing import Any

from noctuary.text.tokens import is_stop_word

MIN_WORD_CHARS = 3
"""Shorter words are rarely a concept and would make the graph denser at random."""

MAX_PHRASE_WORDS = 3
"""Longer runs are clauses, not names: almost none occurs in two memories."""

_PIECE = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*|[^\w\s]")
_VOWEL_PLURALS = ("ses", "xes", "zes", "ches", "shes")


def list_concepts(row: dict[str, Any]) -> list[str]:
    """Return the distinct concepts of a corpus row, in no order that matters."""
    found: dict[str, None] = {}
    for tag in str(row.get("tags") or "").split(","):
        found[_normalize(tag)] = None
    for keyword in str(row.get("expanded_keywords") or "").split():
        found[_normalize(keyword)] = None
    for phrase in noun_phrases(str(row["content"])):
        found[phrase] = None
    found.pop("", None)
    return list(found)


def noun_phrases(text: str) -> list[str]:
    """Return the words and short runs of words between punctuation and stop words, normalised."""
    found: list[str] = []
    run: list[str] = []
    for piece in [*_PIECE.findall(text.casefold()), "."]:
        if piece[0].isalnum() and not is_stop_word(piece):
            run.append(singular(piece))
            continue
        found.extend(word for word in run if len(word) >= MIN_WORD_CHARS)
        if 2 <= len(run) <= MAX_PHRASE_WORDS:
            found.append(" ".join(run))
        run = []
    return found


def singular(word: str) -> str:
    """Return an English word without its plural ending, by the common rules only."""
    if len(word) <= MIN_WORD_CHARS or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith(_VOWEL_PLURALS):
        return word[:-2]
    return word.removesuffix("s")


def _normalize(text: str) -> str:
    return " ".join(singular(word) for word in text.casefold().split())
