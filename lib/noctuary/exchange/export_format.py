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
from stat import S_ISDIR, S_ISREG
from typing import Any

from noctuary.encode.lean_format import HEADER_FILE, VOCAB_FILE, WEIGHTS_FILE
from noctuary.errors import SourceFormatError, SourceMissingError
from noctuary.files import write_text
from noctuary.foreign_json import parse_json
from noctuary.hashing import hash_file, hash_json
from noctuary.snapshot.layout import ABSTENTION_FILE, RANKING_FILE, TIER_EXITS_FILE

FORMAT = "noctuary-export"
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

ENCODER_FILES = (HEADER_FILE, VOCAB_FILE, WEIGHTS_FILE)
OTHER_FILES = (RANKING_FILE, ABSTENTION_FILE, TIER_EXITS_FILE)
"""Of a snapshot: all but its rows and its arrays."""

_FOREIGN = "encoder/hosted.json"
"""In exports of before: it names an address and a variable of the exporter, and is left alone."""

_NAME = re.compile(
    "|".join(
        [*map(re.escape, (*LINES, _FOREIGN)), rf"({TABLES}|{ARRAYS})/[a-z0-9_]+\.parquet"]
        + [re.escape(f"{ENCODER}/{name}") for name in ENCODER_FILES]
        + [re.escape(f"{OTHER}/{name}") for name in OTHER_FILES]
    )
)
"""Of every file that may be in an export: none leads out of the directory that it is put into."""

SNAPSHOT_KEYS = (
    "format_version", "counts", "id_kind", "encoder", "encoder_digest", "corpus_digest",
    "warnings", "built_at", "settings",
)  # fmt: skip
"""Of a snapshot's manifest, what travels: not its digest and its files' checksums, which change
with the version of SQLite, and no place on this machine."""

_BODY = {"format", "format_version", "digest", "files", "snapshot"}
_MOST_MANIFEST_BYTES = 16 * 2**20  # a real one has some 30,000
_OF_ONE_MACHINE = re.compile(
    r"evaluation\.queries|.*\.(path|user|address)|.*[._]ur[il]|.*_variable"
)
"""Settings that name a place, an address, a user or a variable: an import's owner has their own."""
_PLACES = ("/", "~", ".")
"""What a model begins with that is named by its directory."""


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


def without_places(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return a snapshot's settings with nothing in them that is of one machine only."""
    return {
        section: {
            key: "" if _is_of_one_machine(f"{section}.{key}", value) else value
            for key, value in values.items()
        }
        for section, values in settings.items()
    }


def _is_of_one_machine(name: str, value: Any) -> bool:
    is_place = isinstance(value, str) and value.startswith(_PLACES)
    return is_place or _OF_ONE_MACHINE.fullmatch(name) is not None


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
        found = (directory / MANIFEST).lstat()
        if not S_ISREG(found.st_mode) or found.st_size > _MOST_MANIFEST_BYTES:
            raise ValueError(MANIFEST)  # noqa: TRY301
        raw: Any = parse_json((directory / MANIFEST).read_text(encoding="utf-8"))
        found, version = raw["format"], raw["format_version"]
    except (OSError, ValueError, KeyError, TypeError):
        raise ExportFormatError(
            f"{directory} is no export of noctuary: it has no readable {MANIFEST}"
        ) from None
    if found != FORMAT:
        raise ExportFormatError(f"{directory} is no export of noctuary: its format is {found!r}")
    if version != FORMAT_VERSION:
        raise ExportFormatError(
            f"{directory} is an export of version {version!r}; this noctuary reads version "
            f"{FORMAT_VERSION}: use the noctuary that made it, or export anew"
        )
    try:
        manifest = ExportManifest(str(raw["digest"]), dict(raw["files"]), dict(raw["snapshot"]))
        is_same = manifest.digest == _digest(manifest.files, manifest.snapshot)
        unknown = sorted({*raw} - _BODY | {*manifest.snapshot} - {*SNAPSHOT_KEYS})
        faults = _faults(directory, manifest.files)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ExportFormatError(f"the {MANIFEST} of {directory} is damaged") from None
    if faults or not is_same:
        said = "; ".join(faults[:3]) or f"its {MANIFEST} was changed"
        raise ExportFormatError(f"the export in {directory} is damaged: {said}")
    if unknown:
        raise ExportFormatError(
            f"the {MANIFEST} of {directory} says {', '.join(unknown)}, which this noctuary does "
            "not know: use the noctuary that made it, or export anew"
        )
    return manifest


def _faults(directory: Path, files: Mapping[str, Mapping[str, Any]]) -> list[str]:
    # Neither links to files nor links to folders are followed: what they lead to is no part of it.
    found = {p.relative_to(directory).as_posix(): p.lstat() for p in directory.rglob("*")}
    faults: list[str] = []
    for name, entry in files.items():
        if not _NAME.fullmatch(name):
            faults.append(f"{name!r} is no name of a file in an export")
        elif name not in found or not S_ISREG(found[name].st_mode):
            faults.append(f"{name} is missing")
        elif (
            found[name].st_size != entry["bytes"] or hash_file(directory / name) != entry["sha256"]
        ):
            faults.append(f"{name} was changed")
    known = {*files, MANIFEST}
    return faults + [
        f"{name} does not belong to it"
        for name, stat in sorted(found.items())
        if name not in known and not S_ISDIR(stat.st_mode)
    ]


def _digest(files: Mapping[str, Mapping[str, Any]], snapshot: Mapping[str, Any]) -> str:
    return hash_json({"version": FORMAT_VERSION, "files": files, "snapshot": snapshot})
