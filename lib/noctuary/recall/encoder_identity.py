"""Who encodes queries here: the fingerprint that the store's encoder states. No encoding.

The lean encoder's header; that of the ONNX export where there is no other. Where a provider made
the snapshot's vectors, the store describes its model in a file of its own.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from noctuary.encode.fingerprint import HOSTED_POOLING
from noctuary.encode.lean_format import HEADER_FILE, read_header
from noctuary.errors import EncoderError
from noctuary.snapshot.layout import StorePaths
from noctuary.snapshot.manifest import Manifest

_REMEMBERED = 4
"""Headers kept parsed: one, and its successor while a new model is rolled out, of two stores."""


def encoder_identity(paths: StorePaths, manifest: Manifest) -> dict[str, Any] | None:
    """Return the fingerprint of the encoder on disk; None where there is none that can be read."""
    if manifest.encoder_digest is None:
        return None
    directory = paths.encoders / manifest.encoder_digest
    if manifest.encoder is not None and manifest.encoder.get("pooling") == HOSTED_POOLING:
        return _read_hosted(directory)
    header = directory / HEADER_FILE
    if not directory.is_dir():
        return _read_exported(directory.with_name(f"{directory.name}.onnx"))
    try:
        stat = header.stat()
        return _read(header, stat.st_mtime_ns, stat.st_size, stat.st_ino)
    except (OSError, EncoderError):
        return None


def _read_hosted(directory: Path) -> dict[str, Any] | None:
    from noctuary.encode.hosted.model import read_description

    try:
        return read_description(directory).fingerprint().to_json()
    except EncoderError:
        return None


def _read_exported(export: Path) -> dict[str, Any] | None:
    from noctuary.encode.onnx_format import read_header

    try:
        return read_header(export).fingerprint.to_json()
    except EncoderError:
        return None


@lru_cache(maxsize=_REMEMBERED)
def _read(header: Path, _mtime_ns: int, _size: int, _inode: int) -> dict[str, Any]:
    return read_header(header.parent).fingerprint.to_json()
