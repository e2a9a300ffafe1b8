"""From what a store says about its shares to the arrays of a snapshot. Build side.

What belongs here: which shares open something. What does not: asking a store (mnemon.corpus), the
arrays themselves (`share_arrays`).

Only what the store itself says makes a share, and one that is revoked is gone with the next
snapshot. A snapshot without any has none of these files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from mnemon.corpus.evidence import Share
from mnemon.snapshot.share_arrays import ShareArrays
from mnemon.types import MemoryRecord


def pack_shares(records: Sequence[MemoryRecord], shares: Iterable[Share]) -> ShareArrays | None:
    """Return the shares that open something; None where none does.

    Left out is what is about a memory that is not in the snapshot or that belongs to nobody (all
    may read it), what a user shares with themself, and what names no reader. The same share twice
    is one.

    Args:
        records: Ordered by position from 0, shape (n,).
        shares: In any order.
    """
    places = {record.memory_id: record.position for record in records}
    found: dict[str, set[int]] = {}
    for share in shares:
        position = places.get(share.memory_id)
        if position is None or not share.shared_with:
            continue
        owner = records[position].user
        if owner and owner != share.shared_with:
            found.setdefault(share.shared_with, set()).add(position)
    if not found:
        return None
    readers = sorted(found)
    flat = [position for reader in readers for position in sorted(found[reader])]
    return ShareArrays(
        readers,
        np.cumsum([0, *(len(found[reader]) for reader in readers)], dtype=np.int64),
        np.array(flat, dtype=np.int32),
    )
