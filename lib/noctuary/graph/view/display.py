"""Texts as a terminal can show them: no control characters, cut to a width, dates."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime

from noctuary.text.visible import visible
from noctuary.types import from_micros

ELLIPSIS = "\u2026"
_WIDE = frozenset("WF")


def clean(text: str) -> str:
    """Return a text on one line, with single blanks; what nobody would see is a mark."""
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
    """Return the name of a relation as people say it."""
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
