"""Marks in a text: speakers, sentences, tags, tombstones and escaped control characters."""

from __future__ import annotations

import math
import re
import sys
import unicodedata
from datetime import UTC, datetime
from typing import Any

from noctuary.core.types import from_micros

MAX_SPEAKER_CHARS = 40  # longest name: "Dr. Anna-Maria van der Berg (support)" fits

ROLES = frozenset(("agent", "ai", "assistant", "human", "me", "system", "tool", "user"))
"""Labels, folded, that are a role in a conversation and not a name."""

# The full-width colon needs no space after it; the ASCII one does, or "12:30" would speak.
_PREFIX = rf"\s{{0,8}}([^\s:：][^\n:：]{{0,{MAX_SPEAKER_CHARS - 1}}})(?::(?=\s)|：)"


def find_speaker(content: str) -> str | None:
    """Return the name before the first colon of a turn, or None where there is no such prefix."""
    return split_speaker(content)[0]


def split_speaker(content: str) -> tuple[str | None, str]:
    """Split a turn at its first colon into name and text; without one, None and the whole."""
    match = re.match(_PREFIX, content)
    if match is None:
        return None, content
    name = match.group(1).strip()
    if not any(c.isalnum() for c in name):
        return None, content
    return name, content[match.end() :]


DATE_MARK = "@"
"""Begins the index's words of dates (`noctuary.text.dates`); the tokenizer makes none like it."""
_MAY_CONCERN_DATES = (
    r"\d|(?i:when|how long|\b(?:date|day|month|year)\b)|时候|何时|哪|几"
    r"|(?:Jan|Febr)uary|March|April|May|June|July|August|(?:Septem|Octo|Novem|Decem)ber"
)


def may_concern_dates(question: str) -> bool:
    """Say whether a question may name a date or ask for one; others need not load the parser."""
    return re.search(_MAY_CONCERN_DATES, question) is not None


SENTENCE_END = r"(?<=[.!?…])\s+|(?<=[。！？])\s*|\n+"
"""Separates two sentences; an abbreviation's full stop matches as well."""

QUESTION_MARKS = "?？؟"
CLOSING_CHARS = " \t\r\n\"'”’»)*_"  # allowed after a question mark


def ends_as_question(text: str) -> bool:
    """Return whether a text ends in a question mark, closing quotes and brackets aside."""
    last = text.rstrip(CLOSING_CHARS)[-1:]
    return bool(last) and last in QUESTION_MARKS


def asking_share(turn: str) -> float:
    """Return which part of a turn's characters stands in sentences that ask, in [0, 1]."""
    if not any(mark in turn for mark in QUESTION_MARKS):
        return 0.0
    sentences = re.split(SENTENCE_END, split_speaker(turn)[1].strip())
    asking = sum(len(sentence) for sentence in sentences if ends_as_question(sentence))
    return asking / (sum(map(len, sentences)) or 1)


SCOPE_TAG_PREFIXES = ("wing:", "project:", "room:", "session:", "user:", "reach:")
"""Tags for the place of a memory. They are filters; indexed, they would make every memory of a
wing match a query that names the wing, and a user's name would be findable by other users."""


def content_tags(tags: str) -> list[str]:
    """Return the comma-separated tags that describe the content, stripped, without scope tags."""
    stripped = (tag.strip() for tag in tags.split(","))
    return [tag for tag in stripped if tag and not tag.casefold().startswith(SCOPE_TAG_PREFIXES)]


MARK = "[SUPERSEDED]"  # begins a memory that its owner replaced by another one
TOMBSTONE_IMPORTANCE = 0.3  # of such a memory, at most: it may be found, but not first


def is_tombstone(content: str) -> bool:
    """Return whether a content begins with the mark, in any case, after spaces at most."""
    return content.lstrip()[: len(MARK)].upper() == MARK


def buried(content: str) -> str:
    """Return the content with the mark before it; unchanged if it has one already."""
    return content if is_tombstone(content) else f"{MARK} {content}"


CHARS_PER_TOKEN_CJK = 1.6
CHARS_PER_TOKEN_DENSE = 2.5
CHARS_PER_TOKEN_DEFAULT = 4.0
# The reference's ratios (libravdb mathematics, section 3). A smaller ratio over-estimates, which
# protects a prompt budget; a larger one fits more text and risks overflowing it.

# Not the ranges of noctuary.text.tokens: an estimate is only comparable to the reference's if the
# same characters decide it.
_CJK = "[\u4e00-\u9faf\u3041-\u3096\u30a1-\u30fa\uac00-\ud7a3]"
_DENSE = "[\u0400-\u04ff\u0600-\u06ff\u0590-\u05ff]"
_FIRST_DENSE = "\u0400"  # the first character of both
PLAIN_SIGNS = "’‘“”–—•"
"""Signs of texts that are ASCII otherwise: part of no word, the same in every Unicode form."""


