"""Finding the snapshot to serve: the pointer's, or the newest one that may take its place."""

from __future__ import annotations

from typing import NamedTuple

from noctuary.errors import SnapshotCorruptError, SnapshotMissingError, StoreError
from noctuary.recall.reader import SnapshotReader
from noctuary.snapshot.layout import StorePaths, is_snapshot_id
from noctuary.snapshot.manifest import Pointer, read_pointer

# A retention sweep may remove the snapshot between reading the pointer and opening it; the pointer
# has moved by then.
_OPEN_ATTEMPTS = 3


class Opened(NamedTuple):
    """A pinned snapshot, and why it is not the one that the pointer names (or None)."""

    reader: SnapshotReader
    snapshot_id: str
    fallback_reason: str | None


def open_serving(paths: StorePaths) -> Opened:
    """Open the serving snapshot, falling back to the newest other one that may serve and opens.

    Raises:
        SnapshotMissingError: If nothing was ever published.
        SnapshotCorruptError: If neither the serving snapshot nor another one opens.
    """
    failure: StoreError | None = None
    pointer: Pointer | None = None
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
    for name in _fallbacks(paths, pointer):
        try:
            return Opened(_open(paths, name, name.rpartition("-")[2]), name, str(failure))
        except SnapshotCorruptError:
            continue
    raise failure or SnapshotMissingError(f"nothing has been published in {paths.root}")


def _fallbacks(paths: StorePaths, pointer: Pointer | None) -> list[str]:
    """Return the published snapshots that may serve in another's place, best first.

    Where the pointer can be believed these are the older ones: newer ones were rolled back from, or
    a killed night never pointed at them. A flipped bit in the time of its name leads to no
    snapshot, but the digest still says which one was meant.
    """
    names = sorted(p.name for p in paths.snapshots.glob("*") if is_snapshot_id(p.name))[::-1]
    if pointer is None:
        return names
    meant = [n for n in names if pointer.digest.startswith(n.rpartition("-")[2])]
    newest = meant[0] if meant and pointer.snapshot_id not in meant else pointer.snapshot_id
    return [name for name in names if name <= newest]


def _open(paths: StorePaths, name: str, digest: str) -> SnapshotReader:
    """Open a published snapshot that must have this digest, or start with it."""
    reader = SnapshotReader.open(paths.snapshots / name)
    if not reader.manifest.digest.startswith(digest):
        reader.close()
        raise SnapshotCorruptError(f"snapshot {name} is not the one that was published")
    return reader
