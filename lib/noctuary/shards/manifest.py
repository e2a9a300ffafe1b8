"""The manifest of a fragment store: which fragments count, and what their bytes must be.

What belongs here: its file, where the store of a kind lies, removing what no manifest names. What
does not: what fragments hold (`fragment_store`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from noctuary.files import write_text
from noctuary.hashing import hash_text
from noctuary.shards.task import Fragment

MANIFEST_FILE = "MANIFEST.json"
FORMAT = 2


@dataclass(frozen=True, slots=True)
class Listed:
    """A fragment that counts.

    Attributes:
        fragment: Where it lies and how many rows it holds.
        crc32: Of its file's bytes.
    """

    fragment: Fragment
    crc32: int


def read_manifest(directory: Path, kind: str) -> list[Listed]:
    """Return what the manifest names, in its order; nothing where it is absent, damaged or old."""
    try:
        told = json.loads((directory / MANIFEST_FILE).read_text(encoding="utf-8"))
        if told["format"] == FORMAT and told["kind"] == kind:
            return [_read_line(directory, *line) for line in told["fragments"]]
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return []


def write_manifest(directory: Path, kind: str, listed: Sequence[Listed]) -> None:
    """Put a manifest in place: what it names counts from now on."""
    lines = [[item.fragment.path.name, item.fragment.rows, item.crc32] for item in listed]
    told = {"format": FORMAT, "kind": kind, "fragments": lines}
    directory.mkdir(parents=True, exist_ok=True)
    write_text(directory / MANIFEST_FILE, json.dumps(told, indent=1) + "\n")


def store_directory(directory: Path, kind: str) -> Path:
    """Return where the fragments of a kind lie below a directory."""
    return directory / hash_text(kind)[:16]


def remove_unnamed(directory: Path, kind: str) -> None:
    """Remove what the manifest does not name: a killed night left it, and it may hold texts."""
    named = {listed.fragment.path.name for listed in read_manifest(directory, kind)}
    for path in directory.glob("*"):
        if path.name not in {*named, MANIFEST_FILE}:
            path.unlink()


def _read_line(directory: Path, name: str, rows: int, crc32: int) -> Listed:
    # A name only: a manifest cannot point outside its directory.
    path = directory / Path(name).name
    return Listed(Fragment(path.stem, path, int(rows)), int(crc32))
