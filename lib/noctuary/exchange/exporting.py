"""Writing an export: what serves, as files that other programs read; equal ones, equal bytes.

What belongs here: which files, and what is left out. What does not: their form (`lines`,
`columns`), reading them back (`importing`).
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noctuary.errors import StoreError
from noctuary.exchange import export_format
from noctuary.exchange.columns import array_to_parquet, table_to_parquet
from noctuary.exchange.export_format import write_manifest
from noctuary.exchange.imported_checks import find_sensitive
from noctuary.exchange.lines import write_lines
from noctuary.files import fsync_dir, make_private, remove_tree
from noctuary.immutable import connect_immutable
from noctuary.progress import SILENT, Progress
from noctuary.snapshot.layout import ROWS_FILE, StorePaths
from noctuary.snapshot.manifest import Manifest, full_check
from noctuary.sql.view import SnapshotView

_TASK = "export"
_PRIVATE_DIRECTORY = 0o700
_ARRAY = ".npy"


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written.

    Attributes:
        directory: Where.
        digest: Of the export: equal ones hold the same.
        memories: How many.
        files: How many, manifest included.
        bytes: Of all of them.
        has_encoder: False: recalls after an import go by words until a night has run.
    """

    directory: Path
    digest: str
    memories: int
    files: int
    bytes: int
    has_encoder: bool


def export_snapshot(
    paths: StorePaths, target: Path, *, with_encoder: bool = True, progress: Progress = SILENT
) -> Exported:
    """Write what serves into a new directory, readable by its owner only.

    It appears there when it is complete.

    Args:
        paths: The store.
        target: A directory that does not exist, or is empty.
        with_encoder: Also what an import needs to answer by meaning.
        progress: Told of every file.

    Raises:
        StoreError: Nothing serves, it is damaged, something is at the target, or a text looks
            sensitive by the rules of today.
    """
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise StoreError(f"{target} exists and is not an empty directory: name another place")
    view = SnapshotView(paths)
    building = target.absolute().with_name(f".{target.absolute().name}.exporting")
    try:
        snapshot = paths.snapshots / view.snapshot_id
        full_check(snapshot, view.manifest)
        _refuse_sensitive(snapshot, view.manifest)
        remove_tree(building)
        building.mkdir(parents=True, mode=_PRIVATE_DIRECTORY)
        _write_exact(snapshot, view.manifest, building, progress)
        write_lines(view, building)
        has_encoder = with_encoder and _copy_encoder(paths, view.manifest, building)
        written = write_manifest(building, _described(view.manifest))
        make_private(building)
        if target.exists():
            target.rmdir()
        building.rename(target)
        fsync_dir(target.absolute().parent)
    finally:
        view.close()
        remove_tree(building)
    sizes = [path.stat().st_size for path in target.rglob("*") if path.is_file()]
    memories = view.manifest.counts["memories"]
    return Exported(target, written.digest, memories, len(sizes), sum(sizes), has_encoder)


def table_names(db: sqlite3.Connection) -> list[str]:
    """Return the tables of rows.sqlite in the order in which they were made."""
    sql = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY rowid"
    return [str(row[0]) for row in db.execute(sql)]


def _refuse_sensitive(snapshot: Path, manifest: Manifest) -> None:
    found = find_sensitive(snapshot, manifest)
    if found:
        raise StoreError(
            f"{found} look sensitive by the rules of today: run a night, which takes them out, "
            "then export"
        )


def _write_exact(snapshot: Path, manifest: Manifest, target: Path, progress: Progress) -> None:
    """Write what an import makes the snapshot's own files of."""
    for done, name in enumerate(sorted(manifest.files)):
        progress.update(_TASK, done, len(manifest.files))
        path = snapshot / name
        if name == ROWS_FILE:
            with closing(connect_immutable(path)) as db:
                for table in table_names(db):
                    place = target / export_format.TABLES / f"{table}.parquet"
                    table_to_parquet(db, table, place)
        elif path.suffix == _ARRAY:
            array_to_parquet(path, target / export_format.ARRAYS / f"{path.stem}.parquet")
        else:
            _copy(path, target / export_format.OTHER / name)
    progress.update(_TASK, len(manifest.files), len(manifest.files))


def _copy_encoder(paths: StorePaths, manifest: Manifest, target: Path) -> bool:
    if manifest.encoder_digest is None:
        return False
    directory = paths.encoders / manifest.encoder_digest
    # Where a provider made the vectors there is no such file: its address is its owner's.
    if not all((directory / name).is_file() for name in export_format.ENCODER_FILES):
        return False
    for name in export_format.ENCODER_FILES:
        _copy(directory / name, target / export_format.ENCODER / name)
    return True


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _described(manifest: Manifest) -> Mapping[str, Any]:
    """Return the part of a manifest that travels."""
    raw = {**manifest.to_json(), "settings": export_format.without_places(manifest.settings)}
    return {name: raw[name] for name in export_format.SNAPSHOT_KEYS}
