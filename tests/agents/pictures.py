"""A picture that agents accept."""

from __future__ import annotations

import struct
import zlib


def _chunk(kind: bytes, data: bytes) -> bytes:
    check = struct.pack(">I", zlib.crc32(kind + data))
    return struct.pack(">I", len(data)) + kind + data + check


_SIDE = 8
_ROWS = (b"\0" + b"\x10\x80\xff" * _SIDE) * _SIDE
PNG = (
    b"\x89PNG\r\n\x1a\n"
    + _chunk(b"IHDR", struct.pack(">IIBBBBB", _SIDE, _SIDE, 8, 2, 0, 0, 0))
    + _chunk(b"IDAT", zlib.compress(_ROWS))
    + _chunk(b"IEND", b"")
)
"""A blue square."""
