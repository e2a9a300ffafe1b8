"""The manifest of a snapshot and the pointer to the serving one."""

# Not `from __future__ import annotations`: NamedTuple compiles each annotation that is a text.
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints

from noctuary.core.errors import SnapshotCorruptError, SnapshotMissingError, SnapshotOutdatedError
from noctuary.core.files import hash_file, hash_json, write_text
from noctuary.core.foreign_json import parse_json
from noctuary.core.formats import SNAPSHOT, UPDATE
from noctuary.core.store import MANIFEST_FILE, SEALED_FILES, StorePaths, is_snapshot_id


class FileEntry(NamedTuple):
    """Size and checksum of one file of a snapshot."""

    bytes: int
    sha256: str


class Manifest(NamedTuple):
    """Contents and provenance of a snapshot."""

    format_version: int  # of SNAPSHOT
    digest: str  # see `compute_digest`
    files: dict[str, FileEntry]  # by name, manifest excluded
    counts: dict[str, int]  # rows by kind: memories, turns, concepts, edges, summaries ...
    id_kind: str  # "int" or "str": the type of the source's ids
    encoder: dict[str, Any] | None  # its fingerprint, None where the snapshot has no vectors
    encoder_digest: str | None  # directory name of the lean encoder in the store
    source: dict[str, Any]  # identity of the source
    corpus_digest: str  # over the content hashes, in order
    settings: dict[str, Any]
    warnings: list[tuple[str, str]]  # part of the format; earlier nights reported degradations here
    built_at: str  # ISO-8601 UTC; not part of the digest

    def to_json(self) -> dict[str, Any]:
        """Return plain dicts."""
        files = {name: entry._asdict() for name, entry in self.files.items()}
        return {**self._asdict(), "files": files}


class Pointer(NamedTuple):
    """The content of CURRENT."""

    snapshot_id: str  # directory name below `snapshots`
    digest: str  # the snapshot's, so that a swapped directory is noticed
    published_at: str  # ISO-8601 UTC of the swap
    previous_id: str | None
    reason: str  # "publish" or "rollback"


def compute_digest(
    files: dict[str, FileEntry], counts: dict[str, int], id_kind: str, encoder_digest: str | None
) -> str:
    """Return the digest that names a candidate: from its contents, not its time or place."""
    return hash_json(
        {
            "format": SNAPSHOT.version,
            "files": {name: entry.sha256 for name, entry in files.items()},
            "counts": counts,
            "id_kind": id_kind,
            "encoder": encoder_digest,
        }
    )


def pack_digest(manifest: Manifest) -> str:
    """Return the digest without sealed files: equal packs hold the same memories."""
    files = {name: entry for name, entry in manifest.files.items() if name not in SEALED_FILES}
    return compute_digest(files, manifest.counts, manifest.id_kind, manifest.encoder_digest)


def describe_files(
    directory: Path, read: Callable[[Path], str] = hash_file
) -> dict[str, FileEntry]:
    """Return size and checksum of every file of a snapshot directory, manifest excluded."""
    return {
        path.name: FileEntry(path.stat().st_size, read(path))
        for path in sorted(directory.iterdir())
        if path.is_file() and path.name != MANIFEST_FILE
    }


def write_manifest(directory: Path, manifest: Manifest) -> None:
    """Write the manifest durably."""
    text = json.dumps(manifest.to_json(), indent=1, sort_keys=True)
    write_text(directory / MANIFEST_FILE, text + "\n")


def read_manifest(directory: Path) -> Manifest:
    """Read and type-check a manifest, or raise a SnapshotCorruptError."""
    path = directory / MANIFEST_FILE
    try:
        raw = parse_json(path.read_text(encoding="utf-8"))
        _require_format(raw["format_version"], directory.name)
        _require_types(raw, Manifest)
        files = {name: FileEntry(**entry) for name, entry in raw.pop("files").items()}
        warnings = [(str(code), str(message)) for code, message in raw.pop("warnings")]
        if not isinstance(raw["counts"]["memories"], int):
            raise TypeError("memories are not counted")  # noqa: TRY301
        return Manifest(files=files, warnings=warnings, **raw)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SnapshotCorruptError(
            f"snapshot {directory.name} has no readable manifest ({type(error).__name__}): "
            "run `noctuary doctor`, then `noctuary rollback` or the nightly job"
        ) from error


