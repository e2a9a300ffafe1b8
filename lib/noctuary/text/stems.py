"""Snowball stems, loaded at their first use.

What belongs here: which stemmer a word gets and the cache of stems. What does not: cutting text
into words.

Only the two algorithm modules in use are loaded, around the package's own `__init__`: that one
imports all thirty-five languages (11 ms of a hook's process, against 1 ms), and hands over to
PyStemmer where that is installed, whose algorithm version, and so whose stems, may differ from the
ones in the index.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, lru_cache
from importlib import import_module
from importlib.machinery import PathFinder
from threading import Lock
from types import ModuleType

_ALIAS = "noctuary_snowball"
_MIN_STEM_CHARS = 3
"""Shorter words have no suffix to lose; stemming them only costs time."""
_MAX_STEM_CHARS = 40
"""Longer ones are identifiers; the pure-Python stemmer copies the word at each step."""
_CACHED_STEMS = 1 << 17
"""About the vocabulary of 100k memories; more memory (some 20 MB when full) against stemming
twice."""

_CYRILLIC_FIRST, _CYRILLIC_LAST = "\u0400", "\u052f"


@lru_cache(maxsize=_CACHED_STEMS)
def stem(word: str) -> str:
    """Return the Snowball stem of a folded word.

    Words of ASCII letters get the English algorithm whatever their language, words of Cyrillic
    letters the Russian one; everything else (digits, marks, other scripts) is returned as it is. A
    Spanish or German word therefore loses little more than a plural "s": one algorithm per script
    keeps a word's stem the same in a document and in a two-word query, where no language can be
    guessed.
    """
    if not _MIN_STEM_CHARS <= len(word) <= _MAX_STEM_CHARS or not word.isalpha():
        return word
    if word.isascii():
        return _stemmer("english")(word)
    if all(_CYRILLIC_FIRST <= char <= _CYRILLIC_LAST for char in word):
        return _stemmer("russian")(word)
    return word


@cache
def _stemmer(language: str) -> Callable[[str], str]:
    """Return a thread-safe stem function; Snowball's own objects keep the word as state."""
    module = import_module(f"{_package()}.{language}_stemmer")
    stemmer = getattr(module, f"{language.capitalize()}Stemmer")()
    lock = Lock()

    def locked(word: str) -> str:
        with lock:
            return stemmer.stemWord(word)

    return locked


@cache
def _package() -> str:
    """Return a package name under which snowballstemmer's modules load without its `__init__`."""
    spec = PathFinder.find_spec("snowballstemmer")
    if spec is None or not spec.submodule_search_locations:
        return "snowballstemmer"
    alias = ModuleType(_ALIAS)
    alias.__path__ = list(spec.submodule_search_locations)
    sys.modules[_ALIAS] = alias
    return _ALIAS
