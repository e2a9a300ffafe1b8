"""The words of a text without what copying changes: layout, bullets, quote marks, escapes, case.

What belongs here: when two texts count as the same wording, and the hashes of that. What does not:
what is done about it. Standard library only.

Two texts have the same wording if they are equal after: `&amp;`, `&lt;` and `&gt;` are read as the
signs that they stand for, Unicode normal form NFKC without invisible characters, upper case as
lower, quote marks dropped, emphasis and full stops at the edges of words dropped, bullets and
lone signs dropped, and any white space as one space. Question marks, exclamation marks, signs
inside words and minus signs before digits stay: they may be all that a new statement changes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from noctuary.text.fold import normalize
from noctuary.text.visible import unmarked

HASH_BYTES = 16
"""Bytes of a hash: 128 bits, so that no two of a store's wordings meet by chance."""

ANCHOR_WORDS = 3
"""First words that a lookup begins with; fewer try more full hashes in vain, more cannot tell texts
of so few words apart sooner."""

ANCHOR_BYTES = 4
"""Bytes of an anchor: it only saves looking up full hashes, and few bytes say little of a text."""

_ESCAPED = re.compile(r"&(?:amp;)*(?:(lt;)|(gt;))|&(?:amp;)+")
_QUOTES = dict.fromkeys(map(ord, "\"'`´“”„‟‘’‚‛«»‹›「」『』＂＇"))
_EDGES = "*_~"
_STOPS = ".,;:…。，；：、"
_LONE_SIGN = re.compile(r"[-–—•·◦▪●*>#|+=_~.,;:…]+\Z")


def words_of(text: str) -> list[str]:
    """Return the words of a text, each without what copying changes; no empty ones."""
    plain = normalize(unescaped(text)).casefold().translate(_QUOTES)
    return [word for raw in plain.split() if (word := _word(raw))]


def hash_words(words: Sequence[str]) -> bytes:
    """Return the hash of a wording, `HASH_BYTES` long.

    It is not keyed: it lies beside snapshots that hold the same texts in clear, and must be equal
    in every process that reads or writes the store.
    """
    return hash_exact(" ".join(words))


def hash_anchor(words: Sequence[str]) -> bytes:
    """Return the hash of the first `ANCHOR_WORDS` words, `ANCHOR_BYTES` long."""
    return hash_words(words[:ANCHOR_WORDS])[:ANCHOR_BYTES]


def hash_exact(text: str) -> bytes:
    """Return the hash of a text as it is (an id, a user), `HASH_BYTES` long."""
    raw = text.encode("utf-8", "surrogatepass")
    return hashlib.sha256(raw).digest()[:HASH_BYTES]


def size_bytes(words: Sequence[str]) -> int:
    """Return how much a wording says: its UTF-8 bytes without spaces.

    Bytes and not characters: a Chinese character, three bytes, says more than a Latin letter.
    """
    return sum(len(word.encode("utf-8", "surrogatepass")) for word in words)


def unescaped(text: str) -> str:
    """Return the text with `&amp;`, `&lt;`, `&gt;` and marks read as signs, however often escaped.

    The same for a text and for its escaped form: both lead to one wording.
    """
    if "&" in text:
        text = _ESCAPED.sub(lambda m: "<" if m[1] else ">" if m[2] else "&", text)
    return unmarked(text)


def _word(raw: str) -> str:
    word = raw.strip(_EDGES).rstrip(_STOPS).strip(_EDGES)
    return "" if _LONE_SIGN.match(word) else word
