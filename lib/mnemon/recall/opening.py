"""Finding the snapshot to serve: the pointer's, or the newest published one that still opens."""

from __future__ import annotations

from typing import NamedTuple

from mnemon.errors import SnapshotCorruptError, SnapshotMissingError, StoreError
from mnemon.recall.reader import SnapshotReader
from mnemon.snapshot.layout import StorePaths, is_snapshot_id
from mnemon.snapshot.manifest import read_pointer

# A retention sweep may remove the snapshot between reading the pointer and opening it; the pointer
# has moved by then.
_OPEN_ATTEMPTS = 3


class Opened(NamedTuple):
    """A pinned snapshot, and why it is not the one that the pointer names (or None)."""

    reader: SnapshotReader
    snapshot_id: str
    fallback_reason: str | None


def open_serving(paths: StorePaths) -> Opened:
    """Open the serving snapshot, falling back to the newest older one that opens.

    Raises:
        SnapshotMissingError: If nothing was ever published.
        SnapshotCorruptError: If neither the serving snapshot nor an older one opens.
    """
    failure: StoreError | None = None
    named: str | None = None
    for _ in range(_OPEN_ATTEMPTS):
        try:
            pointer = read_pointer(paths)
            named = pointer.snapshot_id
            return Opened(_open(paths, named, pointer.digest), named, None)
        except SnapshotMissingError as error:
            if not paths.snapshots.is_dir():
                raise
            failure = error
            break
        except SnapshotCorruptError as error:
            failure = error
    return _open_fallback(paths, named, failure)


def _open_fallback(paths: StorePaths, named: str | None, failure: StoreError | None) -> Opened:
    """Open the newest published snapshot older than the one that the pointer names.

    Newer ones are left alone: they were rolled back from, or a killed night never pointed at them.
    """
    names = [p.name for p in paths.snapshots.glob("*") if is_snapshot_id(p.name)]
    for name in sorted(names, reverse=True):
        if named is not None and name >= named:
            continue
        try:
            return Opened(_open(paths, name, name.rpartition("-")[2]), name, str(failure))
        except SnapshotCorruptError:
            continue
    raise failure or SnapshotMissingError(f"nothing has been published in {paths.root}")


def _open(paths: StorePaths, name: str, digest: str) -> SnapshotReader:
    """Open a published snapshot that must have this digest, or start with it."""
    reader = SnapshotReader.open(paths.snapshots / name)
    if not reader.manifest.digest.startswith(digest):
        reader.close()
        raise SnapshotCorruptError(f"snapshot {name} is not the one that was published")
    return reader
