"""Words of a text and of a name: canonical folding, script by script, and names in a query."""

# Not `from __future__ import annotations`: NamedTuple compiles each annotation that is a text.
import functools
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from noctuary.core.files import sha256

# Supported and unsupported scripts: one table from which all rules are derived.


class Script(NamedTuple):
    """How the extractor treats text in one script; statements are read in English only."""

    name: str
    # whether spaces separate its words, and dictionary names are matched word by word; else a
    # run is a phrase, and is matched as a whole only
    spaced: bool
    has_runs: bool  # whether stop-word-free runs are found
    ranges: tuple[tuple[int, int], ...]


# Every script that is treated in its own way. Letters of others are words between spaces, without
# stop-word-free runs.
SCRIPTS: tuple[Script, ...] = (
    Script("latin", True, True, ((0x41, 0x5A), (0x61, 0x7A), (0xC0, 0x24F), (0x1E00, 0x1EFF))),
    Script("greek", True, False, ((0x370, 0x3FF), (0x1F00, 0x1FFF))),
    Script("cyrillic", True, False, ((0x400, 0x52F),)),
    Script("hebrew", True, False, ((0x590, 0x5FF),)),
    Script("arabic", True, False, ((0x600, 0x6FF), (0x750, 0x77F))),
    Script("indic", True, False, ((0x900, 0xDFF),)),
    Script("hangul", True, False, ((0x1100, 0x11FF), (0x3130, 0x318F), (0xAC00, 0xD7AF))),
    Script("thai", False, False, ((0xE00, 0xE7F),)),
    Script("lao", False, False, ((0xE80, 0xEFF),)),
    Script("tibetan", False, False, ((0xF00, 0xFFF),)),
    Script("myanmar", False, False, ((0x1000, 0x109F),)),
    Script("khmer", False, False, ((0x1780, 0x17FF),)),
    Script("kana", False, False, ((0x3041, 0x30FF), (0xFF66, 0xFF9F))),
    Script(
        "han", False, False,
        ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2FFFF)),
    ),
)  # fmt: skip


def script_of(character: str) -> Script | None:
    """Return the script of a character, None where the table does not list it."""
    code = ord(character)
    for script in SCRIPTS:
        if any(low <= code <= high for low, high in script.ranges):
            return script
    return None


# Canonical folding of names, and the words of a text with their places.

# Length of a concept id: 64 bits, a collision among 1,000,000 names has odds of about 3e-8.
CONCEPT_ID_HEX = 16
# Folded words remembered; trades a few MB for not folding frequent words again.
_TOKEN_CACHE_SIZE = 1 << 16

# Scripts whose letters form runs of their own: the unsegmented ones, where a run is a phrase
# and not a word, and the Indic ones, where vowel signs would otherwise look like boundaries.
_SCRIPT_RANGES = tuple(
    (script.name, low, high)
    for script in SCRIPTS
    if not script.spaced or script.name == "indic"
    for low, high in script.ranges
)
_SPACED = frozenset({"indic"})
_RUN_CLASS = "".join(f"{chr(low)}-{chr(high)}" for _, low, high in _SCRIPT_RANGES)
_APOSTROPHES = "'\u2019"
# Hebrew points and Arabic vowel signs: they belong to their word and most writers leave them out.
_POINTS = "\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u064b-\u065f\u0670"
_MARKS = f"\u0300-\u036f{_POINTS}"
_POINT = f"[{_POINTS}\u0640]"  # and the Arabic letter that only stretches a word
_FIRST_RUN = min(chr(low) for _, low, _ in _SCRIPT_RANGES)
# A word: letters and digits, combining marks, apostrophes between letters. Underscores separate.
_PLAIN_WORD = rf"[^\W_]+(?:[{_MARKS}]+[^\W_]*|[{_APOSTROPHES}][^\W_]+)*"
# The same in a text of ASCII alone: compiling the other takes a hook half a millisecond.
_ASCII_WORD = re.compile(r"[A-Za-z0-9]+(?:'[A-Za-z0-9]+)*")
_LETTER = rf"[^\W_{_RUN_CLASS}]"
_LATIN_ACCENT = "([A-Za-z])[\u0300-\u036f]+"
_POSSESSIVE = re.compile(rf"[{_APOSTROPHES}]s$", re.IGNORECASE)


class Word(NamedTuple):
    """A word of a text."""

    start: int  # offset of its first character
    end: int
    # its canonical form, never empty; may hold spaces where a character expands to them
    folded: str


def words(text: str) -> list[Word]:
    """Return the words of a text in order, with offsets into it."""
    return [
        Word(match.start(), match.end(), folded)
        for match in word_pattern(text).finditer(text)
        if (folded := fold_word(match.group()))
    ]


def fold_name(name: str) -> str:
    """Return the canonical form of a name: words folded and joined by one space; may be empty.

    Compatibility forms, case, punctuation, spacing and possessives make no difference. Folding a
    slice of a text that begins and ends at its words gives their folded forms joined.
    """
    return " ".join(word.folded for word in words(name))


