"""Who encodes queries here: the fingerprint that the store's lean encoder states. No encoding."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from mnemon.encode.lean_format import HEADER_FILE, read_header
from mnemon.errors import EncoderError
from mnemon.snapshot.layout import StorePaths
from mnemon.snapshot.manifest import Manifest

_REMEMBERED = 4
"""Headers kept parsed: one, and its successor while a new model is rolled out, of two stores."""


def encoder_identity(paths: StorePaths, manifest: Manifest) -> dict[str, Any] | None:
    """Return the fingerprint of the encoder on disk; None where there is none that can be read."""
    if manifest.encoder_digest is None:
        return None
    header = paths.encoders / manifest.encoder_digest / HEADER_FILE
    try:
        stat = header.stat()
        return _read(header, stat.st_mtime_ns, stat.st_size, stat.st_ino)
    except (OSError, EncoderError):
        return None


@lru_cache(maxsize=_REMEMBERED)
def _read(header: Path, _mtime_ns: int, _size: int, _inode: int) -> dict[str, Any]:
    return read_header(header.parent).fingerprint.to_json()
