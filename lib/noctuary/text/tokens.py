"""The one tokenizer: scripts, folding, stems and stop words."""

from __future__ import annotations

import re
import sys
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from functools import cache, lru_cache
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from threading import local
from types import ModuleType

from noctuary.core.types import from_micros
from noctuary.text.marks import PLAIN_SIGNS, content_tags

# Which script a character belongs to. The ranges name letters only; punctuation of a script is
# OTHER. Source: Unicode Standard, Blocks.txt (living scripts, rare historic blocks left out).


class Script(StrEnum):
    """Scripts distinguished by the tokenizer, the language guess or a report."""

    LATIN = "latin"
    GREEK = "greek"
    CYRILLIC = "cyrillic"
    ARABIC = "arabic"
    HEBREW = "hebrew"
    HAN = "han"
    KANA = "kana"
    HANGUL = "hangul"
    SOUTHEAST_ASIAN = "southeast_asian"
    OTHER = "other"


CJK = frozenset({Script.HAN, Script.KANA, Script.HANGUL})  # indexed as n-grams by every analyser
UNSPACED = CJK | {Script.SOUTHEAST_ASIAN}  # where spaces do not separate words

# In hexadecimal, both ends inclusive.
_BLOCKS = """
latin: 41-5A 61-7A AA BA C0-D6 D8-F6 F8-2B8 1D00-1DBF 1E00-1EFF 2183-2184 2C60-2C7F A720-A7FF
  AB30-AB6F FB00-FB06 FF21-FF3A FF41-FF5A
greek: 370-3FF 1F00-1FFF
cyrillic: 400-52F 1C80-1C8F 2DE0-2DFF A640-A69F
hebrew: 5D0-5F2 FB1D-FB4F
arabic: 620-64A 66E-6D3 6EE-6FF 750-77F 8A0-8C9 FB50-FDFB FE70-FEFC
southeast_asian: E01-E3A E40-E4E E81-ECE 1000-103F 1050-109F 1780-17D3
hangul: 1100-11FF 3131-318E A960-A97C AC00-D7A3 D7B0-D7FB FFA0-FFDC
han: 2E80-2FDF 3005-3007 3021-3029 3105-312F 31A0-31BF 3400-4DBF 4E00-9FFF F900-FAD9 20000-3134F
kana: 3031-3035 3041-309A 309D-309F 30A1-30FA 30FC-30FF 31F0-31FF FF66-FF9D 1B000-1B16F
"""


def _read_blocks() -> Iterator[tuple[int, int, Script]]:
    script = Script.OTHER
    for word in _BLOCKS.split():
        if word.endswith(":"):
            script = Script(word[:-1])
        else:
            first, _, last = word.partition("-")
            yield int(first, 16), int(last or first, 16), script


_RANGES = tuple(sorted(_read_blocks()))
_STARTS = tuple(start for start, _, _ in _RANGES)


def script_of(char: str) -> Script:
    """Return the script of one character; OTHER for digits, punctuation, emoji, surrogates."""
    code = ord(char)
    index = bisect_right(_STARTS, code) - 1
    if index < 0:
        return Script.OTHER
    _, end, script = _RANGES[index]
    return script if code <= end else Script.OTHER


def dominant_script(text: str) -> Script:
    """Return the script of most letters of a text; OTHER without any, the first on a tie."""
    if text.isascii():
        return Script.LATIN if any(map(str.isalpha, text)) else Script.OTHER
    counts: dict[Script, int] = {}
    for char in text:
        script = script_of(char)
        if script is not Script.OTHER:
            counts[script] = counts.get(script, 0) + 1
    return max(counts, key=counts.__getitem__) if counts else Script.OTHER


@lru_cache(maxsize=16)
def regex_class(scripts: frozenset[Script]) -> str:
    """Return the inside of a regex character class that matches the letters of the scripts."""
    return ranges_class((lo, hi) for lo, hi, script in _RANGES if script in scripts)


def ranges_class(ranges: Iterable[tuple[int, int]]) -> str:
    """Return the inside of a regex character class for inclusive code point ranges."""
    return "".join(f"\\U{lo:08x}-\\U{hi:08x}" for lo, hi in ranges)


_PIECE_CHARS = 512  # runs of marks sort in quadratic time: pieces limit the cost of hostile text
_MAX_MARKS = 8  # marks kept in a row: no language stacks more, and "zalgo" text stacks hundreds

