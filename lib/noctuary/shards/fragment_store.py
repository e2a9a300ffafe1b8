"""Results by content key, kept between nights in immutable fragments under one manifest.

What belongs here: which fragments count, finding rows by key, forgetting keys, merging small
fragments. What does not: making fragments (the runners), the manifest's file (`manifest`).

The durable memory of the heavy steps: a row is found by the hash of what it was made from, so that
an edited store recomputes only what is new. A fragment counts from the moment the manifest names
it; whatever else lies in the directory is left over from a killed night and is taken over by the
run that makes it again, or removed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.errors import ShardError
from noctuary.shards.files import (
    SHARD_ROWS,
    checksum,
    count_rows,
    fragment_path,
    open_table,
    write_table,
)
from noctuary.shards.keys import KEY_BYTES, Keys, SortedKeys, as_rows, rows_of
from noctuary.shards.manifest import (
    Listed,
    read_manifest,
    remove_unnamed,
    store_directory,
    write_manifest,
)
from noctuary.shards.task import Fragment

KEY, VALUE = "key", "value"

MERGE_ROWS = SHARD_ROWS // 2
"""Fragments below this are merged by `prune`: a year of nights with ten new memories each would
otherwise be 365 files."""

_ROW_BITS = 32
"""Of a handle: the row inside its fragment; the fragment's number stands above."""

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where rows lie: of the sorted keys, the fragment and the row inside it."""

    keys: SortedKeys
    fragments: NDArray[np.int32]
    rows: NDArray[np.int32]


class FragmentStore:
    """Values by 32-byte key, of one kind; one writer at a time.

    A kind names the algorithm and its version or fingerprint, as in the memo. No file stays open
    or mapped between calls.
    """

    def __init__(self, directory: Path, kind: str) -> None:
        """Open or make the store of a kind below a directory.

        Fragments that are not what the manifest says are removed: their keys are computed again.
        """
        self.directory = store_directory(directory, kind)
        self.kind = kind
        self._listed: list[Listed] = []
        for listed in read_manifest(self.directory, kind):
            if _is_whole(listed):
                self._listed.append(listed)
            else:
                listed.fragment.path.unlink(missing_ok=True)
        self._place: _Place | None = None

    @property
    def rows(self) -> int:
        """Rows held, those of forgotten keys included until `prune`."""
        return sum(listed.fragment.rows for listed in self._listed)

    @property
    def fragments(self) -> Sequence[Fragment]:
        """The fragments that count, oldest first."""
        return tuple(listed.fragment for listed in self._listed)

    def commit(self, fragments: Iterable[Fragment]) -> None:
        """Let fragments count: durable when this returns. A key that is held already stays.

        Raises:
            ShardError: One is not there, or cannot be read.
        """
        known = {fragment.key for fragment in self.fragments}
        new = [fragment for fragment in fragments if fragment.key not in known]
        self._replace([*self._listed, *map(_listed, new)])

    def find(self, keys: Keys) -> NDArray[np.int64]:
        """Return a handle of every key's row for `take`, -1 where it is not held; shape (n,).

        A handle holds until the next `commit`, `prune` or `forget`.
        """
        place = self._placed()
        at = place.keys.find(as_rows(keys))
        found = np.full(len(at), -1, dtype=np.int64)
        held = np.flatnonzero(at >= 0)
        fragments, rows = place.fragments[at[held]], place.rows[at[held]]
        found[held] = (fragments.astype(np.int64) << _ROW_BITS) | rows
        return found

    def take(self, handles: NDArray[np.int64]) -> Any:
        """Return the values of rows that `find` found, as one pyarrow array in that order.

        It is a copy; None where there are no handles.

        Raises:
            ShardError: A fragment is gone.
        """
        import pyarrow as pa

        if not len(handles):
            return None
        fragments, rows = handles >> _ROW_BITS, handles & ((1 << _ROW_BITS) - 1)
        order = np.argsort(fragments, kind="stable")
        numbers, starts = np.unique(fragments[order], return_index=True)
        pieces: list[Any] = []
        for number, chosen in zip(numbers.tolist(), np.split(order, starts[1:]), strict=True):
            column = _column(self._listed[number].fragment, VALUE)
            pieces.append(column.take(pa.array(rows[chosen])))
        back = np.empty(len(order), dtype=np.int64)
        back[order] = np.arange(len(order))
        return pa.concat_arrays(pieces).take(pa.array(back))

    def prune(self, live: Keys) -> int:
        """Forget every key that is not in `live` and merge small fragments; return keys forgotten.

        Only fragments that hold a forgotten key, or are small, are written again; what they held
        is gone from the directory when this returns, with whatever no manifest names.
        """
        wanted = SortedKeys(as_rows(live))
        return self._keep(lambda keys: wanted.find(keys) >= 0)

    def forget(self, keys: Keys) -> int:
        """Forget some keys, so that they are computed again; see `prune`."""
        unwanted = SortedKeys(as_rows(keys))
        return self._keep(lambda held: unwanted.find(held) < 0)

    def _keep(self, choose: Callable[[NDArray[np.uint8]], Mask]) -> int:
        kept: list[Listed] = []
        again: list[tuple[Fragment, Mask]] = []
        forgotten = dropped = 0
        for number, listed in enumerate(self._listed):
            keys = _read_keys(listed.fragment)
            wanted = choose(keys)
            stays = wanted & self._is_found_in(number, keys)
            forgotten += int((~wanted).sum())
            dropped += int((~stays).sum())
            if stays.all() and listed.fragment.rows >= MERGE_ROWS:
                kept.append(listed)
            else:
                again.append((listed.fragment, stays))
        if dropped or len(again) > 1:
            self._replace([*kept, *map(_listed, _rewrite(again, self.directory))])
        remove_unnamed(self.directory, self.kind)
        return forgotten

    def _is_found_in(self, number: int, keys: NDArray[np.uint8]) -> Mask:
        """Tell which rows of a fragment are those that `find` finds: others repeat a key."""
        return self.find(keys) == ((number << _ROW_BITS) | np.arange(len(keys)))

    def _replace(self, listed: Sequence[Listed]) -> None:
        write_manifest(self.directory, self.kind, listed)
        self._listed = list(listed)
        self._place = None

    def _placed(self) -> _Place:
        if self._place is None:
            keys = [_read_keys(fragment) for fragment in self.fragments]
            held = SortedKeys(np.concatenate([*keys, np.empty((0, KEY_BYTES), dtype=np.uint8)]))
            of = np.repeat(np.arange(len(keys), dtype=np.int32), [len(k) for k in keys])
            rows = np.concatenate([*(np.arange(len(k)) for k in keys), np.empty(0, np.int64)])
            self._place = _Place(held, of[held.order], rows[held.order].astype(np.int32))
        return self._place


def _is_whole(listed: Listed) -> bool:
    try:
        return checksum(listed.fragment.path) == listed.crc32
    except OSError:
        return False


def _listed(fragment: Fragment) -> Listed:
    if count_rows(fragment.path) != fragment.rows:
        raise ShardError(
            f"{fragment.path} was written with {fragment.rows} rows and cannot be read: the disk "
            "is full or damaged. Look at the disk and run again."
        )
    return Listed(fragment, checksum(fragment.path))


def _rewrite(parts: Iterable[tuple[Fragment, Mask]], directory: Path) -> Iterator[Fragment]:
    """Write the chosen rows of fragments into new ones of at most SHARD_ROWS, one at a time."""
    import pyarrow as pa

    pending: list[Any] = []
    for fragment, stays in parts:
        pending.append(open_table(fragment.path).filter(pa.array(stays)))
        table = pa.concat_tables(pending)
        while table.num_rows >= SHARD_ROWS:
            yield _write_merged(table.slice(0, SHARD_ROWS), directory)
            table = table.slice(SHARD_ROWS)
        pending = [table]
    if pending and pending[0].num_rows:
        yield _write_merged(pending[0], directory)


def _write_merged(table: Any, directory: Path) -> Fragment:
    piece = table.combine_chunks()
    # Named by what it holds and not by the keys alone: its values may be other ones, made again.
    digest = hashlib.sha256(b"merged")
    for batch in piece.to_batches():
        digest.update(batch.serialize())
    key = digest.hexdigest()[:32]
    path = fragment_path(directory, key)
    return Fragment(key, path, write_table(path, piece.to_batches()))


def _column(fragment: Fragment, name: str) -> Any:
    """Return a column over the mapped file; the file is unmapped when the column is gone."""
    import pyarrow as pa

    try:
        column = open_table(fragment.path)[name]
    except (OSError, pa.ArrowInvalid) as error:
        raise ShardError(
            f"{fragment.path} is gone or damaged since it was opened: run again, what it held is "
            "computed again"
        ) from error
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _read_keys(fragment: Fragment) -> NDArray[np.uint8]:
    """Return a fragment's keys as rows, copied; shape (rows, 32)."""
    return rows_of(_column(fragment, KEY))
