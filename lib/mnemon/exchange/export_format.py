"""What an export is: its files, its manifest and its version; documented in docs/exchange.md.

What belongs here: names, and reading and checking the manifest. What does not: what is in the files
(`lines`, `columns`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mnemon.errors import SourceFormatError, SourceMissingError
from mnemon.files import write_text
from mnemon.hashing import hash_file, hash_json

FORMAT = "mnemon-export"
FORMAT_VERSION = 1
"""Bumped when a reader of the previous version could not read the new one."""

MANIFEST = "manifest.json"
MEMORIES = "memories.jsonl"
NODES = "graph/nodes.jsonl"
EDGES = "graph/edges.jsonl"
SUMMARIES = "summaries.jsonl"
LINES = (MEMORIES, NODES, EDGES, SUMMARIES)
"""For people and other programs; an import compares them with what it built."""

TABLES = "tables"
ARRAYS = "arrays"
ENCODER = "encoder"
OTHER = "files"

_NAME = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)?")


class ExportFormatError(SourceFormatError):
    """A directory is no export, a damaged one, or one of another version."""


@dataclass(frozen=True, slots=True)
class ExportManifest:
    """What an export holds.

    Attributes:
        digest: SHA-256 over everything below: equal exports have equal ones.
        files: By path, bytes and SHA-256.
        snapshot: The snapshot's own manifest, without where it came from and how it is stored.
    """

    digest: str
    files: Mapping[str, Mapping[str, Any]]
    snapshot: Mapping[str, Any]


def write_manifest(directory: Path, snapshot: Mapping[str, Any]) -> ExportManifest:
    """Describe every file of a directory and write the manifest beside them."""
    paths = sorted(p for p in directory.rglob("*") if p.is_file())
    files = {
        p.relative_to(directory).as_posix(): {"bytes": p.stat().st_size, "sha256": hash_file(p)}
        for p in paths
    }
    manifest = ExportManifest(_digest(files, snapshot), files, snapshot)
    body = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "digest": manifest.digest,
        "files": files,
        "snapshot": snapshot,
    }
    text = json.dumps(body, indent=1, sort_keys=True, ensure_ascii=False)
    write_text(directory / MANIFEST, text + "\n")
    return manifest


def read_manifest(directory: Path) -> ExportManifest:
    """Read the manifest and check every byte of the export.

    Raises:
        SourceMissingError: There is no such directory.
        ExportFormatError: It is no export, of another version, or not as it was written.
    """
    if not directory.is_dir():
        raise SourceMissingError(f"there is no export at {directory}: expected a directory")
    try:
        raw: Any = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
        found, version = raw["format"], raw["format_version"]
    except (OSError, ValueError, KeyError, TypeError):
        raise ExportFormatError(
            f"{directory} is no export of mnemon: it has no readable {MANIFEST}"
        ) from None
    if found != FORMAT:
        raise ExportFormatError(f"{directory} is no export of mnemon: its format is {found!r}")
    if version != FORMAT_VERSION:
        raise ExportFormatError(
            f"{directory} is an export of version {version!r}; this mnemon reads version "
            f"{FORMAT_VERSION}: use the mnemon that made it, or export anew"
        )
    try:
        manifest = ExportManifest(str(raw["digest"]), dict(raw["files"]), dict(raw["snapshot"]))
        is_same = manifest.digest == _digest(manifest.files, manifest.snapshot)
        faults = _faults(directory, manifest.files)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ExportFormatError(f"the {MANIFEST} of {directory} is damaged") from None
    if faults or not is_same:
        said = "; ".join(faults[:3]) or f"its {MANIFEST} was changed"
        raise ExportFormatError(f"the export in {directory} is damaged: {said}")
    return manifest


def _faults(directory: Path, files: Mapping[str, Mapping[str, Any]]) -> list[str]:
    faults: list[str] = []
    for name, entry in files.items():
        path = directory / name
        if not _NAME.fullmatch(name) or ".." in name.split("/") or path.is_symlink():
            faults.append(f"{name!r} is no name of a file in an export")
        elif not path.is_file():
            faults.append(f"{name} is missing")
        elif path.stat().st_size != entry["bytes"] or hash_file(path) != entry["sha256"]:
            faults.append(f"{name} was changed")
    known = {*files, MANIFEST}
    found = (p.relative_to(directory).as_posix() for p in directory.rglob("*") if p.is_file())
    return faults + [f"{name} does not belong to it" for name in sorted(found) if name not in known]


def _digest(files: Mapping[str, Mapping[str, Any]], snapshot: Mapping[str, Any]) -> str:
    return hash_json({"version": FORMAT_VERSION, "files": files, "snapshot": snapshot})