@functools.lru_cache(maxsize=_TOKEN_CACHE_SIZE)
def concept_id(folded_name: str) -> str:
    """Return the id of a folded name: 16 hex digits of its SHA-256, free of any numbering."""
    return sha256(folded_name.encode("utf-8", "surrogatepass")).hexdigest()[:CONCEPT_ID_HEX]


def unsegmented_script(folded_word: str) -> str | None:
    """Name the script of a run that has no spaces between its words, or None for other words."""
    code = ord(folded_word[0])
    for script, low, high in _SCRIPT_RANGES:
        if low <= code <= high:
            return None if script in _SPACED else script
    return None


def word_pattern(text: str) -> re.Pattern[str]:
    """Return the pattern that finds the words of a text."""
    # Most texts hold no such run; the plain pattern is about twice as fast.
    if text.isascii():
        return _ASCII_WORD
    if max(text) >= _FIRST_RUN:
        run, mixed_word = _run_patterns()
        if run.search(text):
            return mixed_word
    return re.compile(_PLAIN_WORD)


@functools.cache
def _run_patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return a pattern that finds a run, and one for the words of a text that has some.

    Compiled for the first text that needs them: classes as large take as long as a fifth of
    `import numpy`, and a hook would pay it for every prompt.
    """
    words = rf"[{_RUN_CLASS}]+|{_LETTER}+(?:[{_MARKS}]+{_LETTER}*|[{_APOSTROPHES}]{_LETTER}+)*"
    return re.compile(f"[{_RUN_CLASS}]"), re.compile(words)


@functools.lru_cache(maxsize=_TOKEN_CACHE_SIZE)
def fold_word(word: str) -> str:
    """Return the canonical form of one word that `word_pattern` found; may be empty."""
    bare = _POSSESSIVE.sub("", word)
    if bare.isalnum() and bare.isascii():
        return bare.lower()
    return _fold_unicode(bare)


def _fold_unicode(word: str) -> str:
    folded = unicodedata.normalize("NFKC", word).casefold()
    folded = re.sub(_POINT, "", unicodedata.normalize("NFKC", folded))
    for apostrophe in _APOSTROPHES:
        folded = folded.replace(apostrophe, "")
    # A compatibility form may expand to several words (one half -> 1 2), which must fold alike.
    return " ".join(word_pattern(folded).findall(folded))


def without_accents(text: str) -> str:
    """Return a text without accents on Latin letters; other scripts keep their marks."""
    if text.isascii():
        return text
    plain = re.sub(_LATIN_ACCENT, r"\1", unicodedata.normalize("NFKD", text))
    return unicodedata.normalize("NFKC", plain)


# Which concepts a query names: the longest known name at each word.

# Words of a query that are looked at; a pasted document names too much to mean any of it.
QUERY_MAX_WORDS = 256


class Name(NamedTuple):
    """A name that a query may link to."""

    ordinal: int
    weight: float  # in [0, 1], how specific the name is; 0 where it links nothing
    cased: bool


class Link(NamedTuple):
    """A concept that the query names, and where (offsets into the query, end exclusive)."""

    ordinal: int
    weight: float
    start: int
    end: int


class NameTable(NamedTuple):
    """How names are looked up."""

    # words -> length in words of the longest name that begins with it; absent words begin none
    longest: Callable[[Sequence[str]], Mapping[str, int]]
    # folded names -> their links; unknown ones are absent
    names: Callable[[Sequence[str]], Mapping[str, Name]]


def link_query(query: str, table: NameTable) -> tuple[Link, ...]:
    """Return the concepts that a query names, left to right; at each word the longest name wins."""
    tokens = words(query)[:QUERY_MAX_WORDS]
    if not tokens:
        return ()
    longest = table.longest(list(dict.fromkeys(token.folded for token in tokens)))
    runs = {
        (start, size): " ".join(token.folded for token in tokens[start : start + size])
        for start, token in enumerate(tokens)
        for size in range(1, min(longest.get(token.folded, 0), len(tokens) - start) + 1)
    }
    if not runs:
        return ()
    known = table.names(list(dict.fromkeys(runs.values())))
    links: list[Link] = []
    index = 0
    while index < len(tokens):
        size, name = _longest_at(query, tokens, index, longest, runs, known)
        if name is not None:
            end = tokens[index + size - 1].end
            links.append(Link(name.ordinal, name.weight, tokens[index].start, end))
        index += size
    return tuple(links)


def _longest_at(
    query: str,
    tokens: Sequence[Word],
    index: int,
    longest: Mapping[str, int],
    runs: Mapping[tuple[int, int], str],
    known: Mapping[str, Name],
) -> tuple[int, Name | None]:
    """Return how many words to go on by, and the name they are, if any."""
    for size in range(longest.get(tokens[index].folded, 0), 0, -1):
        name = known.get(runs.get((index, size), ""))
        if name is None:
            continue
        ends = tokens[index], tokens[index + size - 1]
        if not name.cased or all(_shows_case(query, word) for word in ends):
            return size, name
    return 1, None


def _shows_case(text: str, word: Word) -> bool:
    return any(char.isupper() or char.isdigit() for char in text[word.start : word.end])


# How a memory holds a concept, by code. Append only: published snapshots store the codes.
ROLES = ("about", "mentions", "author", "speaker")
ABOUT = ROLES.index("about")
