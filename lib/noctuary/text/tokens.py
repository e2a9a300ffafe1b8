"""The one tokenizer: what a memory is indexed under and what a query is looked up by.

What belongs here: where words begin and end, which of them count, and the byte form of the result.
What does not: folding (noctuary.text.fold), stems, stop words, weights (noctuary.lexical).

Rules, in order. Text is normalized. Runs of unspaced scripts (CJK, Thai...) become overlapping
character n-grams. Everything else is cut into chunks: words, or words joined without a space
("billing-api", "src/app/main.py", "v1.2.3"). A chunk gives its words and, if it has several, itself
in one canonical form, so that an identifier matches as a whole *and* by its parts, however it was
spelled ("billing-api", "billing_api", "billingApi" share "billingapi"). Stop words go, stems stay.
A text of nothing but stop words keeps them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache

from noctuary.text.fold import MARKS, fold, normalize
from noctuary.text.scripts import UNSPACED, regex_class
from noctuary.text.stems import stem
from noctuary.text.stopwords import NEGATED_SUFFIX, is_stop_word

TOKENIZER_VERSION = "2"
"""Changes whenever any text could get other tokens; memos and snapshots carry it."""

MAX_TOKEN_CHARS = 128
"""Longer words (base64, minified code) are cut here: equal blobs still match, the index stays
small."""
NGRAM_CHARS = 2
"""Length of the n-grams of unspaced scripts. Two is a typical Chinese word: three lost 1.5 points
of R@10 on Chinese messages (6 inside one wing), one and two together lost 0.3 (1.5) and doubled the
postings. The price: a query of one character finds only memories where it stands alone."""
_CACHED_CHUNKS = 1 << 17
"""About the distinct chunks of 100k memories; memory (some 40 MB when full) against speed."""

_CONTRACTIONS = ("'s", "'re", "'ve", "'ll", "'d", "'m")

_ASCII_WORD = r"[A-Za-z0-9_]+"
_JOINER = r"(?:[-_./:@\\'’&]{1,3}|(?<=\d),(?=\d{3}(?!\d)))"
_SUFFIX = r"(?:(?:\+\+|#)(?!\w))?"
_ASCII_CHUNK = re.compile(f"{_ASCII_WORD}(?:{_JOINER}{_ASCII_WORD})*{_SUFFIX}", re.ASCII)
_STRONG_JOINER = re.compile(r"[/\\:@&]+")
_WEAK_JOINER = re.compile(r"[-_.']+")
_CANONICAL = re.compile(r"(?<!\d)[-_']+|[-_']+(?!\d)")
_CAMEL = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]{2}")
_CAMEL_PART = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z0-9]+")


def tokenize(text: str) -> list[str]:
    """Return the tokens of a memory or a query, in text order, repeats included.

    Never raises, whatever the characters; never returns an empty token, a space, a control
    character or a lone surrogate, so every token can be stored as UTF-8 text.
    """
    text = normalize(text)
    chunks = _ASCII_CHUNK.findall(text) if text.isascii() else list(_chunks(text))
    tokens = [token for chunk in chunks for token in _terms_of(chunk)]
    return tokens or [token for chunk in chunks for token in _words(chunk)]


def encode_tokens(tokens: Sequence[str]) -> bytes:
    """Return the tokens as UTF-8 lines, for a memo keyed by content hash and TOKENIZER_VERSION.

    Raises:
        ValueError: A token is empty or holds a line break, which `tokenize` never returns.
    """
    joined = "\n".join(tokens)
    if not all(tokens) or joined.count("\n") != max(len(tokens) - 1, 0):
        raise ValueError(
            f"found an empty token or a line break in {len(tokens)} tokens, expected what "
            "tokenize() returns; encode its result unchanged"
        )
    return joined.encode("utf-8")


def decode_tokens(data: bytes) -> list[str]:
    """Return the tokens that `encode_tokens` wrote."""
    return data.decode("utf-8").split("\n") if data else []


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
    """Return the stems of a chunk's words without the stop words."""
    return tuple(stem(word) for word in _words(chunk) if not is_stop_word(word))


_cached_terms = lru_cache(maxsize=_CACHED_CHUNKS)(_terms)


def _words(chunk: str) -> list[str]:
    """Return a chunk's folded words: every part and, of a joined chunk, the wholes."""
    if chunk.isalpha() and not _CAMEL.search(chunk):
        return _non_empty([_folded(chunk)])
    chunk = _strip_contraction(chunk.replace("’", "'").replace(",", ""))
    segments = [part for part in _STRONG_JOINER.split(chunk) if part]
    words = [word for segment in segments for word in _segment_words(segment)]
    if len(segments) > 1:
        words.append(_folded(chunk))
    return _non_empty(words)


def _segment_words(segment: str) -> list[str]:
    if segment.endswith(("++", "#")):
        return [_folded(segment)]
    pieces = [piece for piece in _WEAK_JOINER.split(segment) if piece]
    words = [word for piece in pieces for word in _piece_words(piece)]
    if len(pieces) < 2:
        return words
    if segment[-3:].lower() == NEGATED_SUFFIX:
        return [_folded(segment)]
    # A lone letter inside a compound ("x-ray", "U.S.") says nothing beside the whole.
    words = [word for word in words if len(word) > 1 or word.isdigit()]
    return [*words, _canonical(segment, pieces)]


def _piece_words(piece: str) -> list[str]:
    if not _CAMEL.search(piece):
        return [_folded(piece)]
    parts = [_folded(part) for part in _CAMEL_PART.findall(piece) if len(part) > 1]
    return [*parts, _folded(piece)] if len(parts) > 1 else [_folded(piece)]


def _canonical(segment: str, pieces: list[str]) -> str:
    """Return one form for all spellings of a compound; separators between digits carry meaning."""
    if all(len(piece) == 1 and piece.isalpha() for piece in pieces):
        return _folded("".join(pieces))
    return _folded(_CANONICAL.sub("", segment))


def _strip_contraction(chunk: str) -> str:
    tail = chunk[-3:].lower()
    for suffix in _CONTRACTIONS:
        if tail.endswith(suffix):
            return chunk[: -len(suffix)]
    return chunk


def _folded(word: str) -> str:
    """Fold a word, cut before (a run of marks costs quadratic time) and after (it can grow)."""
    return fold(word[:MAX_TOKEN_CHARS])[:MAX_TOKEN_CHARS]


def _non_empty(words: list[str]) -> list[str]:
    return [word for word in words if word]
