"""The lines of a growing file from a byte offset on.

What belongs here: bytes to whole lines, in bounded memory. What does not: where to go on
(`tracking`), what a line says (`claude`, `codex`). Standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple, cast

from noctuary.foreign_json import parse_json

MAX_READ_BYTES = 64 * 2**20
"""Longest line that is held at all. Prompts with several images have some 30 MB."""

MAX_LINE_BYTES = 4 * 2**20
"""Longest line that is parsed, encoded images aside. Parsed, hostile JSON takes some twenty times
its length; agents bound what tools give back far below."""

_CHUNK_BYTES = 1 << 20

# Nothing that anybody said has so many of these characters in a row.
_ENCODED = re.compile(rb'"[A-Za-z0-9+/]{4096,}={0,2}"')
_ENCODED_FROM_BYTES = 64 * 2**10
_BLANK = b" \t\r\n\x00"


class Line(NamedTuple):
    """One line, or the length of one that is too long.

    Attributes:
        end: Byte offset behind it, its line end included.
        size_bytes: Its length, line end included.
        data: Its bytes without the line end and without encoded images; None where it is longer
            than is read or parsed.
        is_ended: False for the last line of a file that has no line end yet.
    """

    end: int
    size_bytes: int
    data: bytes | None
    is_ended: bool


def read_lines(handle: BinaryIO, start: int, stop: int) -> Iterator[Line]:
    """Yield the lines between two offsets of a file, blank ones included.

    Args:
        handle: The file; its position is moved.
        start: Where a line begins.
        stop: Bytes from here on are not read; what a writer appends meanwhile stays for later.
    """
    handle.seek(start)
    place = start
    while place < stop:
        data = handle.readline(min(MAX_READ_BYTES, stop - place))
        if not data:
            return
        size = len(data)
        kept: bytes | None = data
        while not data.endswith(b"\n") and place + size < stop:
            # Longer than is held: only its length is wanted.
            kept = None
            data = handle.readline(min(_CHUNK_BYTES, stop - place - size))
            if not data:
                break
            size += len(data)
        place += size
        yield Line(place, size, _bounded(kept), data.endswith(b"\n"))


def parse_object(data: bytes) -> dict[str, object] | None:
    """Return the JSON object of a line, or None where it is none.

    Bytes that are no UTF-8 are replaced.
    """
    try:
        value: object = parse_json(data.decode("utf-8", "replace"))
    except ValueError:
        return None
    return cast("dict[str, object]", value) if isinstance(value, dict) else None


def _bounded(data: bytes | None) -> bytes | None:
    if data is None:
        return None
    data = data.strip(_BLANK)
    if len(data) > _ENCODED_FROM_BYTES:
        data = _ENCODED.sub(b'""', data)
    return data if len(data) <= MAX_LINE_BYTES else None
