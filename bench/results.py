"""Result files: JSON that is committed, diffed and read back by the tables."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, cast

from bench.datasets import CHECKOUT
from noctuary.core.errors import SourceFormatError
from noctuary.core.files import write_text

SCHEMA_VERSION = 1

RESULTS_DIR = CHECKOUT / "docs" / "benchmarks" / "json"

_FLAT_LIST = re.compile(r"\[\n[^\[\]{}]*?\n\s*\]")
_FLAT_MEAN = re.compile(r'\{\n\s*"(?:mean|n)": [^\[\]{}]*?\n\s*\}')
"""A mean or a difference: values that are read together."""


def dump(document: dict[str, Any]) -> str:
    """Serialize with one key a line but each flat list and each mean on one line, for diffs."""
    text = json.dumps(document, indent=1, ensure_ascii=False)
    return _FLAT_MEAN.sub(_flatten, _FLAT_LIST.sub(_flatten, text)) + "\n"


def write_result(path: Path, document: dict[str, Any]) -> None:
    """Replace a result file."""
    write_text(path, dump({"schema_version": SCHEMA_VERSION, **document}))


def read_results(directory: Path, kind: str) -> list[dict[str, Any]]:
    """Return every result of a kind, by file name.

    Raises:
        SourceFormatError: If a file is not JSON or of another schema version.
    """
    found: list[dict[str, Any]] = []
    for path in sorted(directory.glob("*.json")):
        document = read_result(path)
        if document.get("kind") == kind:
            found.append(document)
    return found


def read_result(path: Path) -> dict[str, Any]:
    """Return one result document.

    Raises:
        SourceFormatError: If the file is missing, not JSON or of another schema version.
    """
    try:
        document: object = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SourceFormatError(f"no result file at {path}: run its benchmark first") from None
    except ValueError as error:
        raise SourceFormatError(f"{path} is not JSON: {error}; run its benchmark again") from error
    version = (
        cast("dict[str, Any]", document).get("schema_version")
        if isinstance(document, dict)
        else None
    )
    if version != SCHEMA_VERSION:
        raise SourceFormatError(
            f"{path} has schema version {version!r}, expected {SCHEMA_VERSION}; "
            "run its benchmark again"
        )
    return cast("dict[str, Any]", document)


def _flatten(match: re.Match[str]) -> str:
    lines = match[0].split("\n")
    return lines[0] + " ".join(line.strip() for line in lines[1:-1]) + lines[-1].strip()
