"""Runs on disk: one JSON object with the rankings and what they were measured on.

What belongs here: the file format. What does not: what a run or a manifest holds.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from noctuary.errors import SourceFormatError, SourceMissingError
from noctuary.evaluate.run import Run
from noctuary.files import write_bytes
from noctuary.foreign_json import parse_json
from noctuary.hashing import JsonValue, canonical_json

KIND = "run"
SCHEMA_VERSION = 1

_GZIP_LEVEL = 9
"""Slowest and smallest: a run is written once and kept."""


def write_run(path: Path, run: Run, manifest: Mapping[str, JsonValue]) -> None:
    """Write a run and its manifest; compressed if the name ends in .gz.

    Equal content gives equal bytes. The file is put in place whole or not at all.
    """
    document = {
        "kind": KIND,
        "schema_version": SCHEMA_VERSION,
        "manifest": manifest,
        "run": run.to_json(),
    }
    data = canonical_json(document).encode("utf-8")
    if path.suffix == ".gz":
        # Without a time of writing in the header, or no two files would be equal.
        data = gzip.compress(data, compresslevel=_GZIP_LEVEL, mtime=0)
    write_bytes(path, data)


def read_run(path: Path) -> tuple[Run, dict[str, Any]]:
    """Read a run and its manifest.

    Raises:
        SourceMissingError: If there is no such file.
        SourceFormatError: If it is damaged, no run, or of another schema version.
    """
    try:
        data = path.read_bytes()
    except (FileNotFoundError, IsADirectoryError) as error:
        raise SourceMissingError(f"no run file at {path}; expected one of write_run") from error
    try:
        if path.suffix == ".gz":
            data = gzip.decompress(data)
        return _parse(parse_json(data.decode("utf-8")))
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise SourceFormatError(f"{path} holds no run: {error}; write it again") from error


def _parse(document: object) -> tuple[Run, dict[str, Any]]:
    if not isinstance(document, dict):
        raise ValueError(f"expected a JSON object, found {type(document).__name__}")  # noqa: TRY004
    found = cast("dict[str, Any]", document)
    if found.get("kind") != KIND or found.get("schema_version") != SCHEMA_VERSION:
        raise ValueError(
            f"expected kind {KIND!r} of schema version {SCHEMA_VERSION}, "
            f"found {found.get('kind')!r} of {found.get('schema_version')!r}"
        )
    manifest = found.get("manifest")
    if not isinstance(manifest, dict):
        raise ValueError(f"expected a manifest object, found {type(manifest).__name__}")  # noqa: TRY004
    return Run.from_json(found.get("run")), cast("dict[str, Any]", manifest)