_INVISIBLE = dict.fromkeys(
    (
        *(0x00AD, 0x034F, 0x061C, 0x0640, 0x180E, 0xFEFF),  # soft hyphen, joiners, tatweel, BOM
        *range(0x200B, 0x2010),  # zero-width space and joiners, direction marks
        *range(0x202A, 0x202F),  # direction embeddings
        *range(0x2060, 0x206A),  # word joiner, direction isolates
        *range(0xFE00, 0xFE10),  # variation selectors
    )
)
_NO_SIGNS = str.maketrans("", "", PLAIN_SIGNS)
_LATIN_LETTERS = str.maketrans(
    {"ł": "l", "đ": "d", "ø": "o", "ı": "i", "ħ": "h", "æ": "ae", "œ": "oe"}
)
"""Letters that Unicode does not decompose although their readers type the plain one."""

_DROPPED_MARKS = ranges_class(
    (
        *((0x0300, 0x036F), (0x0483, 0x0487), (0x0591, 0x05C7), (0x0610, 0x061A), (0x064B, 0x065F)),
        *((0x0670, 0x0670), (0x06D6, 0x06ED), (0x1DC0, 0x1DFF), (0x20D0, 0x20FF), (0xFE20, 0xFE2F)),
    )
)
_KEPT_MARKS = ranges_class(
    (
        *((0x0900, 0x0963), (0x0971, 0x0DFF), (0x0F18, 0x0FBC), (0x1712, 0x1773), (0x1A17, 0x1C7F)),
        *((0x3099, 0x309A), (0xA802, 0xAAFF)),
    )
)
MARKS = _DROPPED_MARKS + _KEPT_MARKS
"""Inside of a character class: marks that belong to the word around them though `\\w` lacks them.

The blocks of the Indic scripts are taken whole: their vowel signs are marks, and a word cut at each
vowel is no word.
"""

# Compiled at the first text that is not ASCII: most processes never need them.
_PIECE = rf"\S{{1,{_PIECE_CHARS}}}|\s+"
_DROPPED = f"[{_DROPPED_MARKS}]+"
_TOO_MANY_MARKS = rf"([{_DROPPED_MARKS}]{{{_MAX_MARKS}}}){_DROPPED}"


def normalize(text: str) -> str:
    """Return the text in NFKC without invisible characters; lone surrogates pass through."""
    if is_plain(text):
        return text
    text = re.sub(_TOO_MANY_MARKS, r"\1", text.translate(_INVISIBLE))
    if len(text) <= _PIECE_CHARS:
        return unicodedata.normalize("NFKC", text)
    return "".join(unicodedata.normalize("NFKC", piece) for piece in re.findall(_PIECE, text))


def is_plain(text: str) -> bool:
    """Return whether a text is ASCII but for signs that are part of no word."""
    return text.isascii() or text.translate(_NO_SIGNS).isascii()


def fold(word: str) -> str:
    """Return a normalized word without case, accents, stress marks and vowel points."""
    # Cyrillic "й" keeps its breve (it is a letter), "ё" becomes "е" as Russians write it.
    if word.isascii():
        return word.lower()
    word = unicodedata.normalize("NFD", word.casefold())
    word = re.sub(_DROPPED, "", re.sub("[\u0438\u0418]\u0306", "\u0439", word))
    return unicodedata.normalize("NFC", word).translate(_LATIN_LETTERS)


def _read_stop_words() -> Iterator[str]:
    for line in Path(__file__).with_name("stop_words.txt").read_text("utf-8").splitlines():
        if not line.startswith("#"):
            yield from line.split()


STOP_WORDS = frozenset(_read_stop_words())  # function words of English, Spanish and Russian, folded
NEGATED_SUFFIX = "n't"  # every English contraction with this ending is a function word


def is_stop_word(word: str) -> bool:
    """Return whether a folded word is a function word."""
    return word in STOP_WORDS or word.endswith(NEGATED_SUFFIX)


# Snowball stems. Only the two algorithm modules in use are loaded, at their first use, around the
# package's own `__init__`: that one imports all thirty-five languages (11 ms of a hook's process,
# against 1 ms), and hands over to PyStemmer where that is installed, whose algorithm version, and
# so whose stems, may differ from the ones in the index.

