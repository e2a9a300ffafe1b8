"""Use as one recall may know it: where users share a store, of what nobody else can recall.

What belongs here: leaving out counts that others had a part in. What does not: counting
(noctuary.usage), what use is worth (`phases`), what may be seen (`scope`).

The access log does not say who asked. A count of a memory that several users see would tell each of
them how often the others asked for it, so a store with named users answers "never used" for it; a
count of a private memory tells its owner about nobody else. A store without named users has nothing
to leave out, and never loads this module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from noctuary.recall.scope import Mask
from noctuary.types import UNDATED_US
from noctuary.usage.reading import Counts

if TYPE_CHECKING:
    from noctuary.recall.reader import SnapshotReader

_WIDENING = 8
"""How much further down the list of the most used each look goes: more reads rows that nobody
needs, less asks again and again where others fill its head."""


class Use(Protocol):
    """What a world asks about use; `UsageReader` answers for all users together."""

    @property
    def is_missing(self) -> bool:
        """Say whether nothing is known of any memory."""
        ...

    def counts(self, memory_ids: Sequence[str]) -> Counts:
        """Return recent retrievals, days and the last one, aligned with the ids."""
        ...

    def most_used(self, limit: int) -> list[str]:
        """Return the ids recalled most often, most first."""
        ...

    def co_retrieved(self, memory_ids: Sequence[str]) -> NDArray[np.int64]:
        """Return how often each was recalled together with the others."""
        ...


class OwnUse(NamedTuple):
    """Implements `Use` for one user.

    Attributes:
        whole: Of all users together.
        reader: The snapshot.
        private: Memories that nobody but this user may see, shape (n,).
    """

    whole: Use
    reader: SnapshotReader
    private: Mask

    @property
    def is_missing(self) -> bool:
        """Say whether nothing is known of any memory."""
        return not bool(self.private.any()) or self.whole.is_missing

    def counts(self, memory_ids: Sequence[str]) -> Counts:
        """Return recent retrievals, days and the last one; none where others may have asked."""
        recent, days, last_us = self.whole.counts(memory_ids)
        others = ~self._is_private(memory_ids)
        recent[others] = days[others] = 0
        last_us[others] = UNDATED_US
        return recent, days, last_us

    def most_used(self, limit: int) -> list[str]:
        """Return the private memories recalled most often, most first."""
        asked = limit
        while True:
            ids = self.whole.most_used(asked)
            kept = np.flatnonzero(self._is_private(ids)).tolist()
            if len(kept) >= limit or len(ids) < asked:
                return [ids[i] for i in kept[:limit]]
            asked *= _WIDENING

    def co_retrieved(self, memory_ids: Sequence[str]) -> NDArray[np.int64]:
        """Return how often each private memory was recalled together with the other ones."""
        private = self._is_private(memory_ids)
        found = np.zeros(len(memory_ids), dtype=np.int64)
        kept = [memory_ids[i] for i in np.flatnonzero(private).tolist()]
        if kept:
            found[private] = self.whole.co_retrieved(kept)
        return found

    def _is_private(self, memory_ids: Sequence[str]) -> NDArray[np.bool_]:
        places = self.reader.positions_of(memory_ids)
        known = (places.get(memory_id) for memory_id in memory_ids)
        return np.array([p is not None and bool(self.private[p]) for p in known], dtype=np.bool_)
