"""Finding the snapshot to serve: the pointer's, or the newest published one that still opens."""

from __future__ import annotations

from dataclasses import dataclass

from mnemon.errors import SnapshotCorruptError, SnapshotMissingError, StoreError
from mnemon.recall.reader import SnapshotReader
from mnemon.snapshot.layout import StorePaths, is_snapshot_id
from mnemon.snapshot.manifest import read_pointer

# A retention sweep may remove the snapshot between reading the pointer and opening it; the pointer
# has moved by then.
_OPEN_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Opened:
    """A pinned snapshot, and why it is not the one that the pointer names (or None)."""

    reader: SnapshotReader
    snapshot_id: str
    fallback_reason: str | None


def open_serving(paths: StorePaths) -> Opened:
    """Open the serving snapshot, falling back to the newest older one that opens.

    Raises:
        SnapshotMissingError: If nothing was ever published.
        SnapshotCorruptError: If no published snapshot opens.
    """
    failure: StoreError | None = None
    for _ in range(_OPEN_ATTEMPTS):
        try:
            pointer = read_pointer(paths)
            reader = SnapshotReader.open(paths.snapshots / pointer.snapshot_id)
            if reader.manifest.digest != pointer.digest:
                reader.close()
                raise SnapshotCorruptError(  # noqa: TRY301 - one handler for every kind of damage
                    f"snapshot {pointer.snapshot_id} is not the one that was published"
                )
            return Opened(reader, pointer.snapshot_id, None)
        except SnapshotMissingError as error:
            if not paths.snapshots.is_dir():
                raise
            failure = error
            break
        except SnapshotCorruptError as error:
            failure = error
    return _open_fallback(paths, failure)


def _open_fallback(paths: StorePaths, failure: StoreError | None) -> Opened:
    names = sorted(
        (p.name for p in paths.snapshots.glob("*") if is_snapshot_id(p.name)), reverse=True
    )
    for name in names:
        try:
            return Opened(SnapshotReader.open(paths.snapshots / name), name, str(failure))
        except SnapshotCorruptError:
            continue
    raise failure or SnapshotMissingError(f"nothing has been published in {paths.root}")
