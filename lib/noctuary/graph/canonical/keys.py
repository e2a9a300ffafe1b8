"""What spellings of one name share: keys for buckets, pure functions of the folded name."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

ARTICLE = "the"
"""The article that names carry or drop."""

_ARTICLE_AND_SPACE = f"{ARTICLE} "

SINGULAR_MIN_CHARS = 4
"""Shortest word that loses its plural ending: tags, but not gas, news stays news."""

STEM_MIN_CHARS = 3
"""Least that is left of a word without its ending: making, but not bring."""

_VERB_ENDINGS = ("ing", "ed", "s", "e")
_UNCOUNTED = ("ss", "us", "is")
_SIBILANT_PLURALS = ("sses", "shes", "ches", "xes", "zes")
_NO_PLURALS = frozenset({"news", "series", "species", "alias", "bias", "atlas", "canvas", "always"})
_LATIN_ACCENT = re.compile("([a-z])[\u0300-\u036f]+")


def singular(word: str) -> str:
    """Return an English noun without its plural ending; others as they are."""
    if len(word) < SINGULAR_MIN_CHARS or word in _NO_PLURALS or not word.endswith("s"):
        return word
    if word.endswith(_UNCOUNTED):
        return word
    if word.endswith("ies") and len(word) > len("dies"):
        return word[: -len("ies")] + "y"
    if word.endswith(_SIBILANT_PLURALS):
        return word[: -len("es")]
    return word[:-1]


def stem(word: str) -> str:
    """Return what the regular forms of an English verb share: make, making; plan, planned."""
    for ending in _VERB_ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= STEM_MIN_CHARS:
            word = word[: -len(ending)]
            break
    return word[:-1] if word[-2:-1] == word[-1:] else word


def spelling_key(name: str) -> str:
    """Return what all spellings of a folded name share; never empty."""
    if name.isascii() and not name.endswith("s") and not name.startswith(_ARTICLE_AND_SPACE):
        return name.replace(" ", "")  # as below; most names are of this sort
    tokens = without_article(name.split())
    return joined([*tokens[:-1], singular(tokens[-1])])


def joined(tokens: Sequence[str]) -> str:
    """Return the words without spaces and without accents on Latin letters."""
    text = "".join(tokens)
    if text.isascii():
        return text
    plain = _LATIN_ACCENT.sub(r"\1", unicodedata.normalize("NFKD", text))
    return unicodedata.normalize("NFKC", plain)


def without_article(tokens: Sequence[str]) -> Sequence[str]:
    """Return the words without a leading article, unless nothing else is there."""
    return tokens[1:] if len(tokens) > 1 and tokens[0] == ARTICLE else tokens