_ALIAS = "noctuary_snowball"
_MIN_STEM_CHARS = 3  # shorter words have no suffix to lose; stemming them only costs time
_MAX_STEM_CHARS = 40  # longer ones are identifiers; the stemmer copies the word at each step
_CACHED_STEMS = 1 << 17  # the vocabulary of 100k memories: 20 MB when full, against stemming twice

_CYRILLIC_FIRST, _CYRILLIC_LAST = "\u0400", "\u052f"


@lru_cache(maxsize=_CACHED_STEMS)
def stem(word: str) -> str:
    """Return the Snowball stem of a folded word."""
    # ASCII letters get the English algorithm whatever their language, Cyrillic ones the Russian;
    # all else is returned as it is. One algorithm per script keeps a word's stem the same in a
    # document and in a two-word query, where no language can be guessed.
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
    make = getattr(module, f"{language.capitalize()}Stemmer")
    held = local()  # an object per thread: a fork could copy a lock that another thread holds

    def stem_word(word: str) -> str:
        if not hasattr(held, "stemmer"):
            held.stemmer = make()
        return held.stemmer.stemWord(word)

    return stem_word


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


# Rules of the tokenizer, in order. Text is normalized. Runs of unspaced scripts (CJK, Thai...)
# become overlapping character n-grams. Everything else is cut into chunks: words, or words joined
# without a space ("billing-api", "src/app/main.py", "v1.2.3"). A chunk gives its words and, if it
# has several, itself in one canonical form, so that an identifier matches as a whole *and* by its
# parts, however it was spelled ("billing-api", "billing_api", "billingApi" share "billingapi").
# Stop words go, stems stay. A text of nothing but stop words keeps them.

TOKENIZER_VERSION = "3"  # changes with any text's tokens; memos and snapshots carry it
MAX_TOKEN_CHARS = 128  # longer words (base64) are cut: equal blobs still match
NGRAM_CHARS = 2
"""Length of the n-grams of unspaced scripts. Two is a typical Chinese word: three lost 1.5 points
of R@10 on Chinese messages (6 inside one wing), one and two together lost 0.7 (1.5) and doubled the
postings, words of a dictionary lost 1.7 (3.8). The price: a query of one character finds only
memories where it is a word of its own."""
_CACHED_CHUNKS = 1 << 17  # the distinct chunks of 100k memories: 40 MB when full

_CONTRACTION = r"(?ai)'(?:s|re|ve|ll|d|m)\Z"

_ASCII_WORD = r"[A-Za-z0-9_]+"
_JOINER = r"(?:[-_./:@\\'’&]{1,3}|(?<=\d),(?=\d{3}(?!\d)))"
_SUFFIX = r"(?:(?:\+\+|#)(?!\w))?"
_ASCII_CHUNK = re.compile(f"{_ASCII_WORD}(?:{_JOINER}{_ASCII_WORD})*{_SUFFIX}", re.ASCII)
_STRONG_JOINER = re.compile(r"[/\\:@&]+")
_WEAK_JOINER = re.compile(r"[-_.']+")
_CANONICAL = r"(?<!\d)[-_']+|[-_']+(?!\d)"
_CAMEL = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]{2}")
_CAMEL_PART = r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z0-9]+"


def tokenize(text: str) -> list[str]:
    """Return the tokens of a memory or a query, in text order, repeats included."""
    # Never raises, whatever the characters; never returns an empty token, a space, a control
    # character or a lone surrogate, so every token can be stored as UTF-8 text.
    text = normalize(text)
    chunks = _ASCII_CHUNK.findall(text) if is_plain(text) else list(_chunks(text))
    tokens = [token for chunk in chunks for token in _terms_of(chunk)]
    return tokens or [token for chunk in chunks for token in _words(chunk)]


def encode_tokens(tokens: Sequence[str]) -> bytes:
    """Return the tokens as UTF-8 lines, for a memo keyed by content hash and TOKENIZER_VERSION."""
    joined = "\n".join(tokens)
    if not all(tokens) or joined.count("\n") != max(len(tokens) - 1, 0):
        raise ValueError(
            f"found an empty token or a line break in {len(tokens)} tokens, expected what "
            "tokenize() returns; encode its result unchanged"
        )
    return joined.encode("utf-8")