def chars_per_token(text: str) -> float:
    """Return how many UTF-16 units one token spans: 1.6, 2.5 or 4, by the presence of a script."""
    # One CJK character makes the whole text CJK, else one Cyrillic, Arabic or Hebrew one dense.
    # Compiling the patterns takes a hook 2 ms: most texts have quotes and accents at most.
    if text.isascii() or all(char < _FIRST_DENSE or char in PLAIN_SIGNS for char in set(text)):
        return CHARS_PER_TOKEN_DEFAULT
    if re.search(_CJK, text):
        return CHARS_PER_TOKEN_CJK
    return CHARS_PER_TOKEN_DENSE if re.search(_DENSE, text) else CHARS_PER_TOKEN_DEFAULT


def estimate_tokens(text: str) -> int:
    """Return ceil(UTF-16 length / characters per token); 0 for an empty text, else at least 1."""
    return math.ceil(utf16_units(text) / chars_per_token(text))


def utf16_units(text: str) -> int:
    """Return how many UTF-16 units a text has: two for each character beyond the first 65,536."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


# Invisible and control characters, shown as marks. Memories may be hostile: their escape
# sequences must not set a title or the clipboard, bidirectional controls must not show words
# in another order, and tag characters must not hide instructions to an agent. A mark
# is the character as JSON writes it, `\u001b`: marked JSON still holds the same text.

# C0 but newline and tab, DEL and C1; signs that set a direction, separate lines or show nothing;
# lone surrogates; tags. Joiners and a single variation selector stay: emoji, Persian and Indic
# scripts need them. So does the zero-width space, where Khmer and Thai may break a line.
_SELECTORS = r"\ufe00-\ufe0f\U000e0100-\U000e01ef"
_HIDDEN = (
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u180e\u200e\u200f\u2028-\u202e\u2060-\u206f"
    r"\ufeff\ufff9-\ufffb\ud800-\udfff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    r"\U000e0000-\U000e00ff\U000e01f0-\U000e0fff]"
    rf"|\r(?!\n)|(?<=[{_SELECTORS}])[{_SELECTORS}]"
)


def visible(text: str) -> str:
    """Return a text with its hidden characters as marks; newlines and tabs stay."""
    # Fast path for most texts: a tenth of the time.
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return re.sub(_HIDDEN, _mark, text)


def visible_line(text: str) -> str:
    """Return a text on one line: newlines and tabs are marks as well."""
    return visible(re.sub(r"[\t\n\r]", _mark, text))


def unmarked(text: str) -> str:
    """Return a text with its marks decoded to characters."""
    if "\\u" not in text:
        return text
    read = re.sub(r"\\u([0-9a-f]{4})", lambda m: _hidden(chr(int(m[1], 16))) or m[0], text)
    return read.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def show_hidden() -> None:
    """Let this process's standard output and error show hidden characters as marks; bytes pass."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            continue
        if hasattr(stream, "reconfigure"):
            # As ASCII, click would take the stream apart and write past the marks.
            is_ascii = (stream.encoding or "").lower() in ("ascii", "us-ascii")
            stream.reconfigure(encoding="utf-8" if is_ascii else None, errors="backslashreplace")
        setattr(sys, name, _VisibleStream(stream))


class _VisibleStream:
    """A text stream in front of another one."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self._stream.write(visible(text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)


def _hidden(character: str) -> str:
    return character if re.match(f"{_HIDDEN}|[{_SELECTORS}]", character) else ""


def _mark(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))


ELLIPSIS = "\u2026"
_WIDE = frozenset("WF")


def clean(text: str) -> str:
    """Return a text on one line, with single blanks and with hidden characters as marks."""
    return visible(" ".join(text.split()))


def width(text: str) -> int:
    """Return the columns that a text takes: 2 for wide characters (Han, kana), 0 for marks."""
    return sum(map(_columns, text))


def cut(text: str, columns: int) -> str:
    """Return a text of at most this many columns (>= 1), its end replaced by an ellipsis."""
    if width(text) <= columns:
        return text
    kept, used = "", width(ELLIPSIS)
    for character in text:
        used += _columns(character)
        if used > columns:
            break
        kept += character
    return kept.rstrip() + ELLIPSIS


def pad(text: str, columns: int) -> str:
    """Return a text filled with blanks to this many columns."""
    return text + " " * max(0, columns - width(text))


def iso(micros: int | None) -> str | None:
    """Return a moment as ISO-8601 in UTC, or None for none, undated or beyond the calendar."""
    moment = _moment(micros)
    return None if moment is None else moment.isoformat()


def day(micros: int | None) -> str:
    """Return the date of a moment, its time as well unless it is midnight; "undated" for none."""
    moment = _moment(micros)
    if moment is None:
        return "undated"
    midnight = moment.time() == datetime.min.replace(tzinfo=UTC).time()
    return moment.strftime("%Y-%m-%d") if midnight else moment.strftime("%Y-%m-%d %H:%M")


def plural(count: int, noun: str, nouns: str = "") -> str:
    """Return a count with its noun, "1 memory" or "2 memories"."""
    return f"{count:,} {noun if count == 1 else nouns or noun + 's'}"


def memories(count: int) -> str:
    """Return a number of memories in words."""
    return plural(count, "memory", "memories")


def spoken(relation: str) -> str:
    """Return the name of a relation in plain words."""
    return relation.replace("_", " ")


def _moment(micros: int | None) -> datetime | None:
    if micros is None:
        return None
    try:
        return from_micros(micros)
    except OverflowError:
        return None


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in _WIDE else 1
