"""From what a store says about its shares to the arrays of a snapshot. Build side.

What belongs here: which shares open something. What does not: asking a store (noctuary.corpus), the
arrays themselves (`share_arrays`).

Only what the store itself says makes a share, and one that is revoked is gone with the next
snapshot. A snapshot without any has none of these files.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from noctuary.corpus.evidence import Share
from noctuary.snapshot.share_arrays import ShareArrays
from noctuary.types import MemoryRecord


def pack_shares(records: Iterable[MemoryRecord], shares: Iterable[Share]) -> ShareArrays | None:
    """Return the shares that open something; None where none does.

    Left out is what is about a memory that is not in the snapshot or that belongs to nobody (all
    may read it), what a user shares with themself, and what names no reader. The same share twice
    is one.

    Args:
        records: Ordered by position from 0, shape (n,).
        shares: In any order.
    """
    readers_of: dict[str, set[str]] = {}
    for share in shares:
        if share.shared_with:
            readers_of.setdefault(share.memory_id, set()).add(share.shared_with)
    found: dict[str, set[int]] = {}
    for record in records if readers_of else ():
        for reader in readers_of.get(record.memory_id, ()):
            if record.user and record.user != reader:
                found.setdefault(reader, set()).add(record.position)
    if not found:
        return None
    readers = sorted(found)
    flat = [position for reader in readers for position in sorted(found[reader])]
    return ShareArrays(
        readers,
        np.cumsum([0, *(len(found[reader]) for reader in readers)], dtype=np.int64),
        np.array(flat, dtype=np.int32),
    )
