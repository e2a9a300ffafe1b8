"""The serving snapshot as one user sees it: its rows, its arrays, and which memories are visible.

What belongs here: opening, and who sees which memory and which concept. What does not: the shape of
the tables (`schema`), their rows (`snapshot_rows`, `store_rows`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.files import read_array
from noctuary.foreign_json import parse_json
from noctuary.immutable import connect_immutable
from noctuary.snapshot import layout
from noctuary.snapshot.layout import StorePaths
from noctuary.snapshot.manifest import Manifest, quick_check, read_manifest, read_pointer

BATCH_ROWS = 20_000
"""Rows that are Python objects at once."""

Rows = Iterator[Sequence[tuple[Any, ...]]]


class SnapshotView:
    """One published snapshot, and what of it a user may see.

    Attributes:
        paths: The store.
        snapshot_id: What serves.
        manifest: Its manifest.
        user: Whose view it is; None means the owner's, who sees everything.
    """

    def __init__(self, paths: StorePaths, user: str | None = None) -> None:
        """Open what serves.

        Raises:
            SnapshotMissingError: Nothing has been published.
            SnapshotCorruptError: It is damaged or of another version.
        """
        self.paths = paths
        self.snapshot_id = read_pointer(paths).snapshot_id
        self.manifest: Manifest = read_manifest(self._directory)
        self.user = user
        quick_check(self._directory, self.manifest)
        self._db = connect_immutable(self._directory / layout.ROWS_FILE)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def select(self, sql: str) -> Rows:
        """Yield the rows of a query of this project's own on rows.sqlite, in batches."""
        with closing(self._db.execute(sql)) as cursor:
            while batch := cursor.fetchmany(BATCH_ROWS):
                yield batch

    def has(self, name: str) -> bool:
        """Say whether the snapshot has a file."""
        return name in self.manifest.files

    def array(self, name: str) -> NDArray[Any]:
        """Memory-map one of its arrays."""
        return read_array(self._directory / name)

    def meta(self, key: str) -> Any:
        """Return a value of table `meta`, or None."""
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else parse_json(row[0])

    @cached_property
    def memory_ids(self) -> list[str]:
        """By position."""
        return [row[0] for row in self._all("SELECT memory_id FROM memories ORDER BY position")]

    @cached_property
    def concept_ids(self) -> list[str]:
        """By ordinal."""
        return [row[0] for row in self._all("SELECT concept_id FROM concepts ORDER BY ordinal")]

    @cached_property
    def seen(self) -> NDArray[np.bool_]:
        """Memories that the user may see, by position, shape (n,).

        Their own, nobody's, and what the store says is shared with them.
        """
        count = self.manifest.counts["memories"]
        if self.user is None:
            return np.ones(count, dtype=np.bool_)
        owners = self._all("SELECT user FROM memories ORDER BY position")
        seen = np.fromiter((row[0] in (None, "", self.user) for row in owners), np.bool_, count)
        readers: list[str] = self.meta(layout.SHARED_WITH) or []
        if self.user in readers:
            reader = readers.index(self.user)
            starts = self.array(layout.SHARE_STARTS_FILE)
            shared = self.array(layout.SHARE_POSITIONS_FILE)
            seen[shared[starts[reader] : starts[reader + 1]]] = True
        return seen

    @cached_property
    def seen_ids(self) -> frozenset[str]:
        """Ids of the memories that the user may see."""
        return frozenset(self.memory_ids[int(position)] for position in np.flatnonzero(self.seen))

    @cached_property
    def seen_concepts(self) -> NDArray[np.bool_]:
        """Concepts whose every mention the user may see, by ordinal, shape (C,).

        A concept that also stands in somebody else's memory may have its name from there.
        """
        if self.user is None:
            return np.ones(len(self.concept_ids), dtype=np.bool_)
        starts = self.array(layout.mention_file("indptr"))
        hidden = ~self.seen[self.array(layout.mention_file("positions"))]
        before = np.concatenate(([0], np.cumsum(hidden)))
        # One without any mention has its name from nobody knows where.
        return (before[starts[1:]] == before[starts[:-1]]) & (starts[1:] > starts[:-1])

    @property
    def _directory(self) -> Path:
        return self.paths.snapshots / self.snapshot_id

    def _all(self, sql: str) -> list[tuple[Any, ...]]:
        return self._db.execute(sql).fetchall()