def _chunks(text: str) -> Iterator[str]:
    unspaced_run, chunk = _unicode_patterns()
    for index, segment in enumerate(unspaced_run.split(text)):
        if index % 2 == 0:
            yield from chunk.findall(segment)
        elif len(segment) < NGRAM_CHARS:
            yield segment
        else:
            for start in range(len(segment) - NGRAM_CHARS + 1):
                yield segment[start : start + NGRAM_CHARS]


@cache
def _unicode_patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the patterns of an unspaced run and of a chunk; 2 ms that an ASCII query saves."""
    word = rf"[\w{MARKS}]+"
    return (
        re.compile(f"([{regex_class(UNSPACED)}]+)"),
        re.compile(f"{word}(?:{_JOINER}{word})*{_SUFFIX}"),
    )


def _terms_of(chunk: str) -> tuple[str, ...]:
    return _cached_terms(chunk) if len(chunk) <= MAX_TOKEN_CHARS else _terms(chunk)


def _terms(chunk: str) -> tuple[str, ...]:
    return tuple(stem(word) for word in _words(chunk) if not is_stop_word(word))


_cached_terms = lru_cache(maxsize=_CACHED_CHUNKS)(_terms)


def _words(chunk: str) -> list[str]:
    """Return a chunk's folded words: every part and, of a joined chunk, the wholes."""
    if chunk.isalpha() and not _CAMEL.search(chunk):
        return list(filter(None, [_folded(chunk)]))
    chunk = re.sub(_CONTRACTION, "", chunk.replace("’", "'").replace(",", ""))
    segments = [part for part in _STRONG_JOINER.split(chunk) if part]
    words = [word for segment in segments for word in _segment_words(segment)]
    if len(segments) > 1:
        words.append(_folded(chunk))
    return list(filter(None, words))


def _segment_words(segment: str) -> list[str]:
    if segment.endswith(("++", "#")):
        return [_folded(segment)]
    pieces = [piece for piece in _WEAK_JOINER.split(segment) if piece]
    words = [word for piece in pieces for word in _piece_words(piece)]
    if len(pieces) < 2:
        return words
    if segment[-3:].lower() == NEGATED_SUFFIX:
        return [_folded(segment)]
    # A lone letter inside a compound ("x-ray", "U.S.") is useless next to the whole.
    words = [word for word in words if len(word) > 1 or word.isdigit()]
    return [*words, _canonical(segment, pieces)]


def _piece_words(piece: str) -> list[str]:
    if not _CAMEL.search(piece):
        return [_folded(piece)]
    parts = [_folded(part) for part in re.findall(_CAMEL_PART, piece) if len(part) > 1]
    return [*parts, _folded(piece)] if len(parts) > 1 else [_folded(piece)]


def _canonical(segment: str, pieces: list[str]) -> str:
    """Return one form for all spellings of a compound; separators between digits carry meaning."""
    if all(len(piece) == 1 and piece.isalpha() for piece in pieces):
        return _folded("".join(pieces))
    return _folded(re.sub(_CANONICAL, "", segment))


def _folded(word: str) -> str:
    """Fold a word, cut before (a run of marks costs quadratic time) and after (it can grow)."""
    return fold(word[:MAX_TOKEN_CHARS])[:MAX_TOKEN_CHARS]


# Whoever changes the choice raises TOKENIZER_VERSION too: token memos carry no other version.
def document_tokens(content: str, tags: str, expanded_keywords: str, category: str) -> list[str]:
    """Return the words that one memory is indexed under: content, keywords, content tags."""
    # All fields weigh the same: BM25 saturates what a keyword repeats. The category is left out:
    # recall filters by it, and on the development sets indexing it moved no figure.
    del category
    return tokenize("\n".join((content, expanded_keywords, *content_tags(tags))))


def index_tokens(
    content: str,
    tags: str,
    expanded_keywords: str,
    category: str,
    created_at_us: int,
    is_turn: bool,
) -> list[str]:
    """Return `document_tokens`, and behind them the words of the dates that the content says."""
    # A question is tokenized in every process, a memory in few.
    from noctuary.text.dates import said_words

    written = from_micros(created_at_us)
    said = said_words(content, None if written is None else written.date(), is_turn=is_turn)
    return document_tokens(content, tags, expanded_keywords, category) + said
