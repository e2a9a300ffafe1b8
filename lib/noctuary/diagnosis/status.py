"""What serves, how old it is, what it holds."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from noctuary.archive.reading import ArchiveReader
from noctuary.errors import (
    SnapshotCorruptError,
    SnapshotMissingError,
    SnapshotOutdatedError,
    StoreError,
)
from noctuary.files import tree_bytes
from noctuary.immutable import connect_immutable
from noctuary.locate import find_store, list_stores
from noctuary.snapshot import layout
from noctuary.snapshot.layout import StorePaths, is_snapshot_id
from noctuary.snapshot.manifest import quick_check, read_manifest, read_pointer

_HOUR_S = 3600.0


def read_status(paths: StorePaths) -> dict[str, Any]:
    """Return the state of a store as plain values.

    Raises:
        StoreError: If nothing is published or the serving snapshot is damaged.
    """
    pointer = read_pointer(paths)
    directory = paths.snapshots / pointer.snapshot_id
    manifest = read_manifest(directory)
    quick_check(directory, manifest)
    return {
        "store": str(paths.root),
        "snapshot_id": pointer.snapshot_id,
        "digest": pointer.digest,
        "published_at": pointer.published_at,
        "reason": pointer.reason,
        "age_hours": round(age_hours(pointer.published_at), 2),
        "built_at": manifest.built_at,
        "source": manifest.source,
        "encoder": manifest.encoder,
        "counts": manifest.counts,
        "archived": count_archived(paths, directory / layout.ROWS_FILE),
        "wings": wing_counts(directory / layout.ROWS_FILE),
        "snapshot_bytes": sum(entry.bytes for entry in manifest.files.values()),
        "store_bytes": tree_bytes(paths.root),
    }


def describe_snapshots(paths: StorePaths) -> list[dict[str, Any]]:
    """Describe every published snapshot.

    Oldest first, with whether it serves and whether its files are all there.
    """
    try:
        serving = read_pointer(paths).snapshot_id
    except (SnapshotMissingError, SnapshotCorruptError):
        serving = None
    if not paths.snapshots.is_dir():
        return []
    names = sorted(p.name for p in paths.snapshots.iterdir() if is_snapshot_id(p.name))
    return [_describe(paths, name, name == serving) for name in names]


def describe_stores(home: Path) -> list[dict[str, Any]]:
    """Describe every published store of a home: what it serves, of which source, since when.

    `default` marks the one that is meant where none is named; `fault` says why one cannot be read.
    """
    roots = list_stores(home)
    default = find_store(None, home=home)[0] if roots else None
    return [
        {"name": root.name, "path": str(root), "default": root == default, **_serves(root)}
        for root in roots
    ]


def _serves(root: Path) -> dict[str, Any]:
    paths = StorePaths(root)
    row: dict[str, Any] = dict.fromkeys(("source", "memories", "published_at", "fault"))
    try:
        pointer = read_pointer(paths)
        manifest = read_manifest(paths.snapshots / pointer.snapshot_id)
    except (StoreError, OSError) as error:
        return {**row, "fault": str(error)}
    found = {"source": manifest.source.get("location"), "memories": manifest.counts["memories"]}
    return {**row, **found, "published_at": pointer.published_at}


def age_hours(iso: str) -> float:
    """Return how long ago an ISO-8601 moment was; 0 for one in the future (clock skew)."""
    return max((datetime.now(UTC) - datetime.fromisoformat(iso)).total_seconds() / _HOUR_S, 0.0)


def _describe(paths: StorePaths, name: str, serving: bool) -> dict[str, Any]:
    directory = paths.snapshots / name
    row: dict[str, Any] = {
        "snapshot_id": name, "serving": serving, "intact": False, "outdated": False,
    }  # fmt: skip
    try:
        manifest = read_manifest(directory)
        quick_check(directory, manifest)
    except SnapshotCorruptError as error:
        outdated = isinstance(error, SnapshotOutdatedError)
        nothing = {"memories": None, "bytes": None, "built_at": None}
        return {**row, "outdated": outdated, "fault": str(error), **nothing}
    return {
        **row,
        "intact": True,
        "memories": manifest.counts["memories"],
        "bytes": sum(entry.bytes for entry in manifest.files.values()),
        "built_at": manifest.built_at,
        "digest": manifest.digest,
    }


def count_archived(paths: StorePaths, rows_file: Path) -> int | None:
    """Return how many memories of a snapshot the archive hides now; None where it is unreadable.

    Args:
        paths: The store.
        rows_file: The snapshot's rows.sqlite.

    Raises:
        SnapshotCorruptError: If rows.sqlite cannot be read.
    """
    archive = ArchiveReader.open(paths.archive)
    if archive.warning is not None:
        return None
    if not archive.applied_plans_at(None):
        return 0
    try:
        with closing(connect_immutable(rows_file)) as rows:
            known = dict(rows.execute("SELECT memory_id, content_hash FROM memories"))
    except sqlite3.Error as error:
        raise SnapshotCorruptError(
            f"{rows_file.name} cannot be read: {error}; run `noctuary doctor`"
        ) from error
    return len(archive.hidden_in(lambda ids: {i: known[i] for i in ids if i in known}))


def wing_counts(rows_file: Path) -> dict[str, int]:
    """Return the exact number of memories of every wing of a snapshot, largest first.

    Args:
        rows_file: The snapshot's rows.sqlite. Memories without a wing count as "(none)".

    Raises:
        SnapshotCorruptError: If it cannot be read.
    """
    try:
        with closing(connect_immutable(rows_file)) as rows:
            found = rows.execute(
                "SELECT COALESCE(wing, '(none)'), COUNT(*) FROM memories GROUP BY 1 ORDER BY 2 "
                "DESC, 1"
            ).fetchall()
    except sqlite3.Error as error:
        raise SnapshotCorruptError(
            f"{rows_file.name} cannot be read: {error}; run `noctuary doctor`"
        ) from error
    return dict(found)