def _require_format(found: Any, name: str) -> None:
    """Refuse another version's snapshot, saying which of the two is the older."""
    if isinstance(found, bool) or not isinstance(found, int):
        raise TypeError(f"format_version is {type(found).__name__}")
    if found == SNAPSHOT.version:
        return
    age, advice = "a newer", f": {UPDATE}, or run the night with this one"
    if found < SNAPSHOT.version:
        age = "an older"
        advice = (
            "; nothing is lost: run the night (`noctuary nightly`), which makes a new one from "
            "your source"
        )
    formats = f"(format {found}, this one reads {SNAPSHOT.version})"
    raise SnapshotOutdatedError(f"snapshot {name} was made by {age} noctuary {formats}{advice}")


def quick_check(directory: Path, manifest: Manifest) -> None:
    """Check that every file is there with its size; cheap enough for every cold start."""
    faults: list[str] = []
    for name, entry in manifest.files.items():
        try:
            size = (directory / name).stat().st_size
        except OSError:
            faults.append(f"{name} is missing")
            continue
        if size != entry.bytes:
            faults.append(f"{name} has {size} bytes instead of {entry.bytes}")
    _raise_if(faults, directory)


def full_check(
    directory: Path, manifest: Manifest, read: Callable[[Path], str] = hash_file
) -> None:
    """Recompute every checksum and the digest; before publishing, a rollback, in `doctor`."""
    quick_check(directory, manifest)
    found, m = describe_files(directory, read), manifest
    # One that was there a moment ago may be gone: a newer night removes old snapshots.
    faults = [f"{name} is missing" for name in m.files if name not in found]
    both = [name for name in m.files if name in found]
    faults += [f"{n} has another checksum" for n in both if found[n].sha256 != m.files[n].sha256]
    faults += [f"{name} is not in the manifest" for name in found if name not in m.files]
    if compute_digest(m.files, m.counts, m.id_kind, m.encoder_digest) != m.digest:
        faults.append("the manifest's digest does not match its own content")
    _raise_if(faults, directory)


def read_pointer(paths: StorePaths) -> Pointer:
    """Read CURRENT, or raise that nothing was published, or that it names no snapshot."""
    try:
        raw = parse_json(paths.current.read_text(encoding="utf-8"))
        _require_types(raw, Pointer)
        if not is_snapshot_id(raw["snapshot_id"]) or not raw["digest"].startswith(
            raw["snapshot_id"].rpartition("-")[2]
        ):
            raise ValueError("its name and its digest are not of one snapshot")  # noqa: TRY301
        return Pointer(**raw)
    except FileNotFoundError:
        raise SnapshotMissingError(
            f"nothing has been published in {paths.root}: run `noctuary nightly` first; "
            "`noctuary stores` lists the stores that have a snapshot"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SnapshotCorruptError(
            f"the pointer {paths.current} cannot be read ({type(error).__name__}): "
            "run `noctuary rollback` to point it at a published snapshot"
        ) from error


def write_pointer(paths: StorePaths, pointer: Pointer) -> None:
    """Swap the serving snapshot: write, fsync, rename."""
    write_text(paths.current, json.dumps(pointer._asdict(), indent=1) + "\n")


def _require_types(raw: Mapping[str, Any], record: Any) -> None:
    """Check field types, to detect a damaged file that is still JSON."""
    for name, said in get_type_hints(record).items():
        kinds = get_args(said) if isinstance(said, UnionType) else (said,)
        if not isinstance(raw[name], tuple(get_origin(kind) or kind for kind in kinds)):
            raise TypeError(f"{name} is {type(raw[name]).__name__}")


def _raise_if(faults: list[str], directory: Path) -> None:
    if faults:
        raise SnapshotCorruptError(
            f"snapshot {directory.name} is damaged: {'; '.join(faults[:10])}. "
            "Run `noctuary rollback` to serve an older one, or the nightly job to rebuild"
        )
